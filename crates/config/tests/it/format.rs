//! The formatter: its form, and that it loses and changes nothing.

use std::fs;
use std::sync::LazyLock;

use blitz_config::{Severity, format, read};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use regex::Regex;

use crate::files::ALL;
use crate::support::{document, environment};

/// Texts and their form, as in `mistakes.txt`: `BLITZ_BLESS=1` writes them anew.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/format.txt");

fn formatted(text: &str) -> String {
    format(&document(text), &environment()).unwrap_or_else(|errors| panic!("{errors:?}\n{text}"))
}

#[test]
fn files_get_the_canonical_form() {
    let expected = fs::read_to_string(FILE).expect("the file exists");
    let mut found = String::new();
    for block in expected.split_terminator("%%\n") {
        let (text, _) = block.split_once("=>\n").expect("each block has both parts");
        found += &format!("{text}=>\n{}%%\n", formatted(text));
    }
    if std::env::var_os("BLITZ_BLESS").is_some() {
        fs::write(FILE, &found).expect("the file can be written");
    }
    for (found, expected) in found.split("%%\n").zip(expected.split("%%\n")) {
        assert_eq!(found, expected);
    }
}

/// The examples of the documents have the canonical form already.
#[test]
fn examples_stay_as_they_are() {
    let mut texts: Vec<String> = ALL.iter().map(|text| (*text).to_owned()).collect();
    let fence = regex(r"(?ms)^```toml\n(.*?)^```$");
    for path in [
        "docs/configuration.md",
        "README.md",
        "crates/cli/tests/examples.md",
    ] {
        let path = format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"));
        let page = fs::read_to_string(&path).expect("the page exists");
        texts.extend(fence.captures_iter(&page).map(|found| found[1].to_owned()));
    }
    assert!(texts.len() > 20, "{}", texts.len());
    for text in texts {
        assert_eq!(formatted(&text), text);
    }
}

#[test]
fn a_file_with_errors_of_syntax_is_refused() {
    for (text, code) in [
        ("[site.\"a.example\"\n", "syntax"),
        ("listen = [\":80\"]\nlisten = [\":81\"]\n", "defined-twice"),
        (
            "[site.\"a.example\"]\n/api = \"http://h:1\"\n",
            "path-quotes",
        ),
    ] {
        let errors = format(&document(text), &environment()).expect_err(text);
        assert_eq!(errors[0].code, code, "{text}");
        assert_eq!(errors[0].severity, Severity::Error);
    }
}

#[test]
fn windows_line_breaks_and_marks_are_removed() {
    let text = "\u{feff}listen = [\":80\"] # a\r\n# b\r\n[site]\r\n";
    assert_eq!(formatted(text), "listen = [\":80\"]  # a\n\n# b\n[site]\n");
    assert_eq!(formatted(""), "");
    assert_eq!(formatted("\n\n# a\n\n\n# b"), "# a\n\n# b\n");
}

