//! Regular expressions of whole paths: the keys `~/u/(?<id>\d+)`.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use regex::bytes::{Regex, RegexBuilder};
use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind};

use crate::path;

/// The length of a regex, and the size of its program and of the working memory of a search, in bytes. A search takes
/// time in proportion to program and path, whatever the path is.
const TEXT_BYTES_MAX: usize = 1024;
const PROGRAM_BYTES_MAX: usize = 256 << 10;

/// A regular expression for whole paths, which are ASCII.
#[derive(Clone)]
pub struct PathRegex(Arc<Compiled>);

struct Compiled {
    text: Box<str>,
    beginning: Box<str>,
    regex: Regex,
}

/// A mistake in a regex.
#[derive(Debug)]
pub(crate) struct RegexMistake {
    /// The code of its diagnostic.
    pub(crate) code: &'static str,
    /// The wrong part; `None` is all of it.
    pub(crate) part: Option<Range<usize>>,
    pub(crate) message: String,
    /// The remedy.
    pub(crate) label: String,
}

impl PathRegex {
    /// Compiles a regex.
    ///
    /// # Errors
    /// The text is none, is too large, or matches no normalised path.
    pub(crate) fn parse(text: &str) -> Result<PathRegex, RegexMistake> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(RegexMistake {
                code: "regex",
                part: None,
                message: format!("the regex has more than {TEXT_BYTES_MAX} bytes"),
                label: "write several routes in its place".to_owned(),
            });
        }
        if let Some((at, char)) = text.char_indices().find(|(_, char)| !char.is_ascii()) {
            return Err(RegexMistake {
                code: "path",
                part: Some(at..at + char.len_utf8()),
                message: format!("the regex has {char:?}, which is invalid in a path"),
                label: "write it percent-encoded".to_owned(),
            });
        }
        let mut parser = ParserBuilder::new().unicode(false).utf8(false).build();
        let hir = parser.parse(text).map_err(|error| syntax_mistake(&error))?;
        check(&hir, text)?;
        let mut builder = RegexBuilder::new(&format!(r"\A(?:{text})\z"));
        builder
            .unicode(false)
            .size_limit(PROGRAM_BYTES_MAX)
            .dfa_size_limit(PROGRAM_BYTES_MAX);
        let regex = builder.build().map_err(|error| build_mistake(&error))?;
        Ok(PathRegex(Arc::new(Compiled {
            text: text.into(),
            beginning: beginning(&hir).into(),
            regex,
        })))
    }

    /// The regex as it is written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// The text that all matching paths begin with. It begins with a slash.
    #[must_use]
    pub fn beginning(&self) -> &str {
        &self.0.beginning
    }

    /// The regex, which matches from the beginning to the end of a path.
    #[must_use]
    pub fn compiled(&self) -> &Regex {
        &self.0.regex
    }

    /// Whether a normalised path matches.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        path.starts_with('/') && self.0.regex.is_match(path.as_bytes())
    }

    /// The part of a path that a named group matches; `None` if it takes no part in the match.
    #[must_use]
    pub fn group(&self, path: &str, name: &str) -> Option<Range<usize>> {
        let captures = self.0.regex.captures(path.as_bytes())?;
        captures.name(name).map(|group| group.range())
    }

    /// The names of its groups.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.regex.capture_names().flatten()
    }
}

impl PartialEq for PathRegex {
    fn eq(&self, other: &PathRegex) -> bool {
        self.0.text == other.0.text
    }
}

impl Eq for PathRegex {}

impl Hash for PathRegex {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.text.hash(state);
    }
}

impl fmt::Debug for PathRegex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PathRegex").field(&self.0.text).finish()
    }
}

fn syntax_mistake(error: &regex_syntax::Error) -> RegexMistake {
    let (problem, span) = match error {
        regex_syntax::Error::Parse(error) => (error.kind().to_string(), Some(error.span())),
        regex_syntax::Error::Translate(error) => (error.kind().to_string(), Some(error.span())),
        other => (other.to_string(), None),
    };
    RegexMistake {
        code: "regex",
        part: span.map(|span| span.start.offset..span.end.offset),
        message: "this is no regular expression".to_owned(),
        label: format!("correct it: {problem}"),
    }
}

