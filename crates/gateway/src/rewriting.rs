//! Changes for routes with the key `path` beside the path itself. An upstream that knows only its own paths names them
//! in `Location` and in cookies, where clients need theirs; `X-Forwarded-Prefix` tells it the missing prefix.

use blitz_config::{Placeholder, Template, TemplatePart};
use blitz_http::path::may_be_dot_segment;
use blitz_http::{Fields, Name, Peer, RequestHead, Scheme};
use blitz_site::matcher::host_of;

use crate::forward::ProxyFacts;
use crate::rules::{encoded_path_text, rest_start};
use crate::trusted::TrustedProxies;

const PREFIX_FIELD: &str = "x-forwarded-prefix";

/// The prefix of an upstream's paths in place of the client's, if `path` is a text followed by `{rest}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UpstreamPrefix {
    /// Empty, or it begins with a slash.
    text: Box<str>,
    /// See [`Placeholder::Rest`].
    segments: usize,
    bytes: usize,
}

impl UpstreamPrefix {
    /// `None` for other templates: what clients call the upstream's paths is unknown.
    pub(crate) fn of(template: &Template) -> Option<UpstreamPrefix> {
        let (text, rest) = match template.parts() {
            [TemplatePart::Placeholder(rest)] => ("", rest),
            [TemplatePart::Text(text), TemplatePart::Placeholder(rest)] => (&**text, rest),
            _ => return None,
        };
        let &Placeholder::Rest { segments, bytes } = rest else {
            return None;
        };
        let text = match text.is_empty() || text.starts_with('/') {
            true => encoded_path_text(text),
            false => format!("/{}", encoded_path_text(text)),
        };
        Some(UpstreamPrefix {
            text: text.into(),
            segments,
            bytes,
        })
    }

    /// The rest of a path that lies below the prefix.
    fn rest<'p>(&self, path: &'p str) -> Option<&'p str> {
        let rest = path.strip_prefix(&*self.text)?;
        let ends_within_segment = self.bytes > 0 && !self.text.is_empty();
        (ends_within_segment || rest.is_empty() || rest.starts_with('/')).then_some(rest)
    }
}

/// How the paths of an upstream are those of the client of a request.
pub(crate) struct Rewriting<'a> {
    prefix: &'a UpstreamPrefix,
    /// The prefix of the client's paths in place of it.
    client_prefix: String,
    client_scheme: Scheme,
    /// Empty if the client named no host.
    client_authority: String,
    /// The hosts under which the upstream knows itself.
    upstream_authorities: [&'a str; 2],
}

impl<'a> Rewriting<'a> {
    /// For a request as it came. The upstream has these names.
    #[cold]
    pub(crate) fn new(
        prefix: &'a UpstreamPrefix,
        head: &RequestHead,
        peer: &Peer,
        trusted: &TrustedProxies,
        upstream_authorities: [&'a str; 2],
    ) -> Box<Rewriting<'a>> {
        let told = ProxyFacts::of(head, peer, trusted);
        let path = head.path();
        let end = rest_start(path, prefix.segments, prefix.bytes);
        Box::new(Rewriting {
            prefix,
            client_prefix: path.get(..end).unwrap_or_default().to_owned(),
            client_scheme: told.as_ref().map_or(peer.scheme, |facts| facts.scheme),
            client_authority: match told {
                Some(facts) => facts.authority(),
                None => head.authority().unwrap_or_default().to_owned(),
            },
            upstream_authorities,
        })
    }

    /// Of several upstreams this one gets the request.
    pub(crate) fn set_upstream(&mut self, authority: &'a str) {
        self.upstream_authorities[0] = authority;
    }