static SPAN: LazyLock<Regex> = LazyLock::new(|| regex(r"span: \d+\.\.\d+"));
static COMMENT: LazyLock<Regex> = LazyLock::new(|| regex(r"#c([0-9]+)c"));
/// A brace whose end is in another line.
static BROKEN: LazyLock<Regex> = LazyLock::new(|| regex(r"(?m)^[^#\n]*\{[^}#\n]*$"));
static TOKEN: LazyLock<Regex> = LazyLock::new(|| regex(r#""[^"]*"|[\[\]{},=]|[^\[\]{},=" ]+"#));

fn regex(text: &str) -> Regex {
    Regex::new(text).expect("it is valid")
}

/// The model as text without places, the sites by name, and the codes of all mistakes.
fn meaning(text: &str) -> (String, Vec<&'static str>) {
    let (mut configuration, diagnostics) = read(&document(text), &environment());
    configuration
        .sites
        .sort_by_key(|site| site.host.value.to_string());
    let model = format!("{configuration:?}");
    let mut codes: Vec<_> = diagnostics.iter().map(|one| one.code).collect();
    codes.sort_unstable();
    (SPAN.replace_all(&model, "").into_owned(), codes)
}

/// The comments that a test has written: each has a number.
fn numbers(text: &str) -> Vec<usize> {
    let numbers = COMMENT.captures_iter(text);
    let mut numbers: Vec<usize> = numbers
        .map(|found| found[1].parse().expect("digits"))
        .collect();
    numbers.sort_unstable();
    numbers
}

/// Formats a text, and checks all that must hold for every text.
fn check(text: &str) -> Result<(), TestCaseError> {
    let once = formatted(text);
    prop_assert_eq!(&formatted(&once), &once, "from\n{}", text);
    prop_assert_eq!(numbers(&once), numbers(text), "{}\nfrom\n{}", &once, text);
    prop_assert_eq!(meaning(&once), meaning(text), "{}\nfrom\n{}", &once, text);
    // Comments between braces would need TOML 1.1.
    prop_assert!(!BROKEN.is_match(&once), "{}", once);
    Ok(())
}

/// Makes a text untidy with random numbers.
struct Untidy<'a> {
    random: std::iter::Cycle<std::slice::Iter<'a, u32>>,
    comments: usize,
}

impl Untidy<'_> {
    fn below(&mut self, end: usize) -> usize {
        let random = self.random.next().copied().unwrap_or_default();
        usize::try_from(random).unwrap_or_default() % end
    }

    fn comment(&mut self) -> String {
        self.comments += 1;
        format!("#c{}c", self.comments)
    }

    fn space(&mut self) -> &'static str {
        ["", " ", "  ", "\t"][self.below(4)]
    }

    /// Empty lines and comments.
    fn lines(&mut self) -> String {
        let mut text = String::new();
        for _ in 0..[0, 0, 0, 1, 2, 4][self.below(6)] {
            text += self.space();
            if self.below(2) == 0 {
                text += &self.comment();
            }
            text.push('\n');
        }
        text
    }

    /// White space, within lists and tables with line breaks.
    fn gap(&mut self) -> String {
        match self.below(4) {
            0 => format!("{}{}\n{}", self.space(), self.comment(), self.lines()),
            1 => format!("\n{}{}", self.lines(), self.space()),
            _ => self.space().to_owned(),
        }
    }

    /// The end of a line.
    fn end(&mut self) -> String {
        match self.below(4) {
            0 => format!("{}{}\n", self.space(), self.comment()),
            _ => format!("{}\n", self.space()),
        }
    }

    /// The same statements, untidy.
    fn text(&mut self, text: &str) -> String {
        let mut untidy = String::new();
        for line in text.lines().filter(|line| !line.is_empty()) {
            untidy += &self.lines();
            untidy += self.space();
            untidy += &match line.split_once(" = ") {
                Some((key, value)) if !line.starts_with('[') => {
                    format!(
                        "{key}{}={}{}",
                        self.space(),
                        self.space(),
                        self.value(value)
                    )
                }
                _ => line.to_owned(),
            };
            untidy += &self.end();
        }
        untidy + &self.lines()
    }

    /// A value with other white space outside of its strings, and with other quotes.
    fn value(&mut self, value: &str) -> String {
        let mut untidy = String::new();
        let mut depth = 0;
        for token in TOKEN.find_iter(value).map(|token| token.as_str()) {
            if depth > 0 && !matches!(token, "=" | "[" | "{") && !untidy.ends_with("= ") {
                let is_key_or_end =
                    untidy.trim_end().ends_with([',', '[', '{']) || token.len() == 1;
                if is_key_or_end {
                    untidy += &self.gap();
                }
            }
            match token {
                "[" | "{" => depth += 1,
                "]" | "}" => depth -= 1,
                _ => {}
            }
            untidy += &match token {
                "=" => " = ".to_owned(),
                text if text.starts_with('"') && self.below(3) == 0 => text.replace('"', "'"),
                other => other.to_owned(),
            };
        }
        untidy
    }

    /// A table of random keys and values that the language does not have.
    fn foreign(&mut self) -> String {
        let mut text = format!("[{}foreign{}]\n", self.space(), self.space());
        for number in 0..self.below(6) {
            let value = self.foreign_value(3);
            text += &format!("{}k{number} . 'x' = {value}{}", self.lines(), self.end());
        }
        text
    }

    fn foreign_value(&mut self, depth: usize) -> String {
        const SCALARS: [&str; 10] = [
            "1",
            "0x1F",
            "1_000.5",
            "true",
            "'it\\s'",
            "\"\\u00e9#\\\"\"",
            "\"\"\"\n# \\e no comment\n\"\"\"",
            "'''a\n  # no comment'''",
            "\"\\x41\\e\"",
            "2026-01-02T03:04:05Z",
        ];
        let items = self.below(4);
        match self.below(if depth == 0 { 1 } else { 3 }) {
            0 => SCALARS[self.below(SCALARS.len())].to_owned(),
            1 => {
                let mut text = "[".to_owned();
                for _ in 0..items {
                    text += &self.gap();
                    text += &self.foreign_value(depth - 1);
                    text += &self.gap();
                    text.push(',');
                }
                text + &self.gap() + "]"
            }
            _ => {
                let mut text = "{".to_owned();
                for item in 0..items {
                    text += &self.gap();
                    text += &format!("k{item}.\"a b\" = ");
                    text += &self.foreign_value(depth - 1);
                    text += &self.gap();
                    text.push(',');
                }
                text + &self.gap() + "}"
            }
        }
    }
}

