//! Phase `await_response`: the content is sent while response heads come in.

use std::future::poll_fn;
use std::task::{Poll, ready};

use blitz_http::{ClientError, ResponseEvent, ResponseStream, Status};
use blitz_site::{Ended, Responder};

use super::policy::edit_response;
use crate::request::Request;
use crate::service::GatewayService;

/// Why no response came.
pub(super) enum NoResponse {
    /// The upstream's connection or response failed.
    Upstream(ClientError),
    /// The request's own content failed.
    Client(Ended),
}

/// Sends content until the request has its final response; interim ones are passed on as they come.
pub(super) async fn await_response<E>(
    gateway: &GatewayService<E>,
    request: &mut Request<'_>,
    stream: &mut ResponseStream,
) -> Result<(), NoResponse> {
    let Request {
        upload,
        responder,
        response,
        repeats,
        ..
    } = request;
    poll_fn(|cx| {
        loop {
            if let Poll::Ready(Err(ended)) = upload.poll(cx) {
                return Poll::Ready(Err(NoResponse::Client(ended)));
            }
            match ready!(stream.poll_next(cx)).map_err(NoResponse::Upstream)? {
                ResponseEvent::Final(last) => {
                    *response = Some(last);
                    return Poll::Ready(Ok(()));
                }
                ResponseEvent::Informational(mut head) => {
                    if head.status == Status::CONTINUE && !upload.release() {
                        continue;
                    }
                    repeats.has_interim |= head.status != Status::CONTINUE;
                    edit_response(gateway, &mut head);
                    if let Some(responder) = responder {
                        Responder::informational(responder, &head);
                    }
                }
            }
        }
    })
    .await
}
