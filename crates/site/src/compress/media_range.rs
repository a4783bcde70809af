//! Media types whose content is compressed.

/// The type of event streams, which `text/*` does not include.
const EVENT_STREAM: &str = "text/event-stream";

/// Media types: one, all of a kind, or all of a kind with a suffix.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MediaRange {
    /// Before the slash, in lower case.
    kind: String,
    subtype: Subtype,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Subtype {
    /// This one, in lower case.
    Exact(String),
    /// Each that ends with this text, which begins with a plus sign.
    Suffix(String),
    Any,
}

impl MediaRange {
    /// The types that a text means: `text/css`, `text/*`, or `application/*+json`.
    #[must_use]
    pub fn parse(text: &str) -> Option<MediaRange> {
        let text = text.to_ascii_lowercase();
        let (kind, subtype) = text.split_once('/')?;
        let subtype_is = match subtype.strip_prefix('*') {
            Some("") => Subtype::Any,
            Some(suffix) if suffix.starts_with('+') && is_token(&suffix[1..]) => {
                Subtype::Suffix(suffix.to_owned())
            }
            Some(_) => return None,
            None if is_token(subtype) => Subtype::Exact(subtype.to_owned()),
            None => return None,
        };
        is_token(kind).then(|| MediaRange {
            kind: kind.to_owned(),
            subtype: subtype_is,
        })
    }

    /// Whether a media type without parameters is one of these. `text/*` does not include event streams: their pieces are
    /// small, and clients that read them are not always browsers.
    #[must_use]
    pub fn includes(&self, media_type: &[u8]) -> bool {
        let Some(slash) = media_type.iter().position(|&byte| byte == b'/') else {
            return false;
        };
        let (kind, subtype) = (&media_type[..slash], &media_type[slash + 1..]);
        if !kind.eq_ignore_ascii_case(self.kind.as_bytes()) {
            return false;
        }
        match &self.subtype {
            Subtype::Exact(exact) => subtype.eq_ignore_ascii_case(exact.as_bytes()),
            Subtype::Suffix(suffix) => {
                let start = subtype.len().checked_sub(suffix.len());
                start.is_some_and(|start| subtype[start..].eq_ignore_ascii_case(suffix.as_bytes()))
            }
            Subtype::Any => !media_type.eq_ignore_ascii_case(EVENT_STREAM.as_bytes()),
        }
    }
}

/// RFC 6838, section 4.2.
fn is_token(text: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte);
    !text.is_empty() && text.bytes().all(is_token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_include_types_in_any_case() {
        let includes = |range: &str, media_type: &str| {
            let range = MediaRange::parse(range).unwrap();
            range.includes(media_type.as_bytes())
        };
        for (range, media_type, expected) in [
            ("text/*", "Text/HTML", true),
            ("text/*", "text/event-stream", false),
            ("text/event-stream", "text/Event-Stream", true),
            ("TEXT/Css", "text/css", true),
            ("text/css", "text/css2", false),
            ("application/*+json", "application/problem+JSON", true),
            ("application/*+json", "application/json", false),
            ("application/*+json", "text/x+json", false),
            ("application/*+json", "application/+json", true),
            ("text/*", "text", false),
            ("text/*", "", false),
            ("text/*", "/", false),
        ] {
            assert_eq!(
                includes(range, media_type),
                expected,
                "{range} {media_type}"
            );
        }
    }

    #[test]
    fn other_texts_are_no_types() {
        for text in [
            "",
            "text",
            "*/*",
            "*/json",
            "text/",
            "/css",
            "text/*css",
            "text/*+",
            "text/a b",
        ] {
            assert_eq!(MediaRange::parse(text), None, "{text:?}");
        }
    }
}
