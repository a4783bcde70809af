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

use blitz_http::{Name, is_request_id, random_u64};

use crate::outcome::Outcome;
use crate::request::Request;

pub use crate::site::Next;

/// Adds `X-Request-Id` to the request, unless it has a valid one, and copies it to the response.
pub fn request_id() -> impl Fn(Request, Next) -> Outcome + Send + Sync + 'static {
    |mut request, next| {
        let id = ensure_request_id(&mut request);
        next.run(request).map(move |mut response| {
            response.fields_mut().set(Name::XRequestId, &id);
            response
        })
    }
}

/// The id of the request, which gets one if it has no valid one.
pub(crate) fn ensure_request_id(request: &mut Request) -> Vec<u8> {
    match request.fields().get(Name::XRequestId) {
        Some(id) if is_request_id(id) => id.into(),
        _ => {
            let made = format!("{:016x}{:016x}", random_u64(), random_u64()).into_bytes();
            request.head_mut().fields.set(Name::XRequestId, &made);
            made
        }
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
