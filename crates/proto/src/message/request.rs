//! Request heads: method, target, fields.

use super::{Fields, Method, Name, Version, is_token, target};
use crate::error::ErrorKind;

/// The form of a request target (RFC 9112, section 3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetForm {
    /// `/path?query`, the common one.
    Origin,
    /// `http://authority/path?query`, as sent to proxies.
    Absolute,
    /// `host:port`, only with CONNECT.
    Authority,
    /// `*`, only with OPTIONS.
    Asterisk,
}

/// A request target that HTTP forbids, or whose dot segments lead above its root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidTarget(pub(crate) ErrorKind);

impl InvalidTarget {
    /// Stable name of the violated rule.
    #[must_use]
    pub fn rule(&self) -> &'static str {
        self.0.rule()
    }
}

impl std::fmt::Display for InvalidTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the request target is invalid: {}", self.0.rule())
    }
}

impl std::error::Error for InvalidTarget {}

/// A range of a head's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

/// Request line and fields (RFC 9110, sections 6 and 7).
///
/// The parts of the target are stored apart from the fields, so a change of `fields` does not change
/// the target. The authority alone determines the host: encoders write `Host` from it.
#[derive(Debug, Clone)]
pub struct RequestHead {
    /// The method; [`RequestHead::method_str`] also returns unregistered ones.
    pub method: Method,
    /// The version with which the request was received; encoders ignore it.
    pub version: Version,
    /// The header section.
    pub fields: Fields,
    pub(crate) target: RequestTarget,
}

/// The text of a target, possibly several forms of it one after the other, and its parts.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestTarget {
    pub(crate) text: String,
    pub(crate) form: Option<TargetForm>,
    pub(crate) scheme: Option<&'static str>,
    pub(crate) method: Span,
    pub(crate) authority: Option<Span>,
    /// As it was received.
    pub(crate) raw_path: Span,
    /// In normal form.
    pub(crate) path: Span,
    /// As it is sent; `?` and the query follow directly, if there is a query.
    pub(crate) sent_path: Span,
    pub(crate) query: Option<Span>,
    /// The protocol of an extended CONNECT.
    pub(crate) protocol: Option<Span>,
}

impl RequestHead {
    /// A request for `target`: `/path?query`, `http://host/path`, `*`, or `host:port` for CONNECT.
    ///
    /// # Panics
    /// If the target is invalid, or the method is [`Method::Other`]; see [`RequestHead::parse`].
    #[must_use]
    pub fn new(method: Method, target: &str) -> RequestHead {
        match RequestHead::parse(method.as_str(), target) {
            Ok(head) => head,
            Err(error) => panic!("{target:?}: {error}"),
        }
    }

    /// The same for untrusted text, with any token as the method.
    ///
    /// # Errors
    /// [`InvalidTarget`] if RFC 9112, section 3, does not allow the method or the target.
    pub fn parse(method: &str, target: &str) -> Result<RequestHead, InvalidTarget> {
        let mut head = RequestHead::default();
        head.method =
            target::parse_method_and_target(&mut head.target, method.as_bytes(), target.as_bytes())
                .map_err(InvalidTarget)?;
        Ok(head)
    }

    /// Resets the head to `GET /` without fields; keeps the memory.
    pub fn clear(&mut self) {
        self.method = Method::Get;
        self.version = Version::Http11;
        self.fields.clear();
        self.target.clear();
    }

    /// Bytes of the target and the fields, with those of removed fields: known without a look at each
    /// field.
    #[inline]
    #[must_use]
    pub fn text_len(&self) -> usize {
        self.target.text.len() + self.fields.text_len()
    }

    /// Copies `other` into the memory of `self`.
    #[inline]
    pub(crate) fn assign(&mut self, other: &RequestHead) {
        let mut text = std::mem::take(&mut self.target.text);
        text.clear();
        text.push_str(&other.target.text);
        self.method = other.method;
        self.version = other.version;
        self.fields.assign(&other.fields);
        self.target = RequestTarget {
            text,
            ..other.target
        };
    }

    /// The method's token.
    #[inline]
    #[must_use]
    pub fn method_str(&self) -> &str {
        match self.method {
            Method::Other => self.target.at(self.target.method),
            known => known.as_str(),
        }
    }

    /// Whether repeating the request has the effect of sending it once: see [`Method::is_idempotent`]. QUERY (RFC 10008) is
    /// safe, and so idempotent.
    #[inline]
    #[must_use]
    pub fn is_idempotent(&self) -> bool {
        match self.method {
            Method::Other => self.method_str() == "QUERY",
            known => known.is_idempotent(),
        }
    }

    /// Whether the method gives content a meaning that does not depend on the server (RFC 9110, section 9.3, and the
    /// registry of methods). Servers may leave other content unread.
    #[must_use]
    pub fn defines_content(&self) -> bool {
        match self.method {
            Method::Post | Method::Put | Method::Patch => true,
            Method::Other => matches!(
                self.method_str(),
                "ACL"
                    | "LOCK"
                    | "MKCALENDAR"
                    | "MKCOL"
                    | "PROPFIND"
                    | "PROPPATCH"
                    | "QUERY"
                    | "REPORT"
                    | "SEARCH"
            ),
            Method::Get
            | Method::Head
            | Method::Delete
            | Method::Options
            | Method::Connect
            | Method::Trace => false,
        }
    }

    /// The form in which the target was received or given.
    #[inline]
    #[must_use]
    pub fn form(&self) -> TargetForm {
        self.target.form.unwrap_or(TargetForm::Origin)
    }