    /// Tells the upstream what the route has removed, behind what a trusted proxy has. The fields of others are gone.
    #[cold]
    pub(crate) fn edit_request(&self, fields: &mut Fields) {
        if !self.prefix.text.is_empty() || self.client_prefix.is_empty() {
            return;
        }
        let mut prefix = Vec::new();
        for line in fields.get_all(PREFIX_FIELD) {
            for member in line.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                prefix.extend_from_slice(member.strip_suffix(b"/").unwrap_or(member));
            }
        }
        // A comma would separate two prefixes.
        prefix.extend_from_slice(self.client_prefix.replace(',', "%2C").as_bytes());
        fields.remove(PREFIX_FIELD);
        fields.append(PREFIX_FIELD, prefix);
    }

    /// Rewrites `Location` and the paths of cookies. URLs and paths elsewhere stay.
    #[cold]
    pub(crate) fn edit_response(&self, fields: &mut Fields) {
        let location = fields.get_str(Name::Location);
        if let Some(location) = location.and_then(|location| self.location(location)) {
            fields.set(Name::Location, location);
        }
        let cookie = |line: &[u8]| self.cookie(std::str::from_utf8(line).ok()?);
        if !fields
            .get_all(Name::SetCookie)
            .any(|line| cookie(line).is_some())
        {
            return;
        }
        let lines = fields.get_all(Name::SetCookie);
        let lines: Vec<Vec<u8>> = lines
            .map(|line| cookie(line).map_or_else(|| line.to_vec(), String::into_bytes))
            .collect();
        fields.remove(Name::SetCookie);
        for line in lines {
            fields.append(Name::SetCookie, line);
        }
    }

    /// The client's path for one of the upstream.
    fn path(&self, path: &str, client_prefix: &str) -> Option<String> {
        let rest = self.prefix.rest(path)?;
        if self.is_of_client(path) || path.split('/').any(may_be_dot_segment) {
            return None;
        }
        Some(match client_prefix {
            // Two slashes would be the beginning of a host.
            "" => format!("/{}", rest.trim_start_matches(['/', '\\'])),
            prefix => format!("{prefix}{rest}"),
        })
    }

    /// Whether an upstream that follows `X-Forwarded-Prefix` has written the client's path itself.
    fn is_of_client(&self, path: &str) -> bool {
        let below = path.strip_prefix(&*self.client_prefix);
        let is_below = below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        self.prefix.text.is_empty() && !self.client_prefix.is_empty() && is_below
    }

    fn location(&self, location: &str) -> Option<String> {
        // Browsers remove tabs, and two slashes would remain.
        if location.contains(|char: char| char.is_ascii_control()) {
            return None;
        }
        let (scheme, authority, target) = split(location)?;
        let (path, tail) = target.split_at(target.find(['?', '#']).unwrap_or(target.len()));
        let path = match (authority, path) {
            (Some(_), "") => "/",
            (_, path) => path,
        };
        let path = self.path(path, &self.client_prefix)?;
        let Some(authority) = authority else {
            return Some(path + tail);
        };
        let scheme_of = scheme.unwrap_or(self.client_scheme);
        let is = |other: &str| is_same(authority, other, scheme_of);
        if is(&self.client_authority) {
            let origin = &location[..location.len() - target.len()];
            return Some(format!("{origin}{path}{tail}"));
        }
        if !self.upstream_authorities.into_iter().any(is)
            && !self.is_with_port_of_upstream(authority)
        {
            return None;
        }
        let authority = &self.client_authority;
        Some(match scheme {
            _ if authority.is_empty() => path + tail,
            None => format!("//{authority}{path}{tail}"),
            Some(_) => format!("{}://{authority}{path}{tail}", self.client_scheme.as_str()),
        })
    }

    /// Whether this is the client's host with the upstream's port, as nginx writes it: it knows the former from `Host`.
    fn is_with_port_of_upstream(&self, authority: &str) -> bool {
        let port_of = |authority: &'a str| authority.get(host_of(authority).len()..);
        let [upstream, _] = self.upstream_authorities;
        let Some(port) = port_of(upstream) else {
            return false;
        };
        let host = host_of(&self.client_authority);
        !port.is_empty() && authority.eq_ignore_ascii_case(&format!("{host}{port}"))
    }

    /// The line of `Set-Cookie` with the client's path (RFC 6265, section 5.2.4), if it has another one.
    fn cookie(&self, line: &str) -> Option<String> {
        let name = line.trim_start().as_bytes();
        // Browsers take such a cookie only with the path `/`.
        if name
            .get(..7)
            .is_some_and(|start| start.eq_ignore_ascii_case(b"__Host-"))
        {
            return None;
        }
        let (mut parts, mut is_changed) = (Vec::new(), false);
        for (at, part) in line.split(';').enumerate() {
            let attribute = part.split_once('=').filter(|_| at > 0);
            let path = attribute.filter(|(name, _)| name.trim().eq_ignore_ascii_case("path"));
            let rewritten = path.and_then(|(name, path)| {
                Some(format!("{name}={}", self.cookie_path(path.trim())?))
            });
            is_changed |= rewritten.is_some();
            parts.push(rewritten.unwrap_or_else(|| part.to_owned()));
        }
        is_changed.then(|| parts.join(";"))
    }

    fn cookie_path(&self, path: &str) -> Option<String> {
        // A semicolon would end the attribute.
        let client_prefix = self.client_prefix.replace(';', "%3B");
        match (path, &*self.prefix.text) {
            // `/app/` would not be for `/app`.
            ("/", "") if !client_prefix.is_empty() => Some(client_prefix),
            ("", _) => None,
            _ => self.path(path, &client_prefix),
        }
    }
}

