//! Why a route applies to a request, or does not.

/// The verdict on a route in the search for the route of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The request gets this route.
    Applies,
    /// The route matches, but this one has a higher rank.
    Behind(usize),
    /// The path matches, the method does not.
    OtherMethods,
    /// The path does not match.
    OtherPaths,
}
