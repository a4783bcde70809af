//! The fields that determine the end of a message and the fate of its connection.
//!
//! RFC 9112, section 6.3 gives recipients some freedom with contradictory framing. Blitz uses none of
//! it: ambiguous framing is refused, so that it never reaches an upstream.

use crate::error::ErrorKind;
use crate::message::target;
use crate::message::{Name, Span, Version, is_token, parse_content_length};

/// The values of the fields of one head that affect framing and routing.
#[derive(Debug, Default)]
pub(crate) struct FramingFields {
    /// The range of the value of `Host`.
    pub(crate) host: Option<Span>,
    pub(crate) content_length: Option<u64>,
    /// The same length was declared more than once, which only responses may do.
    pub(crate) repeats_content_length: bool,
    pub(crate) transfer_encoding: Option<TransferEncoding>,
    pub(crate) connection: ConnectionOptions,
    /// How long the server keeps an idle connection open: `timeout` of `Keep-Alive`, in seconds.
    pub(crate) keep_alive_timeout_s: Option<u32>,
    /// `Upgrade` names a protocol other than h2c (rule 15).
    pub(crate) names_protocol: bool,
    /// `Upgrade` names h2c, without a version.
    pub(crate) names_h2c: bool,
    pub(crate) expects_continue: bool,
    pub(crate) expects_other: bool,
}

/// Transfer codings, all lines taken together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TransferEncoding {
    ends_in_chunked: bool,
    has_other: bool,
    is_broken: bool,
}

/// The connection options that Blitz handles (RFC 9110, section 7.6.1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ConnectionOptions {
    pub(crate) close: bool,
    pub(crate) keep_alive: bool,
    pub(crate) upgrade: bool,
    pub(crate) http2_settings: bool,
}

impl FramingFields {
    /// Records one field of `section` that [frames or routes](Name::frames_or_routes) the message. The
    /// fields of nearly every request are handled inline, all others in a cold function.
    #[inline]
    pub(crate) fn note(
        &mut self,
        name: Name,
        value: Span,
        section: &[u8],
    ) -> Result<(), ErrorKind> {
        if name == Name::Host {
            return self.note_host(value, section);
        }
        let value = &section[value.start as usize..value.end as usize];
        if name == Name::Connection && value == b"keep-alive" {
            self.connection.keep_alive = true;
            return Ok(());
        }
        self.note_other(name, value)
    }

