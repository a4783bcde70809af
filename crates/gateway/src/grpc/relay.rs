//! The answer to a call on its way: as any other, but that whatever happens to it in the middle,
//! its client gets a status where that is still possible.

use std::future::poll_fn;
use std::task::{Context, Poll};

use blitz_http::{
    BodyError, BodyLength, Fields, Name, Pooled, RecvBody, Responder, ResponseHead, SendBody, Timer,
};

use super::web::Encoder;
use super::{Call, Code, Dialect, Translation, poll_timer};
use crate::counters::count;
use crate::proxy_status::Failure;
use crate::relay::{Flow, FlowError, Upload, cut_off};
use crate::request::Ended;

/// Relays an answer, and what is still to come of the request, until the deadline.
///
/// # Errors
/// An answer that was not completed by its upstream.
pub(crate) async fn relay(
    call: Call,
    upload: &mut Upload,
    responder: Responder,
    mut head: Pooled<ResponseHead>,
    from: RecvBody,
    mut deadline: Option<Timer>,
) -> Result<(), Ended> {
    let mut encoder = call.encoder(&head);
    let mut length = from.length();
    if let Some(encoder) = &mut encoder {
        encoder.translate_head(&mut head);
        if from.is_done() {
            let content = encoder.end(None);
            responder.send(&mut head, content);
            return Ok(());
        }
        length = BodyLength::Unknown;
    }
    let takes_trailers = call.dialect == Dialect::Grpc
        && matches!(length, BodyLength::NothingButTrailers | BodyLength::Unknown);
    let to = responder.start(&mut head, length);
    // The head goes back to its pool now, not after a long body.
    drop(head);
    let mut download = Flow::new(from, Some(to));
    download.translation = encoder.map(|encoder| Box::new(Translation::Encode(encoder)));
    let stopped = poll_fn(|cx| poll(upload, &mut download, &mut deadline, cx)).await;
    let (failure, ended) = match stopped {
        Ok(()) => return Ok(()),
        Err(Stop::Deadline) => (Failure::DeadlineExceeded, Ended::CutOff),
        Err(Stop::Upload(ended)) => return Err(ended),
        Err(Stop::Download(error)) => match failure_of(&error) {
            Some(failure) => (failure, cut_off(error)),
            None => return Err(cut_off(error)),
        },
    };
    count(|counters| counters.failures[failure as usize] += 1);
    match (download.to.take(), download.translation.as_deref()) {
        (Some(to), Some(Translation::Encode(encoder))) => end_web(to, encoder, failure),
        (Some(to), None) if takes_trailers => end(to, failure),
        // All that can be shown is that something is missing.
        _ => {}
    }
    Err(ended)
}

/// Why an answer was not completed.
enum Stop {
    Deadline,
    Upload(Ended),
    Download(FlowError),
}

fn poll(
    upload: &mut Upload,
    download: &mut Flow,
    deadline: &mut Option<Timer>,
    cx: &mut Context<'_>,
) -> Poll<Result<(), Stop>> {
    if let Poll::Ready(Err(ended)) = upload.poll(cx) {
        return Poll::Ready(Err(Stop::Upload(ended)));
    }
    match download.poll(cx, |_| ()) {
        Poll::Ready(moved) => Poll::Ready(moved.map_err(Stop::Download)),
        Poll::Pending => poll_timer(deadline, cx).map(|()| Err(Stop::Deadline)),
    }
}

/// What the upstream did wrong; nothing if it is the client who is gone.
fn failure_of(error: &FlowError) -> Option<Failure> {
    match error {
        FlowError::From(BodyError::TimedOut) => Some(Failure::HttpResponseTimeout),
        FlowError::From(BodyError::Malformed(_)) => Some(Failure::HttpProtocolError),
        FlowError::From(_) => Some(Failure::HttpResponseIncomplete),
        FlowError::To(_) | FlowError::NotBase64 => None,
    }
}

fn end(to: SendBody, failure: Failure) {
    let mut trailers = Pooled::<Fields>::take();
    Code::of_failure(failure).write(failure.detail(), &mut trailers);
    trailers.append(Name::ProxyStatus, failure.proxy_status());
    // Who is gone needs no status.
    let _ = to.finish(Some(&trailers));
}

fn end_web(mut to: SendBody, encoder: &Encoder, failure: Failure) {
    if let Some(frame) = encoder.fail(failure) {
        let _ = to.queue(frame).and_then(|()| to.finish(None));
    }
}
