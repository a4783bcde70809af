//! Keys of routes: methods and a path.

use std::ops::Range;

use super::{Entry, Reader};
use crate::method::{Method, Methods};
use crate::path;
use crate::path_regex::PathRegex;
use crate::pattern::{PathEnd, PathPattern, Segment};
use crate::route_key::RouteKey;
use crate::span::{Placed, Span};
use crate::suggestion;
use crate::template;

const PATH_BEGINNINGS: [char; 3] = ['/', '=', '~'];

/// Whether a key of a site is a path, in any of the forms of the language.
pub(super) fn is_path(name: &str) -> bool {
    let begins = |text: &str| text.starts_with(PATH_BEGINNINGS);
    begins(name) || name.rsplit_once(' ').is_some_and(|(_, path)| begins(path))
}

impl Reader<'_> {
    /// The requests that a route matches.
    pub(super) fn route_key(&mut self, entry: &Entry<'_, '_>) -> Option<Placed<RouteKey>> {
        let (methods, path) = match entry.name.rsplit_once(' ') {
            Some((methods, path)) if methods.starts_with(PATH_BEGINNINGS) => {
                let span = entry.key();
                let message = format!("there is a space in the path `{methods} {path}`");
                self.error("path", span, message, "write it percent-encoded: %20");
                return None;
            }
            Some((methods, path)) => (Some(self.key_methods(methods, path, entry.key())?), path),
            None => (None, entry.name),
        };
        let path = match path.strip_prefix('~') {
            Some(regex) => self.path_regex(regex, entry)?,
            None => self.path_pattern(path, entry.key())?,
        };
        Some(Placed::new(RouteKey { methods, path }, entry.key()))
    }

    fn key_methods(&mut self, names: &str, path: &str, span: Span) -> Option<Methods> {
        let mut methods = Methods::default();
        for name in names.split(',') {
            let Some(method) = Method::parse(name) else {
                let is_spaced = name.trim() != name || name.is_empty();
                let words: Vec<&str> = names
                    .split([',', ' '])
                    .filter(|word| !word.is_empty())
                    .collect();
                if is_spaced && words.iter().all(|word| Method::parse(word).is_some()) {
                    let message = "only commas stand between methods";
                    let label = format!("write \"{} {path}\"", words.join(","));
                    self.error("method", span, message, label);
                } else {
                    self.unknown_method(name.trim(), span);
                }
                return None;
            };
            methods.insert(method);
        }
        Some(methods)
    }

    pub(super) fn unknown_method(&mut self, name: &str, span: Span) {
        let upper = name.to_ascii_uppercase();
        let label = match suggestion::nearest(&upper, Method::names()) {
            _ if name == "CONNECT" => "leave it out: CONNECT has no path".to_owned(),
            Some(other) => format!("write {other}"),
            None => {
                let names: Vec<&str> = Method::names().collect();
                format!("methods are {}", names.join(", "))
            }
        };
        self.error(
            "method",
            span,
            format!("there is no method `{name}`"),
            label,
        );
    }

    fn path_pattern(&mut self, text: &str, span: Span) -> Option<PathPattern> {
        let (path, is_exact) = match text.strip_prefix('=') {
            Some(path) => (path, true),
            None => (text, false),
        };
        if path.starts_with('~') {
            let message = "a regex matches whole paths, with or without `=`";
            self.error("path", span, message, format!("write '{path}'"));
            return None;
        }
        match pattern(path, is_exact) {
            Ok(pattern) => Some(pattern),
            Err((code, message, label)) => {
                self.error(code, span, message, label);
                None
            }
        }
    }

    fn path_regex(&mut self, text: &str, entry: &Entry<'_, '_>) -> Option<PathPattern> {
        let regex = match PathRegex::parse(text) {
            Ok(regex) => regex,
            Err(mistake) => {
                let part = mistake.part;
                let span = part.and_then(|part| self.regex_part(text, part, entry));
                let span = span.unwrap_or(entry.key());
                self.error(mistake.code, span, mistake.message, mistake.label);
                return None;
            }
        };
        let wrong = regex.names().find_map(name_problem);
        if let Some((code, message, label)) = wrong {
            self.error(code, entry.key(), message, label);
            return None;
        }
        Some(PathPattern::of_regex(regex))
    }

    /// The place of a part of a regex, unless its key has escapes of TOML. An empty part is that of the next character.
    fn regex_part(&self, regex: &str, part: Range<usize>, entry: &Entry<'_, '_>) -> Option<Span> {
        let written = self.document.slice(&entry.key());
        let is_verbatim = written.get(1..written.len().saturating_sub(1)) == Some(entry.name);
        let start = entry.key_start + 1 + entry.name.len() - regex.len();
        let end = start + part.end.max(part.start + 1).min(regex.len());
        is_verbatim.then_some((start + part.start).min(end.saturating_sub(1))..end)
    }
}

