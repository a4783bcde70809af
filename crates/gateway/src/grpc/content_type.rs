//! Media types of calls.

/// The start of every call's content type.
pub(super) const GRPC: &[u8] = b"application/grpc";

/// Whether a call has this content type; gRPC-Web has others.
pub(super) fn is_grpc(content_type: &[u8]) -> bool {
    suffix(GRPC, content_type).is_some()
}

/// The part of a content type after this media type: nothing, a message format, parameters.
pub(super) fn suffix<'a>(media_type: &[u8], content_type: &'a [u8]) -> Option<&'a [u8]> {
    let (start, rest) = content_type.split_at_checked(media_type.len())?;
    let is_whole = matches!(rest.first(), None | Some(b'+' | b';' | b' '));
    (is_whole && start.eq_ignore_ascii_case(media_type)).then_some(rest)
}
