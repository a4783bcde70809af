//! The inheritance of routes, against a reference that tries all requests.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use blitz_config::{Action, Document, FieldChange, Route, TimeLimit, read};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::subsequence;

use crate::naive::{KEYS, Key};
use crate::support::environment;

/// The settings of a level: `Some(None)` is `false`.
#[derive(Debug, Clone, Default)]
struct Says {
    action: Option<String>,
    path: Option<Option<String>>,
    body_max: Option<Option<u64>>,
    response: Option<Option<u64>>,
    idle: Option<Option<u64>>,
    headers: BTreeMap<String, Option<String>>,
    drops_headers: bool,
    errors: BTreeMap<String, Option<String>>,
}

fn says() -> impl Strategy<Value = Says> {
    let values = option::of(option::of(1..9_u64));
    let action = option::of(prop_oneof![
        4 => (1..9_u16).prop_map(|port| format!("to = \"http://h:{port}\"")),
        1 => (200..209_u16).prop_map(|status| format!("respond = {status}")),
    ]);
    let path = option::of(option::of("/v[1-9]\\{rest\\}"));
    let map = |names: &'static [&'static str]| {
        let entry = (proptest::sample::select(names), option::of("[a-z]"));
        let entries = vec(entry, 0..3);
        let named = |(name, value): (&str, Option<String>)| (name.to_owned(), value);
        entries.prop_map(move |entries| entries.into_iter().map(named).collect::<BTreeMap<_, _>>())
    };
    let limits = (values.clone(), values.clone(), values);
    (
        action,
        path,
        limits,
        map(&["x-a", "x-b"]),
        prop::bool::weighted(0.1),
        map(&["404", "5xx", "503"]),
    )
        .prop_map(
            |(action, path, (body_max, response, idle), headers, drops_headers, errors)| Says {
                action,
                path,
                body_max,
                response,
                idle,
                headers: if drops_headers {
                    BTreeMap::new()
                } else {
                    headers
                },
                drops_headers,
                errors,
            },
        )
}

impl Says {
    /// Its lines behind a prefix such as `defaults.`.
    fn lines(&self, prefix: &str) -> String {
        let mut out = String::new();
        let text = |value: &Option<String>| match value {
            Some(text) => format!("\"{text}\""),
            None => "false".to_owned(),
        };
        let unit =
            |value: Option<u64>, unit: &str| text(&value.map(|value| format!("{value}{unit}")));
        if let Some(action) = &self.action {
            let _ = writeln!(out, "{prefix}{action}");
        }
        if let Some(path) = &self.path {
            let _ = writeln!(out, "{prefix}path = {}", text(path));
        }
        if let Some(size) = self.body_max {
            let _ = writeln!(out, "{prefix}body_max = {}", unit(size, "k"));
        }
        if let Some(time) = self.response {
            let _ = writeln!(out, "{prefix}timeout.response = {}", unit(time, "s"));
        }
        if let Some(time) = self.idle {
            let _ = writeln!(out, "{prefix}timeout.idle = {}", unit(time, "s"));
        }
        if self.drops_headers {
            let _ = writeln!(out, "{prefix}headers = false");
        }
        for (name, value) in &self.headers {
            let _ = writeln!(out, "{prefix}headers.{name} = {}", text(value));
        }
        for (status, file) in &self.errors {
            let _ = writeln!(out, "{prefix}errors.{status} = {}", text(file));
        }
        out
    }
}

/// All that a route means, as text.
#[derive(Debug, Default, PartialEq, Eq)]
struct Means {
    action: String,
    path: Option<String>,
    body_max: Option<u64>,
    response: Option<u64>,
    idle: Option<u64>,
    headers: BTreeMap<String, Option<String>>,
    errors: BTreeMap<String, Option<String>>,
}

