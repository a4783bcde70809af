//! Proofs of who the client of a request is, of whatever kind.

use blitz_http::PooledFuture;

use super::{Identity, set};
use crate::edit::{Edit, FieldChange};
use crate::rejection::Rejection;

/// The proof of a request.
pub(super) enum Proof<'p> {
    /// The request has none of this kind.
    Missing,
    /// It is valid, and tells the action who the client is.
    Valid(Option<Identity<'p>>),
    /// Another thread has to decide.
    Pending(PooledFuture<'p, Checked>),
}

/// The end of a check: who the client is, or why it is refused.
pub(super) type Checked = Result<Option<Identity<'static>>, Rejection>;

/// A line of `WWW-Authenticate`.
pub(super) fn challenge(value: String) -> Edit {
    Edit {
        name: "www-authenticate".into(),
        change: FieldChange::Add(value.into_bytes()),
    }
}

/// Fields with the same text, of which a client may have sent another one.
pub(super) fn named(fields: &[String], value: Option<&str>) -> Box<[Edit]> {
    let value = value.map(str::as_bytes);
    fields.iter().map(|name| set(name, value)).collect()
}
