//! Limits for the lines of files and functions.

use super::Finding;
use super::exceptions::Exceptions;
use super::source::Source;

/// Most lines of a file.
const FILE_LINES_MAX: usize = 800;
/// Most lines of a function, from its signature to its closing brace.
const FUNCTION_LINES_MAX: usize = 70;

/// Compares the file and each of its functions with their limits.
pub(crate) fn check(source: &Source, exceptions: &mut Exceptions, findings: &mut Vec<Finding>) {
    let lines = source.lines.len();
    if lines > FILE_LINES_MAX {
        let allowed = exceptions
            .size("file", &source.path)
            .unwrap_or(FILE_LINES_MAX);
        if lines > allowed {
            let message =
                format!("{lines} lines, at most {allowed} are allowed: split the file by meaning");
            findings.push(Finding::new(&source.path, 0, message));
        }
    }
    for function in &source.functions {
        let lines = function.lines.end() - function.lines.start() + 1;
        if lines <= FUNCTION_LINES_MAX {
            continue;
        }
        let place = format!("{}::{}", source.path, function.name);
        let allowed = exceptions
            .size("function", &place)
            .unwrap_or(FUNCTION_LINES_MAX);
        if lines > allowed {
            let name = &function.name;
            let message = format!(
                "{name} has {lines} lines, at most {allowed} are allowed: extract named functions"
            );
            findings.push(Finding::new(&source.path, *function.lines.start(), message));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::text::TextFile;

    fn messages(content: String, exceptions: &str) -> Vec<String> {
        let source = Source::parse(&TextFile {
            path: "crates/x/src/a.rs".into(),
            content,
        })
        .unwrap();
        let mut exceptions = Exceptions::parse(exceptions).unwrap();
        let mut findings = Vec::new();
        check(&source, &mut exceptions, &mut findings);
        findings
            .into_iter()
            .map(|finding| finding.message)
            .collect()
    }

    fn function_of(lines: usize) -> String {
        format!(
            "/// Docs are free.\nfn long() {{\n{}}}\n",
            "    work();\n".repeat(lines - 2)
        )
    }

    #[test]
    fn a_function_may_have_seventy_lines() {
        assert!(messages(function_of(70), "").is_empty());
        assert_eq!(messages(function_of(71), "").len(), 1);
    }

    #[test]
    fn an_exception_has_a_limit_of_its_own() {
        let exception = "function crates/x/src/a.rs::long 75 one line per variant";
        assert!(messages(function_of(75), exception).is_empty());
        assert_eq!(messages(function_of(76), exception).len(), 1);
    }

    #[test]
    fn a_file_may_have_eight_hundred_lines() {
        assert!(messages("//\n".repeat(800), "").is_empty());
        assert_eq!(messages("//\n".repeat(801), "").len(), 1);
    }
}
