//! The lengths of documents and of their lines, and the index of the pages with decisions.

use super::Finding;
use super::text::TextFile;

/// The map of the repository.
const MAP: &str = "ARCHITECTURE.md";

/// Where the reasons for decisions are; [`MAP`] has a link to each page.
const DECISIONS: &str = "docs/decisions/";

/// Most lines of documents that people read as a whole.
const LINES_MAX: &[(&str, usize)] = &[(MAP, 350), ("README.md", 200)];

/// Most characters of a line that is no row of a table.
const LINE_CHARACTERS_MAX: usize = 120;

/// Whether the document is one of the map, its pages and the rules, whose lines and paths are checked.
pub(super) fn is_of_map(path: &str) -> bool {
    path == MAP || path == "RULES.md" || path.starts_with(DECISIONS)
}

/// Compares the documents with their limits, and the pages with the index.
pub(crate) fn check(texts: &[TextFile], findings: &mut Vec<Finding>) {
    for text in texts {
        check_length(text, findings);
        if is_of_map(&text.path) {
            check_lines(text, findings);
        }
    }
    check_index(texts, findings);
}

fn check_length(text: &TextFile, findings: &mut Vec<Finding>) {
    let limit = LINES_MAX.iter().find(|(path, _)| text.path == *path);
    let lines = text.content.lines().count();
    if let Some((_, allowed)) = limit.filter(|(_, allowed)| lines > *allowed) {
        let message = format!(
            "{lines} lines, at most {allowed} are allowed: move a topic to a page below docs"
        );
        findings.push(Finding::new(&text.path, 0, message));
    }
}

fn check_lines(text: &TextFile, findings: &mut Vec<Finding>) {
    for (index, line) in text.content.lines().enumerate() {
        let length = line.chars().count();
        // A row of a table cannot be wrapped.
        if length > LINE_CHARACTERS_MAX && !line.starts_with('|') {
            let message = format!("{length} characters, at most {LINE_CHARACTERS_MAX} are allowed");
            findings.push(Finding::new(&text.path, index + 1, message));
        }
    }
}

fn check_index(texts: &[TextFile], findings: &mut Vec<Finding>) {
    let map = texts.iter().find(|text| text.path == MAP);
    let index = map.map_or("", |text| text.content.as_str());
    let pages = texts.iter().filter(|text| text.path.starts_with(DECISIONS));
    for page in pages.filter(|page| !index.contains(&format!("]({})", page.path))) {
        let message = format!("{MAP} has no link to this page: add it to the index of decisions");
        findings.push(Finding::new(&page.path, 0, message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(texts: &[(&str, &str)]) -> Vec<String> {
        let of = |(path, content): &(&str, &str)| TextFile {
            path: (*path).into(),
            content: (*content).into(),
        };
        let texts: Vec<TextFile> = texts.iter().map(of).collect();
        let mut findings = Vec::new();
        check(&texts, &mut findings);
        findings
            .into_iter()
            .map(|finding| finding.message)
            .collect()
    }

    #[test]
    fn the_map_has_at_most_350_lines() {
        assert!(messages(&[(MAP, &"\n".repeat(350))]).is_empty());
        assert_eq!(messages(&[(MAP, &"\n".repeat(351))]).len(), 1);
        assert!(messages(&[("docs/other.md", &"\n".repeat(351))]).is_empty());
    }

    #[test]
    fn a_line_has_at_most_120_characters_unless_it_is_a_row() {
        let line = "é".repeat(120);
        assert!(messages(&[(MAP, &line)]).is_empty());
        let long = format!("{line}e");
        assert_eq!(
            messages(&[(MAP, &long)]),
            ["121 characters, at most 120 are allowed"]
        );
        assert!(messages(&[(MAP, &format!("|{line}|"))]).is_empty());
        assert!(messages(&[("docs/other.md", &long)]).is_empty());
    }

    #[test]
    fn each_page_of_decisions_is_in_the_index() {
        let page = ("docs/decisions/tls.md", "# TLS\n");
        let index = "[TLS](docs/decisions/tls.md)\n";
        assert!(messages(&[(MAP, index), page]).is_empty());
        let message = "ARCHITECTURE.md has no link to this page: add it to the index of decisions";
        assert_eq!(messages(&[(MAP, ""), page]), [message]);
        assert_eq!(messages(&[page]), [message]);
    }
}
