#![forbid(unsafe_code)]
//! Sites: what framework and gateway have in common between a listener and what answers a request.
//!
//! Whatever answers a request does so through the [`Responder`], which makes the site's changes of the head and fills
//! the [`Record`] of the request.

mod counters;
mod edit;
mod endpoint;
mod error_page;
mod failure;
pub mod matcher;
mod pages;
mod record;
mod rejection;
mod responder;

pub use counters::{Counters, count, counters};
pub use edit::{Edit, FieldChange, apply, apply_to_request};
pub use endpoint::{Endpoint, EndpointMaker, Exchange, HandedOver};
pub use error_page::page as error_page;
pub use failure::Failure;
pub use pages::{LoadedFile, Pages, RequestPages};
pub use record::{
    Ended, Observers, Record, RecordHook, ResponseRecord, RouteName, ToldClient, emit, emit_refused,
};
pub use rejection::Rejection;
pub use responder::{Responder, SentContent};
