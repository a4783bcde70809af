//! The facts in which two results must agree so that their loads are the same.

use std::path::Path;

use clap::{Args, Command, FromArgMatches};

use super::arguments::LoadArguments;
use crate::load_result::LoadResult;
use crate::shell_words;

/// Facts about a load, each with its name. The server's address and the length of the run are no part of them.
///
/// A command of an earlier version may be unreadable, and its result has fewer facts.
pub(crate) fn facts(result: &LoadResult) -> Vec<(&'static str, String)> {
    let (target, plan) = (&result.target, &result.plan);
    let yes_or_no = |yes| if yes { "yes" } else { "no" }.to_owned();
    let mut facts = vec![
        ("connections", plan.connections.to_string()),
        (
            "requests in flight on each connection",
            plan.streams.to_string(),
        ),
        ("pacing", plan.pacing.clone()),
        ("protocol", target.protocol.clone()),
        ("TLS", yes_or_no(target.tls.is_some())),
        (
            "path and query of the first URL",
            path(&target.url).to_owned(),
        ),
        ("different requests", target.requests.to_string()),
        ("checks of responses", target.checks.clone()),
        (
            "a connection for each request",
            yes_or_no(plan.new_connections),
        ),
        ("resumed TLS sessions", yes_or_no(plan.resume)),
        ("warm-up", yes_or_no(result.warm_up_s > 0.0)),
    ];
    if let Some(windows) = plan.windows {
        facts.push(("windows of the client", windows.to_string()));
    }
    facts.extend(arguments(&result.command).iter().flat_map(of_arguments));
    facts
}

/// Path and query of a URL.
fn path(url: &str) -> &str {
    let after_scheme = url.split_once("://").map_or(url, |(_, rest)| rest);
    let start = after_scheme.find(['/', '?']);
    start.map_or("/", |start| &after_scheme[start..])
}

fn arguments(command: &str) -> Option<LoadArguments> {
    let words = shell_words::split(command)?;
    let command = LoadArguments::augment_args(Command::new("load"));
    let matches = command.try_get_matches_from(words.get(1..)?).ok()?;
    LoadArguments::from_arg_matches(&matches).ok()
}

/// Facts that the command has and the result has not. Folders are paths of a machine.
fn of_arguments(arguments: &LoadArguments) -> Vec<(&'static str, String)> {
    let name = |file: &Path| {
        file.file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    };
    let none = || "none".to_owned();
    let content = match (&arguments.body, arguments.upload) {
        (Some(text), _) => match text.strip_prefix('@') {
            Some(file) => format!("@{}", name(Path::new(file))),
            None => format!("`{text}`"),
        },
        (None, Some(length)) => format!("{length} bytes of zero"),
        (None, None) => none(),
    };
    let has_content = arguments.body.is_some() || arguments.upload.is_some();
    let method = arguments.method.as_deref();
    let method = method.unwrap_or(if has_content { "POST" } else { "GET" });
    let fields = match arguments.fields.as_slice() {
        [] => none(),
        fields => fields.join(", "),
    };
    let requests_file = arguments.requests_file.as_deref().map(name);
    let number = arguments.requests.map(|number| number.to_string());
    vec![
        ("method", method.to_owned()),
        ("content", content),
        ("header fields", fields),
        ("file of requests", requests_file.unwrap_or_else(none)),
        ("number of requests", number.unwrap_or_else(none)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &str) -> Vec<(&'static str, String)> {
        let mut result = LoadResult {
            command: format!("blitz load {words}"),
            ..LoadResult::default()
        };
        result.target.url = words.rsplit(' ').next().unwrap_or_default().to_owned();
        facts(&result)
    }

    #[test]
    fn every_part_of_a_load_is_a_fact() {
        let base = of("-c10 http://a/x");
        for (words, name) in [
            ("http://a/other", "path and query of the first URL"),
            ("http://a/x?y", "path and query of the first URL"),
            ("-X PUT http://a/x", "method"),
            ("-X GET --upload 10m http://a/x", "content"),
            ("-X GET -b 'a b' http://a/x", "content"),
            ("-i dir/site.har http://a/x", "file of requests"),
            ("-n 10 http://a/x", "number of requests"),
            ("-H 'Accept: text/html' http://a/x", "header fields"),
        ] {
            let differing = of(words).into_iter().zip(&base).filter(|(a, b)| a != *b);
            let names: Vec<&str> = differing.map(|((name, _), _)| name).collect();
            assert_eq!(names, [name], "{words}");
        }
    }

    #[test]
    fn the_server_its_place_and_the_spelling_are_no_facts() {
        let base = of("-c 10 -X POST -b @a/file http://a:80/");
        assert_eq!(
            of("--connections=10 --quiet --json x.json -b @b/file http://b:81/"),
            base
        );
    }

    #[test]
    fn an_unreadable_command_leaves_the_facts_of_the_result() {
        let facts = of("-H X: a b http://a/x");
        assert!(facts.iter().all(|(name, _)| *name != "method"));
        assert!(facts.contains(&("path and query of the first URL", "/x".to_owned())));
    }
}
