//! The page with all keys of the configuration is the one that their table makes.

use std::fs;
use std::process::ExitCode;

use super::text::TextFile;
use super::{Finding, repository_root};

/// The page, relative to the root of the repository.
const PAGE: &str = "docs/keys.md";

/// Runs `cargo xtask reference`, which writes the page.
pub(crate) fn run() -> ExitCode {
    match fs::write(repository_root().join(PAGE), blitz_config::reference()) {
        Ok(()) => {
            println!("reference: wrote {PAGE}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("reference: {PAGE}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Compares the page with the table.
pub(crate) fn check(texts: &[TextFile], findings: &mut Vec<Finding>) {
    let page = texts.iter().find(|text| text.path == PAGE);
    let content = page.map_or("", |text| &text.content);
    let expected = blitz_config::reference();
    if content == expected {
        return;
    }
    let lines = content.lines().map(Some).chain([None]);
    let expected = expected.lines().map(Some).chain([None]);
    let same = lines
        .zip(expected)
        .take_while(|(is, expected)| is == expected);
    let line = same.count() + 1;
    findings.push(Finding::new(
        PAGE,
        line,
        "differs from crates/config/src/keys.rs; `cargo xtask reference` writes it anew",
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(content: Option<&str>) -> Vec<usize> {
        let texts = content.map(|content| TextFile {
            path: PAGE.into(),
            content: content.into(),
        });
        let mut findings = Vec::new();
        check(texts.as_slice(), &mut findings);
        findings.into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn the_page_has_to_be_that_of_the_table() {
        let page = blitz_config::reference();
        assert!(lines(Some(&page)).is_empty());
        assert_eq!(lines(Some(&page.replacen("# Keys", "# Words", 1))), [1]);
        assert_eq!(
            lines(Some(&format!("{page}more\n"))),
            [page.lines().count() + 1]
        );
        assert_eq!(lines(None), [1]);
    }
}
