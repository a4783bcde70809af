#![forbid(unsafe_code)]
//! Blitz, the server framework: typed routes, streaming bodies, one reactor per core.
//!
//! ```no_run
//! use blitz::App;
//!
//! fn main() -> blitz::Result {
//!     App::new().get("/", || "Hello, World!").run()
//! }
//! ```
//!
//! A handler is a function. Its arguments [are extracted](extract) from the request, and its result
//! [becomes the response](IntoResponse). It may be async. Handlers are shared by all cores, while each
//! request stays on the core that received it, so futures need not be `Send`.

mod app;
mod app_data;
mod arena;
mod body;
mod build;
pub mod builtin;
mod error;
pub mod extract;
mod files;
mod handler;
mod identity;
pub mod middleware;
mod outcome;
pub mod policy;
mod problem;
mod request;
mod response;
pub mod router;
mod run;
mod service;
mod site;

pub use app::App;
pub use error::{Error, Result};
pub use extract::Json;
pub use files::Files;
pub use handler::Handler;
pub use outcome::{IntoOutcome, Outcome};
pub use problem::Problem;
pub use request::Request;
pub use response::{IntoResponse, Response, StreamError, Writer};
pub use service::{CoreService, Service};
pub use site::Next;

pub use blitz_host::certificates::Certificates;
pub use blitz_http::files::SymbolicLinks;
pub use blitz_http::{
    AsName, BodyError, BodyLength, Buffer, Chunk, ClientCertificate, Fields, InvalidField,
    IoChoice, Limits, Method, Name, Peer, Scheme, SendError, Slice, Status, TlsInfo, TlsVersion,
    Version, blocking, now, sleep, spawn, timeout, wall_clock,
};

/// Whether the calling core is draining: it accepts no connections and finishes running requests.
pub fn is_draining() -> bool {
    blitz_http::Drain::of_core().is_triggered()
}

/// The examples of the page are compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/framework.md")]
struct FrameworkPage;
