//! Files that a file includes.

use blitz_config::{Document, Severity, includes, read};

use crate::support::environment;

/// A main file, and included ones with their folders.
fn document(main: &str, others: &[(&str, &str, &str)]) -> Document {
    let mut document = Document::new("blitz.toml", main);
    for (name, folder, text) in others {
        document.include(*name, *folder, text);
    }
    document
}

/// The mistakes: `file:line:column code label`.
fn mistakes(document: &Document) -> Vec<String> {
    let (_, diagnostics) = read(document, &environment());
    let shown = diagnostics.iter().map(|diagnostic| {
        let (line, column) = document.position(diagnostic.span.start);
        let name = document.name_at(diagnostic.span.start);
        let warning = match diagnostic.severity {
            Severity::Error => "",
            Severity::Warning => "warning ",
        };
        format!(
            "{warning}{name}:{line}:{column} {} {}",
            diagnostic.code, diagnostic.label
        )
    });
    shown.collect()
}

#[test]
fn files_share_upstreams_presets_and_defaults() {
    let document = document(
        "include = [\"sites/*.toml\", \"${APP_SITES:more.toml}\"]\ndefaults.body_max = \"1m\"\n\
         certificates = [\"certs/*.pem\"]\n[preset.private]\nallow = [\"10.0.0.0/8\"]\n",
        &[
            (
                "sites/a.toml",
                "sites",
                "certificates = [\"a.pem\"]\n[site.\"a.example\"]\nto = \"app\"\nuse = \"private\"\n\
                 errors.404 = \"404.html\"\ntls = { cert = \"own.pem\", key = \"/k/own.key\" }\n\
                 \"/closed\" = { respond = { status = 503, file = \"closed.html\" } }",
            ),
            (
                "sites/b.toml",
                "sites",
                "[upstream.app]\nservers = [\"http://h:1\"]\n",
            ),
        ],
    );
    let patterns: Vec<String> = includes(&document, &environment())
        .into_iter()
        .map(|pattern| pattern.value)
        .collect();
    assert_eq!(patterns, ["sites/*.toml", "more.toml"]);
    assert_eq!(mistakes(&document), [] as [String; 0]);
    let (configuration, _) = read(&document, &environment());
    let files: Vec<_> = configuration
        .certificates
        .iter()
        .map(|certificate| {
            (
                certificate.value.file.as_str(),
                certificate.value.key.as_deref(),
            )
        })
        .collect();
    let own = ("sites/own.pem", Some("/k/own.key"));
    assert_eq!(files, [("certs/*.pem", None), ("sites/a.pem", None), own]);
    let settings = &configuration.sites[0].routes.last().unwrap().settings;
    assert_eq!(
        settings.body_max.as_ref().map(|limit| limit.value),
        Some(1 << 20)
    );
    assert!(settings.allow.is_some());
    let page = settings.errors[0]
        .file
        .as_ref()
        .map(|file| file.value.as_str());
    assert_eq!(page, Some("sites/404.html"));
}

#[test]
fn mistakes_have_the_place_in_their_file() {
    let main = "include = [\"sites/*.toml\"]\n[site.\"a.example\"]\nto = \"http://h:1\"\n[upstream.x]\n\
                servers = [\"http://h:1\"]\n";
    let found = mistakes(&document(
        main,
        &[
            (
                "sites/a.toml",
                "sites",
                "# one\nlisten = [\":81\"]\ninclude = [\"x.toml\"]\n[site.\"A.example\"]\ntoo = \"x\"\n",
            ),
            (
                "sites/b.toml",
                "sites",
                "[upstream.x]\nservers = [\"http://h:1\"]\n[site]\n\"b.example\" = \"y\"\n",
            ),
        ],
    ));
    let expected = [
        "sites/a.toml:2:1 not-in-include an included file may have `certificates`, `preset`, `site`, `upstream`",
        "sites/a.toml:3:1 not-in-include an included file may have `certificates`, `preset`, `site`, `upstream`",
        "sites/a.toml:4:7 defined-twice second definition; the first is at blitz.toml:2:7",
        "sites/a.toml:5:1 unknown-key did you mean `to`?",
        "sites/b.toml:1:11 defined-twice second definition; the first is at blitz.toml:4:11",
        "sites/b.toml:4:15 unknown-upstream write a URL such as \"http://127.0.0.1:3000\", or add [upstream.y]",
    ];
    assert_eq!(found, expected);
    // One file that is not TOML keeps all from being read.
    let found = mistakes(&document(main, &[("c.toml", "", "[site.\"c.example\"\n")]));
    assert!(
        found.iter().all(|line| line.starts_with("c.toml:1:")),
        "{found:?}"
    );
    assert_eq!(found.len(), 1);
    let of_type = mistakes(&document(
        "include = \"x\"\n[site]\n\"*\" = \"http://h:1\"\n",
        &[],
    ));
    assert_eq!(of_type, ["blitz.toml:1:11 type write [\"x\"]"]);
}
