//! Endpoints that answer without an upstream: redirects and fixed responses.

use std::fmt;

use blitz_config::{Redirect, RedirectOrigin, Template};
use blitz_http::{Chunk, Name, Pooled, ResponseHead, Scheme, Status};
use blitz_site::matcher::host_of;
use blitz_site::{LoadedFile, apply};

use crate::rules::{Edits, Facts, redirect_target, text_of};

/// A response that a route composes itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Another URL.
    Redirect(Redirect),
    /// The same URL at this host.
    Canonical(String),
    /// The same response for all.
    Fixed(FixedResponse),
}

/// A fixed response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FixedResponse {
    pub(crate) status: Status,
    pub(crate) content: FixedContent,
    pub(crate) edits: Option<Edits>,
}

/// The content of a fixed response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FixedContent {
    Empty,
    Text(Template),
    File(LoadedFile),
}

impl Answer {
    /// The response to a request.
    pub(crate) fn respond(&self, facts: &Facts<'_>) -> (Pooled<ResponseHead>, Chunk) {
        match self {
            Answer::Redirect(redirect) => {
                let status = Status::new(redirect.status).unwrap_or(Status::PERMANENT_REDIRECT);
                redirected(status, location(redirect, facts))
            }
            Answer::Canonical(host) => {
                redirected(Status::PERMANENT_REDIRECT, canonical_location(host, facts))
            }
            Answer::Fixed(fixed) => fixed.respond(facts),
        }
    }
}

/// For people.
impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Redirect(redirect) => {
                let origin = match &redirect.origin {
                    None => String::new(),
                    Some(RedirectOrigin::Text(text)) => text.clone(),
                    Some(RedirectOrigin::RequestHost { before, after }) => {
                        format!("{before}{{host}}{after}")
                    }
                };
                write!(f, "{} {origin}{}", redirect.status, redirect.target)
            }
            Answer::Canonical(host) => write!(f, "308 to {host}"),
            Answer::Fixed(fixed) => write!(f, "{}", fixed.status.code()),
        }
    }
}

fn redirected(status: Status, location: String) -> (Pooled<ResponseHead>, Chunk) {
    let mut head = Pooled::response(status);
    head.fields.append(Name::Location, location);
    (head, Chunk::from(""))
}

/// The client's scheme, port, path and query stay.
fn canonical_location(host: &str, facts: &Facts<'_>) -> String {
    let scheme = match facts.scheme {
        Scheme::Http => "http",
        Scheme::Https => "https",
    };
    let authority = facts.head.authority().unwrap_or_default();
    let port = &authority[host_of(authority).len()..];
    let host = match host.contains(':') {
        true => format!("[{host}]"),
        false => host.to_owned(),
    };
    let target = match facts.head.path_and_query() {
        "*" => "/",
        target => target,
    };
    format!("{scheme}://{host}{port}{target}")
}

impl FixedResponse {
    fn respond(&self, facts: &Facts<'_>) -> (Pooled<ResponseHead>, Chunk) {
        let mut head = Pooled::response(self.status);
        let content = match &self.content {
            FixedContent::Empty => Chunk::from(""),
            FixedContent::Text(template) => {
                let content_type = "text/plain; charset=utf-8";
                head.fields.append(Name::ContentType, content_type);
                Chunk::from(text_of(template, facts))
            }
            FixedContent::File(file) => {
                head.fields.append(Name::ContentType, file.content_type);
                Chunk::from(file.content.clone())
            }
        };
        if let Some(edits) = &self.edits {
            apply(&edits.for_request(facts), &mut head.fields);
        }
        (head, content)
    }
}

/// The target of a redirect. Without an origin it begins with one slash, so that no part of a request becomes a host.
fn location(redirect: &Redirect, facts: &Facts<'_>) -> String {
    let mut location = match &redirect.origin {
        None => String::new(),
        Some(RedirectOrigin::Text(text)) => text.clone(),
        Some(RedirectOrigin::RequestHost { before, after }) => {
            let host = host_of(facts.head.authority().unwrap_or_default());
            format!("{before}{host}{after}")
        }
    };
    let target = redirect_target(&redirect.target, facts);
    let target = target.replace('\\', "%5C");
    if redirect.origin.is_none() {
        location.push('/');
        location.push_str(target.trim_start_matches('/'));
    } else {
        let begins = target.is_empty() || target.starts_with(['/', '?', '#']);
        location.push_str(if begins { "" } else { "/" });
        location.push_str(&target);
    }
    if let (false, Some(query)) = (redirect.has_query, facts.head.query()) {
        let fragment = location.find('#').map(|at| location.split_off(at));
        location.push('?');
        location.push_str(query);
        location.push_str(&fragment.unwrap_or_default());
    }
    location
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use blitz_http::{Method, Peer, RequestHead};

    use super::*;
    use crate::trusted::TrustedProxies;

    /// Clients that read nothing would hold a copy each.
    #[test]
    fn responses_share_the_bytes_of_a_file() {
        let file = LoadedFile::new(Path::new("closed.html"), &[b'x'; 1000]);
        let response = FixedResponse {
            status: Status::SERVICE_UNAVAILABLE,
            content: FixedContent::File(file.clone()),
            edits: None,
        };
        let peer = Peer {
            remote: None,
            listener: None,
            scheme: Scheme::Http,
            tls: None,
        };
        let (head, trusted) = (
            RequestHead::new(Method::Get, "/"),
            TrustedProxies::default(),
        );
        let (_, content) = response.respond(&Facts::of(&head, &peer, &trusted));
        assert_eq!(content.as_ptr(), file.content.as_ptr());
    }
}
