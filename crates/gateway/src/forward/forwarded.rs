//! The elements of `Forwarded` (RFC 7239) and the addresses in it and in `X-Forwarded-For`.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use blitz_http::{Fields, Name, Scheme, is_authority};

use super::quoted::{is_closed, split};

/// Elements and addresses that are read and sent, from the right: those further left are of clients
/// rather than of proxies.
pub(super) const CHAIN_MAX: usize = 64;

/// An element of `Forwarded`, with which a proxy describes the received request. Other parameters are not kept.
pub(super) struct Element {
    /// The proxy's client; `None` if its address is hidden or unknown.
    pub(super) node: Option<IpAddr>,
    /// The host that the request named.
    pub(super) host: Option<String>,
    pub(super) scheme: Option<Scheme>,
}

/// The elements of all lines, the last [`CHAIN_MAX`]; none if there is a syntax error in these.
pub(super) fn elements(fields: &Fields) -> Vec<Element> {
    let values = fields.get_all(Name::Forwarded);
    let texts = values.flat_map(|value| split(value, b','));
    let texts = texts.map(<[u8]>::trim_ascii);
    let texts: Vec<_> = texts.filter(|text| !text.is_empty()).collect();
    let is_valid = fields.get_all(Name::Forwarded).all(is_closed);
    let last = texts[texts.len().saturating_sub(CHAIN_MAX)..].iter();
    let elements: Option<Vec<_>> = last.map(|text| element(text)).collect();
    elements.filter(|_| is_valid).unwrap_or_default()
}

/// An element; `None` if it is malformed, has an invalid host or scheme, or one of the parameters of
/// RFC 7239, section 4, twice.
fn element(text: &[u8]) -> Option<Element> {
    const NAMES: [&str; 4] = ["for", "host", "proto", "by"];
    let mut element = Element {
        node: None,
        host: None,
        scheme: None,
    };
    let mut seen = [false; NAMES.len()];
    for pair in split(text, b';') {
        let pair = std::str::from_utf8(pair).ok()?.trim_ascii();
        if pair.is_empty() {
            continue;
        }
        let (name, value) = pair.split_once('=')?;
        let is_token =
            |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_token) {
            return None;
        }
        let value = unquoted(value)?;
        let known = NAMES.iter().position(|it| it.eq_ignore_ascii_case(name));
        let Some(known) = known else { continue };
        if std::mem::replace(&mut seen[known], true) {
            return None;
        }
        match NAMES[known] {
            "for" => element.node = node(&value),
            "host" => element.host = Some(host(&value)?.to_owned()),
            "proto" => element.scheme = Some(scheme(&value)?),
            _ => {}
        }
    }
    Some(element)
}

/// The value of a token or quoted string. Tokens may have `:`, `[` and `]`, which some proxies do not
/// quote.
fn unquoted(value: &str) -> Option<Cow<'_, str>> {
    let inner = value.strip_prefix('"').map(|rest| rest.strip_suffix('"'));
    match inner {
        None => {
            let is_plain = |b: u8| b.is_ascii_graphic() && !b"\"\\,;=".contains(&b);
            (!value.is_empty() && value.bytes().all(is_plain)).then_some(Cow::Borrowed(value))
        }
        Some(inner) => {
            let inner = inner?;
            if !inner.contains(['\\', '"']) {
                return Some(Cow::Borrowed(inner));
            }
            let mut plain = String::with_capacity(inner.len());
            let mut rest = inner.chars();
            while let Some(next) = rest.next() {
                match next {
                    '"' => return None,
                    '\\' => plain.push(rest.next()?),
                    other => plain.push(other),
                }
            }
            Some(Cow::Owned(plain))
        }
    }
}

/// The address of a node (RFC 7239, section 6), or of a member of `X-Forwarded-For`, without its port,
/// which may be hidden (`_p`).
pub(super) fn node(text: &str) -> Option<IpAddr> {
    let text = text.split_once(":_").map_or(text, |(address, _)| address);
    let in_brackets = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let address = match in_brackets {
        Some(literal) => literal.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        None => text
            .parse()
            .ok()
            .or_else(|| Some(text.parse::<SocketAddr>().ok()?.ip())),
    };
    address.map(|ip| ip.to_canonical())
}

