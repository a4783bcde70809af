//! Texts and numbers as lines have them. A text that a client has sent can neither end its value nor its line.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Writes a text between quotation marks as JSON has it (RFC 8259, section 7). Control characters, and bytes that are no
/// UTF-8, are escaped as `\u00XX`.
#[inline]
pub(super) fn json(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    match needs_no_escape(text) {
        true => out.extend_from_slice(text),
        false => escape_json(text, out),
    }
    out.push(b'"');
}

/// Writes a text as a value of logfmt: as it is if it is a plain word, otherwise as [`json`].
pub(super) fn logfmt(text: &[u8], out: &mut Vec<u8>) {
    let is_word = !text.is_empty() && !text.iter().any(|byte| matches!(byte, b' ' | b'='));
    match is_word && needs_no_escape(text) {
        true => out.extend_from_slice(text),
        false => json(text, out),
    }
}

/// Writes a text as the combined format has it: quotation marks, backslashes, and all but printable ASCII as `\xXX`.
pub(super) fn combined(text: &[u8], out: &mut Vec<u8>) {
    if needs_no_escape(text) {
        return out.extend_from_slice(text);
    }
    for &byte in text {
        match byte {
            b' '..=b'~' if !matches!(byte, b'"' | b'\\') => out.push(byte),
            _ => {
                out.extend_from_slice(b"\\x");
                hex(byte, out);
            }
        }
    }
}

/// The same as one word: spaces are `\x20`, so that a name in it cannot begin the next field.
pub(super) fn combined_word(text: &[u8], out: &mut Vec<u8>) {
    for (at, word) in text.split(|byte| *byte == b' ').enumerate() {
        if at > 0 {
            out.extend_from_slice(b"\\x20");
        }
        combined(word, out);
    }
}

/// Whether all bytes are printable ASCII without quotation marks and backslashes. Written so that the compiler
/// compares many bytes at a time.
#[inline]
fn needs_no_escape(text: &[u8]) -> bool {
    let is_special =
        |byte: u8| (byte.wrapping_sub(b' ') >= 0x5f) | (byte == b'"') | (byte == b'\\');
    !text
        .iter()
        .fold(false, |special, &byte| special | is_special(byte))
}

#[cold]
fn escape_json(text: &[u8], out: &mut Vec<u8>) {
    for chunk in text.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' | '\\' => out.extend([b'\\', c as u8]),
                c if c.is_control() || blitz_http::log_text::is_invisible(c) => unicode(c, out),
                c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        chunk
            .invalid()
            .iter()
            .for_each(|byte| unicode(char::from(*byte), out));
    }
}

/// A character as `\uXXXX`, or as two of them.
fn unicode(c: char, out: &mut Vec<u8>) {
    for unit in c.encode_utf16(&mut [0; 2]) {
        out.extend_from_slice(b"\\u");
        unit.to_be_bytes().iter().for_each(|byte| hex(*byte, out));
    }
}

fn hex(byte: u8, out: &mut Vec<u8>) {
    out.push(HEX[usize::from(byte >> 4)]);
    out.push(HEX[usize::from(byte & 0xf)]);
}

/// Writes a number.
#[inline]
pub(super) fn number(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Writes a number below ten to the power of `count` with that many digits.
#[inline]
pub(super) fn digits(number: u32, count: usize, out: &mut Vec<u8>) {
    let mut text = [b'0'; 10];
    let mut rest = number;
    for digit in text[..count].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    out.extend_from_slice(&text[..count]);
}

/// Writes an IP address; an IPv4 address in its own form, also where a socket for both families has it.
#[inline]
pub(super) fn ip(address: IpAddr, out: &mut Vec<u8>) {
    let IpAddr::V4(address) = address else {
        // Writing to memory cannot fail.
        let _ = write!(out, "{address}");
        return;
    };
    for (index, octet) in address.octets().into_iter().enumerate() {
        if index > 0 {
            out.push(b'.');
        }
        number(octet.into(), out);
    }
}

/// Writes an address with its port.
#[inline]
pub(super) fn socket(address: SocketAddr, out: &mut Vec<u8>) {
    match address {
        SocketAddr::V4(v4) => {
            ip(IpAddr::V4(*v4.ip()), out);
            out.push(b':');
            number(address.port().into(), out);
        }
        SocketAddr::V6(_) => {
            // Writing to memory cannot fail.
            let _ = write!(out, "{address}");
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn texts_stay_within_their_values() {
        let json = |text: &[u8]| written(|out| json(text, out));
        assert_eq!(json(b"/a"), r#""/a""#);
        assert_eq!(json(b"a\"b\\c\n\x7f"), r#""a\"b\\c\u000a\u007f""#);
        assert_eq!(
            json("\u{e9}\u{202e}\u{2028}\u{200e}\u{feff}\u{e0041}".as_bytes()),
            "\"\u{e9}\\u202e\\u2028\\u200e\\ufeff\\udb40\\udc41\""
        );
        assert_eq!(json(b"\xff\xc3"), r#""\u00ff\u00c3""#);
        let logfmt = |text: &[u8]| written(|out| logfmt(text, out));
        assert_eq!(logfmt(b"/a"), "/a");
        assert_eq!(logfmt(b""), "\"\"");
        assert_eq!(logfmt(b"a b"), "\"a b\"");
        assert_eq!(logfmt(b"a=b"), "\"a=b\"");
        let combined = |text: &[u8]| written(|out| combined(text, out));
        assert_eq!(combined(b"a b\"\\\n\xe9"), r"a b\x22\x5c\x0a\xe9");
        let word = |text: &[u8]| written(|out| combined_word(text, out));
        assert_eq!(word(b" a\"b [c\n"), r"\x20a\x22b\x20[c\x0a");
    }

    #[test]
    fn numbers_have_leading_zeros_where_they_need_them() {
        assert_eq!(written(|out| digits(5, 3, out)), "005");
        assert_eq!(written(|out| digits(123_456, 6, out)), "123456");
        assert_eq!(written(|out| number(u64::MAX, out)), u64::MAX.to_string());
    }

    proptest! {
        #[test]
        fn any_bytes_are_one_value(bytes: Vec<u8>) {
            let is_safe = |text: &[u8]| text.iter().all(|byte| (b' '..0x7f).contains(byte) || *byte >= 0x80);
            for write in [json, logfmt, combined] {
                let mut out = Vec::new();
                write(&bytes, &mut out);
                prop_assert!(is_safe(&out));
                prop_assert!(std::str::from_utf8(&out).is_ok());
            }
            let mut out = Vec::new();
            json(&bytes, &mut out);
            let inner = &out[1..out.len() - 1];
            let mut escaped = false;
            for &byte in inner {
                prop_assert!(escaped || byte != b'"');
                escaped = byte == b'\\' && !escaped;
            }
            prop_assert!(!escaped);
        }
    }
}
