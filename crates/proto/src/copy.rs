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

#[inline(always)]
fn push_both_ends<const N: usize>(text: &[u8], out: &mut Vec<u8>) {
    if let (Some(front), Some(back)) = (text.first_chunk::<N>(), text.last_chunk::<N>()) {
        push_front(front, text.len() - N, out);
        out.extend_from_slice(back);
    }
}