fn numbers_for_a_test() -> impl Strategy<Value = Vec<u32>> {
    proptest::collection::vec(any::<u32>(), 400)
}

/// The tables of a file, each with its lines.
fn shuffled(text: &str, untidy: &mut Untidy<'_>) -> String {
    let tables = text.trim_end().split("\n\n");
    let mut tables: Vec<String> = tables.map(|table| table.to_owned() + "\n").collect();
    let first = usize::from(!tables[0].starts_with('['));
    if first == 1 {
        let mut lines: Vec<&str> = tables[0].lines().collect();
        lines.sort_by_cached_key(|_| untidy.below(1000));
        tables[0] = lines.join("\n") + "\n";
    }
    tables[first..].sort_by_cached_key(|_| untidy.below(1000));
    tables.join("\n")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn untidy_files_keep_their_meaning_and_their_comments(random in numbers_for_a_test()) {
        let mut untidy = Untidy { random: random.iter().cycle(), comments: 0 };
        for text in ALL {
            let text = shuffled(text, &mut untidy);
            let text = untidy.text(&text) + &untidy.foreign();
            check(&text)?;
        }
    }

    /// A tidy file has one form, in whatever order and with whatever spaces it was written.
    #[test]
    fn order_and_spaces_make_no_difference(random in numbers_for_a_test()) {
        let mut untidy = Untidy { random: random.iter().cycle(), comments: 0 };
        for text in ALL {
            let text = text.replace("\n\n", "\n");
            let parts: Vec<&str> = text.split(" = ").collect();
            let mut loose = parts[0].to_owned();
            for part in &parts[1..] {
                loose += &format!("{}={}{part}", untidy.space(), untidy.space());
            }
            prop_assert_eq!(formatted(&loose), formatted(&text));
        }
    }

    #[test]
    fn no_text_makes_the_formatter_panic(text in "[\\[\\]\\{\\}a-c\"'./=#,$ \n*~0-9é-]{0,60}") {
        if let Ok(once) = format(&document(&text), &environment()) {
            prop_assert_eq!(formatted(&once), once);
        }
    }
}
