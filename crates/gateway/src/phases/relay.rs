//! Phase `relay`: the response goes to the client while the rest of the request goes to the upstream.

use std::future::poll_fn;
use std::task::{Context, Poll};

use blitz_http::{
    BodyError, BodyLength, Fields, Limits, Pooled, RequestHead, Responder as HttpResponder,
    Response, SendBody, Slice, Timer, Tunnel,
};
use blitz_site::compress::{Compressing, Negotiated, is_one_step};
use blitz_site::{Ended, Failure, Record, Responder, Transform, TransformError};

use super::finish::response_edits;
use super::tunnel::switch_protocols;
use crate::flow::{Flow, FlowError};
use crate::grpc::{Code, poll_timer};
use crate::request::Request;
use crate::request_kind::ResponseContent;
use crate::rules::Rules;
use crate::upload::Upload;

/// Relays a response whose content is there as a whole, as that of most is; `false` leaves all of it to [`relay`].
#[inline]
pub(super) fn relay_whole(request: &mut Request<'_>) -> bool {
    let Request {
        response: Some(response),
        responder,
        ..
    } = request
    else {
        return false;
    };
    if response.upgraded.is_some() || request.kind.is_call() {
        return false;
    }
    let may_compress = request.negotiated.is_some();
    if may_compress && !is_one_step(response.body.length()) {
        return false;
    }
    let Some(content) = response.body.take_whole() else {
        return false;
    };
    let Some(responder) = responder.take() else {
        return false;
    };
    if may_compress {
        return send_whole(request, responder, content);
    }
    request.head.reduce();
    let record = &mut request.record.response;
    Responder::relay(
        responder,
        response_edits(&request.notes, Some(&request.edits)),
        record,
        &mut response.head,
        content.into(),
    );
    true
}

/// Sends content that is there as a whole, compressed if that is possible.
#[inline(never)]
fn send_whole(request: &mut Request<'_>, responder: HttpResponder, content: Slice) -> bool {
    let Some(response) = &mut request.response else {
        return false;
    };
    let head = &mut response.head;
    let record = &mut request.record.response;
    let edits = response_edits(&request.notes, Some(&request.edits));
    let mut responder = Responder::new(responder, edits, record).relaying();
    responder.edit_now(head);
    let compressing = compressing(request.rules, request.negotiated, &request.head);
    let compressed = compressing.and_then(|compressing| compressing.whole(head, &content));
    request.head.reduce();
    responder.send(head, compressed.unwrap_or_else(|| content.into()));
    true
}

/// `None` if the route compresses no responses.
#[inline]
fn compressing<'a>(
    rules: Option<&'a Rules>,
    negotiated: Option<Negotiated>,
    head: &RequestHead,
) -> Option<Compressing<'a>> {
    let (negotiated, compression) = (negotiated?, rules?.compression.as_deref()?);
    Some(Compressing::new(
        compression,
        negotiated,
        &head.fields,
        head.method,
    ))
}

/// Relays the final response, and the rest of the request.
///
/// Ends when the response is complete, or the deadline of a call has passed. If the request is not
/// complete by then, its upstream connection closes (rule 12), and the client's is drained a little
/// or closed.
///
/// # Errors
/// The response ended early. The client sees that.
pub(super) async fn relay(
    limits: &Limits,
    request: &mut Request<'_>,
    deadline: &mut Option<Timer>,
) -> Result<(), Ended> {
    let Some(Response {
        mut head,
        mut body,
        upgraded,
    }) = request.response.take()
    else {
        return Err(Ended::ClientGone);
    };
    request.upload.forget_replay();
    if let Some(send) = upgraded {
        let upstream = Tunnel { recv: body, send };
        let half_close_timeout = limits.tunnel_half_close_timeout;
        return switch_protocols(request, head, upstream, half_close_timeout).await;
    }
    let Some(responder) = request.responder.take() else {
        return Err(Ended::ClientGone);
    };
    let edits = response_edits(&request.notes, Some(&request.edits));
    let mut responder = Responder::new(responder, edits, &mut request.record.response).relaying();
    let mut content = request.kind.response_content(&mut head, &mut body);
    if let (ResponseContent::Streamed(length, None), false) = (&content, request.kind.is_call())
        && let Some(compressing) = compressing(request.rules, request.negotiated, &request.head)
    {
        responder.edit_now(&mut head);
        let (length, encoder) = compressing.streamed(&mut head, *length);
        let encoder = encoder.map(|encoder| encoder as Box<dyn Transform>);
        content = ResponseContent::Streamed(length, encoder);
    }
    // The response may take long, and a large request head is not needed any more.
    request.head.reduce();
    let (length, transform) = match content {
        ResponseContent::Whole(content) => {
            responder.send(&mut head, content);
            return Ok(());
        }
        ResponseContent::Streamed(length, transform) => (length, transform),
    };
    let to = responder.start(&mut head, length);
    // The head goes back to its pool now, not after a long body.
    drop(head);
    let has_trailers = matches!(length, BodyLength::NothingButTrailers | BodyLength::Unknown);
    let mut download = Flow::new(body, to);
    download.transform = transform;
    let Request { upload, record, .. } = request;
    let sent = &mut record.response.bytes;
    let stopped = poll_fn(|cx| poll(upload, &mut download, deadline, sent, cx)).await;
    stopped.map_err(|stop| end_early(request, download, has_trailers, stop))
}

