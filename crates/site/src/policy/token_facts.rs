//! The content of a verified token that later policies and the action use.

use crate::edit::Edit;

/// The content of a verified token.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TokenFacts {
    /// Changes of the request.
    pub edits: Box<[Edit]>,
    /// The claims that the configuration uses, by name. Those whose value no field could have are left out.
    pub claims: Box<[(Box<str>, Box<str>)]>,
    /// `sub`, if somebody asks for the names of clients.
    pub subject: Option<Box<str>>,
    /// All claims as JSON, if somebody asks for them.
    pub payload: Option<Box<str>>,
}
