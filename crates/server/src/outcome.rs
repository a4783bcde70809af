//! What calling a handler gives: a response at once, or a future of one.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use blitz_http::PoolFuture;

use crate::response::{IntoResponse, Response};

/// A response, now or later. What is ready is never boxed.
pub enum Outcome {
    /// The handler had all it needed.
    Ready(Response),
    /// The handler waits for something.
    Later(PoolFuture<Response>),
}

impl Outcome {
    /// Changes the response when it is there; a ready one at once.
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
    /// Until it is polled.
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

/// Whatever a handler or a middleware may return: a response of some kind, or a future of one.
///
/// `Kind` tells the two apart for the compiler and is always inferred.
pub trait IntoOutcome<Kind> {
    /// Now or later.
    fn into_outcome(self) -> Outcome;
    /// As a future, to be awaited inside one that is boxed already.
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
