//! Reads `tests/examples.md`: examples, and below each its requests or what this version lacks of it.

use std::collections::BTreeSet;

use super::ask::Version;

/// A file, and what is expected of it.
pub(super) struct Example {
    /// The heading above it.
    pub(super) title: String,
    pub(super) text: String,
    /// Names of its certificate; without one it has no listener with TLS.
    pub(super) certificate: Vec<String>,
    pub(super) rows: Vec<Row>,
    /// Line and words of each error `not-yet`. Such an example does not boot.
    pub(super) planned: Vec<String>,
}

/// A request and its expected answer.
pub(super) struct Row {
    pub(super) line: String,
    pub(super) method: String,
    pub(super) url: http::Uri,
    /// Fields of the request; `from` is the address that the proxy in front tells, `content` a number of bytes.
    pub(super) fields: Vec<(String, String)>,
    pub(super) status: u16,
    /// `to` is the upstream's URL with the path that it received, `sent.NAME` a field of what it received, `text` a part
    /// of the content; other names are fields of the response. The value `none` is for a field that is missing.
    pub(super) expected: Vec<(String, String)>,
}

/// A fenced block of a document.
pub(super) struct Block {
    pub(super) title: String,
    pub(super) kind: String,
    pub(super) text: String,
}

impl Example {
    /// The URLs of its upstreams.
    pub(super) fn upstreams(&self) -> BTreeSet<String> {
        let strings = self.text.split('"').skip(1).step_by(2);
        let urls = strings.filter(|text| text.starts_with("http://"));
        urls.map(str::to_owned).collect()
    }
}

impl Row {
    fn parse(line: &str) -> Row {
        let (request, answer) = line
            .split_once(" -> ")
            .unwrap_or_else(|| panic!("no arrow in {line}"));
        let mut words = words(request);
        let (method, url) = words.remove(0).split_once(' ').expect("a method and a URL");
        let (method, url) = (method.to_owned(), url.parse().expect("a URL"));
        let fields = words.into_iter().map(pair).collect();
        let mut words = self::words(answer);
        let status = words.remove(0).parse().expect("a status");
        Row {
            line: line.to_owned(),
            method,
            url,
            fields,
            status,
            expected: words.into_iter().map(pair).collect(),
        }
    }

    pub(super) fn option(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.iter();
        fields.find_map(|(known, value)| (known == name).then_some(value.as_str()))
    }

    /// Versions that a listener for its scheme speaks.
    pub(super) fn versions(&self) -> Vec<Version> {
        match self.url.scheme_str() {
            Some("https") => vec![Version::Http1, Version::Http2, Version::Http3],
            _ => vec![Version::Http1, Version::Http2],
        }
    }
}

/// Two spaces are between words, so that words can have one.
fn words(text: &str) -> Vec<&str> {
    let words = text.split("  ").map(str::trim);
    words.filter(|word| !word.is_empty()).collect()
}

fn pair(word: &str) -> (String, String) {
    let (name, value) = word
        .split_once('=')
        .unwrap_or_else(|| panic!("no value in {word}"));
    (name.to_owned(), value.to_owned())
}

pub(super) fn examples() -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    for block in blocks(include_str!("../../examples.md")) {
        if block.kind == "toml" {
            examples.push(Example {
                title: block.title,
                text: block.text,
                certificate: Vec::new(),
                rows: Vec::new(),
                planned: Vec::new(),
            });
            continue;
        }
        let example = examples.last_mut().expect("an example comes first");
        let lines = block.text.lines().filter(|line| !line.is_empty());
        match block.kind.as_str() {
            "certificate" => {
                example.certificate = block.text.split_whitespace().map(str::to_owned).collect();
            }
            "requests" => example.rows = lines.map(Row::parse).collect(),
            "planned" => example.planned = lines.map(str::to_owned).collect(),
            kind => panic!("{}: a block of {kind}", block.title),
        }
    }
    for example in &examples {
        let is_complete = example.rows.is_empty() != example.planned.is_empty();
        assert!(
            is_complete,
            "{} needs requests, or what is planned of it",
            example.title
        );
    }
    examples
}

/// The fenced blocks; the kind of some is empty.
pub(super) fn blocks(text: &str) -> Vec<Block> {
    let (mut blocks, mut title) = (Vec::new(), "");
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(heading) = line.strip_prefix('#') {
            title = heading.trim_start_matches('#').trim();
        }
        let Some(kind) = line.strip_prefix("```") else {
            continue;
        };
        let content = lines.by_ref().take_while(|line| *line != "```");
        let text: String = content.map(|line| format!("{line}\n")).collect();
        blocks.push(Block {
            title: title.to_owned(),
            kind: kind.to_owned(),
            text,
        });
    }
    blocks
}
