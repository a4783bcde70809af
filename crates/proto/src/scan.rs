//! Finds bytes many at a time.

use wide::u8x16;

/// Offsets of all controls (below space, or DEL), in order.
#[inline]
pub(crate) fn controls(bytes: &[u8]) -> Controls<'_> {
    Controls {
        rest: bytes,
        base: 0,
        next_base: 0,
        found: 0,
    }
}

/// The iterator of [`controls`].
pub(crate) struct Controls<'a> {
    /// What was not looked at yet.
    rest: &'a [u8],
    /// Offset of the block that `found` is about.
    base: usize,
    next_base: usize,
    /// A bit for each control of the block that was not reported yet.
    found: u64,
}

impl Iterator for Controls<'_> {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        while self.found == 0 {
            if self.rest.is_empty() {
                return None;
            }
            self.load();
        }
        let offset = self.base + self.found.trailing_zeros() as usize;
        self.found &= self.found - 1;
        Some(offset)
    }
}

impl Controls<'_> {
    #[inline]
    fn load(&mut self) {
        self.base = self.next_base;
        self.next_base += 64;
        if let Some((block, rest)) = self.rest.split_first_chunk() {
            self.rest = rest;
            self.found = control_bits(block);
            return;
        }
        let mut padded = [b' '; 64];
        padded[..self.rest.len()].copy_from_slice(self.rest);
        self.rest = &[];
        self.found = control_bits(&padded);
    }
}

#[inline]
fn control_bits(block: &[u8; 64]) -> u64 {
    let (chunks, _) = block.as_chunks();
    chunks.iter().rev().fold(0, |bits, chunk| {
        bits << 16 | u64::from(control_bits_of_16(*chunk))
    })
}

#[inline]
fn control_bits_of_16(chunk: [u8; 16]) -> u32 {
    let chunk = u8x16::new(chunk);
    let below_space = chunk.min(u8x16::splat(0x1f)).simd_eq(chunk);
    (below_space | chunk.simd_eq(u8x16::splat(0x7f))).to_bitmask()
}

/// Offset of the first such byte at or after `from`.
#[inline]
pub(crate) fn next_equal(bytes: &[u8], from: usize, byte: u8) -> Option<usize> {
    let mut at = from;
    while let Some(chunk) = bytes.get(at..).and_then(<[u8]>::first_chunk) {
        let found = u8x16::new(*chunk).simd_eq(u8x16::splat(byte)).to_bitmask();
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize);
        }
        at += 16;
    }
    let rest = bytes.get(at..)?;
    rest.iter()
        .position(|&candidate| candidate == byte)
        .map(|found| at + found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_control_is_found_wherever_it_is() {
        for byte in 0..=u8::MAX {
            for place in [0, 1, 31, 63, 64, 65, 127, 128, 129] {
                let mut bytes = vec![b'a'; 130];
                bytes[place] = byte;
                let plain: Vec<usize> = (0..130)
                    .filter(|&at| bytes[at].is_ascii_control())
                    .collect();
                assert_eq!(
                    controls(&bytes).collect::<Vec<_>>(),
                    plain,
                    "{byte} at {place}"
                );
            }
        }
    }

    #[test]
    fn the_first_match_is_found_at_any_length() {
        for length in 0..70 {
            for place in 0..=length {
                let mut bytes = vec![b'a'; length];
                bytes.insert(place, b':');
                bytes.push(b':');
                for from in 0..=place {
                    assert_eq!(next_equal(&bytes, from, b':'), Some(place));
                }
                assert_eq!(next_equal(&bytes[..place], 0, b':'), None);
            }
        }
    }
}
