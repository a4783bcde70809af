//! Every limit has a reader: one that nothing reads bounds nothing, whatever its description says.

use super::Finding;
use super::source::{Source, Token};

/// Where the limits of the protocols are declared.
const DECLARED_IN: &str = "crates/proto/src/limits.rs";

/// Looks for fields of `Limits` that no product code reads.
pub(crate) fn check(sources: &[Source], findings: &mut Vec<Finding>) {
    let Some(declared) = sources.iter().find(|source| source.path == DECLARED_IN) else {
        return;
    };
    for (name, line) in fields(&declared.tokens) {
        if !sources.iter().any(|source| reads(source, name)) {
            let message = format!("nothing reads the limit `{name}`: enforce it or take it out");
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

/// Whether a product's code has `.name` outside its tests.
fn reads(source: &Source, name: &str) -> bool {
    source.path.starts_with("crates/")
        && source.path != DECLARED_IN
        && !source.is_beside_the_product()
        && source
            .tokens
            .windows(2)
            .any(|place| spells(place, &[".", name]) && !source.is_test(place[0].line))
}

fn spells(place: &[Token], words: &[&str]) -> bool {
    place
        .iter()
        .zip(words)
        .all(|(token, word)| token.text == *word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::text::Text;

    const LIMITS: &str = "pub struct Limits {\n    /// Bytes.\n    pub head_max: usize,\n\
                          \x20   pub rate_min: u64,\n}\nimpl Default for Limits {}\n";

    /// The lines of limits without a reader.
    fn unread(files: &[(&str, &str)]) -> Vec<usize> {
        let declared = [(DECLARED_IN, LIMITS)];
        let sources: Vec<Source> = declared
            .iter()
            .chain(files)
            .map(|(path, content)| Text {
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
    fn a_limit_that_nothing_reads_is_found() {
        assert_eq!(unread(&[]), [3, 4]);
        let reader = "fn f(limits: &Limits) { limits.head_max; }\n";
        assert_eq!(unread(&[("crates/http/src/a.rs", reader)]), [4]);
    }

    #[test]
    fn tests_and_tools_are_no_readers_and_setting_is_not_reading() {
        let test = "#[cfg(test)]\nmod tests {\n fn f(l: &Limits) { l.head_max + l.rate_min; }\n}\n";
        let setter = "fn f() { Limits { rate_min: 1, ..Limits::default() }; }\n";
        let beside = "fn f(l: &Limits) { l.head_max + l.rate_min; }\n";
        let files = [
            ("crates/http/src/a.rs", test),
            ("crates/http/src/b.rs", setter),
            ("crates/http/tests/it/a.rs", beside),
            ("xtask/src/a.rs", beside),
        ];
        assert_eq!(unread(&files), [3, 4]);
    }
}
