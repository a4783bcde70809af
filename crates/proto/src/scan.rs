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
    chunks.iter().rev().fold(0, |bits, chunk| {
        // As signed numbers plus one, plain bytes are above space, and all others wrap below.
        let shifted = (u8x16::new(*chunk) + u8x16::splat(1)).cast_signed();
        let found = i8x16::splat(b' ' as i8 + 1).simd_gt(shifted);
        bits << 16 | u64::from(found.to_bitmask())
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

/// Whether the chunk begins with `lower`, in either case; `mask` has all bits set for the bytes that
/// count. Only exact where the chunk holds no control characters.
#[inline]
pub(crate) fn begins_with(chunk: &[u8; 16], lower: &[u8; 16], mask: &[u8; 16]) -> bool {
    let text = (u8x16::new(*chunk) | u8x16::splat(0x20)) & u8x16::new(*mask);
    text.simd_eq(u8x16::new(*lower)).to_bitmask() == 0xffff
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
        let mut mask = [0; 16];
        mask[..14].fill(0xff);
        assert!(begins_with(&chunk, b"content-length\0\0", &mask));
        assert!(!begins_with(&chunk, b"content-lengti\0\0", &mask));
    }
}
