//! Route patterns, parsed once: `/users/{id:u64}/files/{rest...}`.

use std::fmt;

/// Most parameters of one pattern; their ranges are in a fixed array.
pub const PARAMS_MAX: usize = 8;

/// The kinds of parameters, most specific first: the order in which they are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Hexadecimal with hyphens, 8-4-4-4-12 digits.
    Uuid,
    /// Decimal digits that fit 32 bits.
    U32,
    /// Decimal digits that fit 64 bits.
    U64,
    /// As `U32`, with an optional minus.
    I32,
    /// As `U64`, with an optional minus.
    I64,
    /// Any segment of at least one byte.
    Text,
}

impl Kind {
    const NAMES: [(&'static str, Kind); 6] = [
        ("uuid", Kind::Uuid),
        ("u32", Kind::U32),
        ("u64", Kind::U64),
        ("i32", Kind::I32),
        ("i64", Kind::I64),
        ("str", Kind::Text),
    ];

    /// The length of the segment at the start of `rest`, if it is of this kind; it is never 0.
    pub fn measure(self, rest: &[u8]) -> Option<usize> {
        self.measure_end(rest, tail(rest))
    }

    /// The same for the end of a path that has this [`tail`].
    #[inline(always)]
    pub(super) fn measure_end(self, rest: &[u8], tail: u64) -> Option<usize> {
        if self == Kind::U64 {
            // Fewer than eight digits always fit; more are checked below.
            if let Some(digits) = other_than_digit_in(front(rest, tail)) {
                let ends = digits >= rest.len() || rest[digits] == b'/';
                return (ends && digits > 0).then_some(digits);
            }
        }
        let len = segment_len(rest, tail);
        (len > 0 && (self == Kind::Text || self.accepts(&rest[..len]))).then_some(len)
    }

    #[inline(never)]
    fn accepts(self, segment: &[u8]) -> bool {
        let (digits, negative) = match segment {
            [b'-', digits @ ..] => (digits, true),
            digits => (digits, false),
        };
        match self {
            Kind::Text => true,
            Kind::Uuid => is_uuid(segment),
            Kind::U32 => !negative && magnitude(digits).is_some_and(|n| n <= u64::from(u32::MAX)),
            Kind::U64 => !negative && magnitude(digits).is_some(),
            Kind::I32 => fits_signed(digits, negative, 31),
            Kind::I64 => fits_signed(digits, negative, 63),
        }
    }

    fn parse(name: &str) -> Option<Kind> {
        Kind::NAMES
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, kind)| *kind)
    }
}

/// One token of a pattern.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Token {
    /// Bytes that the path must have there, in the form of a normalised path.
    Literal(Vec<u8>),
    /// The rest of a segment, at least one byte.
    Param(Kind),
    /// The rest of the path, slashes included; may be empty.
    Rest,
}

/// A parsed route pattern.
#[derive(Debug, Clone)]
pub struct Pattern {
    text: String,
    tokens: Vec<Token>,
    names: Vec<Box<str>>,
}

/// Why a pattern is invalid, as a message for its author.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatternError {
    pattern: String,
    reason: String,
}

impl Pattern {
    /// Parses literals, `{name}`, `{name:kind}`, and at the end `{name...}` or `{*name}`.
    pub fn parse(text: &str) -> Result<Pattern, PatternError> {
        let fail = |reason: String| PatternError {
            pattern: text.to_owned(),
            reason,
        };
        let mut pattern = Pattern {
            text: text.to_owned(),
            tokens: vec![],
            names: vec![],
        };
        if !text.starts_with('/') {
            return Err(fail("a route starts with `/`".into()));
        }
        let mut remaining = text;
        while !remaining.is_empty() {
            if matches!(pattern.tokens.last(), Some(Token::Rest)) {
                return Err(fail("nothing can follow a catch-all".into()));
            }
            remaining = match remaining.strip_prefix('{') {
                None => pattern.take_literal(remaining).map_err(fail)?,
                Some(inner) => {
                    let (braced, after) = inner
                        .split_once('}')
                        .ok_or_else(|| fail("a `{` is never closed by `}`".into()))?;
                    pattern.take_braced(braced).map_err(fail)?;
                    after
                }
            };
        }
        if pattern.names.len() > PARAMS_MAX {
            return Err(fail(format!("a route has at most {PARAMS_MAX} parameters")));
        }
        Ok(pattern)
    }

