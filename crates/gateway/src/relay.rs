//! Phase `relay`: bodies on their way through, in both directions at once (rule 12).
//!
//! Everything here is driven by the one task of the exchange: a direction that has no room or no
//! bytes waits, and waiting is all that back-pressure is. Received slices are queued as they are.
//! Nothing knows a version: parts come from a [`RecvBody`] and go to a [`SendBody`].

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use blitz_http::{
    BodyError, BodyLength, Chunk, ClientError, Fields, Part, Pooled, RecvBody, RequestHead,
    Response, ResponseEvent, ResponseHead, ResponseStream, SendBody, SendError, Status, Timer,
    Tunnel,
};

use crate::admit::Refused;
use crate::core::Core;
use crate::counters::{count, count_response};
use crate::forward::{self, WebSocket};
use crate::grpc::{self, NotBase64, Translation};
use crate::proxy_status::Failure;
use crate::request::{Ended, Request};
use crate::retry::Replay;

/// One direction: parts move from `from` to `to` as fast as the slower of the two.
pub(crate) struct Flow {
    from: RecvBody,
    /// `None` while nobody takes the message, and once it is finished.
    pub(crate) to: Option<SendBody>,
    /// Content that is still to come, if its length is known.
    left: u64,
    /// They come last and leave with the end.
    trailers: Option<Pooled<Fields>>,
    /// What content and trailers become on the way, if they do not stay what they are.
    pub(crate) translation: Option<Box<Translation>>,
}

/// Why a direction stopped before its end.
#[derive(Debug)]
pub(crate) enum FlowError {
    /// The side that sends.
    From(BodyError),
    /// The side that receives.
    To(SendError),
    /// A request that should be in base64 is not.
    NotBase64,
}

impl From<NotBase64> for FlowError {
    fn from(_: NotBase64) -> FlowError {
        FlowError::NotBase64
    }
}

impl Flow {
    pub(crate) fn new(from: RecvBody, to: Option<SendBody>) -> Flow {
        let left = match from.length() {
            BodyLength::Known(length) => length,
            BodyLength::NothingButTrailers => 0,
            BodyLength::Empty | BodyLength::Unknown => u64::MAX,
        };
        Flow {
            from,
            to,
            left,
            trailers: None,
            translation: None,
        }
    }

    /// Moves what can be moved and shows it to `seen`; ready when there is nobody to move it to,
    /// which after a success means that the message is complete on the other side.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        mut seen: impl FnMut(&[u8]),
    ) -> Poll<Result<(), FlowError>> {
        loop {
            let Some(to) = &mut self.to else {
                return Poll::Ready(Ok(()));
            };
            // Once all content has moved only the end is to come, and that takes no room.
            if self.left > 0 {
                ready!(to.poll_room(cx)).map_err(FlowError::To)?;
            }
            match ready!(self.from.poll_next(cx)).map_err(FlowError::From)? {
                Some(Part::Data(slice)) => {
                    self.left = self.left.saturating_sub(slice.len() as u64);
                    let chunk = match &mut self.translation {
                        None => Chunk::from(slice),
                        Some(translation) => translation.content(slice)?,
                    };
                    seen(&chunk);
                    to.queue(chunk).map_err(FlowError::To)?;
                }
                Some(Part::Trailers(mut trailers)) => {
                    forward::edit_trailers(&mut trailers);
                    self.trailers = Some(trailers);
                }
                None => {
                    if let Some(translation) = &mut self.translation
                        && let Some(last) = translation.end(&mut self.trailers)?
                    {
                        to.queue(last).map_err(FlowError::To)?;
                    }
                    let finished = self.to.take().map(|to| to.finish(self.trailers.as_deref()));
                    return Poll::Ready(finished.unwrap_or(Ok(())).map_err(FlowError::To));
                }
            }
        }
    }
}

/// The request's body on its way to the upstream.
pub(crate) struct Upload {
    flow: Flow,
    replay: Replay,
    /// While this runs the client waits for `100 Continue`: reading would send it one.
    hold: Option<Timer>,
    /// Whether the client had asked for `100 Continue`.
    expects_continue: bool,
}

