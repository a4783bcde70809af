//! Product code reads every limit; a limit that no code reads has no effect.

use super::Finding;
use super::source::{Source, Token, spells};

/// The file that declares the limits of the protocols.
const DECLARED_IN: &str = "crates/proto/src/limits.rs";

/// Finds fields of `Limits` that no product code reads.
pub(crate) fn check(sources: &[Source], findings: &mut Vec<Finding>) {
    let Some(declared) = sources.iter().find(|source| source.path == DECLARED_IN) else {
        return;
    };
    for (name, line) in fields(&declared.tokens) {
        if !sources.iter().any(|source| reads(source, name)) {
            let message = format!("no code reads the limit `{name}`: enforce or remove it");
            findings.push(Finding::new(DECLARED_IN, line, message));
        }
    }
}

/// The public fields of `struct Limits`, each with its line.
fn fields(tokens: &[Token]) -> Vec<(&str, usize)> {
    let is_start = |place: &[Token]| spells(place, &["struct", "Limits", "{"]);
    let Some(start) = tokens.windows(3).position(is_start) else {
        return Vec::new();
    };
    let body = tokens[start..].split(|token| token.text == "}").next();
    body.unwrap_or_default()
        .windows(3)
        .filter(|place| place[0].text == "pub" && place[2].text == ":")
        .map(|place| (place[1].text.as_str(), place[1].line))
        .collect()
}

/// Whether product code has `.name` outside its tests.
fn reads(source: &Source, name: &str) -> bool {
    source.path.starts_with("crates/")
        && source.path != DECLARED_IN
        && !source.is_auxiliary()
        && source
            .tokens
            .windows(2)
            .any(|place| spells(place, &[".", name]) && !source.is_test(place[0].line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::text::TextFile;

    const LIMITS: &str = "pub struct Limits {\n    /// Bytes.\n    pub head_max: usize,\n\
                          \x20   pub rate_min: u64,\n}\nimpl Default for Limits {}\n";

    /// The lines of limits without a reader.
    fn unread(files: &[(&str, &str)]) -> Vec<usize> {
        let declared = [(DECLARED_IN, LIMITS)];
        let sources: Vec<Source> = declared
            .iter()
            .chain(files)
            .map(|(path, content)| TextFile {
                path: (*path).into(),
                content: (*content).into(),
            })
            .map(|text| Source::parse(&text).unwrap())
            .collect();
        let mut findings = Vec::new();
        check(&sources, &mut findings);
        findings.into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn an_unread_limit_is_found() {
        assert_eq!(unread(&[]), [3, 4]);
        let reader = "fn f(limits: &Limits) { limits.head_max; }\n";
        assert_eq!(unread(&[("crates/http/src/a.rs", reader)]), [4]);
    }

    #[test]
    fn tests_tools_and_assignments_do_not_count_as_readers() {
        let test = "#[cfg(test)]\nmod tests {\n fn f(l: &Limits) { l.head_max + l.rate_min; }\n}\n";
        let setter = "fn f() { Limits { rate_min: 1, ..Limits::default() }; }\n";
        let reader_elsewhere = "fn f(l: &Limits) { l.head_max + l.rate_min; }\n";
        let files = [
            ("crates/http/src/a.rs", test),
            ("crates/http/src/b.rs", setter),
            ("crates/http/tests/it/a.rs", reader_elsewhere),
            ("xtask/src/a.rs", reader_elsewhere),
        ];
        assert_eq!(unread(&files), [3, 4]);
    }
}
