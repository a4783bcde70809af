//! Exceptions from the checks, each with its reason: `xtask/tidy-exceptions.txt`.
//!
//! One exception per line: check, place, allowed value, reason.
//!
//! ```text
//! file      crates/x/src/a.rs               950  one table, no logic
//! function  crates/x/src/a.rs::parse         90  a match with one line per variant
//! call      crates/x/src/a.rs  thread::Builder  the control thread is started here
//! imports   crates/x/                  all  the folder is converted later
//! circle    crates/x/src/a.rs  crates/x/src/b/c.rs  the first file may use the second
//! public    crates/x/src/a.rs  Name  programs outside of this repository use it
//! version   crates/x/src/a.rs  http2_only  the name of an option
//! ```

use std::fs;
use std::path::Path;

use super::Finding;

const FILE: &str = "xtask/tidy-exceptions.txt";

/// The listed exceptions, and whether each was used.
pub(crate) struct Exceptions(Vec<Exception>);

struct Exception {
    check: String,
    place: String,
    /// A size in lines, or the name of a call.
    allowed: String,
    line: usize,
    is_used: bool,
}

impl Exceptions {
    /// Reads the list of the repository at `root`.
    pub(crate) fn read(root: &Path) -> Result<Exceptions, String> {
        let text = fs::read_to_string(root.join(FILE)).map_err(|e| format!("{FILE}: {e}"))?;
        Exceptions::parse(&text)
    }

    pub(super) fn parse(text: &str) -> Result<Exceptions, String> {
        let mut list = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let words: Vec<&str> = line.split_whitespace().collect();
            let [check, place, allowed, _reason, ..] = words[..] else {
                let place = index + 1;
                return Err(format!(
                    "{FILE}:{place}: expected: check place allowed reason"
                ));
            };
            list.push(Exception {
                check: check.to_owned(),
                place: place.to_owned(),
                allowed: allowed.to_owned(),
                line: index + 1,
                is_used: false,
            });
        }
        Ok(Exceptions(list))
    }

    /// The lines that `place` may have under `check`, if it has an exception.
    pub(crate) fn size(&mut self, check: &str, place: &str) -> Option<usize> {
        let exception = self
            .0
            .iter_mut()
            .find(|e| e.check == check && e.place == place)?;
        exception.is_used = true;
        exception.allowed.parse().ok()
    }

    /// Whether `place` may make the call named `call`.
    pub(crate) fn allows_call(&mut self, place: &str, call: &str) -> bool {
        self.allows("call", place, call)
    }

    /// Whether `check` accepts `allowed` in the file `path`. The place of an exception is a file, or a
    /// folder that ends with `/`.
    pub(crate) fn allows(&mut self, check: &str, path: &str, allowed: &str) -> bool {
        let mut listed = self.0.iter_mut();
        let exception = listed.find(|e| {
            let covers = e.place == path || (e.place.ends_with('/') && path.starts_with(&e.place));
            e.check == check && e.allowed == allowed && covers
        });
        let Some(exception) = exception else {
            return false;
        };
        exception.is_used = true;
        true
    }

    /// Reports unused exceptions, which would hide the next violation.
    pub(crate) fn report_unused(&self, findings: &mut Vec<Finding>) {
        for exception in self.0.iter().filter(|exception| !exception.is_used) {
            let message = format!(
                "the exception for '{}' is not needed; remove it",
                exception.place
            );
            findings.push(Finding::new(FILE, exception.line, message));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exception_has_a_reason_and_is_reported_when_unused() {
        assert!(Exceptions::parse("file crates/a.rs 900").is_err());

        let text = "# comment\nfile a.rs 900 a table\ncall b.rs thread::spawn the only one\n";
        let mut exceptions = Exceptions::parse(text).unwrap();
        assert_eq!(exceptions.size("file", "a.rs"), Some(900));
        assert_eq!(exceptions.size("file", "b.rs"), None);
        assert!(!exceptions.allows_call("b.rs", "Instant::now"));

        let mut findings = Vec::new();
        exceptions.report_unused(&mut findings);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].line, 3);
    }
}
