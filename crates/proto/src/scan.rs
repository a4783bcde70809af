//! Vectorised scans: they classify 16 to 64 bytes at a time.

use wide::{i8x16, u8x16};

/// Bytes of a block.
pub(crate) const BLOCK: usize = 64;

/// A mask of the bytes from `at` on, up to a block, that are not plain, that is neither visible ASCII
/// nor space: one bit for each byte, the lowest for the first.
#[inline]
pub(crate) fn not_plain_from(bytes: &[u8], at: usize) -> u64 {
    let rest = &bytes[at..];
    if let Some(block) = rest.first_chunk() {
        return not_plain(block);
    }
    not_plain_to_end(bytes, rest)
}

/// The same for less than a block, at the end of `bytes`.
#[inline]
fn not_plain_to_end(bytes: &[u8], rest: &[u8]) -> u64 {
    let plain = if let (Some(front), Some(back)) = (rest.first_chunk(), rest.last_chunk()) {
        plain_in_two(front) | plain_in_two(back) << (rest.len() - 32)
    } else if let (Some(front), Some(back)) = (rest.first_chunk(), rest.last_chunk()) {
        plain_in(front) | plain_in(back) << (rest.len() - 16)
    } else if let [byte] = rest {
        return u64::from(!matches!(byte, b' '..=b'~'));
    } else {
        // A few last bytes are filled up to a chunk with the bytes before them, or with spaces.
        match bytes.last_chunk() {
            Some(chunk) => plain_in(chunk) >> (16 - rest.len()),
            None => {
                let mut chunk = [b' '; 16];
                chunk[..rest.len()].copy_from_slice(rest);
                plain_in(&chunk)
            }
        }
    };
    !plain & ((1 << rest.len()) - 1)
}

#[inline]
fn plain_in_two(chunks: &[u8; 32]) -> u64 {
    let (chunks, _) = chunks.as_chunks();
    plain_in(&chunks[0]) | plain_in(&chunks[1]) << 16
}

#[inline]
fn not_plain(block: &[u8; BLOCK]) -> u64 {
    let (chunks, _) = block.as_chunks();
    !chunks
        .iter()
        .rev()
        .fold(0, |plain, chunk| plain << 16 | plain_in(chunk))
}

#[inline]
fn plain_in(chunk: &[u8; 16]) -> u64 {
    // As signed numbers plus one, plain bytes are above space, and all others wrap below.
    let shifted = (u8x16::new(*chunk) + u8x16::splat(1)).cast_signed();
    u64::from(shifted.simd_gt(i8x16::splat(b' ' as i8)).to_bitmask())
}

/// A mask of the positions of this byte in the chunk.
#[inline]
pub(crate) fn equal(chunk: &[u8; 16], byte: u8) -> u32 {
    u8x16::new(*chunk).simd_eq(u8x16::splat(byte)).to_bitmask()
}

/// Two masks: letters, digits, `-` and `.`, the characters of most hosts; and digits alone.
#[inline]
pub(crate) fn common_in_host(chunk: &[u8; 16]) -> (u32, u32) {
    let bytes = u8x16::new(*chunk);
    let digits = is_up_to(bytes, b'0', b'9');
    let common =
        is_up_to(bytes | u8x16::splat(0x20), b'a', b'z') | digits | is_up_to(bytes, b'-', b'.');
    (common.to_bitmask(), digits.to_bitmask())
}

/// A mask of the letters, digits, `-`, `_`, `.` and `/`: the characters of most paths.
#[inline]
pub(crate) fn common_in_path(chunk: &[u8; 16]) -> u32 {
    let bytes = u8x16::new(*chunk);
    let common = is_up_to(bytes | u8x16::splat(0x20), b'a', b'z')
        | is_up_to(bytes, b'/', b'9')
        | bytes.simd_eq(u8x16::splat(b'-'))
        | bytes.simd_eq(u8x16::splat(b'_'));
    common.to_bitmask()
}

