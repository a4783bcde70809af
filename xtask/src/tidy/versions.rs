//! Above the framing drivers of `conn/` no name contains a version of HTTP.
//!
//! Code there asks what a connection can do (`Capabilities`), so that another version changes nothing.
//! Options that people set, and fields and URL schemes that are registered under such a name, are
//! exceptions. Text in strings is not looked at, nor are tests.

use super::Finding;
use super::exceptions::Exceptions;
use super::source::Source;

/// The folders that are checked.
const FOLDERS: &[&str] = &["crates/http/src/", "crates/gateway/src/"];

/// The framing drivers, which know their version.
const DRIVERS: &[&str] = &["crates/http/src/conn.rs", "crates/http/src/conn/"];

/// Words of names, in lower case.
const VERSIONS: &[&str] = &["h1", "h2", "h2c", "h3", "http1", "http2", "http3"];

/// Finds names with a version.
pub(crate) fn check(source: &Source, exceptions: &mut Exceptions, findings: &mut Vec<Finding>) {
    let begins_with = |path: &&str| source.path.starts_with(*path);
    if !FOLDERS.iter().any(begins_with) || DRIVERS.iter().any(begins_with) || source.is_auxiliary()
    {
        return;
    }
    for token in &source.tokens {
        if has_version(&token.text)
            && !source.is_test(token.line)
            && !exceptions.allows("version", &source.path, &token.text)
        {
            let message = format!(
                "`{}` names a version of HTTP: ask for a capability instead",
                token.text
            );
            findings.push(Finding::new(&source.path, token.line, message));
        }
    }
}

fn has_version(name: &str) -> bool {
    words_of(name).any(|word| VERSIONS.contains(&word.as_str()))
}

/// The words of `snake_case`, `CamelCase` and `SCREAMING_CASE`, in lower case.
fn words_of(name: &str) -> impl Iterator<Item = String> {
    let mut words = vec![String::new()];
    let mut before = '_';
    for letter in name.chars() {
        if letter == '_' || (letter.is_ascii_uppercase() && !before.is_ascii_uppercase()) {
            words.push(String::new());
        }
        if letter != '_' {
            let word = words.last_mut().expect("there is a first word");
            word.push(letter.to_ascii_lowercase());
        }
        before = letter;
    }
    words.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::text::TextFile;

    fn lines(path: &str, content: &str, exceptions: &str) -> Vec<usize> {
        let text = TextFile {
            path: path.into(),
            content: content.into(),
        };
        let mut findings = Vec::new();
        let mut exceptions = Exceptions::parse(exceptions).unwrap();
        check(
            &Source::parse(&text).unwrap(),
            &mut exceptions,
            &mut findings,
        );
        findings.into_iter().map(|finding| finding.line).collect()
    }

    const POOL: &str = "crates/http/src/pool.rs";

    #[test]
    fn a_name_with_a_version_is_found() {
        let content = "use super::h2;\nfn is_http1() {}\nstruct H2Pool;\nconst H1_MAX: u8 = 1;\n\
                       enum A { Http2AndHttp1 }\n";
        assert_eq!(lines(POOL, content, ""), [1, 2, 3, 4, 5]);
        assert_eq!(lines("crates/gateway/src/retry.rs", content, "").len(), 5);
        assert!(lines("crates/http/src/conn/h2/send.rs", content, "").is_empty());
        assert!(lines("crates/http/src/conn.rs", content, "").is_empty());
        assert!(lines("crates/http/tests/it/pool.rs", content, "").is_empty());
    }

    #[test]
    fn other_names_and_texts_may_contain_the_letters() {
        let content = "fn sha256_h264() {}\n// HTTP/2, h2\nconst ALPN: &[u8] = b\"h2\";\n\
                       struct Http11;\n#[cfg(test)]\nmod tests {\n    fn h2() {}\n}\n";
        assert!(lines(POOL, content, "").is_empty());
    }

    #[test]
    fn an_exception_names_one_word() {
        let exception = "version crates/http/ http2_only people set it";
        assert!(lines(POOL, "fn http2_only() {}\n", exception).is_empty());
        assert_eq!(lines(POOL, "fn http2_too() {}\n", exception), [1]);
    }
}