/// Why a response was not completed.
enum Stop {
    Deadline,
    Upload(Ended),
    Download(FlowError),
}

fn poll(
    upload: &mut Upload,
    download: &mut Flow,
    deadline: &mut Option<Timer>,
    sent: &mut u64,
    cx: &mut Context<'_>,
) -> Poll<Result<(), Stop>> {
    if let Poll::Ready(Err(ended)) = upload.poll(cx) {
        return Poll::Ready(Err(Stop::Upload(ended)));
    }
    match download.poll(cx, |bytes| *sent += bytes.len() as u64) {
        Poll::Ready(moved) => Poll::Ready(moved.map_err(Stop::Download)),
        Poll::Pending => poll_timer(deadline, cx).map(|()| Err(Stop::Deadline)),
    }
}

/// How an incomplete response ended. The client of a call gets a status if possible.
#[cold]
fn end_early(
    request: &mut Request<'_>,
    mut download: Flow,
    has_trailers: bool,
    stop: Stop,
) -> Ended {
    let failure = match stop {
        Stop::Upload(ended) => {
            if let (Ended::Rejected(rejection), Some(call)) = (&ended, request.kind.call())
                && let (Some(to), true) = (download.to.take(), has_trailers)
            {
                request.record.grpc_status = Some(Code::of_status(rejection.status()) as u8);
                end_with_status(call.rejected_trailers(*rejection), to);
            }
            return ended;
        }
        Stop::Deadline => Failure::DeadlineExceeded,
        Stop::Download(error) => match ended_by(&error, &mut request.record) {
            Ended::CutOff(failure) => failure,
            ended => return ended,
        },
    };
    let Some(call) = request.kind.call() else {
        return Ended::CutOff(failure);
    };
    let code = Code::of_failure(failure);
    match (download.to.take(), &mut download.transform) {
        (Some(mut to), Some(transform)) => {
            if let Some(last) = transform.fail(failure) {
                request.record.grpc_status = Some(code as u8);
                request.record.response.bytes += last.len() as u64;
                let _ = to.queue(last).and_then(|()| to.finish(None));
            }
        }
        (Some(to), None) if has_trailers => {
            request.record.grpc_status = Some(code as u8);
            end_with_status(call.failed_trailers(failure, request.record.rule), to);
        }
        // The client only sees that something is missing.
        _ => {}
    }
    Ended::Failed(failure)
}

fn end_with_status(trailers: Option<Pooled<Fields>>, to: SendBody) {
    if let Some(trailers) = trailers {
        // A client that is gone needs no status.
        let _ = to.finish(Some(&trailers));
    }
}

/// How the failure of a direction towards the client ends the request.
pub(super) fn ended_by(error: &FlowError, record: &mut Record<'_>) -> Ended {
    let failure = match error {
        FlowError::To(error) => {
            tracing::debug!(%error, "the client took no more of the response");
            return Ended::ClientGone;
        }
        FlowError::From(BodyError::TimedOut) => Failure::HttpResponseStalled,
        FlowError::From(BodyError::Malformed(error)) => {
            record.rule = Some(error.rule());
            Failure::of_rule(error.kind())
        }
        FlowError::From(_) => Failure::HttpResponseIncomplete,
        FlowError::Transform(TransformError::Encoder) => {
            tracing::error!("an encoder has failed, and the response is cut off");
            return Ended::CutOff(Failure::ProxyInternalError);
        }
        FlowError::Transform(
            TransformError::NotBase64
            | TransformError::Undecodable
            | TransformError::DecodedTooLarge
            | TransformError::DecodersFull,
        )
        | FlowError::TrailersTooLarge
        | FlowError::BufferFile => {
            unreachable!("these are errors of requests")
        }
    };
    tracing::debug!(?error, "the upstream's response ended early");
    Ended::CutOff(failure)
}