/// A mask of the bytes that are allowed in a query, see `target::CLASS`, except `~`.
#[inline]
pub(crate) fn common_in_query(chunk: &[u8; 16]) -> u32 {
    let bytes = u8x16::new(*chunk);
    // `"` and `#` differ in one bit; `<`, `>`, `\` and `^` in three, with no other byte of the range.
    let refused = (bytes | u8x16::splat(1)).simd_eq(u8x16::splat(b'#'))
        | (bytes & u8x16::splat(!0x62)).simd_eq(u8x16::splat(0x1c))
        | bytes.simd_eq(u8x16::splat(b'`'));
    (is_up_to(bytes, b'!', b'z') & !refused).to_bitmask()
}

/// All bits set where a byte is in the range.
#[inline]
fn is_up_to(bytes: u8x16, first: u8, last: u8) -> u8x16 {
    let offset = bytes - u8x16::splat(first);
    offset.min(u8x16::splat(last - first)).simd_eq(offset)
}

/// Whether `bytes` contains `byte`.
#[inline]
pub(crate) fn contains(bytes: &[u8], byte: u8) -> bool {
    match bytes.last_chunk() {
        Some(last) => {
            let (chunks, _) = bytes.as_chunks();
            let in_chunks = chunks.iter().fold(0, |all, chunk| all | equal(chunk, byte));
            in_chunks | equal(last, byte) != 0
        }
        None => bytes.contains(&byte),
    }
}

/// Offset of the first occurrence of `byte`.
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

/// A pattern of sixteen bytes.
#[derive(Debug)]
pub(crate) struct BytePattern {
    /// The bytes in lower case; zero where any byte matches.
    pub(crate) lower: [u8; 16],
    /// All bits set where the byte is compared.
    pub(crate) mask: [u8; 16],
}

/// A pattern that no chunk matches.
pub(crate) const NOTHING: BytePattern = BytePattern {
    lower: [1; 16],
    mask: [0; 16],
};

/// Whether the chunk, in any case, matches the pattern. Exact only for a chunk without control
/// characters.
#[inline]
pub(crate) fn matches(chunk: &[u8; 16], pattern: &BytePattern) -> bool {
    let text = (u8x16::new(*chunk) | u8x16::splat(0x20)) & u8x16::new(pattern.mask);
    text.simd_eq(u8x16::new(pattern.lower)).to_bitmask() == 0xffff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_bytes_are_found_at_every_position() {
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
    fn every_byte_is_in_the_right_classes() {
        for byte in 0..=u8::MAX {
            let mut chunk = [0; 16];
            chunk[5] = byte;
            let bit = |is_in: bool| u32::from(is_in) << 5;
            let (in_host, digits) = common_in_host(&chunk);
            let is_word = byte.is_ascii_alphanumeric() || byte == b'-';
            assert_eq!(in_host, bit(is_word || byte == b'.'), "{byte}");
            assert_eq!(digits, bit(byte.is_ascii_digit()), "{byte}");
            let is_in_path = is_word || byte == b'/' || byte == b'_';
            assert_eq!(common_in_path(&chunk), bit(is_in_path), "{byte}");
            let is_in_query = byte.is_ascii_graphic() && !b"\"#<>\\^`{|}~".contains(&byte);
            assert_eq!(common_in_query(&chunk), bit(is_in_query), "{byte}");
        }
    }

    #[test]
    fn equal_bytes_are_found() {
        let chunk = *b"Content-Length: ";
        assert_eq!(equal(&chunk, b':'), 1 << 14);
        assert_eq!(equal(&chunk, b't'), 1 << 3 | 1 << 6 | 1 << 12);
        let mut pattern = BytePattern {
            lower: *b"content-length\0\0",
            mask: [0xff; 16],
        };
        pattern.mask[14..].fill(0);
        assert!(matches(&chunk, &pattern));
        pattern.lower[13] = b'i';
        assert!(!matches(&chunk, &pattern) && !matches(&chunk, &NOTHING));
    }
}
