//! Files of results: JSON, which this program compresses with gzip (RFC 1952), and reads with and without compression.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::Serialize;
use serde_json::Value;

use crate::load_result::RESULT_VERSION;
use crate::report::REPORT_VERSION;

/// The ending of the files that are written.
pub(crate) const ENDING: &str = "json.gz";

/// The reason why a file is no result, without details.
pub(crate) const UNKNOWN: &str = "no result of blitz bench or blitz load (JSON)";

/// The longest text of a result, and with it the longest file.
pub(crate) const TEXT_BYTES_MAX: u64 = 64 << 20;

/// The first bytes of a compressed file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// A result as the content of a file. Equal results give equal bytes: there is no time in them.
pub(crate) fn compressed(result: &impl Serialize) -> Result<Vec<u8>, String> {
    let text = serde_json::to_string(result).map_err(|error| error.to_string())? + "\n";
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let written = encoder.write_all(text.as_bytes());
    let bytes = written.and_then(|()| encoder.finish());
    bytes.map_err(|error| error.to_string())
}

/// The text of a regular file: devices and pipes may have no end.
///
/// # Errors
/// The file cannot be read, is too long with or without its compression, or is no text.
pub(crate) fn read_text(file: &Path) -> Result<String, String> {
    let error = |error: io::Error| error.to_string();
    // Before it is opened, which waits for the other end of a pipe.
    if !fs::metadata(file).map_err(error)?.is_file() {
        return Err("no regular file".to_owned());
    }
    let bytes = read_limited(File::open(file).map_err(error)?)?;
    let bytes = match bytes.starts_with(&GZIP) {
        true => read_limited(GzDecoder::new(&bytes[..]))?,
        false => bytes,
    };
    String::from_utf8(bytes).map_err(|error| error.to_string())
}

fn read_limited(reader: impl Read) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut limited = reader.take(TEXT_BYTES_MAX + 1);
    let length = limited.read_to_end(&mut bytes);
    let length = length.map_err(|error| error.to_string())?;
    match length as u64 > TEXT_BYTES_MAX {
        true => Err(format!("larger than {} MiB", TEXT_BYTES_MAX >> 20)),
        false => Ok(bytes),
    }
}

/// The JSON of a result that this version knows.
pub(crate) fn parse(text: &str) -> Result<Value, String> {
    let json: Value = serde_json::from_str(text).map_err(|error| format!("{UNKNOWN}: {error}"))?;
    let newest = u64::from(REPORT_VERSION.max(RESULT_VERSION));
    let version = json.get("version").and_then(Value::as_u64);
    match version.is_some_and(|version| version > newest) {
        true => Err("written by a newer version of Blitz".to_owned()),
        false => Ok(json),
    }
}

/// The name of a file without the endings of results.
pub(crate) fn name_of(file: &Path) -> String {
    let name = file.file_name().unwrap_or(file.as_os_str());
    let name = name.to_string_lossy();
    let plain = name.strip_suffix(".gz").unwrap_or(&name);
    plain.strip_suffix(".json").unwrap_or(plain).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_folder::TestFolder;

    #[test]
    fn a_result_is_read_with_and_without_compression() {
        let folder = TestFolder::create();
        let result = serde_json::json!({"rows": [1, 2, 3]});
        let compressed = compressed(&result).unwrap();
        assert!(compressed.starts_with(&GZIP));
        for (name, content) in [
            ("a.json", format!("{result}\n").into_bytes()),
            ("a.json.gz", compressed),
        ] {
            let file = folder.path().join(name);
            fs::write(&file, content).unwrap();
            let text = read_text(&file).unwrap();
            assert_eq!(parse(&text), Ok(result.clone()), "{name}");
            assert_eq!(name_of(&file), "a");
        }
    }

    #[test]
    fn files_without_an_end_too_large_and_damaged_ones_are_refused() {
        let folder = TestFolder::create();
        let write = |name: &str, content: &[u8]| {
            let file = folder.path().join(name);
            fs::write(&file, content).unwrap();
            file
        };
        let large = write("large", b"");
        let length = TEXT_BYTES_MAX + 1;
        File::options()
            .write(true)
            .open(&large)
            .unwrap()
            .set_len(length)
            .unwrap();
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        io::copy(&mut io::repeat(0).take(length), &mut encoder).unwrap();
        let bomb = write("bomb", &encoder.finish().unwrap());
        let whole = compressed(&"text").unwrap();
        let cut = write("cut", &whole[..whole.len() - 5]);
        for (file, reason) in [
            (Path::new("/dev/zero"), "no regular file"),
            (folder.path(), "no regular file"),
            (&large, "larger than 64 MiB"),
            (&bomb, "larger than 64 MiB"),
            (&cut, ""),
        ] {
            let error = read_text(file).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }
}