/// A host with an optional port.
pub(super) fn host(text: &str) -> Option<&str> {
    let is_valid = !text.is_empty() && is_authority(text.as_bytes());
    is_valid.then_some(text)
}

/// The scheme of a request. Some proxies name that of the WebSocket.
pub(super) fn scheme(text: &str) -> Option<Scheme> {
    let is = |name: &str| text.eq_ignore_ascii_case(name);
    match () {
        () if is("https") || is("wss") => Some(Scheme::Https),
        () if is("http") || is("ws") => Some(Scheme::Http),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(values: &[&str]) -> Vec<(Option<String>, Option<String>, Option<&'static str>)> {
        let mut fields = Fields::new();
        for value in values {
            fields.append(Name::Forwarded, value);
        }
        let facts = |element: Element| {
            let node = element.node.map(|ip| ip.to_string());
            (node, element.host, element.scheme.map(Scheme::as_str))
        };
        elements(&fields).into_iter().map(facts).collect()
    }

    #[test]
    fn elements_have_nodes_hosts_and_schemes() {
        let some = |text: &str| Some(text.to_owned());
        for (values, expected) in [
            (
                &["for=192.0.2.1"][..],
                vec![(some("192.0.2.1"), None, None)],
            ),
            (
                &["For=\"[2001:db8::1]:80\";HOST=\"a:8\" ; Proto=HTTPS;by=_x;ext=\"q;,\\\"\""],
                vec![(some("2001:db8::1"), some("a:8"), Some("https"))],
            ),
            (
                &["for=unknown, for=_hidden", ",for=192.0.2.1:80;host=a:8,"],
                vec![
                    (None, None, None),
                    (None, None, None),
                    (some("192.0.2.1"), some("a:8"), None),
                ],
            ),
            (
                &["for=[::ffff:192.0.2.1]"],
                vec![(some("192.0.2.1"), None, None)],
            ),
            (
                &["for=\"192.0.2.1:_p\", for=\"[2001:db8::1]:_p\""],
                vec![
                    (some("192.0.2.1"), None, None),
                    (some("2001:db8::1"), None, None),
                ],
            ),
            (&[";;proto=http;"], vec![(None, None, Some("http"))]),
            (
                &["for=\"192.0.2.\\1\""],
                vec![(some("192.0.2.1"), None, None)],
            ),
            (&[""], vec![]),
        ] {
            assert_eq!(parsed(values), expected, "{values:?}");
        }
    }

    #[test]
    fn malformed_fields_have_no_elements() {
        for value in [
            "for=\"",
            "for=\"a\"b",
            "for=a;for=b",
            "for",
            "=a",
            "for=",
            "f r=a",
            "for=a b",
            "host=\"a b\"",
            "proto=ftp",
            "for=192.0.2.1;host=\"evil.example#\"",
            "for=a, for=\"b",
            "for=\"a\\\"",
        ] {
            assert_eq!(parsed(&[value]), [], "{value}");
            assert_eq!(parsed(&["for=192.0.2.1", value]), [], "{value}");
        }
    }

    /// Each byte is read a few times. Work that grows with the square of the length takes seconds.
    #[test]
    fn the_cost_of_a_long_field_is_linear() {
        const BYTES: usize = 32 * 1024;
        for part in [
            ",",
            ";",
            "\"",
            "\",",
            "\\\"",
            "=",
            "a=b,",
            "a=b;",
            "for=\"",
            "a=\"\\\"\";",
            "a=\",\",",
        ] {
            for start in ["", "\"", "for=\""] {
                let value = format!("{start}{}", part.repeat(BYTES / part.len()));
                let begun = std::time::Instant::now();
                parsed(&[&value]);
                let taken = begun.elapsed();
                assert!(taken.as_millis() < 500, "{start}{part}: {taken:?}");
            }
        }
    }

    #[test]
    fn the_last_elements_of_a_long_list_are_read() {
        let list: Vec<_> = (0..200)
            .map(|number| format!("for=192.0.2.{number}"))
            .collect();
        let parsed = parsed(&[&list.join(",")]);
        assert_eq!(parsed.len(), CHAIN_MAX);
        assert_eq!(parsed[CHAIN_MAX - 1].0.as_deref(), Some("192.0.2.199"));
    }
}
