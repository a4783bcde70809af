//! Base64 as gRPC-Web uses it: a sequence of texts, each with its own padding.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use blitz_http::{Buffer, Chunk, Fields, Pooled, Slice};
use blitz_site::{Failure, Transform, TransformError};

/// Characters that encode three bytes.
const QUAD: usize = 4;

/// The text of these bytes, with its padding.
pub(super) fn encode(bytes: &[u8]) -> Chunk {
    let mut text = Buffer::take();
    text.resize(bytes.len().div_ceil(3) * QUAD, 0);
    let written = STANDARD.encode_slice(bytes, &mut text[..]);
    assert_eq!(written, Ok(text.len()), "the buffer has the encoded length");
    Chunk::from(text)
}

/// Decodes text in pieces that may end anywhere.
#[derive(Debug, Default)]
pub(crate) struct Base64Decoder {
    /// Characters of an incomplete group of four.
    kept: [u8; QUAD],
    kept_len: usize,
}

impl Base64Decoder {
    /// The bytes that the next piece of text completes.
    pub(super) fn decode(&mut self, mut text: &[u8]) -> Result<Buffer, TransformError> {
        let mut bytes = Buffer::take();
        if self.kept_len > 0 {
            text = self.keep(text);
            if self.kept_len < QUAD {
                return Ok(bytes);
            }
            self.kept_len = 0;
            append(&self.kept, &mut bytes)?;
        }
        let whole = text.len() / QUAD * QUAD;
        let (mut quads, rest) = text.split_at(whole);
        while !quads.is_empty() {
            // Padding ends a text, and another may follow.
            let padding = quads.iter().position(|&character| character == b'=');
            let end = padding.map_or(quads.len(), |at| (at / QUAD + 1) * QUAD);
            let (one, others) = quads.split_at(end);
            append(one, &mut bytes)?;
            quads = others;
        }
        self.keep(rest);
        Ok(bytes)
    }

    /// The text ends here.
    pub(super) fn finish(&self) -> Result<(), TransformError> {
        if self.kept_len == 0 {
            Ok(())
        } else {
            Err(TransformError::NotBase64)
        }
    }

    /// Keeps up to four characters; gives back the others.
    fn keep<'a>(&mut self, text: &'a [u8]) -> &'a [u8] {
        let (more, others) = text.split_at(text.len().min(QUAD - self.kept_len));
        self.kept[self.kept_len..][..more.len()].copy_from_slice(more);
        self.kept_len += more.len();
        others
    }
}

impl Transform for Base64Decoder {
    fn content(&mut self, slice: Slice) -> Result<Chunk, TransformError> {
        self.decode(&slice).map(Chunk::from)
    }

    fn end(&mut self, _: &mut Option<Pooled<Fields>>) -> Result<Option<Chunk>, TransformError> {
        self.finish().map(|()| None)
    }

    fn fail(&mut self, _: Failure) -> Option<Chunk> {
        None
    }
}

/// Decodes one text, which has padding at its end only.
fn append(text: &[u8], bytes: &mut Buffer) -> Result<(), TransformError> {
    let start = bytes.len();
    bytes.resize(start + text.len() / QUAD * 3, 0);
    let decoded = STANDARD.decode_slice(text, &mut bytes[start..]);
    bytes.truncate(start + decoded.map_err(|_| TransformError::NotBase64)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(pieces: &[&str]) -> Result<Vec<u8>, TransformError> {
        let mut decoder = Base64Decoder::default();
        let mut all = Vec::new();
        for piece in pieces {
            all.extend_from_slice(&decoder.decode(piece.as_bytes())?);
        }
        decoder.finish().map(|()| all)
    }

    #[test]
    fn texts_may_follow_each_other_and_be_split_anywhere() {
        let text = "AAAAAAE=aGk=Zm9vYmFyZg==Zm8=";
        let whole = decoded(&[text]);
        assert_eq!(whole, Ok(b"\0\0\0\0\x01hifoobarffo".to_vec()));
        for at in 0..text.len() {
            for end in at..text.len() {
                assert_eq!(decoded(&[&text[..at], &text[at..end], &text[end..]]), whole);
            }
        }
        let characters: Vec<_> = text.split("").collect();
        assert_eq!(decoded(&characters), whole);
    }

    #[test]
    fn invalid_base64_is_refused() {
        for text in [
            "aGk", "a=k=", "====", "a===", "aG k", "aGl=", "aGk=\n", "aGk=a", "-_-_", "ab=c",
        ] {
            assert_eq!(decoded(&[text]), Err(TransformError::NotBase64), "{text:?}");
        }
        assert_eq!(decoded(&[]), Ok(Vec::new()));
    }

    #[test]
    fn encoding_and_decoding_round_trip() {
        for len in 0..100_u8 {
            let bytes: Vec<u8> = (0..len).map(|byte| byte.wrapping_mul(37)).collect();
            let text = encode(&bytes);
            assert_eq!(decoded(&[std::str::from_utf8(&text).unwrap()]), Ok(bytes));
        }
    }
}
