//! How long a request may take: until the end of its response, or until the head.

use std::task::{Context, Poll, ready};

use blitz_http::Timer;
use blitz_site::{Ended, Failure};

use crate::grpc::poll_timer;
use crate::request::Request;

/// The deadline of a call, which its client has set; or else that of the route, until the head of the response.
pub(super) struct Deadline {
    timer: Option<Timer>,
    is_of_call: bool,
}

impl Deadline {
    #[inline]
    pub(super) fn of(request: &Request<'_>) -> Deadline {
        let of_call = request.kind.deadline();
        Deadline {
            is_of_call: of_call.is_some(),
            timer: of_call.or_else(|| request.time_limit()),
        }
    }

    /// Ready when it has passed before the head of the response.
    pub(super) fn poll<T>(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, Ended>> {
        ready!(poll_timer(&mut self.timer, cx));
        let failure = match self.is_of_call {
            true => Failure::DeadlineExceeded,
            false => Failure::RequestTimeout,
        };
        Poll::Ready(Err(Ended::Failed(failure)))
    }

    /// The deadline for the rest of the response.
    #[inline]
    pub(super) fn after_head(&mut self) -> &mut Option<Timer> {
        if !self.is_of_call {
            self.timer = None;
        }
        &mut self.timer
    }
}
