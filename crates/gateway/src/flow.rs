//! One direction of a message or tunnel on its way through (rule 12).
//!
//! The task of the exchange polls both directions. A direction that has no room or no bytes waits,
//! and that is all the back-pressure there is. Received slices are queued without a copy. Nothing
//! here knows a version: parts come from a [`RecvBody`] and go to a [`SendBody`].

mod fill;
mod spool;

use std::task::{Context, Poll, ready};

use blitz_http::{
    BodyError, BodyLength, Chunk, Fields, Part, Pooled, RecvBody, SendBody, SendError,
};
use blitz_site::{Transform, TransformError};

use crate::forward;
use crate::request_limits::section_bytes;
use fill::Filled;

pub(crate) use fill::FillError;

/// Moves parts from `from` to `to` as fast as the slower of the two.
pub(crate) struct Flow {
    from: RecvBody,
    /// Content that was received before there was a receiver, if it had to be.
    filled: Option<Box<Filled>>,
    /// `None` before there is a receiver, and once the message is finished.
    pub(crate) to: Option<SendBody>,
    /// Content still to come; counts down from the largest number if the length is unknown.
    left: u64,
    /// Trailers come last and leave with the end.
    trailers: Option<Pooled<Fields>>,
    /// Bytes that the trailers may have; with 0 they are left out.
    pub(crate) trailer_bytes_max: u32,
    pub(crate) transform: Option<Box<dyn Transform>>,
    awaits_room: bool,
}

/// Why a direction stopped before its end.
#[derive(Debug)]
pub(crate) enum FlowError {
    /// The sending side failed.
    From(BodyError),
    /// The receiving side failed.
    To(SendError),
    /// The content cannot be transformed.
    Transform(TransformError),
    /// The trailers of a request are larger than its site takes.
    TrailersTooLarge,
    /// The file with the content of a request cannot be read.
    BufferFile,
}

impl From<TransformError> for FlowError {
    fn from(error: TransformError) -> FlowError {
        FlowError::Transform(error)
    }
}

impl Flow {
    #[inline]
    pub(crate) fn new(from: RecvBody, to: Option<SendBody>) -> Flow {
        let left = content_max(from.length());
        Flow {
            from,
            filled: None,
            to,
            left,
            trailers: None,
            trailer_bytes_max: u32::MAX,
            transform: None,
            awaits_room: false,
        }
    }

    /// Declared length of the message as it is sent on.
    pub(crate) fn length(&self) -> BodyLength {
        match (&self.transform, &self.filled) {
            (None, None) => self.from.length(),
            (None, Some(filled)) => BodyLength::Known(filled.total()),
            (Some(_), _) => BodyLength::Unknown,
        }
    }

    /// Bytes of content received so far.
    pub(crate) fn received(&self) -> u64 {
        content_max(self.from.length()) - self.left
    }

    /// Whether the receiver has to take something before more can be moved.
    pub(crate) fn awaits_room(&self) -> bool {
        self.awaits_room
    }

    /// See [`RecvBody::hold_continue`].
    pub(crate) fn hold_continue(&mut self, is_held: bool) {
        self.from.hold_continue(is_held);
    }

    /// Why the message has ended early.
    pub(crate) fn failure(&self) -> Option<BodyError> {
        self.from.failure()
    }

    fn check_trailers(&self, trailers: &Fields) -> Result<(), FlowError> {
        let is_limited = self.trailer_bytes_max != u32::MAX;
        match is_limited && section_bytes(trailers) > self.trailer_bytes_max as usize {
            true => Err(FlowError::TrailersTooLarge),
            false => Ok(()),
        }
    }

    /// Moves what can be moved and calls `sent` with it. Ready when there is no receiver; after a
    /// success this means that the message is complete on the other side.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        mut sent: impl FnMut(&[u8]),
    ) -> Poll<Result<(), FlowError>> {
        loop {
            let has_filled = self.filled.as_ref().is_some_and(|filled| filled.has_next());
            let Some(to) = &mut self.to else {
                return Poll::Ready(Ok(()));
            };
            // After all content only the end is left, which needs no room.
            if self.left > 0 || has_filled || self.transform.is_some() {
                self.awaits_room = true;
                ready!(to.poll_room(cx)).map_err(FlowError::To)?;
                self.awaits_room = false;
            }
            if let Some(filled) = &mut self.filled
                && let Some(piece) =
                    ready!(filled.poll_next(cx)).map_err(|_| FlowError::BufferFile)?
            {
                sent(&piece);
                to.queue(piece).map_err(FlowError::To)?;
                continue;
            }
            if let Some(transform) = &mut self.transform {
                if transform.yields() {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                if let Some(chunk) = transform.proceed()? {
                    queue(to, chunk, &mut sent)?;
                    continue;
                }
            }
            let part = match self.from.poll_next(cx) {
                Poll::Ready(part) => part.map_err(FlowError::From)?,
                Poll::Pending => {
                    // Nothing that was received waits for what was not.
                    if let Some(transform) = &mut self.transform
                        && let Some(chunk) = transform.flush()?
                    {
                        queue(to, chunk, &mut sent)?;
                        continue;
                    }
                    return Poll::Pending;
                }
            };
            match part {
                Some(Part::Data(slice)) => {
                    self.left = self.left.saturating_sub(slice.len() as u64);
                    let chunk = match &mut self.transform {
                        None => Chunk::from(slice),
                        Some(transform) => transform.content(slice)?,
                    };
                    queue(to, chunk, &mut sent)?;
                }
                Some(Part::Trailers(_)) if self.trailer_bytes_max == 0 => {}
                Some(Part::Trailers(mut trailers)) => {
                    self.check_trailers(&trailers)?;
                    forward::edit_trailers(&mut trailers);
                    self.trailers = Some(trailers);
                }
                None => return Poll::Ready(self.finish(sent)),
            }
        }
    }

    /// Ends the message on the other side.
    fn finish(&mut self, mut sent: impl FnMut(&[u8])) -> Result<(), FlowError> {
        if let (Some(to), Some(transform)) = (&mut self.to, &mut self.transform)
            && let Some(last) = transform.end(&mut self.trailers)?
        {
            queue(to, last, &mut sent)?;
        }
        let finished = self.to.take().map(|to| to.finish(self.trailers.as_deref()));
        finished.unwrap_or(Ok(())).map_err(FlowError::To)
    }
}

/// Queues a chunk; a transform may have nothing to send yet.
#[inline(always)]
fn queue(to: &mut SendBody, chunk: Chunk, sent: &mut impl FnMut(&[u8])) -> Result<(), FlowError> {
    if chunk.is_empty() {
        return Ok(());
    }
    sent(&chunk);
    to.queue(chunk).map_err(FlowError::To)
}

fn content_max(length: BodyLength) -> u64 {
    match length {
        BodyLength::Known(length) => length,
        BodyLength::NothingButTrailers => 0,
        BodyLength::Empty | BodyLength::Unknown => u64::MAX,
    }
}
