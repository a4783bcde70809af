//! `cors`: cross-origin requests (Fetch Standard, section 3.2).

use std::time::Duration;

/// Which requests of other origins browsers may send.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Cors {
    /// The origins; none is no other origin.
    pub origins: Vec<CorsOrigin>,
    /// Methods; `None` is all that a preflight asks for.
    pub methods: Option<Vec<String>>,
    /// Names of request fields in lower case; `None` is all that a preflight asks for.
    pub headers: Option<Vec<String>>,
    /// Names of response fields that scripts may read.
    pub expose: Vec<String>,
    /// Whether requests may have cookies and other credentials.
    pub credentials: bool,
    /// How long browsers may remember the response to a preflight, in whole seconds.
    pub max_age: Duration,
}

/// An origin, or several.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CorsOrigin {
    /// Every origin.
    Any,
    /// This one, as browsers write it: `https://app.example`, with a port that is not the scheme's.
    Exact(String),
    /// Hosts with one label more: the text before the label, `https://`, and behind it, `.app.example`.
    Subdomains {
        /// The scheme with `://`.
        before: String,
        /// A dot, the host, and perhaps a port.
        after: String,
    },
}