impl Upload {
    /// A body that flows once there is somebody to [`send_to`](Upload::send_to); `hold` delays
    /// that until the upstream says `100 Continue`, or time is up.
    pub(crate) fn new(from: RecvBody, hold: Option<Timer>) -> Upload {
        let expects_continue = hold.is_some();
        Upload {
            flow: Flow::new(from, None),
            replay: Replay::Unsent,
            hold,
            expects_continue,
        }
    }

    /// What is known of the length of what goes to the upstream.
    pub(crate) fn length(&self) -> BodyLength {
        match self.flow.translation {
            None => self.flow.from.length(),
            Some(_) => BodyLength::Unknown,
        }
    }

    /// Sends something else than what comes, from the first byte on.
    pub(crate) fn translate(&mut self, translation: Option<Translation>) {
        self.flow.translation = translation.map(Box::new);
    }

    /// Whether the request could be sent again, as far as its body is concerned.
    pub(crate) fn can_repeat(&self) -> bool {
        self.replay.is_complete()
    }

    /// Where the body goes, and how it is kept for another attempt. One without content has gone
    /// with its head.
    pub(crate) fn send_to(&mut self, to: SendBody, replay: Replay) {
        self.replay = replay;
        self.flow.to = Some(to).filter(|to| !to.is_discarding());
    }

    /// Where it goes instead, beginning with what was sent in vain.
    pub(crate) fn send_again_to(&mut self, mut to: SendBody) {
        // An upstream that is gone already says so again when the rest is sent.
        let _ = self.replay.again().map(|sent| to.queue(sent));
        self.send_to(to, Replay::Unsent);
    }

    /// Moves what can be moved; ready when there is nothing left to do. An upstream that takes no
    /// more is no error: it may have answered already, and its answer is what counts.
    #[inline]
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Ended>> {
        if self.flow.to.is_none() {
            return Poll::Ready(Ok(()));
        }
        self.poll_flow(cx)
    }

