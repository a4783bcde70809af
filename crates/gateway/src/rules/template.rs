//! Values of a request in place of placeholders.

use std::borrow::Cow;
use std::net::IpAddr;
use std::ops::Range;

use blitz_config::{Placeholder, Template, TemplatePart};
use blitz_http::{
    ClientCertificate, Fields, Name, Peer, RequestHead, Scheme, path as request_path,
};
use blitz_site::matcher::host_of;
use blitz_site::{ClientAddress, Identity, Notes, cookies};

use crate::forward::{ProxyFacts, told_client};
use crate::trusted::TrustedProxies;

/// The facts about a request, as placeholders name them.
pub(crate) struct Facts<'a> {
    pub(crate) head: &'a RequestHead,
    /// The head that has the path as it was received: an upstream may get another one.
    path_head: &'a RequestHead,
    /// The identity of the client, as the route's policies have verified.
    identities: &'a [Identity<'a>],
    /// The certificate of the client, as its handshake has verified it, if it is still valid.
    certificate: Option<&'a ClientCertificate>,
    /// `None` for a unix socket, and if it is unknown.
    pub(crate) client: Option<IpAddr>,
    /// As the client has it, which a trusted proxy may tell.
    pub(crate) scheme: Scheme,
}

/// The text for a field, or `None` if a placeholder has no value.
pub(crate) fn field_value(template: &Template, facts: &Facts<'_>) -> Option<Vec<u8>> {
    let mut value = Vec::new();
    for part in template.parts() {
        match part {
            TemplatePart::Text(text) => value.extend_from_slice(text.as_bytes()),
            TemplatePart::Placeholder(placeholder) => {
                value.extend_from_slice(&facts.value(placeholder)?);
            }
        }
    }
    Some(value)
}

/// The text for content; a placeholder without a value is nothing.
pub(crate) fn text(template: &Template, facts: &Facts<'_>) -> Vec<u8> {
    let mut text = Vec::new();
    for part in template.parts() {
        match part {
            TemplatePart::Text(part) => text.extend_from_slice(part.as_bytes()),
            TemplatePart::Placeholder(placeholder) => {
                text.extend_from_slice(&facts.value(placeholder).unwrap_or_default());
            }
        }
    }
    text
}

/// The path that an upstream receives. It begins with a slash.
pub(crate) fn path(template: &Template, facts: &Facts<'_>, out: &mut String) {
    write_uri(template, facts, is_of_path_text, out);
    if !out.starts_with('/') {
        out.insert(0, '/');
    }
}

/// Text of the configuration as [`path()`] writes it.
pub(crate) fn encoded_path_text(text: &str) -> String {
    let mut encoded = String::new();
    encode(text.as_bytes(), is_of_path_text, &mut encoded);
    encoded
}

/// Where `{rest}` begins in a normalised path: behind these segments and bytes.
pub(crate) fn rest_start(path: &str, segments: usize, bytes: usize) -> usize {
    let slashes = path.bytes().enumerate().filter(|(_, byte)| *byte == b'/');
    let before = slashes.map(|(at, _)| at).nth(segments);
    before.unwrap_or(path.len()) + bytes
}

/// Path, query and fragment of the target of a redirect.
pub(crate) fn redirect_target(template: &Template, facts: &Facts<'_>) -> String {
    let mut target = String::new();
    write_uri(template, facts, is_of_uri, &mut target);
    target
}

/// Parts of the received path stay as they are; every other value is percent-encoded, so that it adds no segment and
/// no query. `stays` is for the text of the configuration.
fn write_uri(template: &Template, facts: &Facts<'_>, stays: fn(u8) -> bool, out: &mut String) {
    for part in template.parts() {
        match part {
            TemplatePart::Text(text) => encode(text.as_bytes(), stays, out),
            TemplatePart::Placeholder(placeholder) => {
                let value = facts.value(placeholder).unwrap_or_default();
                let stays = match is_of_path(placeholder) {
                    true => is_of_uri,
                    false => is_unreserved,
                };
                encode(&value, stays, out);
            }
        }
    }
}

fn is_of_path(placeholder: &Placeholder) -> bool {
    matches!(
        placeholder,
        Placeholder::Path
            | Placeholder::Rest { .. }
            | Placeholder::Parameter { .. }
            | Placeholder::Group { .. }
    )
}

/// Percent-encodes the other bytes (RFC 3986, section 2.1).
fn encode(value: &[u8], stays: fn(u8) -> bool, out: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in value {
        if stays(byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push(char::from(DIGITS[usize::from(byte >> 4)]));
            out.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
    }
}

/// RFC 3986, section 2.3.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// RFC 3986, section 3.3: what may stand in a path, escapes included.
fn is_of_path_text(byte: u8) -> bool {
    is_unreserved(byte) || b"!$&'()*+,;=:@/%".contains(&byte)
}

/// Whether the byte may stand in a URI, or clients send it there nevertheless.
fn is_of_uri(byte: u8) -> bool {
    byte.is_ascii_graphic() && !b"\"<>".contains(&byte)
}

impl<'a> Facts<'a> {
    /// The facts about a request from this connection.
    pub(crate) fn of(head: &'a RequestHead, peer: &'a Peer, trusted: &TrustedProxies) -> Facts<'a> {
        let told = ProxyFacts::of(head, peer, trusted);
        Facts {
            head,
            path_head: head,
            identities: &[],
            certificate: peer.client_certificate(),
            client: match client_of(&head.fields, peer, trusted) {
                ClientAddress::Address(address) => Some(address),
                ClientAddress::Unix | ClientAddress::Unknown => None,
            },
            scheme: told.map_or(peer.scheme, |facts| facts.scheme),
        }
    }

    /// The same with what policies have noted.
    pub(crate) fn with_notes(self, notes: Option<&'a Notes<'_>>) -> Facts<'a> {
        let identities = notes.map_or(&[][..], |notes| &notes.identities);
        Facts { identities, ..self }
    }

    /// The same with the path of another head.
    pub(crate) fn with_path_of(self, path_head: &'a RequestHead) -> Facts<'a> {
        Facts { path_head, ..self }
    }
}

