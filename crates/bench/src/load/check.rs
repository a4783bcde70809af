//! Checks of responses: a run whose responses are wrong measures nothing.

use std::fmt;

use aws_lc_rs::digest;
use blitz_http::{BodyLength, ResponseHead};

use crate::report::escape::terminal;

/// 304 Not Modified.
const NOT_MODIFIED: u16 = 304;

/// The most content of a wrong response that is shown.
const SHOWN_BYTES_MAX: usize = 512;

/// The expected response to a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Expected {
    /// `None` allows every status below 400.
    pub(super) status: Option<u16>,
    /// Length of the content, in bytes.
    pub(super) length: Option<u64>,
    /// The content, byte by byte.
    pub(super) content: Option<Vec<u8>>,
    /// The SHA-256 of the content, if it cannot be compared with that of a first response.
    pub(super) sha256: Option<[u8; 32]>,
    /// The request is a HEAD: the length of the response is that of content which is not sent (RFC 9110, section 9.3.2).
    pub(super) is_head: bool,
}

/// The fault of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wrong {
    Status,
    Length,
    Content,
}

/// The first wrong response of a run.
#[derive(Debug, Clone)]
pub(super) struct Evidence {
    pub(super) request: String,
    pub(super) problem: String,
    pub(super) head: String,
    pub(super) content: Vec<u8>,
}

/// Checks the content of one response as it arrives.
pub(super) struct ContentCheck {
    pub(super) received: u64,
    differs: bool,
    /// Only for [`Expected::sha256`].
    hash: Option<Box<digest::Context>>,
}

impl Wrong {
    /// For counts.
    pub(super) fn name(self) -> &'static str {
        match self {
            Wrong::Status => "status",
            Wrong::Length => "length",
            Wrong::Content => "content",
        }
    }
}

impl Expected {
    /// Checks a head, before the content is read.
    #[inline]
    pub(super) fn check_head(&self, head: &ResponseHead, length: BodyLength) -> Option<Wrong> {
        let status = head.status.code();
        let is_expected = match self.status {
            Some(expected) => status == expected,
            None => status < 400,
        };
        if !is_expected {
            return Some(Wrong::Status);
        }
        // Neither has content, whatever its length says (RFC 9110, section 8.6).
        let is_of_content = !self.is_head && status != NOT_MODIFIED;
        match (self.length, length) {
            (Some(expected), BodyLength::Known(declared))
                if is_of_content && declared != expected =>
            {
                Some(Wrong::Length)
            }
            _ => None,
        }
    }

    /// The checks, in words.
    pub(super) fn describe(&self) -> String {
        let status = match self.status {
            Some(status) => format!("status {status}"),
            None => "status below 400".to_owned(),
        };
        let length = self.length.map(|length| format!(", length {length}"));
        let content = match (&self.content, &self.sha256) {
            (Some(_), _) => Some(", every byte of the content"),
            (None, Some(_)) => Some(", the SHA-256 of the content"),
            (None, None) => None,
        };
        format!(
            "{status}{}{}",
            length.unwrap_or_default(),
            content.unwrap_or_default()
        )
    }
}

impl ContentCheck {
    #[inline]
    pub(super) fn new(expected: &Expected) -> ContentCheck {
        let hash = expected.sha256.as_ref();
        ContentCheck {
            received: 0,
            differs: false,
            hash: hash.map(|_| Box::new(digest::Context::new(&digest::SHA256))),
        }
    }

    #[inline]
    pub(super) fn receive(&mut self, bytes: &[u8], expected: &Expected) {
        if let Some(content) = &expected.content {
            let start = (self.received as usize).min(content.len());
            self.differs |= content[start..].get(..bytes.len()) != Some(bytes);
        }
        if let Some(hash) = &mut self.hash {
            hash.update(bytes);
        }
        self.received += bytes.len() as u64;
    }

    /// The result, at the end of the content.
    #[inline]
    pub(super) fn finish(&mut self, expected: &Expected) -> Option<Wrong> {
        if expected
            .length
            .is_some_and(|length| length != self.received)
        {
            return Some(Wrong::Length);
        }
        if let (Some(hash), Some(expected)) = (self.hash.take(), &expected.sha256) {
            self.differs |= hash.finish().as_ref() != expected;
        }
        self.differs.then_some(Wrong::Content)
    }
}

