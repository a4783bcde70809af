//! Integers with a prefix (RFC 7541, section 5.1).

use super::Malformed;

/// Reads an integer whose first byte gives its low `prefix_bits` bits, and moves `rest` behind it.
///
/// Values beyond 28 bits, and encodings longer than five bytes, are refused: no length or index
/// here is ever near them (RFC 7541, section 7.4).
#[inline]
pub(crate) fn read(rest: &mut &[u8], prefix_bits: u32) -> Result<usize, Malformed> {
    let [first, after @ ..] = *rest else {
        return Err(Malformed);
    };
    let mask = (1 << prefix_bits) - 1;
    let value = usize::from(*first) & mask;
    *rest = after;
    if value < mask {
        return Ok(value);
    }
    read_more(rest, value)
}

fn read_more(rest: &mut &[u8], mut value: usize) -> Result<usize, Malformed> {
    for shift in [0, 7, 14, 21] {
        let [byte, after @ ..] = *rest else {
            return Err(Malformed);
        };
        *rest = after;
        value += usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Malformed)
}

/// Appends an integer; `first` holds the bits of the first byte above the prefix.
#[inline]
pub(crate) fn write(value: usize, prefix_bits: u32, first: u8, out: &mut Vec<u8>) {
    let mask = (1 << prefix_bits) - 1;
    if value < mask {
        out.push(first | value as u8);
    } else {
        out.push(first | mask as u8);
        write_more(value - mask, out);
    }
}

#[inline(never)]
fn write_more(mut rest: usize, out: &mut Vec<u8>) {
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(mut bytes: &[u8], prefix_bits: u32) -> Result<usize, Malformed> {
        let value = read(&mut bytes, prefix_bits)?;
        assert!(bytes.is_empty());
        Ok(value)
    }

    #[test]
    fn the_examples_of_appendix_c_1() {
        for (value, prefix_bits, bytes) in [
            (10, 5, &[0b0000_1010][..]),
            (1337, 5, &[0b0001_1111, 0b1001_1010, 0b0000_1010]),
            (42, 8, &[0b0010_1010]),
        ] {
            let mut out = Vec::new();
            write(value, prefix_bits, 0, &mut out);
            assert_eq!(out, bytes);
            assert_eq!(read_all(bytes, prefix_bits), Ok(value));
        }
    }

    #[test]
    fn every_prefix_round_trips_around_its_borders() {
        for prefix_bits in 1..=8 {
            let border = (1 << prefix_bits) - 1;
            for value in
                (0..600).chain([border - 1, border, border + 1, border + 127, border + 128])
            {
                let mut out = Vec::new();
                write(value, prefix_bits, 0, &mut out);
                assert_eq!(read_all(&out, prefix_bits), Ok(value));
            }
        }
    }

    #[test]
    fn what_is_too_long_or_cut_off_is_refused() {
        assert_eq!(read_all(&[], 7), Err(Malformed));
        assert_eq!(read_all(&[0x7f], 7), Err(Malformed));
        assert_eq!(read_all(&[0x7f, 0x80, 0x80], 7), Err(Malformed));
        assert_eq!(
            read_all(&[0x7f, 0xff, 0xff, 0xff, 0x7f], 7),
            Ok((1 << 28) - 1 + 0x7f)
        );
        assert_eq!(
            read_all(&[0x7f, 0xff, 0xff, 0xff, 0xff, 0x00], 7),
            Err(Malformed)
        );
    }
}