/// Scheme and authority, if there are any, and what follows them. `None` for a path that is relative, and for other
/// schemes.
fn split(location: &str) -> Option<(Option<Scheme>, Option<&str>, &str)> {
    let (scheme, rest) = match location.split_once("//") {
        Some(("", rest)) => (None, rest),
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http:") => (Some(Scheme::Http), rest),
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https:") => {
            (Some(Scheme::Https), rest)
        }
        _ => return location.starts_with('/').then_some((None, None, location)),
    };
    let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
    let (authority, target) = rest.split_at(end);
    Some((scheme, Some(authority), target))
}

/// Whether two authorities are the same, in whatever case and with or without the default port.
fn is_same(a: &str, b: &str, scheme: Scheme) -> bool {
    let default_port = format!(":{}", scheme.default_port());
    let bare = |authority: &str| -> String {
        let bare = authority.strip_suffix(&default_port).unwrap_or(authority);
        bare.to_ascii_lowercase()
    };
    !a.is_empty() && bare(a) == bare(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewriting<'a>(prefix: &'a UpstreamPrefix, client_prefix: &str) -> Rewriting<'a> {
        Rewriting {
            prefix,
            client_prefix: client_prefix.to_owned(),
            client_scheme: Scheme::Https,
            client_authority: "a.example:8443".to_owned(),
            upstream_authorities: ["app:3000", "b.example"],
        }
    }

    fn prefix(text: &str, bytes: usize) -> UpstreamPrefix {
        UpstreamPrefix {
            text: text.into(),
            segments: 1,
            bytes,
        }
    }

    #[test]
    fn locations_below_the_prefix_are_those_of_the_client() {
        let (v2, none, img) = (prefix("/v2", 0), prefix("", 0), prefix("/pic", 4));
        for (prefix, client_prefix, location, expected) in [
            (&v2, "/v1", "/v2/x?y#z", Some("/v1/x?y#z")),
            (&v2, "/v1", "/v2", Some("/v1")),
            (&v2, "/v1", "/v2?x=/v2", Some("/v1?x=/v2")),
            (&v2, "/v1", "/v20", None),
            (&v2, "/v1", "/", None),
            (&v2, "/v1", "v2/x", None),
            (&v2, "/v1", "/v2/../x", None),
            (
                &v2,
                "/v1",
                "http://app:3000/v2/x",
                Some("https://a.example:8443/v1/x"),
            ),
            (
                &v2,
                "/v1",
                "http://B.example:80/v2/x",
                Some("https://a.example:8443/v1/x"),
            ),
            (&v2, "/v1", "//app:3000/v2/x", Some("//a.example:8443/v1/x")),
            (
                &v2,
                "/v1",
                "http://a.example:8443/v2/x",
                Some("http://a.example:8443/v1/x"),
            ),
            (
                &v2,
                "/v1",
                "http://A.example:3000/v2/x",
                Some("https://a.example:8443/v1/x"),
            ),
            (&v2, "/v1", "http://app:3000/x", None),
            (&v2, "/v1", "http://app/v2/x", None),
            (&v2, "/v1", "http://u@app:3000/v2/x", None),
            (&v2, "/v1", "https://elsewhere.example/v2/x", None),
            (&v2, "/v1", "ftp://app:3000/v2/x", None),
            (&none, "/app", "/x", Some("/app/x")),
            (&none, "/app", "/", Some("/app/")),
            // The upstream follows `X-Forwarded-Prefix`.
            (&none, "/app", "/app/x", None),
            (&none, "/app", "/app", None),
            (&none, "/app", "/apps", Some("/app/apps")),
            (
                &none,
                "/app",
                "http://app:3000",
                Some("https://a.example:8443/app/"),
            ),
            (
                &none,
                "/app",
                "http://app:3000?x",
                Some("https://a.example:8443/app/?x"),
            ),
            (&img, "/img", "/pictures/x", Some("/imgtures/x")),
            // No part of it becomes a host.
            (&v2, "", "/v2//evil.example/x", Some("/evil.example/x")),
            (&v2, "", "/v2/\\evil.example", Some("/evil.example")),
            (&v2, "", "/v2", Some("/")),
            (&v2, "", "/v2/\t/evil.example", None),
        ] {
            let found = rewriting(prefix, client_prefix).location(location);
            assert_eq!(found.as_deref(), expected, "{location}");
        }
    }

    #[test]
    fn cookies_have_the_paths_of_the_client() {
        let (v2, none) = (prefix("/v2", 0), prefix("", 0));
        for (prefix, client_prefix, line, expected) in [
            (&v2, "/v1", "a=b; Path=/v2", Some("a=b; Path=/v1")),
            (
                &v2,
                "/v1",
                "a=b; path = /v2/x ; Secure",
                Some("a=b; path =/v1/x; Secure"),
            ),
            (&v2, "/v1", "a=b; Path=/", None),
            (&v2, "/v1", "Path=/v2", None),
            (&v2, "/v1", "a=b", None),
            (&v2, "", "a=b; Path=/v2", Some("a=b; Path=/")),
            (&none, "/app", "a=b; Path=/app", None),
            (
                &none,
                "/app",
                "a=b; Path=/; HttpOnly",
                Some("a=b; Path=/app; HttpOnly"),
            ),
            (&none, "/app", "a=b; Path=/x", Some("a=b; Path=/app/x")),
            (&none, "/app", "a=b; Path=", None),
            (&none, "/app", "a=b; Path=x", None),
            (&none, "/app", "__Host-a=b; Path=/", None),
            (&none, "/t/a;b", "a=b; Path=/", Some("a=b; Path=/t/a%3Bb")),
        ] {
            let found = rewriting(prefix, client_prefix).cookie(line);
            assert_eq!(found.as_deref(), expected, "{line}");
        }
    }

    #[test]
    fn the_prefix_of_a_trusted_proxy_is_extended() {
        let none = prefix("", 0);
        for (told, client_prefix, expected) in [
            (&[][..], "/app", Some("/app")),
            (&["/outer/"][..], "/app", Some("/outer/app")),
            (&["/a, /b", "/c"][..], "/app", Some("/a/b/c/app")),
            (&["/outer"][..], "", Some("/outer")),
            (&[][..], "/x,y", Some("/x%2Cy")),
        ] {
            let mut fields = Fields::new();
            told.iter()
                .for_each(|line| fields.append(PREFIX_FIELD, *line));
            rewriting(&none, client_prefix).edit_request(&mut fields);
            assert_eq!(fields.get_str(PREFIX_FIELD), expected, "{told:?}");
        }
    }
}
