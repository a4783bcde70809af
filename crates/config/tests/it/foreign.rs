//! Words of other servers: each key of theirs that the documents name gets its counterpart.

use std::fs;

use blitz_config::KEYS;

use crate::support::mistakes;

/// Words in the left columns without a counterpart, and why they have none.
const WITHOUT: &[(&str, &str)] = &[
    ("Connection", "a field, within `proxy_set_header`"),
    ("caddy", "the command"),
    ("nginx", "the command"),
    ("internal", "not yet"),
    ("stream", "not yet"),
    ("proxy_cookie_domain", "not yet"),
    ("sub_filter", "not yet"),
    ("proxy_ssl_verify", "not yet"),
    ("proxy_ssl_name", "not yet"),
    ("proxy_cache", "not yet"),
    ("fastcgi_pass", "not yet"),
    ("uwsgi_pass", "not yet"),
    ("scgi_pass", "not yet"),
    ("php_fastcgi", "not yet"),
    ("backup", "not yet"),
    ("fail_duration", "not yet"),
    ("limit_rate", "not yet"),
    ("ssl_stapling", "not yet"),
    ("ssl_reject_handshake", "not yet"),
    ("uri_hash", "not yet"),
    ("abort", "not yet"),
    ("templates", "not yet"),
    ("mode", "within `client_auth`: a word of `tls`"),
    ("output", "within `log`: a word of `log`"),
];

/// The words that begin the texts in backticks of the left columns.
fn words(page: &str) -> Vec<String> {
    let file = format!("{}/../../docs/{page}", env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(file).expect("the file exists");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| "));
    let cells = rows.filter_map(|row| row.split(" | ").next());
    let mut words = Vec::new();
    for cell in cells {
        let texts = cell.split('`').skip(1).step_by(2);
        for part in texts.flat_map(|text| text.split(';')) {
            let first = part.split_whitespace().next().unwrap_or_default();
            let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if first.starts_with(|c: char| c.is_ascii_alphabetic()) && first.chars().all(is_part) {
                words.push(first.to_owned());
            }
        }
    }
    words.sort_unstable();
    words.dedup();
    words
}

fn found(word: &str) -> String {
    mistakes(&format!(
        "[site.\"a.example\"]\nto = \"http://h:1\"\n{word} = true\n"
    ))
}

#[test]
fn the_words_of_the_documents_have_their_counterparts() {
    let words = ["from-nginx.md", "from-caddy.md"].map(words).concat();
    assert!(words.len() > 150, "{words:?}");
    let mut wrong = Vec::new();
    for word in &words {
        let listed = WITHOUT.iter().any(|(other, _)| other == word);
        let found = found(word);
        let is_own = KEYS.iter().any(|key| key.name == word);
        let has_counterpart = found.contains("foreign-key")
            || found.contains(&format!("did you mean `{word}s`?"))
            || is_own && (found.contains("did you mean") || !found.contains("unknown-key"));
        if listed == has_counterpart {
            wrong.push(format!("{word}, listed: {listed}\n{found}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for (word, _) in WITHOUT {
        assert!(words.iter().any(|other| other == word), "{word}");
    }
}

#[test]
fn nobody_is_told_to_remove_a_word_about_access() {
    for word in [
        "auth",
        "authorize",
        "acl_file",
        "access_rules",
        "jwt_verify",
        "ip_restrict",
        "allowed_ips",
        "deny_all",
        "login_required",
        "require_role",
        "user_groups",
        "protect_path",
        "password_file",
        "limit_rate",
        "token_check",
        "mtls_certs",
        "block_bots",
        "throttling",
    ] {
        let found = found(word);
        assert!(!found.is_empty() && !found.contains("remove it"), "{found}");
    }
    for text in [
        "jwt = { keys_file = \"k\", audience = \"a\", colour = \"x\" }",
        "basic_auth = { users_file = \"k\", colour = \"x\" }",
        "api_keys = { file = \"k\", colour = \"x\" }",
        "forward_auth = { url = \"http://a/\", colour = \"x\" }",
        "allow = { file = \"k\", colour = \"x\" }",
        "rate_limit = { rate = \"1/s\", colour = \"x\" }",
    ] {
        let found = mistakes(&format!(
            "[site.\"a.example\"]\nto = \"http://h:1\"\n{text}\n"
        ));
        assert!(
            found.contains("the keys here are") && !found.contains("remove it"),
            "{found}"
        );
    }
}
