//! Phase `await_response`: the content is sent while response heads come in.

use std::future::poll_fn;
use std::task::{Poll, ready};

use blitz_http::{ClientError, Response, ResponseEvent, ResponseStream, Status};

use crate::record::Ended;
use crate::request::Request;

/// Why no response head came.
pub(super) enum NoResponse {
    /// The upstream's connection or response failed.
    Upstream(ClientError),
    /// The request's own content failed.
    Client(Ended),
}

/// Sends content and waits for the next response head.
pub(super) async fn await_response(
    request: &mut Request<'_>,
    stream: &mut ResponseStream,
) -> Result<ResponseEvent, NoResponse> {
    let upload = &mut request.upload;
    poll_fn(|cx| {
        if let Poll::Ready(Err(ended)) = upload.poll(cx) {
            return Poll::Ready(Err(NoResponse::Client(ended)));
        }
        Poll::Ready(ready!(stream.poll_next(cx)).map_err(NoResponse::Upstream))
    })
    .await
}

/// Passes an interim response on to the client; gives the final one.
pub(super) fn pass_on(request: &mut Request<'_>, event: ResponseEvent) -> Option<Response> {
    match event {
        ResponseEvent::Final(response) => Some(response),
        ResponseEvent::Informational(head) => {
            let is_news = head.status != Status::CONTINUE || request.upload.release();
            if let (true, Some(responder)) = (is_news, &mut request.responder) {
                responder.informational(&head);
            }
            None
        }
    }
}
