//! Cross-origin requests: responses that browsers show to scripts of other origins (Fetch Standard, section 3.2).

use std::time::Duration;

use blitz_http::{Method, Name, RequestHead, is_authority};

use super::{Notes, PolicyRequest, set};
use crate::edit::{Edit, FieldChange};
use crate::rejection::Rejection;

/// Which requests of other origins browsers may send.
#[derive(Debug, Clone, Default)]
pub struct CorsSettings {
    /// The origins; none is no other origin.
    pub origins: Vec<Origin>,
    /// Methods; `None` is all that a preflight asks for.
    pub methods: Option<Vec<String>>,
    /// Names of request fields; `None` is all that a preflight asks for.
    pub headers: Option<Vec<String>>,
    /// Names of response fields that scripts may read.
    pub expose: Vec<String>,
    /// Whether requests may have cookies and other credentials.
    pub credentials: bool,
    /// How long browsers may remember the response to a preflight, in whole seconds.
    pub max_age: Duration,
}

/// An origin, or several.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Origin {
    /// Every origin.
    Any,
    /// This one, as browsers write it: `https://app.example`, with a port that is not the scheme's.
    Exact(String),
    /// Hosts with one label more.
    Subdomains {
        /// The scheme with `://`.
        before: String,
        /// A dot, the host, and perhaps a port.
        after: String,
    },
}

/// The policy.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Cors {
    /// Origins with the changes of responses to them. Those of several origins lack the first, which names the origin.
    origins: Box<[(Origin, Box<[Edit]>)]>,
    /// Changes of responses to all others.
    others: Box<[Edit]>,
    methods: Option<Box<str>>,
    headers: Option<Box<str>>,
    max_age: Duration,
}

/// Fields of the protocol: those of an upstream are replaced.
const OWN_FIELDS: [&str; 6] = [
    "access-control-allow-credentials",
    "access-control-allow-headers",
    "access-control-allow-methods",
    "access-control-allow-origin",
    "access-control-expose-headers",
    "access-control-max-age",
];

impl Origin {
    /// The origin that a text means: `*`, `https://app.example`, or `https://*.app.example` for hosts with one label more.
    #[must_use]
    pub fn parse(text: &str) -> Option<Origin> {
        if text == "*" {
            return Some(Origin::Any);
        }
        let lower = text.to_ascii_lowercase();
        let (scheme, host) = lower.split_once("://")?;
        let (is_wildcard, name) = match host.strip_prefix("*.") {
            Some(name) => (true, name),
            None => (false, host),
        };
        // Browsers leave out the port of the scheme.
        let default = match scheme {
            "http" => ":80",
            "https" => ":443",
            _ => "",
        };
        let has_default = !default.is_empty() && host.ends_with(default);
        let is_host = is_authority(name.as_bytes()) && !name.contains(['*', '@']);
        if scheme.is_empty() || name.is_empty() || has_default || !is_host {
            return None;
        }
        Some(match is_wildcard {
            true => Origin::Subdomains {
                before: format!("{scheme}://"),
                after: format!(".{name}"),
            },
            false => Origin::Exact(lower),
        })
    }

    /// Whether the field `Origin` with this value means the origin, or one of them.
    fn matches(&self, origin: &[u8]) -> bool {
        match self {
            Origin::Any => true,
            Origin::Exact(text) => text.as_bytes() == origin,
            Origin::Subdomains { before, after } => {
                let label = origin.strip_prefix(before.as_bytes());
                let label = label.and_then(|rest| rest.strip_suffix(after.as_bytes()));
                let is_of_label =
                    |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
                label.is_some_and(|label| !label.is_empty() && label.iter().all(is_of_label))
            }
        }
    }
}

impl Cors {
    /// The policy of these settings.
    #[must_use]
    pub fn new(settings: &CorsSettings) -> Cors {
        let is_any = settings.origins.contains(&Origin::Any);
        let mut others: Vec<Edit> = OWN_FIELDS.map(|name| set(name, None)).into();
        // Without an origin that is named the response is the same for all.
        if !is_any {
            others.push(vary("Origin"));
        }
        let mut allowed = others.clone();
        if settings.credentials {
            replace(&mut allowed, "access-control-allow-credentials", "true");
        }
        if !settings.expose.is_empty() {
            let expose = settings.expose.join(", ");
            replace(&mut allowed, "access-control-expose-headers", &expose);
        }
        let edits = |origin: &Origin| {
            let mut edits = allowed.clone();
            match origin {
                Origin::Any => replace(&mut edits, "access-control-allow-origin", "*"),
                Origin::Exact(text) => {
                    replace(&mut edits, "access-control-allow-origin", text);
                }
                Origin::Subdomains { .. } => {}
            }
            (origin.clone(), edits.into())
        };
        Cors {
            origins: settings.origins.iter().map(edits).collect(),
            others: others.into(),
            methods: settings
                .methods
                .as_ref()
                .map(|names| names.join(", ").into()),
            headers: settings
                .headers
                .as_ref()
                .map(|names| names.join(", ").into()),
            max_age: settings.max_age,
        }
    }