impl Means {
    fn reference(levels: &[&Says]) -> Option<Means> {
        let mut means = Means::default();
        // Options that are written before there is an action belong to every action.
        let mut for_all = None;
        for says in levels {
            if let Some(action) = &says.action {
                means.action.clone_from(action);
                means.path.clone_from(&for_all);
            }
            if let Some(path) = &says.path {
                means.path.clone_from(path);
                if means.action.is_empty() {
                    for_all.clone_from(path);
                }
            }
            means.body_max = says.body_max.unwrap_or(means.body_max);
            means.response = says.response.unwrap_or(means.response);
            means.idle = says.idle.unwrap_or(means.idle);
            if says.drops_headers {
                means.headers.clear();
            }
            means.headers.extend(says.headers.clone());
            means.errors.extend(says.errors.clone());
        }
        if means.action.starts_with("respond") {
            means.path = None;
        }
        (!means.action.is_empty()).then_some(means)
    }

    fn found(route: &Route) -> Means {
        let settings = &route.settings;
        let (action, path) = match &settings.action.value {
            Action::Proxy(proxy) => {
                let path = proxy.path.as_ref().map(|path| path.value.to_string());
                (format!("to = \"{}\"", proxy.to.value), path)
            }
            Action::Respond(respond) => (format!("respond = {}", respond.status), None),
            Action::Redirect(_) => ("redirect".to_owned(), None),
            Action::Files(_) => ("files".to_owned(), None),
        };
        let seconds = |limit: Option<&TimeLimit>| match limit {
            Some(TimeLimit::After(duration)) => Some(duration.as_secs()),
            _ => None,
        };
        let timeouts = &settings.timeouts;
        let headers = settings.headers.iter().map(|rule| {
            let value = match &rule.change.value {
                FieldChange::Set(values) => values[0].as_text().map(str::to_owned),
                _ => None,
            };
            (rule.name.clone(), value)
        });
        let errors = settings.errors.iter().map(|page| {
            let file = page.file.as_ref().map(|file| file.value.clone());
            (page.status.to_string(), file)
        });
        Means {
            action,
            path,
            body_max: settings.body_max.as_ref().map(|size| size.value / 1024),
            response: seconds(timeouts.response.as_ref().map(|limit| &limit.value)),
            idle: seconds(timeouts.idle.as_ref().map(|limit| &limit.value)),
            headers: headers.collect(),
            errors: errors.collect(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn routes_inherit_as_the_reference_says(
        keys in subsequence(&KEYS[..], 0..6).prop_shuffle(),
        says in vec(says(), 8),
    ) {
        let (defaults, site, says) = (&says[0], &says[1], &says[2..]);
        let mut says = says.to_vec();
        for (key, says) in keys.iter().zip(&mut says) {
            // Nothing follows the path of a regex.
            if key.starts_with('~') {
                says.path = None;
            }
        }
        let mut text = defaults.lines("defaults.") + "[site.\"a.example\"]\n" + &site.lines("");
        for (key, says) in keys.iter().zip(&says) {
            let _ = write!(text, "[site.\"a.example\".\"{key}\"]\n{}", says.lines(""));
        }
        let (configuration, diagnostics) = read(&Document::new("f", text.as_str()), &environment());
        let codes: BTreeSet<&str> = diagnostics.iter().map(|one| one.code).collect();
        let is_expected = |code: &&str| ["no-action", "slash-pair", "option-of-to", "no-site"].contains(code);
        prop_assert!(codes.iter().all(is_expected), "{diagnostics:?}");
        let parsed: Vec<Key> = keys.iter().map(|key| Key::new(key, &keys)).collect();
        for (at, key) in parsed.iter().enumerate() {
            let encloses = |other: &usize| *other != at && parsed[*other].encloses(key);
            let mut enclosing: Vec<usize> = (0..keys.len()).filter(encloses).collect();
            enclosing.sort_by(|&a, &b| parsed[b].rank().cmp(&parsed[a].rank()));
            let enclosing = enclosing.into_iter().chain([at]).map(|at| &says[at]);
            let levels: Vec<&Says> = [defaults, site].into_iter().chain(enclosing).collect();
            let expected = Means::reference(&levels);
            let place = text.find(&format!("\"{key}\"]", key = keys[at]));
            let found = configuration.sites[0].routes.iter();
            let mut found = found.filter(|route| Some(route.key.span.start) == place);
            let found = found.next().map(Means::found);
            // A route that says `path` and has another action than `to` is an error.
            if !codes.contains("option-of-to") || found.is_some() {
                prop_assert_eq!(found, expected, "{} in\n{}", keys[at], text);
            }
        }
    }
}
