//! The common parts of all benchmarks: the programs, the folder of the results, and the facts about the call.

use std::path::PathBuf;

use crate::programs::Programs;
use crate::shell_words::quote;
use crate::supervised;

/// One call of `blitz bench`.
#[derive(Debug)]
pub(crate) struct Invocation {
    /// The command that repeats the run.
    pub(crate) command: String,
    /// The revision of the measured binary.
    pub(crate) revision: String,
    pub(crate) programs: Programs,
    /// The folder of the results.
    pub(crate) out: PathBuf,
    /// Whether reports are saved as HTML as well.
    pub(crate) with_html: bool,
}

/// The flag without which they are.
pub(crate) const NO_HTML: &str = "--no-html";

/// Flags with a value that say where files are, and nothing about the measurement.
const PLACES: [&str; 3] = ["--programs", "--out", "--revision"];

/// Flags whose value is a header field.
const FIELDS: [&str; 2] = ["--header", "-H"];

/// Ends of the words in names of header fields that carry secrets: `X-Api-Key`, `apikey`, `X-Auth-Token`.
const SECRETS: [&str; 12] = [
    "auth",
    "authorization",
    "authentication",
    "cookie",
    "credential",
    "credentials",
    "key",
    "passwd",
    "password",
    "secret",
    "signature",
    "token",
];

/// The mark for a secret that was left out.
const LEFT_OUT: &str = "…";

/// The command in the syntax of a shell, without secrets and without the flags that name paths of this machine. The
/// first word is the program, or the two of `cargo xtask`.
pub(crate) fn command(words: impl IntoIterator<Item = String>) -> String {
    let mut words = words.into_iter();
    let program = words.next().unwrap_or_default();
    let name = program.rsplit('/').next().unwrap_or_default();
    let mut command = name.split(' ').map(quote).collect::<Vec<_>>().join(" ");
    let mut is_field = false;
    while let Some(word) = words.next() {
        let flag = word.split('=').next().unwrap_or_default();
        if [supervised::FLAG, NO_HTML].contains(&flag) {
            continue;
        }
        if !PLACES.contains(&flag) {
            let shown = quote(&without_secrets(&word, is_field));
            command = format!("{command} {shown}");
            is_field = FIELDS.contains(&word.as_str());
        } else if flag == word {
            words.next();
        }
    }
    command
}

/// Whether the command lacks secrets, which people have to add before they repeat it.
pub(crate) fn lacks_secrets(command: &str) -> bool {
    command.contains(LEFT_OUT)
}

/// The word with `…` instead of a secret. `is_field` if it is the value of a flag in [`FIELDS`].
fn without_secrets(word: &str, is_field: bool) -> String {
    let flag = FIELDS.iter().find(|flag| word.starts_with(*flag));
    let field = match flag {
        _ if is_field => Some(word),
        Some(flag) => Some(&word[flag.len()..]),
        None => None,
    };
    match field.and_then(|field| field.split_once(':')) {
        Some((name, value)) if is_secret(name) => {
            let name = &word[..word.len() - value.len()];
            format!("{name} {LEFT_OUT}")
        }
        _ => without_userinfo(word),
    }
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let mut words = name.trim().split(['-', '_']);
    words.any(|word| SECRETS.iter().any(|secret| word.ends_with(secret)))
}

/// The word with `…` instead of the user and the password of each URL in it (RFC 3986, section 3.2.1).
fn without_userinfo(word: &str) -> String {
    let mut out = String::new();
    let mut rest = word;
    while let Some((before, after)) = rest.split_once("://") {
        let end = after.find(['/', '?', '#']).unwrap_or(after.len());
        let (authority, following) = after.split_at(end);
        out.push_str(before);
        out.push_str("://");
        match authority.rsplit_once('@') {
            Some((_, host)) => out.extend([LEFT_OUT, "@", host]),
            None => out.push_str(authority),
        }
        rest = following;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str]) -> String {
        command(words.iter().map(|&word| word.to_owned()))
    }

    #[test]
    fn places_of_this_machine_are_no_part_of_the_command() {
        let of = |text: &str| command(text.split(' ').map(str::to_owned));
        assert_eq!(
            of(
                "target/release/blitz bench --supervised --out /tmp/a h1 --quick --programs=b --only nginx"
            ),
            "blitz bench h1 --quick --only nginx"
        );
        assert_eq!(of("blitz bench --revision"), "blitz bench");
    }

    #[test]
    fn the_command_can_be_pasted_into_a_shell() {
        assert_eq!(
            of(&[
                "/bin/blitz",
                "load",
                "-H",
                "X: a; touch x #",
                "http://a/?b=1&c=$(id)"
            ]),
            "blitz load -H 'X: a; touch x #' 'http://a/?b=1&c=$(id)'"
        );
        assert_eq!(of(&["blitz", "load", "-b", ""]), "blitz load -b ''");
        assert_eq!(of(&["cargo xtask", "bench"]), "cargo xtask bench");
    }

    #[test]
    fn secrets_are_left_out_and_other_fields_stay() {
        for (word, shown) in [
            ("Authorization: Bearer s3cret", "'Authorization: …'"),
            ("proxy-authorization:s3cret", "'proxy-authorization: …'"),
            ("Cookie: a=s3cret:1", "'Cookie: …'"),
            ("X-Api-Key: s3cret", "'X-Api-Key: …'"),
            ("apikey: s3cret", "'apikey: …'"),
            ("X-Auth-Token: s3cret", "'X-Auth-Token: …'"),
            ("X-Author: me", "'X-Author: me'"),
            ("Accept: */*", "'Accept: */*'"),
        ] {
            assert_eq!(
                of(&["blitz", "load", "-H", word]),
                format!("blitz load -H {shown}")
            );
            assert_eq!(
                of(&["blitz", "load", "--header", word, "-d1s"]),
                format!("blitz load --header {shown} -d1s")
            );
        }
        for word in [
            "-HAuthorization: s3cret",
            "-H=Cookie: s3cret",
            "--header=Cookie: s3cret",
        ] {
            let command = of(&["blitz", "load", word]);
            assert!(
                !command.contains("s3cret") && lacks_secrets(&command),
                "{command}"
            );
        }
        assert_eq!(
            of(&["blitz", "load", "http://me:s3cr@et@a.example/@b?c://d@e"]),
            "blitz load 'http://…@a.example/@b?c://…@e'"
        );
        assert!(!lacks_secrets(&of(&["blitz", "load", "http://a.example/"])));
    }
}
