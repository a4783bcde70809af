//! The planted bugs of the simulation: each patch must apply to the sources as they are.

use super::Finding;
use super::text::{PATCH_ENDING, TextFile};

/// Finds hunks whose old lines are nowhere in the file that they change.
pub(crate) fn check(texts: &[TextFile], findings: &mut Vec<Finding>) {
    for patch in texts
        .iter()
        .filter(|text| text.path.ends_with(PATCH_ENDING))
    {
        for hunk in hunks(&patch.content) {
            let target = texts.iter().find(|text| text.path == hunk.path);
            let lines: Vec<&str> =
                target.map_or_else(Vec::new, |text| text.content.lines().collect());
            // A hunk without old lines says nothing about its position.
            let applies = !hunk.old.is_empty()
                && lines.windows(hunk.old.len()).any(|place| place == hunk.old);
            if !applies {
                let message = format!("does not apply to {}: make the patch anew", hunk.path);
                findings.push(Finding::new(&patch.path, hunk.line, message));
            }
        }
    }
}

/// A group of changed lines with the lines around them.
struct Hunk<'a> {
    path: &'a str,
    /// Its line in the patch.
    line: usize,
    /// Lines that the patched file has.
    old: Vec<&'a str>,
}

fn hunks(patch: &str) -> Vec<Hunk<'_>> {
    let mut path = "";
    let mut hunks: Vec<Hunk<'_>> = Vec::new();
    for (index, line) in patch.lines().enumerate() {
        if let Some(name) = line.strip_prefix("--- a/") {
            path = name;
        } else if line.starts_with("@@ ") {
            hunks.push(Hunk {
                path,
                line: index + 1,
                old: Vec::new(),
            });
        } else if let Some(hunk) = hunks.last_mut()
            && let Some(old) = line.strip_prefix([' ', '-'])
        {
            hunk.old.push(old);
        }
    }
    hunks
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = "\
A bug.

diff --git a/src/a.rs b/src/a.rs
--- a/src/a.rs
+++ b/src/a.rs
@@ -1,3 +1,3 @@
 one
-two
+bug
 three
diff --git a/src/b.rs b/src/b.rs
--- a/src/b.rs
+++ b/src/b.rs
@@ -1,2 +1,1 @@
 four
-five
";

    fn findings(a: &str, b: &str) -> Vec<usize> {
        let text = |path: &str, content: &str| TextFile {
            path: path.into(),
            content: content.into(),
        };
        let texts = [
            text("mutants/bug.patch", PATCH),
            text("src/a.rs", a),
            text("src/b.rs", b),
        ];
        let mut findings = Vec::new();
        check(&texts, &mut findings);
        findings.into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_patch_applies_wherever_its_old_lines_are() {
        assert!(findings("zero\none\ntwo\nthree\n", "four\nfive\n").is_empty());
        assert_eq!(findings("one\ntwo\n\nthree\n", "four\nfive\n"), [6]);
        assert_eq!(findings("one\ntwo\nthree\n", "five\nfour\n"), [14]);
        assert_eq!(findings("", ""), [6, 14]);
    }
}
