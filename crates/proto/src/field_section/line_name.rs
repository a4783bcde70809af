//! The names of field lines: pseudo-header fields, and names of fields.

use crate::error::ErrorKind;
use crate::message::{Name, is_token_byte};

/// A pseudo-header field (RFC 9113, section 8.3; RFC 9114, section 4.3; RFC 8441, section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Pseudo {
    Method,
    Scheme,
    Authority,
    Path,
    Protocol,
    Status,
}

/// The name of a field line. The text of [`Name::Other`] is kept beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineName {
    Pseudo(Pseudo),
    Field(Name),
}

impl Pseudo {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Pseudo::Method => ":method",
            Pseudo::Scheme => ":scheme",
            Pseudo::Authority => ":authority",
            Pseudo::Path => ":path",
            Pseudo::Protocol => ":protocol",
            Pseudo::Status => ":status",
        }
    }

    fn parse(text: &[u8]) -> Option<Pseudo> {
        use Pseudo as P;
        let all = [
            P::Method,
            P::Scheme,
            P::Authority,
            P::Path,
            P::Protocol,
            P::Status,
        ];
        all.into_iter()
            .find(|pseudo| pseudo.as_str().as_bytes() == text)
    }
}

impl LineName {
    /// Parses a received name; also returns the rule that it violates, if any.
    #[inline]
    pub(crate) fn parse(text: &[u8]) -> (LineName, Option<ErrorKind>) {
        let guess = Name::guess(text);
        if guess != Name::Other && text == guess.as_str().as_bytes() {
            return (LineName::Field(guess), None);
        }
        LineName::parse_other(text)
    }

    fn parse_other(text: &[u8]) -> (LineName, Option<ErrorKind>) {
        if text.first() == Some(&b':') {
            return match Pseudo::parse(text) {
                Some(pseudo) => (LineName::Pseudo(pseudo), None),
                None => (LineName::Field(Name::Other), Some(ErrorKind::PseudoUnknown)),
            };
        }
        // RFC 9113, section 8.2.1: "A field name MUST NOT contain characters in the ranges
        // 0x00-0x20, 0x41-0x5a, or 0x7f-0xff (all ranges inclusive)."
        let problem = if text.iter().any(u8::is_ascii_uppercase) {
            Some(ErrorKind::FieldNameUppercase)
        } else if text.is_empty() || !text.iter().all(|&byte| is_token_byte(byte)) {
            Some(ErrorKind::FieldName)
        } else {
            None
        };
        (LineName::Field(Name::Other), problem)
    }

    /// A number for each name, so that two names are compared by one comparison.
    #[inline]
    pub(crate) const fn code(self) -> u32 {
        match self {
            LineName::Pseudo(pseudo) => 0x100 | pseudo as u32,
            LineName::Field(name) => name as u32,
        }
    }

    /// The text of the name, unless it is [`Name::Other`].
    #[inline]
    pub(crate) const fn known_text(self) -> &'static str {
        match self {
            LineName::Pseudo(pseudo) => pseudo.as_str(),
            LineName::Field(name) => name.as_str(),
        }
    }
}
