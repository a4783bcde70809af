//! Systems that cannot run here, each with the reason.

use std::collections::BTreeMap;

use serde::Serialize;

/// A system that a comparison leaves out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct NotRun {
    pub(crate) name: String,
    pub(crate) reason: String,
}

/// Removes the systems that have an obstacle.
pub(crate) fn remove<T>(
    systems: &mut Vec<T>,
    name: impl Fn(&T) -> String,
    obstacle: impl Fn(&T) -> Option<String>,
) -> Vec<NotRun> {
    let mut removed = Vec::new();
    systems.retain(|system| match obstacle(system) {
        Some(reason) => {
            let name = name(system);
            removed.push(NotRun { name, reason });
            false
        }
        None => true,
    });
    removed
}

/// Fails with the reasons if nothing is left.
pub(crate) fn require_any<T>(systems: &[T], not_run: &[NotRun]) -> Result<(), String> {
    if !systems.is_empty() {
        return Ok(());
    }
    Err(format!("nothing can be measured\n{}", lines(not_run, "  ")))
}

/// A line for each reason, with the systems that it concerns.
pub(crate) fn lines(not_run: &[NotRun], bullet: &str) -> String {
    let mut names: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for NotRun { name, reason } in not_run {
        names.entry(reason).or_default().push(name);
    }
    let lines = names
        .iter()
        .map(|(reason, names)| format!("{bullet}not run: {reason}: {}\n", names.join(", ")));
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systems_with_the_same_reason_share_a_line() {
        let mut systems = vec!["nginx", "limit", "nginx-proxy"];
        let obstacle = |name: &&str| {
            let missing = "nginx is not installed (apt-get install nginx)".to_owned();
            name.starts_with("nginx").then_some(missing)
        };
        let not_run = remove(&mut systems, |name| (*name).to_owned(), obstacle);
        assert_eq!(systems, ["limit"]);
        assert_eq!(
            lines(&not_run, "- "),
            "- not run: nginx is not installed (apt-get install nginx): nginx, nginx-proxy\n"
        );
    }

    #[test]
    fn an_empty_comparison_is_an_error_with_its_reasons() {
        let not_run = [NotRun {
            name: "h2o-h2".to_owned(),
            reason: "h2load is not installed".to_owned(),
        }];
        let error = require_any::<u8>(&[], &not_run).unwrap_err();
        assert!(error.contains("h2load is not installed: h2o-h2"), "{error}");
        assert!(require_any(&[1], &not_run).is_ok());
    }
}
