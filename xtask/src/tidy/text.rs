//! The repository's text files, and checks for every text.

use std::fs;
use std::path::Path;

use super::Finding;

/// A text file.
pub(crate) struct TextFile {
    /// Path relative to the root of the repository.
    pub(crate) path: String,
    pub(crate) content: String,
}

/// Folders with generated files.
const SKIPPED_FOLDERS: &[&str] = &[
    "target",
    ".git",
    "node_modules",
    "__pycache__",
    "corpus",
    "artifacts",
    "coverage",
];

/// States and outputs of `blitz bench all`, which name paths of this machine and are not committed.
const SKIPPED_RESULTS: [&str; 2] = ["benchmarks/results/all", "benchmarks/results/all-quick"];

/// Endings of the checked files.
const ENDINGS: &[&str] = &[
    ".rs",
    ".md",
    ".toml",
    ".sh",
    ".py",
    ".js",
    ".mjs",
    ".cjs",
    ".txt",
    ".conf",
    ".json",
    ".go",
    ".proto",
    PATCH_ENDING,
];

/// Patches as `git diff` writes them.
pub(super) const PATCH_ENDING: &str = ".patch";

const FOLDERS_OF_SCRIPTS: &[&str] = &[".ci/"];

/// Paths of one machine, which mean nothing on another.
const LOCAL_PATHS: &[&str] = &["/home/", "/root/", "/Users/", "/work/"];

/// Reads every text file below `root`, in order of path.
pub(crate) fn read_all(root: &Path) -> Result<Vec<TextFile>, String> {
    let mut texts = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        for entry in entries {
            let path = entry
                .map_err(|e| format!("{}: {e}", folder.display()))?
                .path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if path.is_dir() && !path.is_symlink() {
                // A module may have the name of a generated folder.
                let is_module = folder.components().any(|part| part.as_os_str() == "src");
                let is_skipped = SKIPPED_FOLDERS.contains(&name.as_ref())
                    || SKIPPED_RESULTS
                        .iter()
                        .any(|skipped| path == root.join(skipped));
                if is_module || !is_skipped {
                    folders.push(path);
                }
                continue;
            }
            let relative = path
                .strip_prefix(root)
                .unwrap_or(&path)
                .to_string_lossy()
                .into_owned();
            let ours = ENDINGS.iter().any(|ending| relative.ends_with(ending))
                || FOLDERS_OF_SCRIPTS
                    .iter()
                    .any(|folder| relative.starts_with(folder));
            if ours {
                let content = fs::read_to_string(&path).map_err(|e| format!("{relative}: {e}"))?;
                texts.push(TextFile {
                    path: relative,
                    content,
                });
            }
        }
    }
    texts.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(texts)
}

/// Finds trailing white space, a missing last newline, and paths of one machine.
pub(crate) fn check(text: &TextFile, findings: &mut Vec<Finding>) {
    for (index, line) in text.content.lines().enumerate() {
        // A patch has a space before each unchanged line, also before an empty one.
        let is_patch = text.path.ends_with(PATCH_ENDING);
        if line.ends_with([' ', '\t', '\r']) && !is_patch {
            findings.push(Finding::new(
                &text.path,
                index + 1,
                "white space at the end of the line",
            ));
        }
        // This file lists the paths.
        let local = LOCAL_PATHS.iter().find(|path| line.contains(*path));
        if let Some(path) = local.filter(|_| text.path != "xtask/src/tidy/text.rs") {
            let message = format!("'{path}' is a path of one machine; remove it");
            findings.push(Finding::new(&text.path, index + 1, message));
        }
    }
    if !text.content.is_empty() && !text.content.ends_with('\n') {
        findings.push(Finding::new(&text.path, 0, "the last line has no newline"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings_of(content: &str) -> usize {
        let text = TextFile {
            path: "README.md".into(),
            content: content.into(),
        };
        let mut findings = Vec::new();
        check(&text, &mut findings);
        findings.len()
    }

    #[test]
    fn finds_trailing_space_and_local_paths_and_a_missing_newline() {
        assert_eq!(findings_of("clean\n\n/run/blitz.sock\n"), 0);
        assert_eq!(findings_of("trailing \nclean\n"), 1);
        assert_eq!(findings_of("see /home/anna/notes\n"), 1);
        assert_eq!(findings_of("no newline"), 1);
    }
}
