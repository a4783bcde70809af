//! The fixed responses that all systems send.

/// The path that every system serves, with `BODY`.
pub(crate) const PATH: &str = "/hello";
pub(crate) const BODY: &[u8] = HELLO.body.as_bytes();

/// A fixed response of a server, the only one that it has.
pub(crate) struct FixedResponse {
    pub(crate) path: &'static str,
    pub(crate) content_type: &'static str,
    pub(crate) body: &'static str,
}

pub(crate) const HELLO: FixedResponse = FixedResponse {
    path: PATH,
    content_type: "text/plain; charset=utf-8",
    body: "Hello, World!",
};

/// The health endpoint of Blitz.
pub(crate) const HEALTH: FixedResponse = FixedResponse {
    path: "/health",
    content_type: "application/json",
    body: r#"{"status":"ok"}"#,
};