impl Evidence {
    pub(super) fn new(
        (wrong, expected): (Wrong, &Expected),
        (head, length): (&ResponseHead, BodyLength),
        received: u64,
    ) -> Evidence {
        let status = head.status.code();
        let problem = match wrong {
            Wrong::Status => match expected.status {
                Some(expected) => format!("its status is {status} and not {expected}"),
                None => format!("its status is {status}"),
            },
            Wrong::Length => {
                let length = match length {
                    BodyLength::Known(declared) => declared,
                    _ => received,
                };
                let expected = expected.length.unwrap_or_default();
                format!("its content has {length} bytes and not {expected} (--check status, if that may change)")
            }
            Wrong::Content if expected.sha256.is_some() => {
                "its content does not have the SHA-256 of --expect-sha256".to_owned()
            }
            Wrong::Content => "its content differs from that of the first response (--check status, if it may change)".to_owned(),
        };
        let mut text = format!("{status} {}\n", head.status.reason());
        for (name, value) in head.fields.iter() {
            let value = String::from_utf8_lossy(value);
            text.push_str(&format!("{}: {}\n", name.as_str(), terminal(&value)));
        }
        Evidence {
            request: String::new(),
            problem,
            head: text,
            content: Vec::new(),
        }
    }

    /// Names the request that was sent.
    pub(super) fn of_request(self, request: &str) -> Evidence {
        Evidence {
            request: request.to_owned(),
            ..self
        }
    }

    /// Whether no more content is kept.
    pub(super) fn is_full(&self) -> bool {
        self.content.len() >= SHOWN_BYTES_MAX
    }

    /// Keeps the start of the content.
    pub(super) fn add_content(&mut self, bytes: &[u8]) {
        let room = SHOWN_BYTES_MAX.saturating_sub(self.content.len());
        self.content
            .extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let request = terminal(&self.request);
        writeln!(f, "wrong response to {request}: {}", self.problem)?;
        writeln!(f)?;
        for line in self.head.lines() {
            writeln!(f, "  {line}")?;
        }
        writeln!(f)?;
        for line in String::from_utf8_lossy(&self.content).lines() {
            writeln!(f, "  {}", terminal(line))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use blitz_http::Status;

    use super::*;

    fn expected(content: &[u8]) -> Expected {
        Expected {
            status: Some(200),
            length: Some(content.len() as u64),
            content: Some(content.to_vec()),
            ..Expected::default()
        }
    }

    fn checked(pieces: &[&[u8]], expected: &Expected) -> Option<Wrong> {
        let mut check = ContentCheck::new(expected);
        for piece in pieces {
            check.receive(piece, expected);
        }
        check.finish(expected)
    }

    #[test]
    fn content_is_compared_however_it_is_split() {
        let expected = expected(b"Hello, World!");
        assert_eq!(checked(&[b"Hello, World!"], &expected), None);
        assert_eq!(checked(&[b"Hello", b", World!"], &expected), None);
        assert_eq!(
            checked(&[b"Hello", b", world!"], &expected),
            Some(Wrong::Content)
        );
        assert_eq!(checked(&[b"Hello"], &expected), Some(Wrong::Length));
        assert_eq!(
            checked(&[b"Hello, World!", b"!"], &expected),
            Some(Wrong::Length)
        );
    }

    #[test]
    fn heads_are_checked_for_status_and_declared_length() {
        let mut head = ResponseHead {
            status: Status::OK,
            ..ResponseHead::default()
        };
        let check = |head: &ResponseHead, length| expected(b"12").check_head(head, length);
        assert_eq!(check(&head, BodyLength::Known(2)), None);
        assert_eq!(check(&head, BodyLength::Unknown), None);
        assert_eq!(check(&head, BodyLength::Known(3)), Some(Wrong::Length));
        head.status = Status::SERVICE_UNAVAILABLE;
        assert_eq!(check(&head, BodyLength::Known(2)), Some(Wrong::Status));
        let any = Expected::default();
        assert_eq!(
            any.check_head(&head, BodyLength::Known(2)),
            Some(Wrong::Status)
        );
    }

    #[test]
    fn evidence_shows_what_arrived_and_no_control_characters() {
        let mut head = ResponseHead {
            status: Status::BAD_GATEWAY,
            ..ResponseHead::default()
        };
        head.fields.append("Server", "x");
        let expected = expected(b"12");
        let response = (&head, BodyLength::Known(20));
        let evidence = Evidence::new((Wrong::Status, &expected), response, 0);
        let mut evidence = evidence.of_request("GET http://a/");
        evidence.add_content(b"upstream \x1b[31mfailed");
        evidence.add_content(&[b'x'; 10_000]);
        let text = evidence.to_string();
        assert!(text.contains("status is 502 and not 200"), "{text}");
        assert!(
            text.contains("Server: x") && text.contains("upstream"),
            "{text}"
        );
        assert!(!text.contains('\x1b') && text.len() < 1_000, "{text}");
    }
}
