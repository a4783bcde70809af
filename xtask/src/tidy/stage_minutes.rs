//! The plain stages of `.ci/run` fit into a time, by the minutes that each of them declares. `.ci/run` says which stage takes
//! longer than it declares.

use super::Finding;
use super::text::TextFile;

/// The file that declares the stages.
const RUN: &str = ".ci/run";

/// Most minutes of all plain stages, on two idle cores and with nothing compiled.
const MINUTES_MAX: u32 = 45;

/// Adds up the minutes of the plain stages. Of a stage and those beside it, one after another, the longer side counts.
pub(crate) fn check(texts: &[TextFile], findings: &mut Vec<Finding>) {
    let Some(run) = texts.iter().find(|text| text.path == RUN) else {
        findings.push(Finding::new(RUN, 0, "is missing"));
        return;
    };
    let stages: Vec<(&str, u32)> = run.content.lines().filter_map(plain_stage).collect();
    let minutes = |name: &str| {
        let found = stages.iter().find(|(stage, _)| *stage == name);
        found.map_or(0, |(_, minutes)| *minutes)
    };
    let sum: u32 = stages.iter().map(|(_, minutes)| minutes).sum();
    let sides = run.content.lines().filter_map(sides);
    let beside: u32 = sides
        .map(|(one, others)| minutes(one).min(others.map(minutes).sum()))
        .sum();
    let total = sum.saturating_sub(beside);
    if stages.is_empty() || total > MINUTES_MAX {
        let message = format!(
            "the plain stages declare {total} minutes, at most {MINUTES_MAX} are allowed: share builds and servers"
        );
        findings.push(Finding::new(RUN, 0, message));
    }
}

/// `stage NAME plain MINUTES TITLE`
fn plain_stage(line: &str) -> Option<(&str, u32)> {
    let mut words = line.strip_prefix("stage ")?.split_whitespace();
    let name = words.next()?;
    let is_plain = words.next()? == "plain";
    let minutes = words.next()?.parse().ok()?;
    is_plain.then_some((name, minutes))
}

/// `beside[NAME]='NAME...'`
fn sides(line: &str) -> Option<(&str, impl Iterator<Item = &str>)> {
    let (one, others) = line.strip_prefix("beside[")?.split_once("]=")?;
    Some((one, others.trim_matches('\'').split_whitespace()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(content: &str) -> Vec<String> {
        let text = TextFile {
            path: RUN.into(),
            content: content.into(),
        };
        let mut findings = Vec::new();
        check(&[text], &mut findings);
        findings
            .into_iter()
            .map(|finding| finding.message)
            .collect()
    }

    #[test]
    fn the_longer_side_of_stages_side_by_side_counts() {
        let run = "stage a plain 20 'one'\nstage b plain 25 'two'\nstage c plain 20 'three'\nstage d full 90 'four'\n";
        assert!(messages(run)[0].contains("declare 65 minutes"));
        assert!(messages(&format!("{run}beside[b]='c'\n")).is_empty());
        assert!(messages(&format!("{run}beside[b]='c a'\n")).is_empty());
        assert!(messages(&format!("{run}beside[c]='missing'\n"))[0].contains("65"));
        assert!(!messages("").is_empty(), "there are stages");
    }
}
