//! Phase `buffer`: the content of a request is received completely before the upstream is connected to, so that a slow
//! client holds no connection of the upstream, which gets the content with its length.

use std::future::poll_fn;

use blitz_config::RequestBuffer;
use blitz_http::{BodyLength, Name};
use blitz_site::Ended;

use crate::request::Request;

/// Receives the content, in memory and perhaps in a file. Calls of gRPC are streams of messages, which may depend on responses, so that
/// theirs flows.
///
/// # Errors
/// It is too large, it fails, the core holds as much content as it may, or the file cannot be written.
pub(super) async fn buffer(request: &mut Request<'_>, max: RequestBuffer) -> Result<(), Ended> {
    let has_content = !matches!(
        request.upload.length(),
        BodyLength::Empty | BodyLength::NothingButTrailers
    );
    if !has_content || request.kind.is_call() {
        return Ok(());
    }
    let upload = &mut request.upload;
    poll_fn(|cx| upload.poll_fill(cx, max)).await?;
    // The client has sent its content, and the upstream gets no trailers.
    for name in [Name::Expect, Name::Trailer] {
        request.head.fields.remove(name);
    }
    Ok(())
}
