//! One layout of modules: `foo.rs` next to the folder `foo/`, never `foo/mod.rs`.

use super::Finding;
use super::source::Source;

/// Looks for files named `mod.rs`.
pub(crate) fn check(source: &Source, findings: &mut Vec<Finding>) {
    if let Some(folder) = source.path.strip_suffix("/mod.rs") {
        let message = format!("name this file {folder}.rs");
        findings.push(Finding::new(&source.path, 0, message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::text::TextFile;

    fn messages(path: &str) -> Vec<String> {
        let text = TextFile {
            path: path.into(),
            content: "//! Docs.\n".into(),
        };
        let mut findings = Vec::new();
        check(&Source::parse(&text).unwrap(), &mut findings);
        findings
            .into_iter()
            .map(|finding| finding.message)
            .collect()
    }

    #[test]
    fn a_module_stands_beside_its_folder() {
        assert!(messages("crates/x/src/pool.rs").is_empty());
        assert!(messages("crates/x/src/commod.rs").is_empty());
        assert_eq!(
            messages("crates/x/src/pool/mod.rs"),
            ["name this file crates/x/src/pool.rs"]
        );
    }
}
