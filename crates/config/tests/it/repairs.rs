//! Repairs of mistakes, in a file and as edits.

use blitz_config::{Severity, read, repair};

use crate::support::{document, environment};

fn repaired(text: &str) -> String {
    let (document, _) = repair(&document(text), &environment());
    document.text
}

#[test]
fn certain_mistakes_are_repaired() {
    for (text, expected) in [
        (
            "[site.\"a.example\"]\ntoo = \"http://h:1\"\n",
            "[site.\"a.example\"]\nto = \"http://h:1\"\n",
        ),
        (
            "defaults.tsl = false\n[site]\n\"a.example\" = \"h:1\"\n\"b.example\" = \"http://h:1/\"\n",
            "defaults.tls = false\n[site]\n\"a.example\" = \"http://h:1\"\n\"b.example\" = \"http://h:1\"\n",
        ),
        (
            "[site.app.example]\nto = 'http://h:1/'\n",
            "[site.\"app.example\"]\nto = 'http://h:1'\n",
        ),
        (
            "listen = ':80'\n[site.\"a.example\"]\nto = \"http://h:1\"\n/api.body_max = 1024\n/x.allow = '10.0.0.0/8'\n",
            "listen = [':80']\n[site.\"a.example\"]\nto = \"http://h:1\"\n\"/api\".body_max = \"1k\"\n\"/x\".allow = ['10.0.0.0/8']\n",
        ),
    ] {
        assert_eq!(repaired(text), expected);
        let (_, diagnostics) = read(&document(expected), &environment());
        assert_eq!(diagnostics, [], "{expected}");
    }
}

/// Each description of a repair names the place of the mistake.
#[test]
fn each_repair_is_named() {
    let text = "[site.\"a.example\"]\ntoo = \"h:1\"\n";
    let (document, repairs) = repair(&document(text), &environment());
    assert_eq!(document.text, "[site.\"a.example\"]\nto = \"http://h:1\"\n");
    let codes: Vec<_> = repairs
        .iter()
        .map(|one| one.split(':').take(2).collect::<Vec<_>>())
        .collect();
    assert_eq!(codes, [["2", "6 scheme-missing"], ["2", "1 unknown-key"]]);
}

#[test]
fn doubtful_mistakes_stay() {
    for text in [
        // The key that is meant is there.
        "[site.\"a.example\"]\nto = \"http://h:1\"\ntoo = \"http://h:2\"\n",
        // Seconds, or milliseconds.
        "defaults.timeout.response = 30\n[site]\n\"a.example\" = \"http://h:1\"\n",
        // The scheme may be https.
        "[site]\n\"a.example\" = \"h:443\"\n",
        "[site]\n\"a.example\" = \"${NO_SUCH}:1\"\n",
        // The path is not to be lost.
        "[site]\n\"a.example\" = \"http://h:1/a\"\n",
        "[site.\"a.example\"]\nto = \"http://h:1\"\nsomething = true\n",
        "[site.\"a.example\"\n",
    ] {
        let (_, diagnostics) = read(&document(text), &environment());
        assert!(
            diagnostics
                .iter()
                .any(|one| one.severity == Severity::Error),
            "{text}"
        );
        assert_eq!(repaired(text), text);
    }
}