/// A head with the path as it was received, for one whose path has been replaced; `None` if it has none.
pub(crate) fn received_head(head: &RequestHead) -> Option<RequestHead> {
    RequestHead::parse("GET", head.raw_path()).ok()
}

/// A part of the normalised path of a request as it was received.
pub(crate) fn received(head: &RequestHead, part: Range<usize>) -> &str {
    let (matched, sent) = (head.path(), head.sent_path());
    let of = |length| request_path::sent_len(sent, matched, length);
    sent.get(of(part.start)..of(part.end)).unwrap_or_default()
}

/// The client of a request. If the text of a trusted proxy about its client is unreadable, the client is not the proxy.
pub(crate) fn client_of(fields: &Fields, peer: &Peer, trusted: &TrustedProxies) -> ClientAddress {
    let is_told = |name| fields.contains(name);
    match (told_client(fields, peer.remote, trusted), peer.remote) {
        (Some(client), _) => ClientAddress::Address(client),
        (None, _)
            if trusted.contains(peer)
                && (is_told(Name::XForwardedFor) || is_told(Name::Forwarded)) =>
        {
            ClientAddress::Unknown
        }
        (None, Some(remote)) => ClientAddress::Address(remote.ip()),
        (None, None) => ClientAddress::Unix,
    }
}

impl Facts<'_> {
    fn value(&self, placeholder: &Placeholder) -> Option<Cow<'_, [u8]>> {
        let text = |text: &'static str| Some(Cow::Borrowed(text.as_bytes()));
        let head = self.head;
        match placeholder {
            // `OPTIONS *` is about the server, not about a path.
            Placeholder::Path if self.path_head.path() == "*" => text("/"),
            Placeholder::Path => Some(self.path_head.sent_path().as_bytes().into()),
            Placeholder::Rest { segments, bytes } => Some(self.rest(*segments, *bytes).into()),
            Placeholder::Parameter { segment, .. } => {
                let mut segments = self.path_head.sent_path().split('/').skip(1);
                segments.nth(*segment).map(|value| value.as_bytes().into())
            }
            Placeholder::Group { name, regex } => {
                let group = regex.group(self.path_head.path(), name)?;
                Some(received(self.path_head, group).as_bytes().into())
            }
            Placeholder::Query => head.query().map(|query| query.as_bytes().into()),
            Placeholder::Host => {
                let host = host_of(head.authority()?);
                (!host.is_empty()).then(|| host.as_bytes().into())
            }
            Placeholder::Method => Some(head.method_str().as_bytes().into()),
            Placeholder::Scheme => match self.scheme {
                Scheme::Http => text("http"),
                Scheme::Https => text("https"),
            },
            Placeholder::Client => {
                let client = self.client?.to_canonical();
                Some(client.to_string().into_bytes().into())
            }
            Placeholder::RequestId => head.fields.get(Name::XRequestId).map(Into::into),
            Placeholder::Header(name) => self.field(name),
            Placeholder::CertificateSubject => Some(self.certificate?.subject()?.as_bytes().into()),
            Placeholder::CertificateFingerprint => {
                Some(self.certificate?.fingerprint().as_bytes().into())
            }
            Placeholder::User => Some(self.user()?.as_bytes().into()),
            Placeholder::Claim(name) => Some(self.claim(name)?.as_bytes().into()),
            // Of equal names the first counts.
            Placeholder::Cookie(name) => cookies(&head.fields, name).next().map(Into::into),
        }
    }

    /// The value of a claim of the verified token.
    pub(crate) fn claim(&self, name: &str) -> Option<&str> {
        Identity::claim(self.identities, name)
    }

    /// The name of the client.
    pub(crate) fn user(&self) -> Option<&str> {
        let subject = || self.certificate?.subject();
        Identity::user(self.identities).or_else(subject)
    }

    /// The rest of the path, as received, after these segments and bytes of the normalised path.
    fn rest(&self, segments: usize, bytes: usize) -> &[u8] {
        let (matched, sent) = (self.path_head.path(), self.path_head.sent_path());
        let start = rest_start(matched, segments, bytes);
        let before = request_path::sent_len(sent, matched, start);
        sent.as_bytes().get(before..).unwrap_or_default()
    }

    /// The lines of a field in one (RFC 9110, section 5.2).
    fn field(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let mut lines = self.head.fields.get_all(name);
        let first = lines.next()?;
        let mut all = Cow::Borrowed(first);
        for line in lines {
            let all = all.to_mut();
            all.extend_from_slice(b", ");
            all.extend_from_slice(line);
        }
        Some(all)
    }
}
