//! Messages of protocol buffers, written without a description of them: OTLP needs few.

use std::borrow::Cow;
use std::iter;

/// How a field is encoded.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const LENGTH: u32 = 2;
const FIXED32: u32 = 5;

/// The greatest length that takes one byte.
const SHORT_MAX: usize = 127;

/// A message that is being written.
#[derive(Debug, Default)]
pub(super) struct Message(Vec<u8>);

/// The value of an attribute.
#[derive(Debug, Clone, Copy)]
pub(super) enum Attribute<'a> {
    Text(&'a str),
    /// A text of a client, which may be no UTF-8.
    Bytes(&'a [u8]),
    /// A list with this text.
    Listed(&'a [u8]),
    Number(u64),
    Decimal(f64),
    True,
}

impl Message {
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    pub(super) fn number(&mut self, field: u32, value: u64) {
        self.tag(field, VARINT);
        self.varint(value);
    }

    pub(super) fn fixed64(&mut self, field: u32, value: u64) {
        self.tag(field, FIXED64);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn fixed32(&mut self, field: u32, value: u32) {
        self.tag(field, FIXED32);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn bytes(&mut self, field: u32, value: &[u8]) {
        self.tag(field, LENGTH);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
    }

    /// A text, which must be UTF-8.
    pub(super) fn text(&mut self, field: u32, value: &[u8]) {
        match String::from_utf8_lossy(value) {
            Cow::Borrowed(_) => self.bytes(field, value),
            Cow::Owned(text) => self.bytes(field, text.as_bytes()),
        }
    }

    /// A message within this one.
    pub(super) fn message(&mut self, field: u32, write: impl FnOnce(&mut Message)) {
        self.tag(field, LENGTH);
        let start = self.0.len();
        // Most messages are short.
        self.0.push(0);
        write(self);
        let length = self.0.len() - start - 1;
        match length {
            ..=SHORT_MAX => self.0[start] = length as u8,
            _ => {
                let mut encoded = Message::default();
                encoded.varint(length as u64);
                self.0.splice(start..=start, encoded.0);
            }
        }
    }

    /// A `KeyValue`.
    pub(super) fn attribute(&mut self, field: u32, key: &str, value: Attribute<'_>) {
        self.message(field, |pair| {
            pair.bytes(1, key.as_bytes());
            pair.message(2, |any| any.value(value));
        });
    }

    /// An `AnyValue`.
    pub(super) fn value(&mut self, value: Attribute<'_>) {
        match value {
            Attribute::Text(text) => self.bytes(1, text.as_bytes()),
            Attribute::Bytes(text) => self.text(1, text),
            Attribute::Listed(text) => {
                self.message(5, |list| list.message(1, |any| any.text(1, text)));
            }
            Attribute::Number(number) => self.number(3, number),
            Attribute::Decimal(number) => {
                self.tag(4, FIXED64);
                self.0.extend_from_slice(&number.to_le_bytes());
            }
            Attribute::True => self.number(2, 1),
        }
    }

    fn tag(&mut self, field: u32, kind: u32) {
        self.varint(u64::from(field << 3 | kind));
    }

    fn varint(&mut self, mut value: u64) {
        while value > 0x7f {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

/// The number of a field of a message, if it has it as a varint.
pub(super) fn number_of(mut message: &[u8], wanted: u64) -> Option<u64> {
    while !message.is_empty() {
        let (field, value) = field(&mut message)?;
        match value {
            Value::Number(number) if field == wanted => return Some(number),
            _ => {}
        }
    }
    None
}

/// A field of a message, if it has it with a length.
pub(super) fn message_of(message: &[u8], wanted: u64) -> Option<&[u8]> {
    messages_of(message, wanted).next()
}

/// All fields of a message with this number and a length, up to one that is malformed.
pub(super) fn messages_of(mut message: &[u8], wanted: u64) -> impl Iterator<Item = &[u8]> {
    let fields = iter::from_fn(move || field(&mut message));
    fields.filter_map(move |(number, value)| match value {
        Value::Bytes(bytes) if number == wanted => Some(bytes),
        _ => None,
    })
}

enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The next field; `None` if it is malformed.
fn field<'a>(rest: &mut &'a [u8]) -> Option<(u64, Value<'a>)> {
    let tag = read_varint(rest)?;
    let length = match tag as u32 & 7 {
        VARINT => return Some((tag >> 3, Value::Number(read_varint(rest)?))),
        FIXED64 => 8,
        FIXED32 => 4,
        LENGTH => usize::try_from(read_varint(rest)?).ok()?,
        _ => return None,
    };
    let (bytes, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some((tag >> 3, Value::Bytes(bytes)))
}

fn read_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Message)) -> Vec<u8> {
        let mut message = Message::default();
        write(&mut message);
        message.into_bytes()
    }

    // The bytes of the encoding's description.
    #[test]
    fn fields_are_encoded_as_specified() {
        assert_eq!(written(|m| m.number(1, 150)), [0x08, 0x96, 0x01]);
        assert_eq!(written(|m| m.bytes(2, b"testing")), b"\x12\x07testing");
        assert_eq!(
            written(|m| m.message(3, |m| m.number(1, 150))),
            [0x1a, 3, 0x08, 0x96, 0x01]
        );
        assert_eq!(written(|m| m.fixed32(16, 1)), [0x85, 0x01, 1, 0, 0, 0]);
        assert_eq!(written(|m| m.fixed64(1, 2)), [9, 2, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(
            written(|m| m.text(1, b"\xff")),
            "\n\u{3}\u{fffd}".as_bytes()
        );
    }

    #[test]
    fn messages_of_every_length_are_read_back() {
        for length in [0, 1, 126, 127, 128, 129, 16_383, 16_384, 100_000] {
            let bytes = vec![b'a'; length];
            let message = written(|m| {
                m.message(2, |inner| inner.bytes(1, &bytes));
                m.number(3, length as u64);
            });
            let inner = message_of(&message, 2).unwrap();
            assert_eq!(message_of(inner, 1).unwrap(), bytes);
            assert_eq!(number_of(&message, 3), Some(length as u64));
        }
    }

    #[test]
    fn malformed_messages_have_no_fields() {
        let message = written(|m| {
            m.message(1, |m| m.number(1, 1 << 60));
            m.fixed64(2, 1);
            m.fixed32(3, 1);
        });
        for end in 0..message.len() {
            assert_eq!(number_of(&message[..end], 9), None);
        }
        assert_eq!(number_of(&[0xff; 20], 1), None);
        assert_eq!(
            message_of(
                &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
                1
            ),
            None
        );
    }
}
