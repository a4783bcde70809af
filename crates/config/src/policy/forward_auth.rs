//! `forward_auth`: another service that decides.

use std::sync::Arc;
use std::time::Duration;

use crate::balance::ClientKey;
use crate::span::Placed;

/// A service that decides on requests, an authorizer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForwardAuth {
    /// Its URL without a path.
    pub origin: Placed<String>,
    /// Path and query of the requests to it.
    pub target: String,
    /// Names of the fields in lower case that it gets; `None` is all but those of the content.
    pub send: Option<Vec<String>>,
    /// Names of fields in lower case that requests get from its responses.
    pub copy: Vec<String>,
    /// Whether clients get the cookies that it sets when it lets a request pass.
    pub passes_cookies: bool,
    /// Whether requests pass if it gives no decision.
    pub is_open: bool,
    /// How long it may take.
    pub timeout: Duration,
    /// How decisions are remembered.
    pub cache: Option<AuthCache>,
    /// Those of levels around a block `when`, which decide as well.
    pub also: Vec<Arc<Placed<ForwardAuth>>>,
}

/// How decisions are remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthCache {
    /// How long.
    pub time: Duration,
    /// The values by which the authorizer knows the client.
    pub by: Vec<ClientKey>,
    /// Whether a decision is for all paths and methods of a host.
    pub any_path: bool,
}

impl Placed<ForwardAuth> {
    /// This one and another.
    pub(crate) fn with(&self, other: Arc<Placed<ForwardAuth>>) -> Placed<ForwardAuth> {
        let mut both = self.clone();
        both.value.also.push(other);
        both
    }
}
