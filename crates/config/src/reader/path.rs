//! Paths: the keys of routes, and what replaces a path in forwarded requests.

use std::ops::ControlFlow;

use super::value::Text;
use super::{Entry, Reader};
use crate::model::{PathPattern, Placed};

/// What follows the path of the route.
const REST: &str = "{rest}";

/// Placeholders that later versions have in `path`.
const PLANNED: [&str; 8] = [
    "path",
    "query",
    "host",
    "method",
    "scheme",
    "client",
    "request_id",
    "rest",
];

/// Whether a key of a site is a path, in any of the forms of the language.
pub(super) fn is_path(name: &str) -> bool {
    let without_methods = match name.split_once(' ') {
        Some((methods, path))
            if methods
                .bytes()
                .all(|byte| byte.is_ascii_uppercase() || byte == b',') =>
        {
            path
        }
        _ => name,
    };
    without_methods.starts_with(['/', '=', '~'])
}

impl Reader<'_> {
    /// The path of a route.
    pub(super) fn path(&mut self, entry: &Entry<'_, '_>) -> Option<Placed<PathPattern>> {
        let name = entry.name;
        let form = match name {
            _ if name.starts_with('=') => Some("an exact path"),
            _ if name.starts_with('~') => Some("a regex"),
            _ if name.contains(' ') => Some("a route for some methods"),
            _ if name.contains(['{', '}']) => Some("a parameter in a path"),
            _ => None,
        };
        if let Some(form) = form {
            self.not_yet(entry.key(), form);
            return None;
        }
        let value = match name.strip_suffix('*') {
            Some(text) => PathPattern::Text(text.to_owned()),
            None => PathPattern::Segments(name.to_owned()),
        };
        if value.text().contains('*') {
            self.error(
                "path-star",
                entry.key(),
                "a path has a star at its end only",
                "write for example \"/img*\" for all paths that begin with /img",
            );
            return None;
        }
        let span = entry.key();
        Some(Placed { value, span })
    }

    /// What stands before the rest of the path in forwarded requests.
    pub(super) fn replacement(&mut self, text: &Text) -> Option<String> {
        if let ControlFlow::Break(()) = self.check_placeholders(text) {
            return None;
        }
        let Some(before) = text.value.strip_suffix(REST) else {
            self.not_yet(text.span.clone(), "a path without {rest} at its end");
            return None;
        };
        if !(before.is_empty() || before.starts_with('/')) {
            self.error(
                "path-slash",
                text.span.clone(),
                "a path begins with a slash",
                format!("write \"/{}\"", text.written),
            );
            return None;
        }
        // `/v2/` and `/x` are one path with one slash.
        Some(before.trim_end_matches('/').to_owned())
    }

    fn check_placeholders(&mut self, text: &Text) -> ControlFlow<()> {
        let mut at = 0;
        while let Some(found) = text.value[at..].find('{') {
            let start = at + found;
            let length = text.value[start..].find('}');
            let end = length.map_or(text.value.len(), |length| start + length + 1);
            let placeholder = &text.value[start..end];
            let is_last_rest = placeholder == REST && end == text.value.len();
            if !is_last_rest {
                let name = placeholder.trim_matches(['{', '}']);
                let part = text.part(start..end);
                match PLANNED.contains(&name) {
                    true => self.not_yet(part, &format!("`{placeholder}` here")),
                    false => self.error(
                        "unknown-placeholder",
                        part,
                        format!("there is no placeholder `{placeholder}`"),
                        "write {rest} for what follows the path of the route",
                    ),
                }
                return ControlFlow::Break(());
            }
            at = end;
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_told_from_keys() {
        for (name, expected) in [
            ("/a", true),
            ("=/a", true),
            ("~/a", true),
            ("GET,HEAD /a", true),
            ("to", false),
            ("a b", false),
        ] {
            assert_eq!(is_path(name), expected, "{name}");
        }
    }
}
