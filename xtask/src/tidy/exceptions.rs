//! What may break a rule, and why: `xtask/tidy-exceptions.txt`.
//!
//! One exception a line: the rule, the place, what is allowed, and the reason.
//!
//! ```text
//! file      crates/x/src/a.rs               950  one table, no logic
//! function  crates/x/src/a.rs::parse         90  a match with one line per variant
//! call      crates/x/src/a.rs  thread::Builder  the control thread is started here
//! imports   crates/x/                  all  the folder is converted later
//! ```

use std::fs;
use std::path::Path;

use super::Finding;

const FILE: &str = "xtask/tidy-exceptions.txt";

/// The listed exceptions, each remembering whether it was needed.
pub(crate) struct Exceptions(Vec<Exception>);

struct Exception {
    rule: String,
    place: String,
    /// A size in lines, or the name of a call.
    allowed: String,
    line: usize,
    needed: bool,
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
            let [rule, place, allowed, _reason, ..] = words[..] else {
                let place = index + 1;
                return Err(format!(
                    "{FILE}:{place}: expected: rule place allowed reason"
                ));
            };
            list.push(Exception {
                rule: rule.to_owned(),
                place: place.to_owned(),
                allowed: allowed.to_owned(),
                line: index + 1,
                needed: false,
            });
        }
        Ok(Exceptions(list))
    }

    /// The lines that `place` may have under `rule`, when an exception stands for it.
    pub(crate) fn size(&mut self, rule: &str, place: &str) -> Option<usize> {
        let exception = self
            .0
            .iter_mut()
            .find(|e| e.rule == rule && e.place == place)?;
        exception.needed = true;
        exception.allowed.parse().ok()
    }

    /// Whether `place` may make the call named `call`.
    pub(crate) fn allows_call(&mut self, place: &str, call: &str) -> bool {
        let mut listed = self.0.iter_mut();
        match listed.find(|e| e.rule == "call" && e.place == place && e.allowed == call) {
            Some(exception) => {
                exception.needed = true;
                true
            }
            None => false,
        }
    }

    /// Whether an exception stands for the folder that `path` lies below; the folder ends in `/`.
    pub(crate) fn allows_below(&mut self, rule: &str, path: &str) -> bool {
        let mut listed = self.0.iter_mut();
        match listed.find(|e| e.rule == rule && path.starts_with(&e.place)) {
            Some(exception) => {
                exception.needed = true;
                true
            }
            None => false,
        }
    }

    /// An exception nobody needs any more would let the next offence pass unseen.
    pub(crate) fn report_stale(&self, findings: &mut Vec<Finding>) {
        for exception in self.0.iter().filter(|exception| !exception.needed) {
            let message = format!("'{}' needs no exception any more", exception.place);
            findings.push(Finding::new(FILE, exception.line, message));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exception_has_a_reason_and_is_reported_when_stale() {
        assert!(Exceptions::parse("file crates/a.rs 900").is_err());

        let text = "# comment\nfile a.rs 900 a table\ncall b.rs thread::spawn the only one\n";
        let mut exceptions = Exceptions::parse(text).unwrap();
        assert_eq!(exceptions.size("file", "a.rs"), Some(900));
        assert_eq!(exceptions.size("file", "b.rs"), None);
        assert!(!exceptions.allows_call("b.rs", "Instant::now"));

        let mut findings = Vec::new();
        exceptions.report_stale(&mut findings);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].line, 3);
    }
}
