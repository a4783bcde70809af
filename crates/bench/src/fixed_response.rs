//! The fixed response that all systems send.

/// The path that every system serves, with `BODY`.
pub(crate) const PATH: &str = "/hello";
pub(crate) const BODY: &[u8] = b"Hello, World!";
