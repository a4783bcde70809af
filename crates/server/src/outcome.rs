//! The result of a handler: a response, or a future of one.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use blitz_http::PoolFuture;

use crate::response::{IntoResponse, Response};

/// A response, or a future of one. A ready response is not boxed.
pub enum Outcome {
    /// The handler has returned a response.
    Ready(Response),
    /// The handler is async, or waits for the content.
    Later(PoolFuture<Response>),
}

impl Outcome {
    /// Changes the response once it is available; a ready one immediately.
    #[must_use]
    pub fn map(self, change: impl FnOnce(Response) -> Response + 'static) -> Outcome {
        match self {
            Outcome::Ready(response) => Outcome::Ready(change(response)),
            Outcome::Later(future) => {
                Outcome::Later(PoolFuture::new(async move { change(future.await) }))
            }
        }
    }
}

impl IntoFuture for Outcome {
    type Output = Response;
    type IntoFuture = OutcomeFuture;

    fn into_future(self) -> OutcomeFuture {
        match self {
            Outcome::Ready(response) => OutcomeFuture::Ready(Some(response)),
            Outcome::Later(future) => OutcomeFuture::Later(future),
        }
    }
}

/// The future of an [`Outcome`].
pub enum OutcomeFuture {
    /// A ready response; `None` after it was polled.
    Ready(Option<Response>),
    /// Polls the handler.
    Later(PoolFuture<Response>),
}

impl Future for OutcomeFuture {
    type Output = Response;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response> {
        match self.get_mut() {
            OutcomeFuture::Ready(response) => Poll::Ready(
                response
                    .take()
                    .expect("a future is not polled after its end"),
            ),
            OutcomeFuture::Later(future) => Pin::new(future).poll(cx),
        }
    }
}

/// Types that a handler or middleware may return: a response, or a future of one.
///
/// `Kind` distinguishes the two for the compiler and is always inferred.
pub trait IntoOutcome<Kind> {
    /// Converts the value.
    fn into_outcome(self) -> Outcome;
    /// Converts the value to a future, for callers that are futures themselves.
    fn resolve(self) -> impl Future<Output = Response>;
}

/// The kinds of [`IntoOutcome`].
#[allow(unreachable_pub)] // named by the public trait only
pub mod kind {
    /// The value is a response.
    pub enum Now {}
    /// The value is a future.
    pub enum Later {}
    /// The value is an [`Outcome`](super::Outcome).
    pub enum Either {}
}

impl<T: IntoResponse> IntoOutcome<kind::Now> for T {
    fn into_outcome(self) -> Outcome {
        Outcome::Ready(self.into_response())
    }

    async fn resolve(self) -> Response {
        self.into_response()
    }
}

impl<F> IntoOutcome<kind::Later> for F
where
    F: Future<Output: IntoResponse> + 'static,
{
    fn into_outcome(self) -> Outcome {
        Outcome::Later(PoolFuture::new(self.resolve()))
    }

    async fn resolve(self) -> Response {
        self.await.into_response()
    }
}

impl IntoOutcome<kind::Either> for Outcome {
    fn into_outcome(self) -> Outcome {
        self
    }

    async fn resolve(self) -> Response {
        self.await
    }
}