    pub(super) fn decide<'p>(
        &'p self,
        request: &PolicyRequest<'_>,
        notes: &mut Notes<'p>,
    ) -> Result<(), Rejection> {
        let head = request.head;
        let is_allowed = self.note_origin(head, notes);
        let Some(method) = preflight_method(head) else {
            return Ok(());
        };
        let mut edits = vec![
            vary("Access-Control-Request-Method"),
            vary("Access-Control-Request-Headers"),
        ];
        if is_allowed {
            let asked = head.fields.get(Name::AccessControlRequestHeaders);
            let headers = self.headers.as_ref().map(|names| names.as_bytes());
            let methods = self.methods.as_ref().map(|names| names.as_bytes());
            let max_age = self.max_age.as_secs().to_string();
            let methods = methods.unwrap_or(method);
            edits.push(set("access-control-allow-methods", Some(methods)));
            edits.push(set("access-control-allow-headers", headers.or(asked)));
            edits.push(set("access-control-max-age", Some(max_age.as_bytes())));
        }
        // Only responses that scripts see have it.
        edits.push(set("access-control-expose-headers", None));
        notes.edit_response(edits);
        Err(Rejection::Preflight)
    }

    /// Notes the changes of the response; returns whether scripts may see it.
    fn note_origin<'p>(&'p self, head: &RequestHead, notes: &mut Notes<'p>) -> bool {
        let mut lines = head.fields.get_all(Name::Origin);
        let (Some(origin), None) = (lines.next(), lines.next()) else {
            notes.edit_response(&*self.others);
            return false;
        };
        let mut origins = self.origins.iter();
        let Some((kind, edits)) = origins.find(|(allowed, _)| allowed.matches(origin)) else {
            notes.edit_response(&*self.others);
            return false;
        };
        notes.edit_response(&**edits);
        if matches!(kind, Origin::Subdomains { .. }) {
            notes.edit_response(vec![set("access-control-allow-origin", Some(origin))]);
        }
        true
    }
}

/// The method of the request that a preflight is about (Fetch Standard, section 3.2.3); `None` for other requests.
#[must_use]
pub fn preflight_method(head: &RequestHead) -> Option<&[u8]> {
    let is_preflight = head.method == Method::Options && head.fields.contains(Name::Origin);
    match is_preflight {
        true => head.fields.get(Name::AccessControlRequestMethod),
        false => None,
    }
}

fn vary(name: &str) -> Edit {
    Edit {
        name: "vary".into(),
        change: FieldChange::Add(name.as_bytes().to_vec()),
    }
}

fn replace(edits: &mut [Edit], name: &str, value: &str) {
    for edit in edits.iter_mut().filter(|edit| *edit.name == *name) {
        edit.change = FieldChange::Set(vec![value.as_bytes().to_vec()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_parsed() {
        let exact = |text: &str| Some(Origin::Exact(text.to_owned()));
        for (text, expected) in [
            ("*", Some(Origin::Any)),
            ("https://app.example", exact("https://app.example")),
            (
                "HTTPS://App.Example:8443",
                exact("https://app.example:8443"),
            ),
            ("http://[::1]:3000", exact("http://[::1]:3000")),
            (
                "https://*.app.example",
                Some(Origin::Subdomains {
                    before: "https://".to_owned(),
                    after: ".app.example".to_owned(),
                }),
            ),
            ("null", None),
            ("app.example", None),
            ("https://", None),
            ("https://app.example/", None),
            ("https://app.example:443", None),
            ("https://a.*.example", None),
            ("https://u@app.example", None),
            ("://app.example", None),
        ] {
            assert_eq!(Origin::parse(text), expected, "{text}");
        }
    }

    #[test]
    fn a_subdomain_is_one_label() {
        let origin = Origin::Subdomains {
            before: "https://".to_owned(),
            after: ".app.example".to_owned(),
        };
        for (text, is_match) in [
            ("https://a.app.example", true),
            ("https://a-1_x.app.example", true),
            ("https://.app.example", false),
            ("https://app.example", false),
            ("https://a.b.app.example", false),
            ("https://evil.example/.app.example", false),
            ("https://evil.example:.app.example", false),
            ("https://a.app.example:8443", false),
            ("https://a.app.example.evil", false),
            ("http://a.app.example", false),
        ] {
            assert_eq!(origin.matches(text.as_bytes()), is_match, "{text}");
        }
    }
}