/// Code, message and label.
type Invalid = (&'static str, String, String);

fn pattern(path: &str, is_exact: bool) -> Result<PathPattern, Invalid> {
    let Some(rest) = path.strip_prefix('/') else {
        let message = "a path begins with a slash".to_owned();
        return Err(("path-slash", message, format!("write \"/{path}\"")));
    };
    let mut segments = Vec::new();
    let mut texts: Vec<&str> = rest.split('/').collect();
    let last = texts.pop().unwrap_or_default();
    for text in texts {
        segments.push(segment(text, path, &segments)?);
    }
    let end = match (last, last.strip_suffix('*')) {
        ("", _) if is_exact => {
            segments.push(Segment::Text("".into()));
            PathEnd::Exact
        }
        _ if is_exact => {
            segments.push(segment(last, path, &segments)?);
            PathEnd::Exact
        }
        ("" | "*", _) if segments.is_empty() => PathEnd::Subtree,
        ("" | "*", _) => PathEnd::Below,
        (_, Some(prefix)) => {
            check_segment(prefix, path, true)?;
            PathEnd::Prefix(path::with_upper_escapes(prefix).into())
        }
        _ => {
            segments.push(segment(last, path, &segments)?);
            PathEnd::Subtree
        }
    };
    Ok(PathPattern {
        segments: segments.into(),
        end,
    })
}

fn segment(text: &str, path: &str, before: &[Segment]) -> Result<Segment, Invalid> {
    if text.is_empty() {
        let message = format!("`{path}` has an empty segment");
        return Err(("path", message, "write one slash".to_owned()));
    }
    if !text.contains(['{', '}']) {
        check_segment(text, path, false)?;
        return Ok(Segment::Text(path::with_upper_escapes(text).into()));
    }
    let name = text
        .strip_prefix('{')
        .and_then(|text| text.strip_suffix('}'))
        .filter(|name| !name.contains(['{', '}']));
    let Some(name) = name else {
        let message = "a parameter is a whole segment".to_owned();
        let label = "write for example \"/u/{id}/posts\"".to_owned();
        return Err(("path-parameter", message, label));
    };
    if let Some(problem) = name_problem(name) {
        return Err(problem);
    }
    let is_same = |other: &Segment| matches!(other, Segment::Parameter(other) if **other == *name);
    if before.iter().any(is_same) {
        let message = format!("two parameters have the name `{name}`");
        return Err(("path-parameter", message, "write another name".to_owned()));
    }
    Ok(Segment::Parameter(name.into()))
}

/// The problem with the name of a parameter, or of a group of a regex.
fn name_problem(name: &str) -> Option<Invalid> {
    let is_name = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if !is_name {
        let message = format!("`{name}` is no name of a parameter");
        let label = "write letters, digits and _, such as {id}".to_owned();
        return Some(("path-parameter", message, label));
    }
    template::is_placeholder(name).then(|| {
        let message = format!("`{{{name}}}` is a placeholder with another meaning");
        let label = format!("write another name, such as {{the_{name}}}");
        ("path-parameter", message, label)
    })
}

fn check_segment(text: &str, path: &str, is_part: bool) -> Result<(), Invalid> {
    if text.contains('*') {
        let message = "a path has a star at its end only".to_owned();
        let label = "write for example \"/img/*\" for all paths below /img, or \"/img*\" for all that begin with it";
        let label = label.to_owned();
        return Err(("path-star", message, label));
    }
    if text.contains(['{', '}']) {
        let message = "a parameter is a whole segment".to_owned();
        let label = "write for example \"/u/{id}/posts\"".to_owned();
        return Err(("path-parameter", message, label));
    }
    let checked = match is_part {
        true => path::check_characters(text),
        false => path::check_segment(text),
    };
    checked.map_err(|(problem, remedy)| ("path", format!("`{path}` {problem}"), remedy))
}