    fn poll_flow(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Ended>> {
        if let Some(hold) = &mut self.hold {
            ready!(Pin::new(hold).poll(cx));
            self.hold = None;
        }
        match ready!(self.flow.poll(cx, |sent| self.replay.note(sent))) {
            Ok(()) => Poll::Ready(Ok(())),
            Err(FlowError::From(error)) => Poll::Ready(Err(Ended::Client(error))),
            Err(FlowError::NotBase64) => Poll::Ready(Err(Ended::Refused(Refused::Base64))),
            Err(FlowError::To(_)) => {
                self.flow.to = None;
                Poll::Ready(Ok(()))
            }
        }
    }

    /// Lets the body flow; says whether a `100 Continue` of the upstream is news to the client.
    fn release(&mut self) -> bool {
        self.hold.take().is_some() || !self.expects_continue
    }
}

/// Why there is no response to relay.
pub(crate) enum NoResponse {
    /// The upstream's connection or answer failed.
    Upstream(ClientError),
    /// The client's own body failed, in this way.
    Client(Ended),
}

/// Sends the body and waits for the final response, whichever comes first; interim responses are
/// passed on as they come.
pub(crate) async fn await_response<F>(
    core: &Core<F>,
    request: &mut Request,
    stream: &mut ResponseStream,
) -> Result<Response, NoResponse> {
    let Request {
        upload, responder, ..
    } = request;
    poll_fn(|cx| {
        loop {
            if let Poll::Ready(Err(ended)) = upload.poll(cx) {
                return Poll::Ready(Err(NoResponse::Client(ended)));
            }
            match ready!(stream.poll_next(cx)).map_err(NoResponse::Upstream)? {
                ResponseEvent::Final(response) => return Poll::Ready(Ok(response)),
                ResponseEvent::Informational(mut head) => {
                    if head.status == Status::CONTINUE && !upload.release() {
                        continue;
                    }
                    forward::edit_response(&mut head, &mut core.scratch.borrow_mut());
                    if let Some(responder) = responder {
                        responder.informational(&head);
                    }
                }
            }
        }
    })
    .await
}

/// Relays the final response, and what is still to come of the request.
///
/// Ends when the response is complete, or the deadline of a call has passed. A request that is not complete by then stays so: its
/// upstream connection closes (rule 12), and the client's is drained a little or closed.
///
/// # Errors
/// A response that was cut off, of which the client learns because its own is.
pub(crate) async fn relay<F>(
    core: &Core<F>,
    request: &mut Request,
    response: Response,
    deadline: Option<Timer>,
) -> Result<(), Ended> {
    let Response {
        mut head,
        mut body,
        upgraded,
    } = response;
    request.upload.replay.forget();
    if let Some(send) = upgraded {
        let upstream = Tunnel { recv: body, send };
        return switch_protocols(core, request, head, upstream).await;
    }
    let is_connect = |websocket: &WebSocket| websocket.is_connect();
    if request.websocket.as_ref().is_some_and(is_connect) && head.status.is_success() {
        // To a CONNECT it would say that there is a tunnel now.
        return Err(Ended::Failed(Failure::HttpUpgradeFailed));
    }
    forward::edit_response(&mut head, &mut core.scratch.borrow_mut());
    count_response(head.status);
    let Some(responder) = request.responder.take() else {
        return Err(Ended::CutOff);
    };
    // An answer may last; a large head is of no more use.
    request.head.reduce();
    let upload = &mut request.upload;
    if let Some(call) = request.call {
        return grpc::relay(call, upload, responder, head, body, deadline).await;
    }
    if let Some(content) = body.take_whole() {
        responder.send(&mut head, content);
        return Ok(());
    }
    let to = responder.start(&mut head, body.length());
    // The head goes back to its pool now, not after a long body.
    drop(head);
    let mut download = Flow::new(body, Some(to));
    poll_fn(|cx| {
        if let Poll::Ready(Err(ended)) = upload.poll(cx) {
            return Poll::Ready(Err(ended));
        }
        download.poll(cx, |_| ()).map_err(cut_off)
    })
    .await
}

/// Relays a connection that leaves HTTP, until both directions have ended with FIN (rule 16).
async fn switch_protocols<F>(
    core: &Core<F>,
    request: &mut Request,
    mut head: Pooled<ResponseHead>,
    upstream: Tunnel,
) -> Result<(), Ended> {
    let granted = request.websocket.take().filter(|it| it.is_granted(&head));
    let Some(websocket) = granted else {
        return Err(Ended::Failed(Failure::HttpUpgradeFailed));
    };
    let Some(responder) = request.responder.take() else {
        return Err(Ended::CutOff);
    };
    forward::edit_response(&mut head, &mut core.scratch.borrow_mut());
    websocket.grant(&mut head);
    count(|counters| counters.tunnels += 1);
    let client = responder.upgrade(&mut head);
    drop(head);
    // A tunnel may last for days; the memory of its request is not kept for it.
    request.head.reduce();
    *request.head = RequestHead::default();
    let mut up = Flow::new(client.recv, Some(upstream.send));
    let mut down = Flow::new(upstream.recv, Some(client.send));
    let mut is_taken = true;
    poll_fn(|cx| {
        let up = match is_taken {
            true => up.poll(cx, |_| ()),
            false => Poll::Ready(Ok(())),
        };
        // An upstream that takes nothing more may have said its last before.
        is_taken &= !matches!(up, Poll::Ready(Err(FlowError::To(_))));
        if let Poll::Ready(Err(FlowError::From(error))) = up {
            return Poll::Ready(Err(FlowError::From(error)));
        }
        ready!(down.poll(cx, |_| ()))?;
        match up {
            Poll::Pending => Poll::Pending,
            Poll::Ready(_) => Poll::Ready(Ok(())),
        }
    })
    .await
    .map_err(cut_off)
}

pub(crate) fn cut_off(error: FlowError) -> Ended {
    match error {
        FlowError::From(error) => tracing::debug!(%error, "response cut off at its source"),
        FlowError::To(error) => tracing::debug!(%error, "response cut off at its destination"),
        FlowError::NotBase64 => unreachable!("responses are encoded, not decoded"),
    }
    Ended::CutOff
}
