//! Files with a change: none makes the reader panic, and a renamed key never passes silently.

use blitz_config::{Severity, read};
use proptest::prelude::*;

use crate::files::ALL_KEYS as FILE;
use crate::support::{document, environment};

fn errors(text: &str) -> usize {
    let (_, diagnostics) = read(&document(text), &environment());
    for diagnostic in &diagnostics {
        assert!(
            diagnostic.span.start <= diagnostic.span.end,
            "{diagnostic:?}"
        );
        assert!(diagnostic.span.end <= text.len(), "{diagnostic:?}");
        assert!(
            text.is_char_boundary(diagnostic.span.start),
            "{diagnostic:?}"
        );
        assert!(!diagnostic.message.is_empty() && !diagnostic.label.is_empty());
    }
    let is_error = |one: &&blitz_config::Diagnostic| one.severity == Severity::Error;
    diagnostics.iter().filter(is_error).count()
}

#[test]
fn the_file_itself_has_no_errors() {
    assert_eq!(errors(FILE), 0);
}

#[test]
fn a_renamed_key_is_an_error() {
    for key in [
        "listen =",
        "listen_tls",
        "trusted_proxies",
        "certificates",
        "defaults",
        "tls = true",
        "[site]",
        "aliases",
        "https_redirect",
        "to = \"app\"",
        "path",
        "servers",
    ] {
        let renamed = FILE.replacen(key, &format!("{}x{}", &key[..2], &key[2..]), 1);
        assert_ne!(errors(&renamed), 0, "{key}");
    }
}

#[test]
fn a_value_of_another_type_is_an_error() {
    for (before, after) in [
        ("[\":80\"]", "80"),
        ("[\"10.0.0.0/8\", \"unix\"]", "true"),
        ("true", "1"),
        ("\"http://127.0.0.1:3001\"", "3001"),
        ("[\"www.app.example\"]", "{}"),
        ("https_redirect = false", "https_redirect = \"no\""),
        ("\"app\"", "[1]"),
        ("\"/v2{rest}\"", "2"),
        (
            "{ \"https://app.internal\" = 3",
            "{ \"https://app.internal\" = \"3\"",
        ),
    ] {
        assert!(FILE.contains(before), "{before}");
        assert_ne!(errors(&FILE.replacen(before, after, 1)), 0, "{after}");
    }
}

proptest! {
    #[test]
    fn no_change_makes_the_reader_panic(at in 0..FILE.len(), length in 0..40_usize, inserted in "\\PC{0,6}") {
        let end = (at + length).min(FILE.len());
        let changed = format!("{}{inserted}{}", &FILE[..at], &FILE[end..]);
        errors(&changed);
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "[\\[\\]\\{\\}a-c\"'./=#,$ \n*~0-9é-]{0,60}") {
        errors(&text);
    }
}
