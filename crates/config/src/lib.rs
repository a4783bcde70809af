#![forbid(unsafe_code)]
//! The configuration of Blitz: the file, the model that it is read into, and diagnostics with places.
//!
//! **Invariant: this crate is pure.** It opens no file and no socket, and variables of the environment are given to it.
//! [`read`] finds all mistakes of a file at once; checks that need files or sockets add their diagnostics later.

mod diagnostic;
mod document;
mod environment;
mod keys;
mod model;
mod reader;
mod suggestion;

pub use diagnostic::{Diagnostic, Severity, render, to_json};
pub use document::Document;
pub use environment::Environment;
pub use keys::{KEYS, Key, Scope, Since};
pub use model::{Configuration, Host, PathPattern, Placed, Route, Site, Span, Tls};
pub use reader::read;
