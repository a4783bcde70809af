#![forbid(unsafe_code)]
//! The HTTP state machines of Blitz: bytes and commands in, bytes and message events out.
//!
//! This crate owns no socket, clock, task or random number. A machine serves one connection, and its
//! methods are of four kinds:
//!
//! - `handle_*`: something arrived (input, the end of input);
//! - commands, `send_*` and `drain`: append the bytes to send to a buffer of the caller;
//! - `poll_*`: pending work of the machine, in versions that need it (HTTP/1 does not);
//! - getters.
//!
//! **The drain rule: after every arrival call `handle_input` until it returns `NeedMore` or `Paused`,
//! and present the bytes that it did not consume again at the front of the next input.** The machine
//! consumes partial heads and chunk lines, so no caller has to keep a buffer for them; ranges in
//! events refer only to the input of the same call.
//!
//! All output is generated from parsed values: received framing, status lines and chunk headers are
//! never forwarded.

mod content;
mod copy;
pub mod error;
mod field_compression;
mod field_section;
mod flood;
pub mod h1;
pub mod h2;
pub mod h3;
mod informational;
pub mod limits;
pub mod message;
pub mod path;
mod priority;
pub mod proxy_protocol;
mod scan;
mod section_max;

pub use error::{Blame, Error, ErrorKind, Side};
pub use limits::{FOREVER, Limits, QuicLimits};
pub use message::{
    AsName, BodyLength, FieldName, Fields, InvalidField, InvalidTarget, Method, Name, NameSet,
    RequestHead, ResponseHead, Status, TargetForm, Version, is_authority,
};
pub use priority::Priority;
pub use priority::schedule::Schedule;