    /// The text of the pattern.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The tokens, in order; adjacent literals are one token.
    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// The names of the parameters, in order.
    pub fn names(&self) -> &[Box<str>] {
        &self.names
    }

    /// Takes the literal at the start of `remaining` and returns the rest.
    fn take_literal<'t>(&mut self, remaining: &'t str) -> Result<&'t str, String> {
        let end = remaining.find('{').unwrap_or(remaining.len());
        let (literal, after) = remaining.split_at(end);
        if matches!(self.tokens.last(), Some(Token::Param(_))) && !literal.starts_with('/') {
            return Err("a parameter reaches to the end of its segment: put `/` after it".into());
        }
        if literal.contains('}') {
            return Err("a `}` has no `{` before it".into());
        }
        // A dot segment is removed from every path before it is matched.
        let open_end = after.is_empty();
        let mut segments = literal.split('/').skip(1).peekable();
        while let Some(segment) = segments.next() {
            if matches!(segment, "." | "..") && (segments.peek().is_some() || open_end) {
                return Err("`.` and `..` never match: paths are normalised first".into());
            }
        }
        self.tokens.push(Token::Literal(normalize(literal)?));
        Ok(after)
    }

    fn take_braced(&mut self, braced: &str) -> Result<(), String> {
        if matches!(self.tokens.last(), Some(Token::Param(_))) {
            return Err("two parameters need a `/` between them".into());
        }
        let (name, token) = if let Some(name) = braced.strip_prefix('*') {
            (name, Token::Rest)
        } else if let Some(name) = braced.strip_suffix("...") {
            (name, Token::Rest)
        } else if let Some((name, kind)) = braced.split_once(':') {
            let known = Kind::parse(kind).ok_or_else(|| {
                let names = Kind::NAMES.map(|(name, _)| name).join(", ");
                format!("`{kind}` is not a kind of parameter; the kinds are {names}")
            })?;
            (name, Token::Param(known))
        } else {
            (braced, Token::Param(Kind::Text))
        };
        let starts_segment =
            matches!(self.tokens.last(), Some(Token::Literal(l)) if l.ends_with(b"/"));
        if token == Token::Rest && !starts_segment {
            return Err("a catch-all must follow a `/`".into());
        }
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        if name.is_empty() || !name.chars().all(is_word) {
            return Err(format!(
                "`{name}` is not a name: use letters, digits and `_`"
            ));
        }
        if self.names.iter().any(|known| &**known == name) {
            return Err(format!("the parameter `{name}` appears twice"));
        }
        self.names.push(name.into());
        self.tokens.push(token);
        Ok(())
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the route `{}` cannot be used: {}",
            self.pattern, self.reason
        )
    }
}

impl std::error::Error for PatternError {}

/// Normalises a literal like a path: decodes escapes of unreserved characters, writes other escapes in
/// upper case, and escapes bytes that a path cannot contain ([RFC 3986, section 6.2.2]).
///
/// [RFC 3986, section 6.2.2]: https://www.rfc-editor.org/rfc/rfc3986#section-6.2.2
pub(super) fn normalize(literal: &str) -> Result<Vec<u8>, String> {
    let mut normalized = Vec::with_capacity(literal.len());
    let mut bytes = literal.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let digits = bytes.next().and_then(hex).zip(bytes.next().and_then(hex));
            let (high, low) = digits.ok_or("a `%` needs two hexadecimal digits after it")?;
            let value = high << 4 | low;
            if value == 0 {
                return Err("`%00` is refused in every path".into());
            }
            push_escaped_unless(&mut normalized, value, is_unreserved(value));
        } else {
            let stays = is_unreserved(byte) || b"!$&'()*+,;=:@/".contains(&byte);
            push_escaped_unless(&mut normalized, byte, stays);
        }
    }
    Ok(normalized)
}

