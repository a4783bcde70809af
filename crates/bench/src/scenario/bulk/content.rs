//! The content of requests and responses: a pattern that repeats, so that every byte has a known value.

use std::fs;
use std::path::{Path, PathBuf};

use super::size::ContentSize;
use crate::peer::CONTENT_FOLDER;

/// A prime number of bytes: a block at a wrong offset differs, whatever power of two its size is.
const PATTERN_BYTES: usize = 262_139;
/// Where the contents of uploads and the files of nginx repeat.
const LINE_BYTES: usize = 64;

/// The patterns and their files.
pub(crate) struct Contents {
    folder: PathBuf,
    /// The pattern of the backend and of uploads.
    proxied: ContentPattern,
    /// The pattern of `/data` of Blitz: lines of digits.
    built_in: ContentPattern,
}

/// The bytes of one period.
pub(crate) struct ContentPattern(Vec<u8>);

impl Contents {
    /// Writes the pattern of the backend.
    pub(crate) fn create(folder: &Path) -> Result<Contents, String> {
        let contents = Contents {
            folder: folder.join(CONTENT_FOLDER),
            proxied: ContentPattern::random(),
            built_in: ContentPattern::lines(),
        };
        fs::create_dir_all(&contents.folder)
            .map_err(|e| format!("{}: {e}", contents.folder.display()))?;
        write(&contents.pattern_file(), &contents.proxied.0)?;
        Ok(contents)
    }

    pub(crate) fn pattern_file(&self) -> PathBuf {
        self.folder.join("pattern")
    }

    /// Writes the content of uploads of this size, and the file that nginx serves for `/data?size=N`.
    pub(crate) fn write_files(&self, size: ContentSize) -> Result<(), String> {
        let data = self.folder.join(format!("data-{}", size.bytes()));
        self.proxied.write_file(&self.upload_file(size), size)?;
        self.built_in.write_file(&data, size)
    }

    /// The file with the content of uploads of this size.
    pub(crate) fn upload_file(&self, size: ContentSize) -> PathBuf {
        self.folder.join(format!("upload-{}", size.bytes()))
    }

    pub(crate) fn proxied(&self) -> &ContentPattern {
        &self.proxied
    }

    pub(crate) fn built_in(&self) -> &ContentPattern {
        &self.built_in
    }
}

impl ContentPattern {
    /// Pseudorandom bytes, the same in every run.
    fn random() -> ContentPattern {
        let mut state: u64 = 1;
        let next = || {
            // The generator of Knuth's MMIX.
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        ContentPattern(std::iter::repeat_with(next).take(PATTERN_BYTES).collect())
    }

    fn lines() -> ContentPattern {
        let column = |column: usize| match column {
            63 => b'\n',
            column => b'0' + (column % 10) as u8,
        };
        ContentPattern((0..LINE_BYTES).map(column).collect())
    }

    /// Whether `bytes` are the content from `offset` on.
    pub(crate) fn matches(&self, offset: u64, bytes: &[u8]) -> bool {
        let mut start = (offset % self.0.len() as u64) as usize;
        let mut rest = bytes;
        while !rest.is_empty() {
            let block = &self.0[start..];
            let (now, later) = rest.split_at(rest.len().min(block.len()));
            if now != &block[..now.len()] {
                return false;
            }
            (start, rest) = (0, later);
        }
        true
    }

    fn write_file(&self, file: &Path, size: ContentSize) -> Result<(), String> {
        let bytes = size.bytes() as usize;
        let mut content = self.0.repeat(bytes.div_ceil(self.0.len()));
        content.truncate(bytes);
        write(file, &content)
    }
}

fn write(file: &Path, bytes: &[u8]) -> Result<(), String> {
    fs::write(file, bytes).map_err(|e| format!("{}: {e}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_matches_at_its_own_place_only() {
        let pattern = ContentPattern::random();
        let twice = pattern.0.repeat(2);
        assert!(pattern.matches(0, &twice));
        assert!(pattern.matches(100, &twice[100..]));
        assert!(pattern.matches(PATTERN_BYTES as u64 + 5, &twice[5..]));
        for shift in [1, 4096, 16_384, 65_536] {
            assert!(!pattern.matches(0, &twice[shift..shift + 4096]), "{shift}");
        }
    }

    #[test]
    fn the_lines_are_those_of_the_built_in_endpoint() {
        let pattern = ContentPattern::lines();
        let line = b"012345678901234567890123456789012345678901234567890123456789012\n";
        assert!(pattern.matches(0, &line.repeat(3)));
        assert!(!pattern.matches(1, line));
    }
}
