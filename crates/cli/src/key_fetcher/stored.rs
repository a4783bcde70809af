//! Keys that were fetched, in a file for the next start: an issuer may be away then.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest::{SHA256, digest};
use blitz_config::KeysUrl;

use super::request::DOCUMENT_BYTES_MAX;
use crate::{issue, state_folder};

/// The first word of a file.
const FORM: &str = "blitz-keys-1";

/// The most bytes of the line before the document.
const LINE_BYTES_MAX: usize = 4096;

/// The file of a URL.
pub(super) struct Stored {
    url: String,
    /// `None` without a folder for state.
    file: Option<PathBuf>,
}

impl Stored {
    pub(super) fn of(url: &KeysUrl, authorities: Option<&[u8]>) -> Stored {
        Stored::beneath(state_folder::folder().as_deref(), url, authorities)
    }

    /// Keys from a server that other authorities have verified are in another file.
    fn beneath(folder: Option<&Path>, url: &KeysUrl, authorities: Option<&[u8]>) -> Stored {
        let url = url.to_string();
        let mut named = url.clone().into_bytes();
        if let Some(authorities) = authorities {
            named.push(b'\n');
            named.extend_from_slice(authorities);
        }
        let hash = digest(&SHA256, &named);
        let digits = hash.as_ref().iter().take(16);
        let digits: String = digits.map(|byte| format!("{byte:02x}")).collect();
        Stored {
            file: folder.map(|folder| folder.join(format!("keys-{digits}"))),
            url,
        }
    }

    /// The document and its age. A file that is not as this module writes it counts as none.
    pub(super) fn read(&self, now: SystemTime) -> Option<(Vec<u8>, Duration)> {
        let file = File::open(self.file.as_ref()?).ok()?;
        let mut content = Vec::new();
        let most = DOCUMENT_BYTES_MAX + LINE_BYTES_MAX;
        file.take(most as u64 + 1).read_to_end(&mut content).ok()?;
        let end = content.iter().position(|byte| *byte == b'\n')?;
        let line = std::str::from_utf8(&content[..end]).ok()?;
        let mut words = line.splitn(3, ' ');
        let is_same = words.next() == Some(FORM);
        let seconds: u64 = words.next()?.parse().ok()?;
        if !is_same || words.next() != Some(&*self.url) || content.len() > most {
            return None;
        }
        let fetched = UNIX_EPOCH.checked_add(Duration::from_secs(seconds))?;
        // One that was fetched later than now would never be too old.
        let age = now.duration_since(fetched).ok()?;
        content.drain(..=end);
        Some((content, age))
    }

    /// # Errors
    /// The document is not stored.
    pub(super) fn write(&self, document: &[u8], now: SystemTime) -> Result<(), String> {
        let Some(file) = &self.file else {
            return Err("neither XDG_STATE_HOME nor HOME is set".to_owned());
        };
        let document = std::str::from_utf8(document).map_err(|error| error.to_string())?;
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let content = format!("{FORM} {} {}\n{document}", since.as_secs(), self.url);
        let folder = file.parent().unwrap_or(file);
        issue::make_folder(folder)
            .and_then(|()| issue::write_file(file, &content, 0o600))
            .map_err(|error| format!("{}: {error}", file.display()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_document_is_stored_for_its_url_with_its_age() {
        let folder = std::env::temp_dir().join(format!("blitz-stored-{}", std::process::id()));
        let url = |text: &str| KeysUrl::parse(text).unwrap();
        let stored = |text: &str| Stored::beneath(Some(&folder), &url(text), None);
        let one = stored("https://id.example/a");
        let at = |seconds: u64| UNIX_EPOCH + Duration::from_secs(1_800_000_000 + seconds);
        assert!(one.read(at(0)).is_none());
        one.write(b"{\"keys\":\n[]}", at(0)).unwrap();
        let file = one.file.clone().unwrap();
        assert_eq!(
            fs::metadata(&file).unwrap().permissions().mode() & 0o777,
            0o600
        );
        let (content, age) = one.read(at(7)).unwrap();
        assert_eq!(
            (content.as_slice(), age.as_secs()),
            (&b"{\"keys\":\n[]}"[..], 7)
        );
        // Not of another URL or of a server that others have verified, and not of the future.
        let verified = Stored::beneath(Some(&folder), &url("https://id.example/a"), Some(b"ca"));
        assert!(verified.read(at(7)).is_none());
        assert!(stored("https://id.example/b").read(at(7)).is_none());
        assert!(one.read(at(0) - Duration::from_secs(1)).is_none());
        for content in [
            "",
            "{}",
            "blitz-keys-2 1800000000 https://id.example/a\n{}",
            "blitz-keys-1 x https://id.example/a\n{}",
            "blitz-keys-1 1800000000 https://id.example/b\n{}",
            "blitz-keys-1 99999999999999999999 https://id.example/a\n{}",
        ] {
            fs::write(&file, content).unwrap();
            assert!(one.read(at(7)).is_none(), "{content}");
        }
        fs::write(
            &file,
            format!(
                "blitz-keys-1 1800000000 https://id.example/a\n{}",
                "x".repeat(1 << 20)
            ),
        )
        .unwrap();
        assert!(one.read(at(7)).is_none());
        fs::remove_dir_all(&folder).unwrap();
        assert!(
            Stored::beneath(None, &url("https://id.example/a"), None)
                .write(b"", at(0))
                .is_err()
        );
    }
}
