//! Copies short text in few instructions.
//!
//! A copy of constant length compiles to a few moves. A copy of variable length is a call that first
//! branches on the length. Heads consist of short pieces, so the difference is measurable.

/// Appends the first `len` bytes of a block: copies the whole block, then truncates.
#[inline(always)]
pub(crate) fn push_front<const N: usize>(block: &[u8; N], len: usize, out: &mut Vec<u8>) {
    let end = out.len() + len;
    out.extend_from_slice(block);
    out.truncate(end);
}

/// Appends text that is usually short, as two overlapping blocks of constant length.
#[inline(always)]
pub(crate) fn push_text(text: &[u8], out: &mut Vec<u8>) {
    match text.len() {
        8..16 => push_both_ends::<8>(text, out),
        16..=32 => push_both_ends::<16>(text, out),
        _ => out.extend_from_slice(text),
    }
}

/// Appends text that is usually short, and the end of the line, which is a part of the second block.
#[inline(always)]
pub(crate) fn push_line(text: &[u8], out: &mut Vec<u8>) {
    match text.len() {
        4..8 => push_line_of_both_ends::<4, 6>(text, out),
        8..16 => push_line_of_both_ends::<8, 10>(text, out),
        16..=32 => push_line_of_both_ends::<16, 18>(text, out),
        _ => {
            out.extend_from_slice(text);
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// `LINE` is `N` and the end of the line.
#[inline(always)]
fn push_line_of_both_ends<const N: usize, const LINE: usize>(text: &[u8], out: &mut Vec<u8>) {
    if let (Some(front), Some(back)) = (text.first_chunk::<N>(), text.last_chunk::<N>()) {
        push_front(front, text.len() - N, out);
        let mut line = [0; LINE];
        line[..N].copy_from_slice(back);
        line[N..].copy_from_slice(b"\r\n");
        out.extend_from_slice(&line);
    }
}

#[inline(always)]
fn push_both_ends<const N: usize>(text: &[u8], out: &mut Vec<u8>) {
    if let (Some(front), Some(back)) = (text.first_chunk::<N>(), text.last_chunk::<N>()) {
        push_front(front, text.len() - N, out);
        out.extend_from_slice(back);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_any_length_is_appended_as_it_is() {
        let text: Vec<u8> = (0..40).collect();
        for len in 0..text.len() {
            let mut out = b"before".to_vec();
            push_text(&text[..len], &mut out);
            assert_eq!(out, [b"before", &text[..len]].concat());
            let mut out = b"before".to_vec();
            push_line(&text[..len], &mut out);
            assert_eq!(out, [b"before", &text[..len], b"\r\n"].concat());
        }
    }
}
