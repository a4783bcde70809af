//! Unsafe code is confined to the reactor, and each block has a SAFETY comment.

use super::Finding;
use super::source::Source;

/// The one crate with unsafe code.
const UNSAFE_CRATE: &str = "crates/reactor";

/// How far above an unsafe block its SAFETY comment may begin.
const COMMENT_LINES_MAX: usize = 15;

/// Crate roots forbid unsafe code; the reactor's unsafe blocks and impls have SAFETY comments.
pub(crate) fn check(source: &Source, findings: &mut Vec<Finding>) {
    if source.crate_folder() == UNSAFE_CRATE {
        check_comments(source, findings);
    } else {
        check_absence(source, findings);
    }
}

fn check_comments(source: &Source, findings: &mut Vec<Finding>) {
    for pair in source.tokens.windows(2) {
        let opens = pair[0].text == "unsafe" && matches!(pair[1].text.as_str(), "{" | "impl");
        if opens && !has_comment(source, pair[0].line) {
            let message = "an unsafe block without a `// SAFETY:` comment above it";
            findings.push(Finding::new(&source.path, pair[0].line, message));
        }
    }
}

/// Searches upward from `line` for the comment, through the statement of the block.
fn has_comment(source: &Source, line: usize) -> bool {
    let above = source.lines[..line].iter().rev().take(COMMENT_LINES_MAX);
    above
        .take_while(|text| !text.trim().is_empty())
        .any(|text| text.contains("SAFETY"))
}

fn check_absence(source: &Source, findings: &mut Vec<Finding>) {
    for token in source.tokens.iter().filter(|token| token.text == "unsafe") {
        let message = format!("unsafe code belongs to {UNSAFE_CRATE}");
        findings.push(Finding::new(&source.path, token.line, message));
    }
    let is_root = source.path.ends_with("src/lib.rs") || source.path.ends_with("src/main.rs");
    let forbids = source.tokens.windows(3).any(|words| {
        words[0].text == "forbid" && words[1].text == "(" && words[2].text == "unsafe_code"
    });
    if is_root && !forbids {
        let message = "the crate root has no `#![forbid(unsafe_code)]`";
        findings.push(Finding::new(&source.path, 0, message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::text::TextFile;

    fn count(path: &str, content: &str) -> usize {
        let text = TextFile {
            path: path.into(),
            content: content.into(),
        };
        let mut findings = Vec::new();
        check(&Source::parse(&text).unwrap(), &mut findings);
        findings.len()
    }

    #[test]
    fn unsafe_code_is_allowed_in_the_reactor_only() {
        let content = "fn f() {\n    // SAFETY: it is not.\n    unsafe { g() }\n}\n";
        assert_eq!(count("crates/http/src/pool.rs", content), 1);
        assert_eq!(count("crates/reactor/src/tcp.rs", content), 0);
    }

    #[test]
    fn a_block_without_a_comment_is_found() {
        assert_eq!(
            count(
                "crates/reactor/src/tcp.rs",
                "fn f() {\n    unsafe { g() }\n}\n"
            ),
            1
        );
        let far = "// SAFETY: of something else\n\nfn f() {\n    unsafe { g() }\n}\n";
        assert_eq!(count("crates/reactor/src/tcp.rs", far), 1);
    }

    #[test]
    fn a_crate_root_forbids_unsafe_code() {
        assert_eq!(count("crates/http/src/lib.rs", "//! Docs.\n"), 1);
        assert_eq!(
            count("crates/http/src/lib.rs", "#![forbid(unsafe_code)]\n"),
            0
        );
    }
}
