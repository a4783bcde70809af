//! Places in the file, and values with theirs.

use std::ops::Range;

/// A part of the file, in bytes.
pub type Span = Range<usize>;

/// A value and its place in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed<T> {
    /// The value.
    pub value: T,
    /// Where it is written; for values with variables the whole value.
    pub span: Span,
}

impl<T> Placed<T> {
    /// A value from its parts.
    pub fn new(value: T, span: Span) -> Placed<T> {
        Placed { value, span }
    }
}
