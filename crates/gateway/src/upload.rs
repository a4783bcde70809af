//! The content of a request on its way to the upstream.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use blitz_config::RequestBuffer;
use blitz_http::{BodyError, BodyLength, RecvBody, SendBody, Timer};
use blitz_site::{Ended, Rejection, Transform, TransformError};

use crate::flow::{FillError, Flow, FlowError};
use crate::mirror::ContentCopy;
use crate::replay::Replay;

/// The request's content on its way to the upstream.
pub(crate) struct Upload {
    flow: Flow,
    replay: Replay,
    /// While this runs the client may wait for `100 Continue`, which the gateway does not send: that of
    /// the upstream is passed on. Content that comes without it flows.
    hold: Option<Timer>,
    expects_continue: bool,
    /// A copy for another upstream.
    copy: Option<Box<ContentCopy>>,
}

impl Upload {
    /// Content that flows after [`send_to`](Upload::send_to). `hold` delays `100 Continue` until the
    /// upstream sends it, or the time is over.
    #[inline(always)]
    pub(crate) fn new(mut from: RecvBody, hold: Option<Timer>) -> Upload {
        let expects_continue = hold.is_some();
        if expects_continue {
            from.hold_continue(true);
        }
        Upload {
            flow: Flow::new(from, None),
            replay: Replay::Unsent,
            hold,
            expects_continue,
            copy: None,
        }
    }

    /// Declared length of the content for the upstream.
    pub(crate) fn length(&self) -> BodyLength {
        self.flow.length()
    }

    /// Bytes of content received from the client so far.
    pub(crate) fn received(&self) -> u64 {
        self.flow.received()
    }

    /// Why the content has ended early.
    pub(crate) fn failure(&self) -> Option<BodyError> {
        self.flow.failure()
    }

    /// Copies the content as it is sent.
    pub(crate) fn copy_to(&mut self, copy: Box<ContentCopy>) {
        self.copy = Some(copy);
    }

    /// Transforms the content from its first byte on.
    pub(crate) fn transform(&mut self, transform: Box<dyn Transform>) {
        self.flow.transform = Some(transform);
    }

    /// Whether the content allows another attempt.
    pub(crate) fn can_repeat(&self) -> bool {
        self.replay.is_complete()
    }

    /// Lets trailers have at most so many bytes.
    pub(crate) fn limit_trailers(&mut self, bytes_max: u32) {
        self.flow.trailer_bytes_max = bytes_max;
    }

    /// The upstream gets no trailers: it gets them only where they cannot be taken for the next request.
    pub(crate) fn drop_trailers(&mut self) {
        self.flow.trailer_bytes_max = 0;
    }

    /// No further attempt follows.
    pub(crate) fn forget_replay(&mut self) {
        self.replay.forget();
    }

    /// Where the content goes, and how it is kept for another attempt. A request without content
    /// was complete with its head.
    pub(crate) fn send_to(&mut self, to: SendBody, replay: Replay) {
        self.replay = replay;
        self.flow.to = Some(to).filter(|to| !to.is_discarding());
    }

    /// Where the content goes in the next attempt, beginning with what was sent before.
    pub(crate) fn send_again_to(&mut self, mut to: SendBody) {
        // If the upstream is gone already, sending the rest fails too.
        let _ = self.replay.sent().map(|sent| to.queue(sent));
        self.flow.to = Some(to).filter(|to| !to.is_discarding());
    }

    /// Moves as much as possible; ready when the content is complete. An upstream that stops reading
    /// is not an error: it may have responded already, and its response decides.
    #[inline]
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Ended>> {
        if self.flow.to.is_none() {
            return Poll::Ready(Ok(()));
        }
        self.poll_flow(cx)
    }

    fn poll_flow(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Ended>> {
        if let Some(hold) = &mut self.hold
            && Pin::new(hold).poll(cx).is_ready()
        {
            self.end_hold();
        }
        let (replay, copy) = (&mut self.replay, &mut self.copy);
        let note = |sent: &[u8]| {
            replay.note(sent);
            if let Some(copy) = copy {
                copy.note(sent);
            }
        };
        match ready!(self.flow.poll(cx, note)) {
            Ok(()) => {
                if let Some(copy) = self.copy.take() {
                    copy.complete();
                }
                Poll::Ready(Ok(()))
            }
            Err(FlowError::From(BodyError::TooLarge)) => {
                Poll::Ready(Err(Ended::Rejected(Rejection::ContentTooLarge)))
            }
            Err(FlowError::From(error)) => Poll::Ready(Err(Ended::RequestContent(error))),
            Err(FlowError::Transform(error)) => {
                Poll::Ready(Err(Ended::Rejected(rejection_of(error))))
            }
            Err(FlowError::BufferFile) => {
                Poll::Ready(Err(Ended::Rejected(Rejection::NoBufferRoom)))
            }
            Err(FlowError::TrailersTooLarge) => {
                Poll::Ready(Err(Ended::Rejected(Rejection::TrailersTooLarge)))
            }
            Err(FlowError::To(_)) => {
                self.flow.to = None;
                self.copy = None;
                Poll::Ready(Ok(()))
            }
        }
    }

    /// Receives all content before it is sent on. Ready when it is complete.
    pub(crate) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        max: RequestBuffer,
    ) -> Poll<Result<(), Ended>> {
        let is_known_too_large =
            matches!(self.length(), BodyLength::Known(length) if length > max.bytes_max());
        if !is_known_too_large {
            self.end_hold();
        }
        self.flow.poll_fill(cx, max).map_err(|error| match error {
            FillError::From(BodyError::TooLarge) | FillError::TooLarge => {
                Ended::Rejected(Rejection::ContentTooLarge)
            }
            FillError::From(error) => Ended::RequestContent(error),
            FillError::NoRoom => Ended::Rejected(Rejection::NoBufferRoom),
            FillError::Transform(error) => Ended::Rejected(rejection_of(error)),
        })
    }

    /// Lets the content flow. Whether the client has to get the upstream's `100 Continue`.
    pub(crate) fn release(&mut self) -> bool {
        self.end_hold() || !self.expects_continue
    }

    /// From now on the content is waited for. Whether it was not before.
    fn end_hold(&mut self) -> bool {
        let is_held = self.hold.take().is_some();
        if is_held {
            self.flow.hold_continue(false);
        }
        is_held
    }
}

/// Why a request is rejected whose content cannot be transformed.
fn rejection_of(error: TransformError) -> Rejection {
    match error {
        TransformError::NotBase64 => Rejection::Base64,
        TransformError::Undecodable => Rejection::Undecodable,
        TransformError::DecodedTooLarge => Rejection::DecodedTooLarge,
        TransformError::DecodersFull => Rejection::DecodersFull,
        TransformError::Encoder => unreachable!("this is an error of responses"),
    }
}
