//! Functions and closures as handlers.

use blitz_http::PoolFuture;

use crate::extract::{FromBody, FromRequest, Setup};
use crate::outcome::{IntoOutcome, Outcome};
use crate::request::Request;
use crate::response::IntoResponse;

/// A function or closure that answers requests, with up to eight arguments.
///
/// Each argument says what the handler needs: [`FromRequest`] types in any order, and as the last
/// one possibly a [`FromBody`] type; or the [`Request`] as a whole, alone. It returns something
/// that is [`IntoResponse`], or a future of that. A handler that is no future is answered at once
/// and costs no allocation, unless it needs the body.
///
/// Handlers are built once and shared by all cores, hence `Send` and `Sync`; their futures stay on
/// the core that called them, and need not be.
///
/// `Marker` tells the shapes apart for the compiler and is always inferred.
pub trait Handler<Marker>: Send + Sync + 'static {
    /// Starts to answer.
    fn call(&self, request: Request) -> Outcome;

    /// Finds, before anything is served, what would fail for every request.
    ///
    /// # Errors
    /// What is missing, as a sentence about the handler.
    fn check(setup: &Setup<'_>) -> Result<(), String> {
        let _ = setup;
        Ok(())
    }
}

/// A handler without the type of its function.
pub(crate) type DynHandler = Box<dyn Fn(Request) -> Outcome + Send + Sync>;

/// Forgets the type of a handler.
pub(crate) fn erase<M>(handler: impl Handler<M>) -> DynHandler {
    Box::new(move |request| handler.call(request))
}

/// Marks a handler that takes the request as a whole.
pub enum WholeRequest {}
/// Marks a handler whose arguments come from the head.
pub enum FromHead {}
/// Marks a handler whose last argument comes from the body.
pub enum FromContent {}

impl<F, R, K> Handler<(WholeRequest, K)> for F
where
    F: Fn(Request) -> R + Send + Sync + 'static,
    R: IntoOutcome<K>,
{
    fn call(&self, request: Request) -> Outcome {
        self(request).into_outcome()
    }
}

/// Implements `Handler` for functions whose arguments all come from the head.
macro_rules! handler_from_head {
    ($($argument:ident)*) => {
        impl<F, R, K, $($argument),*> Handler<(FromHead, K, $($argument),*)> for F
        where
            F: Fn($($argument),*) -> R + Send + Sync + 'static,
            R: IntoOutcome<K>,
            $($argument: FromRequest,)*
        {
            #[allow(non_snake_case, unused_mut, unused_variables)]
            fn call(&self, mut request: Request) -> Outcome {
                $(let $argument = match $argument::from_request(&mut request) {
                    Ok(value) => value,
                    Err(response) => return Outcome::Ready(response),
                };)*
                self($($argument),*).into_outcome()
            }

            #[allow(unused_variables)]
            fn check(setup: &Setup<'_>) -> Result<(), String> {
                $($argument::check(setup)?;)*
                Ok(())
            }
        }
    };
}

/// Implements `Handler` for functions whose last argument comes from the body.
macro_rules! handler_from_content {
    ($($argument:ident)*) => {
        impl<F, R, K, B, $($argument),*> Handler<(FromContent, K, $($argument,)* B)> for F
        where
            F: Fn($($argument,)* B) -> R + Clone + Send + Sync + 'static,
            R: IntoOutcome<K> + 'static,
            B: FromBody + 'static,
            $($argument: FromRequest + 'static,)*
        {
            #[allow(non_snake_case, unused_mut)]
            fn call(&self, mut request: Request) -> Outcome {
                $(let $argument = match $argument::from_request(&mut request) {
                    Ok(value) => value,
                    Err(response) => return Outcome::Ready(response),
                };)*
                let handler = self.clone();
                Outcome::Later(PoolFuture::new(async move {
                    match B::from_body(request).await {
                        Ok(body) => handler($($argument,)* body).resolve().await,
                        Err(response) => response.into_response(),
                    }
                }))
            }

            fn check(setup: &Setup<'_>) -> Result<(), String> {
                $($argument::check(setup)?;)*
                B::check(setup)
            }
        }
    };
}

/// Applies a macro to each beginning of a list, the empty one included.
macro_rules! for_each_arity {
    ($apply:ident: $($done:ident)* ;) => { $apply!($($done)*); };
    ($apply:ident: $($done:ident)* ; $next:ident $($more:ident)*) => {
        $apply!($($done)*);
        for_each_arity!($apply: $($done)* $next ; $($more)*);
    };
}
for_each_arity!(handler_from_head: ; T1 T2 T3 T4 T5 T6 T7 T8);
for_each_arity!(handler_from_content: ; T1 T2 T3 T4 T5 T6 T7);
