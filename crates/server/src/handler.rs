//! Functions and closures as handlers.

use blitz_http::PoolFuture;

use crate::extract::{FromBody, FromRequest, Setup};
use crate::outcome::{IntoOutcome, Outcome};
use crate::request::Request;
use crate::response::IntoResponse;
use crate::site::DynHandler;

/// A function or closure that handles requests, with up to eight arguments.
///
/// The arguments are [`FromRequest`] types in any order, of which the last one may be a [`FromBody`] type
/// instead; or the whole [`Request`] as the only argument. The result is a type that is [`IntoResponse`],
/// or a future of one. A handler that is not async and does not read the body responds immediately,
/// without an allocation.
///
/// Handlers are built once and shared by all cores, so they are `Send` and `Sync`. Their futures stay on
/// the core that called them, and need not be.
///
/// `Marker` distinguishes the kinds of functions for the compiler and is always inferred.
pub trait Handler<Marker>: Send + Sync + 'static {
    /// Calls the handler.
    fn call(&self, request: Request) -> Outcome;

    /// Checks, before the server starts, for errors that would affect every request.
    ///
    /// # Errors
    /// The missing state or parameter, as a sentence about the handler.
    fn check(setup: &Setup<'_>) -> Result<(), String> {
        let _ = setup;
        Ok(())
    }
}

/// Erases the type of a handler.
pub(crate) fn erase<M>(handler: impl Handler<M>) -> DynHandler {
    Box::new(move |request| handler.call(request))
}

/// Marks a handler that takes the whole request.
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

/// Applies a macro to each prefix of a list, including the empty one.
macro_rules! for_each_arity {
    ($apply:ident: $($done:ident)* ;) => { $apply!($($done)*); };
    ($apply:ident: $($done:ident)* ; $next:ident $($more:ident)*) => {
        $apply!($($done)*);
        for_each_arity!($apply: $($done)* $next ; $($more)*);
    };
}
for_each_arity!(handler_from_head: ; T1 T2 T3 T4 T5 T6 T7 T8);
for_each_arity!(handler_from_content: ; T1 T2 T3 T4 T5 T6 T7);
