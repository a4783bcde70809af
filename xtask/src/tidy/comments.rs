//! Sentences of comments name their subject: none begins with What or Who.

use super::Finding;
use super::source::Source;

/// Words in place of a noun.
const WORDS: [&str; 6] = ["What", "Who", "Whom", "Whose", "Whoever", "Whatever"];

/// Finds sentences that begin with one of the words. Comments behind code are not read.
pub(crate) fn check(source: &Source, findings: &mut Vec<Finding>) {
    for (index, line) in source.lines.iter().enumerate() {
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            continue;
        };
        let text = comment.trim_start_matches(['/', '!']);
        if let Some(word) = sentences(text).find_map(first_word) {
            let message = format!("a sentence begins with '{word}'; name the thing instead");
            findings.push(Finding::new(&source.path, index + 1, message));
        }
    }
}

fn sentences(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(". ")
}

/// The listed word that the sentence begins with.
fn first_word(sentence: &str) -> Option<&'static str> {
    let first = sentence.split_whitespace().next()?;
    let first = first.trim_end_matches(|c: char| !c.is_alphabetic());
    WORDS.into_iter().find(|word| *word == first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::text::TextFile;

    fn lines_of_findings(content: &str) -> Vec<usize> {
        let text = TextFile {
            path: "crates/x/src/lib.rs".into(),
            content: content.into(),
        };
        let mut findings = Vec::new();
        check(&Source::parse(&text).unwrap(), &mut findings);
        findings.into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn each_sentence_of_a_comment_is_checked() {
        let content = "//! What a file says.\n\n/// Reads it. Who asks waits.\nfn f() {\n    // Whatever.\n    // What\n}\n";
        assert_eq!(lines_of_findings(content), [1, 3, 5, 6]);
    }

    #[test]
    fn other_sentences_and_strings_are_not_found() {
        let content = "/// WhatsApp: tells what it is.\nfn f() {\n    g(\"What\");\n}\n";
        assert!(lines_of_findings(content).is_empty());
    }
}
