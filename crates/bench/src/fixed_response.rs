//! The fixed responses that all systems send.

/// The path that every system serves, with `BODY`.
pub(crate) const PATH: &str = "/hello";
pub(crate) const BODY: &[u8] = b"Hello, World!";

/// The health endpoint of Blitz, and its content, which the others send as well.
pub(crate) const HEALTH_PATH: &str = "/health";
pub(crate) const HEALTH_BODY: &str = r#"{"status":"ok"}"#;
