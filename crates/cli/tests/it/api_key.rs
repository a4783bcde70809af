//! `blitz api-key`: a key, and the line for the file that has it accepted.

use std::fs;

use crate::https::Folder;
use crate::{blitz, stderr, stdout};

#[test]
fn api_key_makes_a_key_and_its_line() {
    let folder = Folder::new();
    let mut keys = Vec::new();
    let mut file = String::new();
    for arguments in [
        &["api-key", "billing"][..],
        &["api-key", "billing", "--expires", "2099-12-31"],
    ] {
        let made = blitz(arguments);
        assert!(made.status.success(), "{}", stderr(&made));
        let (key, line) = (stderr(&made).trim_end().to_owned(), stdout(&made));
        assert!(key.starts_with("blitz_") && key.len() == 49, "{key}");
        assert!(
            line.starts_with("billing:sha256:") && !line.contains(&key),
            "{line}"
        );
        assert_eq!(
            line.trim_end().ends_with(":2099-12-31"),
            arguments.len() > 2
        );
        file += &line;
        keys.push(key);
    }
    assert_ne!(keys[0], keys[1]);
    fs::write(folder.file("keys"), file).unwrap();
    let site = "[site.\"a.example\"]\nrespond = \"200 in\"\napi_keys = { file = \"keys\" }\n";
    let config = folder.file("blitz.toml");
    fs::write(&config, site).unwrap();
    for (key, expected) in [
        (keys[0].as_str(), "200"),
        (keys[1].as_str(), "200"),
        ("blitz_", "401"),
    ] {
        let field = format!("X-Api-Key: {key}");
        let url = "http://a.example/";
        let asked = blitz(&["explain", "--config", &config, "-H", &field, "GET", url]);
        let text = stdout(&asked);
        assert!(
            text.contains(&format!("outcome   {expected}")),
            "{text}{}",
            stderr(&asked)
        );
    }
}

#[test]
fn a_name_that_no_file_may_have_is_a_usage_error() {
    for (arguments, expected) in [
        (&["api-key", "a b"][..], "this key has a name that is none"),
        (&["api-key", "a:b"], "this key has a name that is none"),
        (&["api-key", "#a"], "this key has a name that is none"),
        (&["api-key", "a\nb"], "this key has a name that is none"),
        (
            &["api-key", "a", "--expires", "soon"],
            "this key has an expiry that is no time",
        ),
        (
            &["api-key", "a", "--expires", "2020-12-31"],
            "this key has an expiry that is past",
        ),
    ] {
        let refused = blitz(arguments);
        assert_eq!(refused.status.code(), Some(2), "{}", stdout(&refused));
        assert!(stderr(&refused).contains(expected), "{}", stderr(&refused));
        assert!(stdout(&refused).is_empty() && !stderr(&refused).contains("blitz_"));
    }
}