    /// `http` or `https`, if the target named one; in HTTP/1 only the absolute form does.
    #[inline]
    #[must_use]
    pub fn scheme(&self) -> Option<&'static str> {
        self.target.scheme
    }

    /// Host and optional port, from the target or else from the `Host` field.
    ///
    /// The string may be empty, since HTTP/1.1 allows an empty `Host`.
    #[inline]
    #[must_use]
    pub fn authority(&self) -> Option<&str> {
        self.target.authority.map(|span| self.target.at(span))
    }

    /// The path that routes match, with unreserved characters decoded and dot segments removed
    /// (rule 10). `*` for `OPTIONS *`, empty for CONNECT.
    #[inline]
    #[must_use]
    pub fn path(&self) -> &str {
        if self.target.form.is_none() {
            "/"
        } else {
            self.target.at(self.target.path)
        }
    }

    /// The path as it is forwarded: as it was received, without dot segments, with raw bytes encoded.
    /// Segment by segment it identifies the same resource as [`path`](RequestHead::path).
    #[inline]
    #[must_use]
    pub fn sent_path(&self) -> &str {
        if self.target.form.is_none() {
            "/"
        } else {
            self.target.at(self.target.sent_path)
        }
    }

    /// The path as it was received, but with raw bytes encoded, for logs.
    #[inline]
    #[must_use]
    pub fn raw_path(&self) -> &str {
        if self.target.form.is_none() {
            "/"
        } else {
            self.target.at(self.target.raw_path)
        }
    }

    /// The text after the first `?`; `Some("")` for a bare `?`.
    #[inline]
    #[must_use]
    pub fn query(&self) -> Option<&str> {
        self.target.query.map(|span| self.target.at(span))
    }

    /// The protocol of an extended CONNECT, for example `websocket` (RFC 8441); only in HTTP/2 and
    /// HTTP/3. Unlike an ordinary CONNECT, such a request has a path.
    #[inline]
    #[must_use]
    pub fn protocol(&self) -> Option<&str> {
        self.target.protocol.map(|span| self.target.at(span))
    }

    /// Makes this an extended CONNECT for the protocol, or with `None` an ordinary request, whose
    /// method the caller must then set.
    ///
    /// # Panics
    /// If the protocol is not a token.
    pub fn set_protocol(&mut self, protocol: Option<&str>) {
        if let Some(protocol) = protocol {
            assert!(
                is_token(protocol.as_bytes()),
                "invalid protocol {protocol:?}"
            );
            self.method = Method::Connect;
        }
        self.target.protocol = protocol.map(|protocol| self.target.push(protocol));
    }

    /// The [`sent_path`](RequestHead::sent_path) and the query as they are sent in a request line.
    #[inline]
    #[must_use]
    pub fn path_and_query(&self) -> &str {
        let path = self.target.sent_path;
        match self.target.query {
            Some(query) => self.target.at(Span {
                start: path.start,
                end: query.end,
            }),
            None => self.sent_path(),
        }
    }

    /// Replaces the path, both the matched and the sent one, and keeps the query.
    ///
    /// # Panics
    /// If the path does not start with `/` or holds forbidden characters.
    pub fn set_path(&mut self, path: &str) {
        assert!(target::is_path(path.as_bytes()), "invalid path {path:?}");
        self.target.replace_path(path);
    }

    /// Replaces the authority and, if there is one, the `Host` field.
    ///
    /// # Panics
    /// If it is not `host` or `host:port`.
    pub fn set_authority(&mut self, authority: &str) {
        let valid = target::is_authority(authority.as_bytes());
        assert!(valid, "invalid authority {authority:?}");
        self.target.authority = Some(self.target.push(authority));
        if self.fields.contains(Name::Host) {
            self.fields.set(Name::Host, authority);
        }
    }

    /// Changes the method to a registered one.
    ///
    /// # Panics
    /// If the method is [`Method::Other`].
    pub fn set_method(&mut self, method: Method) {
        assert!(
            method != Method::Other,
            "an unregistered method needs its text"
        );
        self.method = method;
    }
}

impl Default for RequestHead {
    fn default() -> RequestHead {
        RequestHead {
            method: Method::Get,
            version: Version::Http11,
            fields: Fields::new(),
            target: RequestTarget::default(),
        }
    }
}

impl RequestTarget {
    pub(crate) fn clear(&mut self) {
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        *self = RequestTarget {
            text,
            ..RequestTarget::default()
        };
    }

    #[inline]
    pub(crate) fn at(&self, span: Span) -> &str {
        &self.text[span.start as usize..span.end as usize]
    }

    /// Adds text and returns its range. The limit of the request line keeps received targets far below
    /// 4 GiB; the assertion is for targets that a program builds.
    pub(crate) fn push(&mut self, text: &str) -> Span {
        let start = self.text.len();
        self.text.push_str(text);
        assert!(
            self.text.len() <= u32::MAX as usize,
            "request target over 4 GiB"
        );
        Span {
            start: start as u32,
            end: self.text.len() as u32,
        }
    }

    /// Writes a new path, and the query again next to it.
    fn replace_path(&mut self, path: &str) {
        let is_default = self.form.is_none();
        if !matches!(self.form, Some(TargetForm::Absolute)) {
            self.form = Some(TargetForm::Origin);
        }
        let old_query = self.query;
        self.sent_path = self.push(path);
        self.path = self.sent_path;
        if is_default {
            self.raw_path = self.sent_path;
        }
        self.query = old_query.map(|span| {
            self.text.push('?');
            self.push_again(span)
        });
    }

    fn push_again(&mut self, span: Span) -> Span {
        let start = self.text.len();
        self.text
            .extend_from_within(span.start as usize..span.end as usize);
        Span {
            start: start as u32,
            end: self.text.len() as u32,
        }
    }
}
