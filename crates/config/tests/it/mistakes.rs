//! Each mistake with its place and its repair.

use std::env;
use std::fs;

use blitz_config::{KEYS, Scope, Since, read, render, to_json};

use crate::support::{document, environment, mistakes};

/// Texts with their mistakes: a text, a line `=>`, and its diagnostics, until a line `%%`. The test writes the file anew
/// if BLITZ_BLESS is set.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/mistakes.txt");

#[test]
fn each_mistake_has_its_place_and_its_repair() {
    let expected = fs::read_to_string(FILE).expect("the file exists");
    let mut found = String::new();
    for block in expected.split_terminator("%%\n") {
        let (text, _) = block.split_once("=>\n").expect("each block has both parts");
        let diagnostics = mistakes(text);
        assert!(!diagnostics.is_empty(), "no mistake in {text}");
        found += &format!("{text}=>\n{diagnostics}%%\n");
    }
    if env::var_os("BLITZ_BLESS").is_some() {
        fs::write(FILE, &found).expect("the file can be written");
    }
    for (found, expected) in found.split("%%\n").zip(expected.split("%%\n")) {
        assert_eq!(found, expected);
    }
}

/// The keys of later versions are named as such wherever they stand.
#[test]
fn planned_keys_are_not_yet() {
    for key in KEYS.iter().filter(|key| key.since == Since::NotYet) {
        let text = match key.scope {
            Scope::Defaults | Scope::Timeout | Scope::Respond => continue,
            Scope::Top => format!("{} = true\n", key.name),
            Scope::Server => format!("server.{} = true\n", key.name),
            Scope::Log => format!("log.{} = true\n", key.name),
            Scope::Limits => format!("limits.{} = true\n", key.name),
            Scope::Metrics => format!("metrics.{} = true\n", key.name),
            Scope::Tracing => format!("tracing.{} = true\n", key.name),
            Scope::Redis => format!("redis.{} = true\n", key.name),
            Scope::Control => format!("control.{} = true\n", key.name),
            Scope::Tls => format!("defaults.tls.{} = true\n", key.name),
            Scope::Certificate | Scope::Preset | Scope::When => continue,
            Scope::Buffer
            | Scope::Jwt
            | Scope::ForwardAuth
            | Scope::ForwardAuthCache
            | Scope::Compress
            | Scope::Decompress
            | Scope::Cors
            | Scope::RateLimit
            | Scope::Networks
            | Scope::SecurityHeaders
            | Scope::BasicAuth
            | Scope::ApiKeys
            | Scope::Retry
            | Scope::Queue
            | Scope::SiteLimits
            | Scope::UpstreamLimits
            | Scope::Outlier
            | Scope::Health => continue,
            Scope::Mirror | Scope::Shed => continue,
            Scope::AccessLog | Scope::AccessLogWhen => continue,
            Scope::Listener => format!("listen = [{{ address = \":80\", {} = true }}]\n", key.name),
            Scope::Upstream => {
                format!(
                    "[upstream.app]\nservers = [\"http://h:1\"]\n{} = true\n",
                    key.name
                )
            }
            Scope::Site | Scope::Route => {
                format!(
                    "[site.\"a.example\"]\nto = \"http://h:1\"\n{} = true\n",
                    key.name
                )
            }
        };
        let found = mistakes(&text);
        // Own listeners and limits are planned, and who writes them means those of the file.
        let code = match key.name {
            "listen" | "limits" => "key-of-other-table",
            _ => "not-yet",
        };
        assert!(
            found.contains(code) && found.contains(key.name),
            "{text}{found}"
        );
    }
}

#[test]
fn diagnostics_show_the_line_or_are_lines_of_json() {
    let document = document("[site.\"a.example\"]\ntoo = \"http://h:1\"\n");
    let (_, diagnostics) = read(&document, &environment());
    let expected = "error[unknown-key]: unknown key `too` in a site\n \
                    --> blitz.toml:2:1\n  |\n2 | too = \"http://h:1\"\n  | ^^^ did you mean `to`?\n";
    assert_eq!(render(&document, &diagnostics, false), expected);
    assert!(render(&document, &diagnostics, true).contains("\u{1b}["));
    let expected = r#"{"code":"unknown-key","edits":[{"end":{"column":4,"line":2},"start":{"column":1,"line":2},"text":"to"}],"end":{"column":4,"line":2},"file":"blitz.toml","label":"did you mean `to`?","message":"unknown key `too` in a site","severity":"error","start":{"column":1,"line":2}}"#;
    assert_eq!(to_json(&document, &diagnostics), format!("{expected}\n"));
}