    #[cold]
    fn note_other(&mut self, name: Name, value: &[u8]) -> Result<(), ErrorKind> {
        match name {
            Name::ContentLength => self.note_content_length(value),
            Name::TransferEncoding => {
                self.transfer_encoding.get_or_insert_default().note(value);
                Ok(())
            }
            Name::Connection => self.connection.note(value),
            Name::Upgrade => self.note_upgrade(value),
            Name::KeepAlive => {
                self.note_keep_alive(value);
                Ok(())
            }
            Name::Expect => {
                let is_continue = value.eq_ignore_ascii_case(b"100-continue");
                self.expects_continue |= is_continue;
                self.expects_other |= !is_continue;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    #[inline]
    fn note_host(&mut self, value: Span, section: &[u8]) -> Result<(), ErrorKind> {
        // RFC 9112, section 3.2: "A server MUST respond with a 400 (Bad Request) status code to
        // any HTTP/1.1 request message that lacks a Host header field and to any request message
        // that contains more than one Host header field line or a Host header field with an
        // invalid field value."
        if self.host.is_some() {
            return Err(ErrorKind::HostRepeated);
        }
        self.host = Some(value);
        let lines = &section[value.start as usize..];
        if target::begins_with_authority(lines, (value.end - value.start) as usize) {
            Ok(())
        } else {
            Err(ErrorKind::HostMalformed)
        }
    }

    fn note_content_length(&mut self, value: &[u8]) -> Result<(), ErrorKind> {
        let length = parse_content_length(value)?;
        match self.content_length.replace(length) {
            Some(other) if other != length => return Err(ErrorKind::ContentLengthRepeated),
            Some(_) => self.repeats_content_length = true,
            None => {}
        }
        Ok(())
    }

    fn note_upgrade(&mut self, value: &[u8]) -> Result<(), ErrorKind> {
        for protocol in list(value) {
            let (name, version) = match protocol.iter().position(|&byte| byte == b'/') {
                Some(slash) => (&protocol[..slash], Some(&protocol[slash + 1..])),
                None => (protocol, None),
            };
            if !is_token(name) || version.is_some_and(|version| !is_token(version)) {
                return Err(ErrorKind::UpgradeMalformed);
            }
            let is_h2c = name.eq_ignore_ascii_case(b"h2c");
            self.names_protocol |= !is_h2c;
            self.names_h2c |= is_h2c && version.is_none();
        }
        Ok(())
    }

    /// `Keep-Alive: timeout=5, max=100`, which no RFC defines in full (RFC 2068, section 19.7.1.1). Unknown
    /// parameters are ignored, and of several values the shortest counts.
    fn note_keep_alive(&mut self, value: &[u8]) {
        for parameter in list(value) {
            let Some((name, seconds)) = parameter.split_at_checked("timeout=".len()) else {
                continue;
            };
            if name.eq_ignore_ascii_case(b"timeout=")
                && seconds.iter().all(u8::is_ascii_digit)
                && let Ok(seconds) = str::from_utf8(seconds)
                && let Ok(seconds) = seconds.parse()
            {
                let known = self.keep_alive_timeout_s.get_or_insert(seconds);
                *known = seconds.min(*known);
            }
        }
    }

    /// Whether the content is chunked, after all fields were recorded.
    #[inline]
    pub(crate) fn check_transfer_encoding(&self, version: Version) -> Result<bool, ErrorKind> {
        match self.transfer_encoding {
            Some(coding) => self.check_coding(coding, version).map(|()| true),
            None => Ok(false),
        }
    }

    #[cold]
    fn check_coding(&self, coding: TransferEncoding, version: Version) -> Result<(), ErrorKind> {
        // RFC 9112, section 6.1: "A server or client that receives an HTTP/1.0 message containing
        // a Transfer-Encoding header field MUST treat the message as if the framing is faulty."
        if version == Version::Http10 {
            return Err(ErrorKind::TransferEncodingInHttp10);
        }
        // The same section allows a server to "reject a request that contains both".
        if self.content_length.is_some() {
            return Err(ErrorKind::ContentLengthWithTransferEncoding);
        }
        // RFC 9112, section 6.3: "If a Transfer-Encoding header field is present in a request and
        // the chunked transfer coding is not the final encoding, the message body length cannot
        // be determined reliably; the server MUST respond with the 400".
        if coding.is_broken || !coding.ends_in_chunked {
            return Err(ErrorKind::TransferEncodingNotChunkedLast);
        }
        if coding.has_other {
            return Err(ErrorKind::TransferEncodingUnknown);
        }
        Ok(())
    }

    /// Whether the request asks for h2c and no other protocol (RFC 7540, sections 3.2 and 3.2.1).
    pub(crate) fn wants_h2c(&self) -> bool {
        let connection = &self.connection;
        let is_alone = self.names_h2c && !self.names_protocol;
        is_alone && connection.upgrade && connection.http2_settings && !connection.close
    }

    /// Whether the peer keeps the connection open (RFC 9112, section 9.3).
    pub(crate) fn keeps_alive(&self, version: Version) -> bool {
        let by_default = version == Version::Http11 || self.connection.keep_alive;
        by_default && !self.connection.close
    }
}

impl TransferEncoding {
    fn note(&mut self, value: &[u8]) {
        for coding in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
            let is_chunked = coding.eq_ignore_ascii_case(b"chunked");
            // No coding may follow chunked, not even chunked; empty elements are refused, too, since
            // recipients treat them differently.
            self.is_broken |= self.ends_in_chunked || coding.is_empty();
            self.has_other |= !is_chunked;
            self.ends_in_chunked |= is_chunked;
        }
    }
}

impl ConnectionOptions {
    fn note(&mut self, value: &[u8]) -> Result<(), ErrorKind> {
        for option in list(value) {
            match option.len() {
                5 if option.eq_ignore_ascii_case(b"close") => self.close = true,
                7 if option.eq_ignore_ascii_case(b"upgrade") => self.upgrade = true,
                10 if option.eq_ignore_ascii_case(b"keep-alive") => self.keep_alive = true,
                14 if option.eq_ignore_ascii_case(b"http2-settings") => self.http2_settings = true,
                _ if is_token(option) => {}
                _ => return Err(ErrorKind::ConnectionMalformed),
            }
        }
        Ok(())
    }
}

/// The elements of a comma-separated list, empty ones skipped (RFC 9110, section 5.6.1).
fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value
        .split(|&byte| byte == b',')
        .map(<[u8]>::trim_ascii)
        .filter(|item| !item.is_empty())
}
