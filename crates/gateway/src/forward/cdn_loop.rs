//! `CDN-Loop`, by which a proxy finds its own requests (RFC 8586).

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use blitz_http::{Fields, Name};

use super::quoted::split;

/// Longest identifier.
const LOOP_ID_BYTES_MAX: usize = 64;

/// The name of this gateway in `CDN-Loop`: a `cdn-id` (RFC 8586, section 2), which is a token, or a host with
/// an optional port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopId(Arc<str>);

/// The text is not a [`LoopId`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidLoopId;

impl LoopId {
    /// An identifier from 64 random bits.
    pub(crate) fn random(bits: u64) -> LoopId {
        LoopId(format!("blitz-{bits:016x}").into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a member of a `CDN-Loop` list has this identifier. Its parameters do not matter.
    #[cold]
    pub(crate) fn is_in(&self, fields: &Fields) -> bool {
        let members = fields
            .get_all(Name::CdnLoop)
            .flat_map(|value| split(value, b','));
        members
            .filter_map(|member| split(member, b';').next())
            .any(|id| id.trim_ascii().eq_ignore_ascii_case(self.0.as_bytes()))
    }
}

impl FromStr for LoopId {
    type Err = InvalidLoopId;

    fn from_str(text: &str) -> Result<LoopId, InvalidLoopId> {
        let is_token_char = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        let (name, port) = text.split_once(':').unwrap_or((text, "0"));
        let is_name = !name.is_empty() && name.bytes().all(is_token_char);
        let is_port = port.parse::<u16>().is_ok() && !port.starts_with('+');
        match is_name && is_port && text.len() <= LOOP_ID_BYTES_MAX {
            true => Ok(LoopId(text.into())),
            false => Err(InvalidLoopId),
        }
    }
}

impl fmt::Display for InvalidLoopId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "this is not a token of at most {LOOP_ID_BYTES_MAX} characters\n  \
             write a name that no other proxy has, for example edge-1 or edge.example:8080"
        )
    }
}

impl std::error::Error for InvalidLoopId {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_tokens_or_hosts_with_a_port() {
        for text in [
            "edge-1",
            "edge.example",
            "edge.example:8080",
            "!a~",
            "Blitz",
        ] {
            assert!(text.parse::<LoopId>().is_ok(), "{text}");
        }
        let long = "x".repeat(LOOP_ID_BYTES_MAX + 1);
        for text in [
            "", "a b", "a,b", "a;b", "\"a\"", "a:", ":80", "a:65536", "a:+1", "a:1:2", "\u{e9}",
            "a\r\nb", &long,
        ] {
            assert!(text.parse::<LoopId>().is_err(), "{text}");
        }
        let random = LoopId::random(0x1f).0;
        assert_eq!(&*random, "blitz-000000000000001f");
        assert!(random.parse::<LoopId>().is_ok());
    }

    #[test]
    fn only_a_member_of_the_list_is_a_loop() {
        let id: LoopId = "blitz-1".parse().unwrap();
        let is_in = |values: &[&str]| {
            let mut fields = Fields::new();
            values
                .iter()
                .for_each(|value| fields.append(Name::CdnLoop, value));
            id.is_in(&fields)
        };
        for values in [
            &["blitz-1"][..],
            &["BLITZ-1"],
            &["a, blitz-1"],
            &["a,blitz-1 ; x=1,b"],
            &["a; x=\"b\", blitz-1"],
            &["a; x=\"\\\"\", blitz-1"],
            &["a", "b, blitz-1;v=\"2\""],
            // A quote without an end hides nothing.
            &["a; x=\", blitz-1"],
            &["\"", "blitz-1"],
            &[",, blitz-1"],
        ] {
            assert!(is_in(values), "{values:?}");
        }
        for values in [
            &[][..],
            &[""],
            &["blitz-11, xblitz-1, blitz-1.example"],
            &["a; x=blitz-1"],
            &["a; blitz-1"],
            &["a; x=\"b, blitz-1\""],
            &["a; x=\"\\\", blitz-1\""],
            &["\"blitz-1\""],
            &["blitz -1"],
        ] {
            assert!(!is_in(values), "{values:?}");
        }
    }
}
