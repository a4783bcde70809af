//! Lists whose members may have quoted strings (RFC 9110, section 5.6.4).

/// The parts of `text` between delimiters that are outside of quoted strings. If a quote has no end,
/// all delimiters count: otherwise whoever writes first could hide what others append.
pub(super) fn split(text: &[u8], delimiter: u8) -> impl Iterator<Item = &[u8]> {
    let ignores_quotes = !is_closed(text);
    let mut quotes = Quotes::default();
    text.split(move |&byte| {
        let is_outside = quotes.is_outside(byte);
        byte == delimiter && (is_outside || ignores_quotes)
    })
}

/// Whether every quoted string ends.
pub(super) fn is_closed(text: &[u8]) -> bool {
    let mut quotes = Quotes::default();
    text.iter().for_each(|&byte| _ = quotes.is_outside(byte));
    !quotes.is_open
}

/// The state of a scan over quoted strings.
#[derive(Default)]
struct Quotes {
    is_open: bool,
    is_escaped: bool,
}

impl Quotes {
    /// Takes the next byte; whether it is outside of quoted strings.
    fn is_outside(&mut self, byte: u8) -> bool {
        let was_open = self.is_open;
        match byte {
            _ if self.is_escaped => self.is_escaped = false,
            b'\\' => self.is_escaped = self.is_open,
            b'"' => self.is_open = !self.is_open,
            _ => {}
        }
        !was_open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> Vec<&str> {
        let parts = split(text.as_bytes(), b',');
        parts
            .map(|part| std::str::from_utf8(part).unwrap())
            .collect()
    }

    #[test]
    fn delimiters_within_quoted_strings_do_not_count() {
        assert_eq!(parts("a,b"), ["a", "b"]);
        assert_eq!(parts(""), [""]);
        assert_eq!(parts("\"a,b\",c"), ["\"a,b\"", "c"]);
        assert_eq!(parts("\"a\\\",b\",c"), ["\"a\\\",b\"", "c"]);
        assert_eq!(parts("\\\"a,b\",c"), ["\\\"a,b\"", "c"]);
    }

    #[test]
    fn a_quote_without_an_end_hides_no_delimiter() {
        assert_eq!(parts("\"a,b"), ["\"a", "b"]);
        assert_eq!(parts("\"a\\\",b"), ["\"a\\\"", "b"]);
        assert!(!is_closed(b"\"\\\""));
        assert!(is_closed(b"\"\\\"\""));
    }
}
