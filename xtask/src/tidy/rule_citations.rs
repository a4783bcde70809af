//! Citations of the rules in RULES.md: each has the form `rule 12` and names a rule that exists.

use super::Finding;
use super::text::TextFile;

/// The document that holds the rules, each under the heading `### Rule 12`.
const RULES: &str = "RULES.md";

/// The tests below need citations that the check rejects.
const THIS_FILE: &str = "xtask/src/tidy/rule_citations.rs";

/// Compares the citations of all files with the headings of RULES.md.
pub(crate) fn check(texts: &[TextFile], findings: &mut Vec<Finding>) {
    let rules = texts.iter().find(|text| text.path == RULES);
    let defined: Vec<u32> = rules.map_or_else(Vec::new, |text| headings(&text.content));
    for text in texts.iter().filter(|text| text.path != THIS_FILE) {
        check_text(text, &defined, findings);
    }
}

fn check_text(text: &TextFile, defined: &[u32], findings: &mut Vec<Finding>) {
    let lines: Vec<&str> = text.content.lines().collect();
    for (index, line) in lines.iter().enumerate() {
        if text.path == RULES && line.starts_with('#') {
            continue;
        }
        let mut report = |message| findings.push(Finding::new(&text.path, index + 1, message));
        for citation in citations(line) {
            if !citation.is_canonical {
                let found = citation.text;
                report(format!("'{found}': cite each rule in the form 'rule 12'"));
            } else if !defined.contains(&citation.number) {
                let number = citation.number;
                report(format!("{RULES} has no rule {number}"));
            }
        }
        let next = lines.get(index + 1).copied().unwrap_or_default();
        if is_split(line, next) {
            report("keep 'rule' and its number on one line".into());
        }
    }
}

/// The numbers of the headings `### Rule 12`.
fn headings(content: &str) -> Vec<u32> {
    content
        .lines()
        .filter_map(|line| line.strip_prefix("### Rule "))
        .filter_map(|number| number.trim().parse().ok())
        .collect()
}

/// A rule that a line cites.
struct Citation<'a> {
    text: &'a str,
    number: u32,
    is_canonical: bool,
}

/// Every `rule` or `rules` of the line, in any case, that a number follows.
fn citations(line: &str) -> Vec<Citation<'_>> {
    let lower = line.to_ascii_lowercase();
    let words = lower.match_indices("rule");
    words.filter_map(|(at, _)| citation_at(line, at)).collect()
}

fn citation_at(line: &str, at: usize) -> Option<Citation<'_>> {
    let before = line[..at].chars().next_back();
    if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
        return None;
    }
    let after_word = &line[at + "rule".len()..];
    let rest = after_word.strip_prefix(['s', 'S']).unwrap_or(after_word);
    let number = rest.trim_start_matches([' ', '#', '-', '.']);
    let digits = number.len()
        - number
            .trim_start_matches(|c: char| c.is_ascii_digit())
            .len();
    // A rule of tidy, `rule2` or `rule: 12` is no citation.
    if digits == 0 || number.len() == rest.len() {
        return None;
    }
    let start = line.len() - number.len();
    let separator = &line[at + "rule".len()..start];
    let is_anchor = before == Some('#') && separator == "-";
    let is_canonical = line[at..].starts_with("rule")
        && (separator == " " || is_anchor)
        && !has_second_number(&number[digits..]);
    Some(Citation {
        text: &line[at..start + digits],
        number: number[..digits].parse().unwrap_or(0),
        is_canonical,
    })
}

/// `rule 4 and 14`: the second number could not be searched for.
fn has_second_number(rest: &str) -> bool {
    [" and ", " or ", " to ", "-", "–"]
        .iter()
        .filter_map(|joint| rest.strip_prefix(joint))
        .any(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// Whether `rule` ends the line and a number begins the next.
fn is_split(line: &str, next: &str) -> bool {
    let line = line.trim_end();
    let word = line.rsplit(|c: char| !c.is_alphanumeric()).next();
    let next = next.trim_start_matches([' ', '/', '!', '#', '*']);
    word.is_some_and(|word| matches!(word.to_ascii_lowercase().as_str(), "rule" | "rules"))
        && next.starts_with(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "# Rules\n\n### Rule 1\n\nText.\n\n### Rule 12\n\nText (rule 1).\n";

    fn messages(path: &str, content: &str) -> Vec<String> {
        let text = |path: &str, content: &str| TextFile {
            path: path.into(),
            content: content.into(),
        };
        let texts = [text(RULES, DOCUMENT), text(path, content)];
        let mut findings = Vec::new();
        check(&texts, &mut findings);
        findings
            .into_iter()
            .map(|finding| finding.message)
            .collect()
    }

    #[test]
    fn a_citation_names_a_rule_that_exists() {
        assert!(messages("a.rs", "/// Credit (rule 1, rule 12).\n").is_empty());
        assert!(messages("A.md", "[rule 12](RULES.md#rule-12)\n").is_empty());
        assert_eq!(
            messages("a.rs", "// rule 13 and rule 1\n"),
            ["RULES.md has no rule 13"]
        );
        assert_eq!(
            messages("A.md", "(RULES.md#rule-2)\n"),
            ["RULES.md has no rule 2"]
        );
    }

    #[test]
    fn other_forms_are_rejected() {
        let forms = [
            "Rule 12", "RULES 12", "rules 12", "rule #12", "rule-12", "rule  12", "RULES.12",
        ];
        for form in forms {
            let message = format!("'{form}': cite each rule in the form 'rule 12'");
            assert_eq!(messages("a.rs", &format!("// {form}\n")), [message]);
        }
        for list in ["rules 1 and 12", "rule 1 and 12", "rule 1-12"] {
            assert_eq!(messages("a.rs", &format!("// {list}\n")).len(), 1, "{list}");
        }
    }

    #[test]
    fn a_citation_stands_on_one_line() {
        let split = "/// ends here (rule\n    /// 12).\n";
        let message = "keep 'rule' and its number on one line";
        assert_eq!(messages("a.rs", split), [message]);
    }

    #[test]
    fn other_uses_of_the_word_are_no_citations() {
        let prose = "the rules\nRFC 9112\nrule2\nrule: 12\noverrule 12\nTHE_RULE 4\na rule of 3\n";
        assert!(messages("a.rs", prose).is_empty());
    }
}
