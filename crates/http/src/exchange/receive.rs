//! Receiving: from a framing driver to a reader.

use std::task::{Context, Poll};

use blitz_reactor::Slice;

use super::framing::{Fill, Framing, Side};
use super::recv_body::Part;
use crate::error::BodyError;

/// The next part of the peer's message for its reader; `None` at its end.
pub(super) fn poll_part<F: Framing>(
    framing: &mut F,
    id: F::Id,
    cx: &mut Context<'_>,
) -> Poll<Result<Option<Part>, BodyError>> {
    let part = match framing.poll_fill(id, cx) {
        Poll::Ready(Ok(Fill::Data(slice))) => Part::Data(slice),
        Poll::Ready(Ok(Fill::Trailers(trailers))) => Part::Trailers(trailers),
        Poll::Ready(Ok(Fill::End)) => {
            F::Side::end_taken(framing, id);
            return Poll::Ready(Ok(None));
        }
        Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
        Poll::Pending => {
            match framing.exchange(id) {
                Some(exchange) if exchange.holds_continue => {
                    exchange.receiving.wait_patiently(cx);
                    return Poll::Pending;
                }
                Some(exchange) => exchange.receiving.wait(cx),
                None => {}
            }
            return F::Side::poll_awaiting(framing, id, cx).map(Err);
        }
    };
    Poll::Ready(Ok(Some(part)))
}

/// See [`RecvBody::take_whole`](super::RecvBody::take_whole).
pub(super) fn take_whole<F: Framing>(framing: &mut F, id: F::Id, length: u64) -> Option<Slice> {
    let whole = framing.take_whole(id, length)?;
    F::Side::end_taken(framing, id);
    Some(whole)
}

/// The reader of the peer's message is gone.
pub(super) fn drop_reader<F: Framing>(framing: &mut F, id: F::Id) {
    if framing.exchange(id).is_some() {
        F::Side::reader_gone(framing, id);
    }
}
