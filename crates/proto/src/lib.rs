#![forbid(unsafe_code)]
//! The HTTP machines of Blitz: bytes and commands in, bytes and message events out.
//!
//! Nothing here owns a socket, a clock, a task or a random number. A machine serves one connection
//! and its methods come in four kinds:
//!
//! - `handle_*`: something arrived (input, the end of input);
//! - commands, `send_*` and `drain`: append the bytes to send to a buffer of the caller;
//! - `poll_*`: work that the machine wants done, where a version needs it (HTTP/1 does not);
//! - getters.
//!
//! **The drain rule: after every arrival call `handle_input` until it says `NeedMore` or `Paused`,
//! and present what it did not consume again at the front of the next input.** Partial heads and
//! chunk lines are consumed into the machine, so no caller has to keep a buffer pinned for them;
//! ranges in events refer to the input of the same call and to nothing else.
//!
//! Whatever is sent is written anew from parsed values: no received framing, status line or chunk
//! header is ever passed on.

mod content;
mod copy;
pub mod error;
mod field_compression;
mod field_section;
mod flood;
pub mod h1;
pub mod h2;
pub mod limits;
pub mod message;
pub mod path;
mod priority;
mod scan;
mod target;

pub use error::{Blame, Error, ErrorKind, Side};
pub use limits::Limits;
pub use message::{
    AsName, BodyLength, FieldName, Fields, InvalidField, InvalidTarget, Method, Name, RequestHead,
    ResponseHead, Status, TargetForm, Version,
};
