//! The folder of committed results stays small: compressed data and tables, and no HTML, which a command makes.

use std::fs;
use std::path::Path;

use super::Finding;

/// The folder, relative to the root of the repository.
const FOLDER: &str = "benchmarks/results";

/// The length of all its files.
const BYTES_MAX: u64 = 4_000_000;

/// Checks the files of the folder; folders in it are not committed.
pub(crate) fn check(root: &Path, findings: &mut Vec<Finding>) -> Result<(), String> {
    let folder = root.join(FOLDER);
    let error = |error: std::io::Error| format!("{FOLDER}: {error}");
    let mut files = Vec::new();
    for entry in fs::read_dir(&folder).map_err(error)? {
        let entry = entry.map_err(error)?;
        let metadata = entry.metadata().map_err(error)?;
        if metadata.is_file() {
            let name = entry.file_name().to_string_lossy().into_owned();
            files.push((name, metadata.len()));
        }
    }
    check_files(&files, findings);
    Ok(())
}

fn check_files(files: &[(String, u64)], findings: &mut Vec<Finding>) {
    for (name, _) in files {
        let path = format!("{FOLDER}/{name}");
        if name.ends_with(".html") {
            let message = "HTML is not kept; `cargo xtask bench report` makes it from the JSON";
            findings.push(Finding::new(&path, 0, message));
        }
        if name.ends_with(".json") {
            let message = "raw data is kept compressed; `gzip -n9` makes a .json.gz of it";
            findings.push(Finding::new(&path, 0, message));
        }
    }
    let bytes: u64 = files.iter().map(|(_, bytes)| bytes).sum();
    if bytes > BYTES_MAX {
        let message = format!(
            "{bytes} bytes of results, at most {BYTES_MAX}; make sets that a newer one replaces a line in README.md"
        );
        findings.push(Finding::new(FOLDER, 0, message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(files: &[(&str, u64)]) -> Vec<String> {
        let files: Vec<_> = files
            .iter()
            .map(|&(name, bytes)| (name.to_owned(), bytes))
            .collect();
        let mut findings = Vec::new();
        check_files(&files, &mut findings);
        findings.iter().map(Finding::to_string).collect()
    }

    #[test]
    fn html_plain_data_and_too_many_bytes_are_found() {
        let kept = [("a.json.gz", 2_000_000), ("a.md", 2_000_000)];
        assert!(messages(&kept).is_empty());
        let large = messages(&[("a.json.gz", 2_000_000), ("a.md", 2_000_001)]);
        assert!(large[0].contains("4000001 bytes"), "{large:?}");
        let html = messages(&[("a.html", 1)]);
        assert!(
            html[0].starts_with("benchmarks/results/a.html: HTML"),
            "{html:?}"
        );
        assert!(messages(&[("a.json", 1)])[0].contains(".json.gz"));
    }
}
