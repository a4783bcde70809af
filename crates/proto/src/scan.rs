//! Looks at many bytes at a time.

use wide::{i8x16, u8x16};

/// Bytes of a block.
pub(crate) const BLOCK: usize = 64;

/// Which of the bytes from `at` on, up to a block, are not plain, that is neither visible ASCII nor
/// space: a bit for each byte, the lowest for the first.
#[inline]
pub(crate) fn not_plain_from(bytes: &[u8], at: usize) -> u64 {
    let rest = &bytes[at..];
    if let Some(block) = rest.first_chunk() {
        return not_plain(block);
    }
    if let [byte] = rest {
        return u64::from(!matches!(byte, b' '..=b'~'));
    }
    // The last bytes make a block together with some before them, or with spaces.
    if let Some(block) = bytes.last_chunk() {
        return not_plain(block) >> (BLOCK - rest.len());
    }
    let mut block = [b' '; BLOCK];
    block[..rest.len()].copy_from_slice(rest);
    not_plain(&block)
}

#[inline]
fn not_plain(block: &[u8; BLOCK]) -> u64 {
    let (chunks, _) = block.as_chunks();
    !chunks.iter().rev().fold(0, |bits, chunk| {
        // As signed numbers plus one, plain bytes are above space, and all others wrap below.
        let shifted = (u8x16::new(*chunk) + u8x16::splat(1)).cast_signed();
        let is_plain = shifted.simd_gt(i8x16::splat(b' ' as i8));
        bits << 16 | u64::from(is_plain.to_bitmask())
    })
}

/// Where in the chunk this byte is: a bit for each place.
#[inline]
pub(crate) fn equal(chunk: &[u8; 16], byte: u8) -> u32 {
    u8x16::new(*chunk).simd_eq(u8x16::splat(byte)).to_bitmask()
}

/// Offset of the first such byte.
#[inline]
pub(crate) fn position(bytes: &[u8], byte: u8) -> Option<usize> {
    let (chunks, rest) = bytes.as_chunks();
    for (index, chunk) in chunks.iter().enumerate() {
        let found = equal(chunk, byte);
        if found != 0 {
            return Some(index * 16 + found.trailing_zeros() as usize);
        }
    }
    let in_rest = rest.iter().position(|&candidate| candidate == byte)?;
    Some(bytes.len() - rest.len() + in_rest)
}

/// Sixteen bytes to compare with.
#[derive(Debug)]
pub(crate) struct Pattern {
    /// The bytes in lower case, zero where any will do.
    pub(crate) lower: [u8; 16],
    /// All bits set where the byte counts.
    pub(crate) mask: [u8; 16],
}

/// A pattern that no chunk matches.
pub(crate) const NOTHING: Pattern = Pattern {
    lower: [1; 16],
    mask: [0; 16],
};

/// Whether the chunk, in any case, is like the pattern. Only exact where it holds no controls.
#[inline]
pub(crate) fn matches(chunk: &[u8; 16], pattern: &Pattern) -> bool {
    let text = (u8x16::new(*chunk) | u8x16::splat(0x20)) & u8x16::new(pattern.mask);
    text.simd_eq(u8x16::new(pattern.lower)).to_bitmask() == 0xffff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_classified_wherever_it_is() {
        for byte in 0..=u8::MAX {
            for place in 0..BLOCK {
                let mut block = [b'a'; BLOCK];
                block[place] = byte;
                let is_plain = byte == b' ' || byte.is_ascii_graphic();
                assert_eq!(not_plain(&block), u64::from(!is_plain) << place, "{byte}");
            }
        }
    }

    #[test]
    fn equal_bytes_are_found() {
        let chunk = *b"Content-Length: ";
        assert_eq!(equal(&chunk, b':'), 1 << 14);
        assert_eq!(equal(&chunk, b't'), 1 << 3 | 1 << 6 | 1 << 12);
        let mut pattern = Pattern {
            lower: *b"content-length\0\0",
            mask: [0xff; 16],
        };
        pattern.mask[14..].fill(0);
        assert!(matches(&chunk, &pattern));
        pattern.lower[13] = b'i';
        assert!(!matches(&chunk, &pattern) && !matches(&chunk, &NOTHING));
    }
}