/// The problem of a regex whose syntax is right: its size, or a comment that is still open at the end.
fn build_mistake(error: &regex::Error) -> RegexMistake {
    let (message, label) = match error {
        regex::Error::CompiledTooBig(_) => {
            let message = format!("the regex takes more than {} KiB", PROGRAM_BYTES_MAX >> 10);
            (message, "repeat less, or write several routes".to_owned())
        }
        other => {
            let problem = other.to_string();
            let problem = problem.lines().last().unwrap_or_default();
            let problem = problem.trim_start_matches("error: ");
            let message = "this is no regular expression".to_owned();
            (message, format!("correct it: {problem}"))
        }
    };
    RegexMistake {
        code: "regex",
        part: None,
        message,
        label,
    }
}

/// Finds what keeps a regex from matching a normalised path.
fn check(hir: &Hir, text: &str) -> Result<(), RegexMistake> {
    if !first(hir).may_be_slash {
        let text = text.strip_prefix('^').unwrap_or(text);
        return Err(RegexMistake {
            code: "path-slash",
            part: None,
            message: "a path begins with a slash, and a regex matches all of it".to_owned(),
            label: format!("write '~/.*{text}' for paths that end so"),
        });
    }
    let mut wrong = None;
    each_literal(hir, &mut |literal| {
        let mut escapes = literal.windows(3).filter_map(path::decoded_escape);
        wrong = wrong.take().or_else(|| escapes.find_map(wrong_escape));
    });
    match wrong {
        None => Ok(()),
        Some((problem, label)) => Err(RegexMistake {
            code: "path",
            part: None,
            message: format!("the regex has {problem}"),
            label,
        }),
    }
}

/// The problem with an escape, given as it is written and decoded, and the remedy.
fn wrong_escape((written, byte): (&str, u8)) -> Option<(String, String)> {
    let char = char::from(byte);
    if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
        let problem = format!("{written}, and paths are compared with {char} in its place");
        return Some((
            problem,
            format!("write {char}, with a backslash if it has a meaning"),
        ));
    }
    let upper = written.to_ascii_uppercase();
    (upper != written).then(|| {
        let problem = format!("{written}, and paths are compared with escapes in upper case");
        (problem, format!("write {upper}"))
    })
}

fn each_literal(hir: &Hir, visit: &mut dyn FnMut(&[u8])) {
    if let HirKind::Literal(literal) = hir.kind() {
        visit(&literal.0);
    }
    for part in hir.kind().subs() {
        each_literal(part, visit);
    }
}

/// The text with which all matches begin.
#[derive(Clone, Copy)]
struct First {
    may_be_slash: bool,
    may_be_empty: bool,
}

fn first(hir: &Hir) -> First {
    let of = |may_be_slash, may_be_empty| First {
        may_be_slash,
        may_be_empty,
    };
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => of(false, true),
        HirKind::Literal(literal) => of(literal.0.starts_with(b"/"), false),
        HirKind::Class(Class::Unicode(class)) => {
            let mut ranges = class.iter();
            of(
                ranges.any(|range| (range.start()..=range.end()).contains(&'/')),
                false,
            )
        }
        HirKind::Class(Class::Bytes(class)) => {
            let mut ranges = class.iter();
            of(
                ranges.any(|range| (range.start()..=range.end()).contains(&b'/')),
                false,
            )
        }
        HirKind::Repetition(repetition) => {
            let sub = first(&repetition.sub);
            of(sub.may_be_slash, sub.may_be_empty || repetition.min == 0)
        }
        HirKind::Capture(capture) => first(&capture.sub),
        HirKind::Concat(parts) => {
            let mut all = of(false, true);
            for part in parts {
                let part = first(part);
                all.may_be_slash |= part.may_be_slash;
                if !part.may_be_empty {
                    all.may_be_empty = false;
                    break;
                }
            }
            all
        }
        HirKind::Alternation(choices) => {
            let choices: Vec<First> = choices.iter().map(first).collect();
            of(
                choices.iter().any(|choice| choice.may_be_slash),
                choices.iter().any(|choice| choice.may_be_empty),
            )
        }
    }
}

fn beginning(hir: &Hir) -> String {
    let mut bytes = Vec::new();
    add_beginning(hir, &mut bytes);
    let ascii = bytes.into_iter().take_while(u8::is_ascii);
    let text: String = ascii.map(char::from).collect();
    // All paths begin with a slash.
    match text.is_empty() {
        true => "/".to_owned(),
        false => text,
    }
}

