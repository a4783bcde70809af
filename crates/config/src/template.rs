//! Texts with placeholders: `/v2{rest}`, `{client}`.

use std::fmt;
use std::ops::Deref;

use crate::path_regex::PathRegex;

/// A text with placeholders.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Template {
    parts: Box<[TemplatePart]>,
}

/// A part of a text with placeholders.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TemplatePart {
    /// As it is.
    Text(PlainText),
    /// A value of the request.
    Placeholder(Placeholder),
}

/// A text without CR, LF and NUL.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PlainText(Box<str>);

/// A value of a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Placeholder {
    /// The path as received.
    Path,
    /// The rest of the path after its first `segments`, each with the slash before it, and `bytes`, which are those of
    /// `/img` for the route `/img*`. Empty, or it begins with a slash unless `bytes` is above 0.
    Rest {
        /// The number of segments.
        segments: usize,
        /// Bytes of the normalised path behind them, the slash included.
        bytes: usize,
    },
    /// A segment of the path.
    Parameter {
        /// The name in the key of the route.
        name: Box<str>,
        /// Its number among the segments of the path, from 0.
        segment: usize,
    },
    /// The match of a group of the route's regex. It has no value if the group takes no part in the match.
    Group {
        /// The name of the group.
        name: Box<str>,
        /// The regex, which is for the whole path.
        regex: PathRegex,
    },
    /// The query without its question mark.
    Query,
    /// The host of the request.
    Host,
    /// The method.
    Method,
    /// `http` or `https`.
    Scheme,
    /// The address of the client.
    Client,
    /// The number of the request.
    RequestId,
    /// The field with this name in lower case.
    Header(Box<str>),
    /// The cookie with this name.
    Cookie(Box<str>),
    /// The subject of the certificate of the client.
    CertificateSubject,
    /// SHA-256 of the certificate of the client.
    CertificateFingerprint,
    /// The name of the client, as the route's policies or its handshake have verified.
    User,
    /// The claim with this name, of the token that the route's `jwt` has verified.
    Claim(Box<str>),
}

impl Template {
    pub(crate) fn new(parts: Vec<TemplatePart>) -> Template {
        Template {
            parts: parts.into(),
        }
    }

    /// The parts in order. No text is empty, and no two texts follow each other.
    #[must_use]
    pub fn parts(&self) -> &[TemplatePart] {
        &self.parts
    }

    /// The claims that it has.
    pub fn claims(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            TemplatePart::Placeholder(Placeholder::Claim(name)) => Some(&**name),
            _ => None,
        })
    }

    /// Whether it tells who the client is, by its certificate, its token or its name.
    #[must_use]
    pub fn has_identity(&self) -> bool {
        self.client_certificate().is_some() || self.claims().next().is_some() || self.has_user()
    }

    /// Whether it has the name of the client.
    #[must_use]
    pub fn has_user(&self) -> bool {
        let is_user = |part: &TemplatePart| *part == TemplatePart::Placeholder(Placeholder::User);
        self.parts.iter().any(is_user)
    }

    /// The first placeholder for the certificate of the client.
    pub(crate) fn client_certificate(&self) -> Option<&Placeholder> {
        self.parts.iter().find_map(|part| match part {
            TemplatePart::Placeholder(
                placeholder @ (Placeholder::CertificateSubject
                | Placeholder::CertificateFingerprint),
            ) => Some(placeholder),
            _ => None,
        })
    }

    /// The text, if it has no placeholders.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match &*self.parts {
            [] => Some(""),
            [TemplatePart::Text(text)] => Some(text),
            _ => None,
        }
    }
}

impl PlainText {
    /// `None` if the text has CR, LF or NUL.
    #[must_use]
    pub fn new(text: &str) -> Option<PlainText> {
        (!text.contains(['\r', '\n', '\0'])).then(|| PlainText(text.into()))
    }

    /// The text after the first `start` bytes. `None` if it is empty.
    pub(crate) fn behind(&self, start: usize) -> Option<PlainText> {
        let text = self.0.get(start..).filter(|text| !text.is_empty());
        text.map(|text| PlainText(text.into()))
    }

    /// `None` if nothing is left.
    pub(crate) fn without_last_slash(&self) -> Option<PlainText> {
        let text = self.0.strip_suffix('/').unwrap_or(&self.0);
        (!text.is_empty()).then(|| PlainText(text.into()))
    }
}

impl Deref for PlainText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// The text as the file has it, but for variables.
impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.parts {
            match part {
                TemplatePart::Text(text) => f.write_str(&text.replace('{', "{{"))?,
                TemplatePart::Placeholder(placeholder) => write!(f, "{{{placeholder}}}")?,
            }
        }
        Ok(())
    }
}

/// Its name without braces.
impl fmt::Display for Placeholder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Placeholder::Path => f.write_str("path"),
            Placeholder::Rest { .. } => f.write_str("rest"),
            Placeholder::Parameter { name, .. } | Placeholder::Group { name, .. } => {
                f.write_str(name)
            }
            Placeholder::Query => f.write_str("query"),
            Placeholder::Host => f.write_str("host"),
            Placeholder::Method => f.write_str("method"),
            Placeholder::Scheme => f.write_str("scheme"),
            Placeholder::Client => f.write_str("client"),
            Placeholder::RequestId => f.write_str("request_id"),
            Placeholder::Header(name) => write!(f, "header.{name}"),
            Placeholder::Cookie(name) => write!(f, "cookie.{name}"),
            Placeholder::CertificateSubject => f.write_str("client_cert.subject"),
            Placeholder::CertificateFingerprint => f.write_str("client_cert.fingerprint"),
            Placeholder::User => f.write_str("user"),
            Placeholder::Claim(name) => write!(f, "jwt.{name}"),
        }
    }
}

/// Whether a name is a placeholder everywhere, so that no parameter can have it.
pub(crate) fn is_placeholder(name: &str) -> bool {
    plain(name).is_some() || matches!(name, "rest" | "header" | "cookie" | "jwt" | "client_cert")
}

/// The placeholder of this name, if it depends on nothing but the request.
pub(crate) fn plain(name: &str) -> Option<Placeholder> {
    Some(match name {
        "path" => Placeholder::Path,
        "query" => Placeholder::Query,
        "host" => Placeholder::Host,
        "method" => Placeholder::Method,
        "scheme" => Placeholder::Scheme,
        "client" => Placeholder::Client,
        "request_id" => Placeholder::RequestId,
        _ => return None,
    })
}

/// The names of the placeholders that each route has.
pub(crate) const NAMES: [&str; 8] = [
    "path",
    "rest",
    "query",
    "host",
    "method",
    "scheme",
    "client",
    "request_id",
];

/// Further ones, as they are written.
pub(crate) const NAMES_OF_VALUES: [&str; 6] = [
    "user",
    "header.NAME",
    "cookie.NAME",
    "jwt.CLAIM",
    "client_cert.subject",
    "client_cert.fingerprint",
];