fn push_escaped_unless(normalized: &mut Vec<u8>, byte: u8, stays: bool) {
    if stays {
        normalized.push(byte);
    } else {
        normalized.extend_from_slice(format!("%{byte:02X}").as_bytes());
    }
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

fn hex(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

/// The value of one or more decimal digits, if it fits 64 bits.
fn magnitude(digits: &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    (!digits.is_empty()).then_some(value)
}

fn fits_signed(digits: &[u8], negative: bool, bits: u32) -> bool {
    let max = (1u64 << bits) - u64::from(!negative);
    magnitude(digits).is_some_and(|value| value <= max)
}

fn is_uuid(segment: &[u8]) -> bool {
    segment.len() == 36
        && segment.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

/// The number of bytes up to the next `/` or the end, found eight bytes at a time.
#[inline]
fn segment_len(rest: &[u8], tail: u64) -> usize {
    let mut len = 0;
    loop {
        if let Some(offset) = slash_in(front(&rest[len..], tail)) {
            return len + offset;
        }
        if rest.len() - len <= 8 {
            return rest.len();
        }
        len += 8;
    }
}

/// The last eight bytes of a path as a little-endian word; a shorter path is padded with zeros in front.
#[inline]
pub(super) fn tail(path: &[u8]) -> u64 {
    match path.last_chunk() {
        Some(last) => u64::from_le_bytes(*last),
        None => path
            .iter()
            .fold(0, |word, byte| word >> 8 | u64::from(*byte) << 56),
    }
}

/// The first eight bytes as a little-endian word, padded with zeros.
#[inline]
fn front(rest: &[u8], tail: u64) -> u64 {
    match rest.first_chunk() {
        Some(all) => u64::from_le_bytes(*all),
        None if rest.is_empty() => 0,
        None => tail >> (64 - 8 * rest.len()),
    }
}

const ONES: u64 = u64::MAX / 255;

/// The position of the first `/` in a little-endian word: XOR makes it zero, and a zero is the lowest byte
/// that subtracting one makes negative and that was not negative before.
#[inline]
fn slash_in(word: u64) -> Option<usize> {
    let zeroed = word ^ (ONES * b'/' as u64);
    first_marked(zeroed.wrapping_sub(ONES) & !zeroed)
}

/// The position of the first byte that is not a digit. Addition makes the bytes above digits negative,
/// subtraction those below, and carries affect only bytes after the first one.
#[inline]
fn other_than_digit_in(word: u64) -> Option<usize> {
    const ABOVE: u64 = ONES * (0x7f - b'9' as u64);
    const BELOW: u64 = ONES * b'0' as u64;
    first_marked(word.wrapping_add(ABOVE) | word.wrapping_sub(BELOW))
}

/// The position of the first negative byte.
#[inline]
fn first_marked(word: u64) -> Option<usize> {
    let marks = word & (ONES << 7);
    (marks != 0).then(|| marks.trailing_zeros() as usize / 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_measured_like_a_bytewise_search() {
        let bytes = [
            0, b'/', b'0', b'5', b'9', b':', b'-', b'a', 0x7f, 0x80, 0xff,
        ];
        let mut state = 1_u64;
        for round in 0..200_000 {
            let mut path = [0; 24];
            for byte in &mut path {
                state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
                let digit = b'0' + (state >> 40) as u8 % 10;
                let any = bytes[(state >> 33) as usize % bytes.len()];
                *byte = if round % 3 == 0 || state >> 60 == 0 {
                    any
                } else {
                    digit
                };
            }
            let path = &path[..round % 25];
            let rest = &path[round / 25 % (path.len() + 1)..];
            let len = rest
                .iter()
                .position(|&byte| byte == b'/')
                .unwrap_or(rest.len());
            let is_number = std::str::from_utf8(&rest[..len])
                .is_ok_and(|text| !text.starts_with('+') && text.parse::<u64>().is_ok());
            let measured = |kind: Kind| kind.measure_end(rest, tail(path));
            assert_eq!(measured(Kind::Text), (len > 0).then_some(len), "{path:?}");
            assert_eq!(measured(Kind::U64), is_number.then_some(len), "{path:?}");
        }
    }
}