/// Adds the text that all matches begin with. Returns whether they have nothing else.
fn add_beginning(hir: &Hir, text: &mut Vec<u8>) -> bool {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => true,
        HirKind::Literal(literal) => {
            text.extend_from_slice(&literal.0);
            true
        }
        HirKind::Class(_) => false,
        HirKind::Capture(capture) => add_beginning(&capture.sub, text),
        HirKind::Concat(parts) => parts.iter().all(|part| add_beginning(part, text)),
        HirKind::Repetition(repetition) => {
            if repetition.min > 0 {
                add_beginning(&repetition.sub, text);
            }
            false
        }
        HirKind::Alternation(choices) => {
            let mut all = choices.iter().map(|choice| {
                let mut own = Vec::new();
                add_beginning(choice, &mut own);
                own
            });
            let mut common = all.next().unwrap_or_default();
            for other in all {
                let same = common.iter().zip(&other).take_while(|(a, b)| a == b);
                common.truncate(same.count());
            }
            text.extend_from_slice(&common);
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginnings_are_the_text_that_all_matches_have() {
        for (text, expected) in [
            (r"/u/\d+", "/u/"),
            ("/u", "/u"),
            ("^/u/x$", "/u/x"),
            ("/img(/.*)?", "/img"),
            ("/f/(x|y)", "/f/"),
            ("/f/(xa|xb)", "/f/x"),
            ("/(?<first>ab)+/c", "/ab"),
            (r"/a\.b", "/a.b"),
            ("(/a|/b).*", "/"),
            ("(/a)?/b", "/"),
            ("(?i)/a", "/"),
            ("/a(?i)b", "/a"),
            (r".*\.php", "/"),
            ("/a{2}b", "/a"),
            ("/a?b", "/"),
        ] {
            let regex = PathRegex::parse(text).unwrap();
            assert_eq!(regex.beginning(), expected, "{text}");
        }
    }

    #[test]
    fn a_regex_matches_all_of_a_path() {
        for (text, path, expected) in [
            (r"/u/\d+", "/u/7", true),
            (r"/u/\d+", "/u/7/x", false),
            (r"/u/\d+", "/x/u/7", false),
            ("/a|/ab", "/ab", true),
            ("/a|/ab", "/abc", false),
            ("(?m)/a$", "/a\n/b", false),
            (".*", "*", false),
            ("(?i)/A", "/a", true),
        ] {
            let regex = PathRegex::parse(text).unwrap();
            assert_eq!(regex.matches(path), expected, "{text} {path}");
        }
    }

    #[test]
    fn groups_are_parts_of_the_path() {
        let regex = PathRegex::parse(r"/u/(?<id>\d+)(?<tail>/.*)?").unwrap();
        assert_eq!(regex.names().collect::<Vec<_>>(), ["id", "tail"]);
        assert_eq!(regex.group("/u/17/x", "id"), Some(3..5));
        assert_eq!(regex.group("/u/17/x", "tail"), Some(5..7));
        assert_eq!(regex.group("/u/17", "tail"), None);
        assert_eq!(regex.group("/x", "id"), None);
    }

    #[test]
    fn regexes_that_match_no_path_are_wrong() {
        let long = "/a".repeat(TEXT_BYTES_MAX);
        for (text, code, part) in [
            ("/a(", "regex", Some(2..3)),
            ("/[z-a]", "regex", Some(2..5)),
            (r"/\p{Greek}", "regex", Some(1..10)),
            ("/(a{500}){500}", "regex", None),
            (long.as_str(), "regex", None),
            (r"\.php$", "path-slash", None),
            ("[^/]+", "path-slash", None),
            ("", "path-slash", None),
            ("/caf\u{e9}", "path", Some(4..6)),
            ("/a%2fb", "path", None),
            ("/a%41", "path", None),
        ] {
            let mistake = PathRegex::parse(text).expect_err(text);
            assert_eq!((mistake.code, mistake.part), (code, part), "{text}");
        }
        for text in ["/a%2Fb", "/(?i:a%2f)", "/%[0-9A-F]{2}", "/a%28"] {
            assert!(PathRegex::parse(text).is_ok(), "{text}");
        }
    }
}
