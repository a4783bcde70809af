//! Middleware: functions around handlers, which take a request and the next function.
//!
//! ```
//! use blitz::{App, Next, Request, Status};
//!
//! let app = App::new()
//!     .wrap(|request: Request, next: Next| async move {
//!         if request.fields().contains("x-let-me-in") {
//!             next.run(request).await
//!         } else {
//!             blitz::Response::new(Status::FORBIDDEN)
//!         }
//!     })
//!     .wrap(blitz::middleware::request_id())
//!     .get("/", || "You are in.");
//! # app.build().unwrap();
//! ```

use std::rc::Rc;
use std::sync::Arc;

use blitz_http::{Name, is_request_id, random_u64};

use crate::outcome::Outcome;
use crate::request::Request;
use crate::site::CoreSite;

/// A middleware without the type of its function.
pub(crate) type DynMiddleware = Arc<dyn Fn(Request, Next) -> Outcome + Send + Sync>;

/// The rest of the chain: the following middleware, then the handler.
pub struct Next {
    core: Rc<CoreSite>,
    /// The number of middleware functions that were called.
    depth: usize,
}

impl Next {
    pub(crate) fn start(core: Rc<CoreSite>) -> Next {
        Next { core, depth: 0 }
    }

    /// Calls the next middleware, or the handler.
    ///
    /// The outcome can be awaited. Middleware that only changes the response should use [`Outcome::map`]
    /// instead, so that a ready response stays ready.
    pub fn run(self, request: Request) -> Outcome {
        let core = Rc::clone(&self.core);
        let route = core.site().route(request.route);
        match route.layers().get(self.depth) {
            Some(layer) => layer(
                request,
                Next {
                    core: self.core,
                    depth: self.depth + 1,
                },
            ),
            None => route.call(request),
        }
    }
}

/// Adds `X-Request-Id` to the request, unless it has a valid one, and copies it to the response.
pub fn request_id() -> impl Fn(Request, Next) -> Outcome + Send + Sync + 'static {
    |mut request, next| {
        let id: Box<[u8]> = match request.fields().get(Name::XRequestId) {
            Some(id) if is_request_id(id) => id.into(),
            _ => {
                let made = format!("{:016x}{:016x}", random_u64(), random_u64()).into_bytes();
                request.head_mut().fields.set(Name::XRequestId, &made);
                made.into()
            }
        };
        next.run(request).map(move |mut response| {
            response.fields_mut().set(Name::XRequestId, &id);
            response
        })
    }
}

/// Adds a field to every response without it.
///
/// # Panics
/// If the name or the value is invalid in HTTP.
pub fn default_header(
    name: &'static str,
    value: &'static str,
) -> impl Fn(Request, Next) -> Outcome + Send + Sync + 'static {
    let valid = blitz_http::Fields::default()
        .try_append(name, value)
        .is_ok();
    assert!(valid, "`{name}: {value}` is not a valid header field");
    move |request, next| {
        next.run(request).map(move |mut response| {
            if !response.fields().contains(name) {
                response.fields_mut().append(name, value);
            }
            response
        })
    }
}
