//! Suggestions for misspelt words and for words of other servers.

mod words;

use words::{FOREIGN, FOREIGN_OF_TABLE};

/// Placeholders of other servers, and ours.
const FOREIGN_PLACEHOLDERS: &[(&str, &str)] = &[
    ("uri", "{path}"),
    ("request_uri", "{path}"),
    ("http.request.uri", "{path}"),
    ("http.request.uri.path", "{path}"),
    ("http.request.host", "{host}"),
    ("http.request.method", "{method}"),
    ("http.request.scheme", "{scheme}"),
    ("http.request.uri.query", "{query}"),
    ("http.request.uuid", "{request_id}"),
    ("uuid", "{request_id}"),
    ("hostport", "{host}"),
    ("http_host", "{host}"),
    ("remote", "{client}"),
    ("remote_addr", "{client}"),
    ("remote_host", "{client}"),
    ("http.request.remote.host", "{client}"),
    ("client_ip", "{client}"),
    ("ip", "{client}"),
    ("args", "{query}"),
    ("query_string", "{query}"),
    ("url", "{path}"),
    ("proto", "{scheme}"),
];

/// Variables of nginx, with their replacements. None begins with another one before it.
const FOREIGN_VARIABLES: &[(&str, &str)] = &[
    ("$request_uri", "write {path}; the query is kept"),
    ("$uri", "write {path}"),
    ("$is_args", "leave it out; the query is kept"),
    ("$args", "write {query}"),
    ("$query_string", "write {query}"),
    ("$host", "write {host}"),
    ("$http_host", "write {host}"),
    ("$server_name", "write {host}"),
    ("$scheme", "write {scheme}"),
    ("$remote_addr", "write {client}"),
    ("$request_method", "write {method}"),
    ("$request_id", "write {request_id}"),
    (
        "$proxy_add_x_forwarded_for",
        "leave it out; forwarding fields are set without it",
    ),
];

/// The server whose word this is, and the replacement in the table of this name.
pub(crate) fn foreign(table: &str, word: &str) -> Option<(&'static str, &'static str)> {
    let word = word.to_ascii_lowercase();
    let mut of_table = FOREIGN_OF_TABLE.iter();
    let of_table = of_table.find(|(other, foreign, ..)| *other == table && *foreign == word);
    let (server, label) = match of_table {
        Some((.., server, label)) => (server, label),
        None => {
            let (_, server, label) = FOREIGN.iter().find(|(foreign, ..)| *foreign == word)?;
            (server, label)
        }
    };
    Some((server, label))
}

/// Parts of words that may be about who is served, and how often.
#[rustfmt::skip] // a list of words
const OF_ACCESS: &[&str] = &[
    "access", "acl", "allow", "auth", "block", "cert", "claim", "client", "deny", "forbid", "group", "jwk", "jwt", "key",
    "limit", "login", "network", "only", "pass", "permi", "private", "protect", "quota", "rate", "refuse", "reject",
    "require", "restrict", "role", "scope", "secret", "secur", "sso", "throttl", "token", "trust", "user", "verify",
];

/// Whether a word may be meant to restrict who is served. Without it everybody would be, so nobody is told to remove it.
pub(crate) fn may_restrict(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    let is_address = word
        .split(['_', '-', '.'])
        .any(|part| matches!(part, "ip" | "ips"));
    is_address || OF_ACCESS.iter().any(|part| word.contains(part))
}

/// The replacement for a placeholder of another server.
pub(crate) fn foreign_placeholder(name: &str) -> Option<&'static str> {
    let found = FOREIGN_PLACEHOLDERS
        .iter()
        .find(|(foreign, _)| *foreign == name);
    found.map(|(_, ours)| *ours)
}

/// A variable of another server in a text, and its replacement.
pub(crate) fn foreign_variable(text: &str) -> Option<(&'static str, &'static str)> {
    let found = FOREIGN_VARIABLES
        .iter()
        .find(|(foreign, _)| text.contains(foreign));
    found.copied()
}

/// The word that differs least from this one, if it is near enough to be meant.
#[must_use]
pub fn nearest<'a>(word: &str, words: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let distance_max = match word.chars().count() {
        0..=4 => 1,
        5..=7 => 2,
        _ => 3,
    };
    let with_distance = words.map(|other| (distance(word, other), other));
    let nearest = with_distance.min_by_key(|(distance, _)| *distance)?;
    (nearest.0 <= distance_max && nearest.0 < word.chars().count()).then_some(nearest.1)
}

/// The word that is meant without doubt: no other one is as near, and few characters differ.
pub(crate) fn certain<'a>(word: &str, words: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let distance_max = match word.chars().count() {
        0 | 1 => 0,
        2..=7 => 1,
        _ => 2,
    };
    let mut near: Vec<_> = words.map(|other| (distance(word, other), other)).collect();
    near.sort_unstable();
    let (first, meant) = *near.first()?;
    let is_alone = near.get(1).is_none_or(|(second, _)| *second > first);
    (first <= distance_max && is_alone).then_some(meant)
}

/// The least number of characters that are inserted, removed, replaced or exchanged with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(before_last[j - 2] + 1);
            }
            row.push(least);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_by_their_distance() {
        let words = ["to", "tls", "path", "aliases", "https_redirect"];
        for (word, expected) in [
            ("too", Some("to")),
            ("t", Some("to")),
            ("tsl", Some("tls")),
            ("alias", Some("aliases")),
            ("http_redirect", Some("https_redirect")),
            ("something", None),
        ] {
            let found = nearest(word, words.into_iter());
            // A single letter is no misspelling.
            let expected = expected.filter(|_| word.len() > 1);
            assert_eq!(found, expected, "{word}");
        }
    }

    #[test]
    fn a_repair_has_no_second_word_that_is_as_near() {
        let words = ["to", "tls", "path", "host", "https_redirect"];
        for (word, expected) in [
            ("too", Some("to")),
            ("pathh", Some("path")),
            ("http_redirec", Some("https_redirect")),
            ("hosts_x", None),
            ("ts", None),
            ("t", None),
        ] {
            assert_eq!(certain(word, words.into_iter()), expected, "{word}");
        }
        assert_eq!(certain("pat", ["path", "part"].into_iter()), None);
    }
}
