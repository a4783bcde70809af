//! Why an authorizer gave no decision, for operators: clients learn only that there is none.

use blitz_http::{Address, Status};

use crate::failure::Failure;
use crate::rejection::Rejection;

/// The known part of a request to an authorizer.
#[derive(Debug, Clone, Default)]
pub struct AuthorizerAttempt {
    /// Where it went.
    pub address: Option<Address>,
    /// Why it has no valid response.
    pub failure: Option<Failure>,
    /// Details of the failure.
    pub rule: Option<&'static str>,
    /// The status of a response that is no decision.
    pub status: Option<Status>,
}

/// An authorizer that gave no decision.
#[derive(Debug, Clone)]
pub struct NoDecision {
    /// Its URL without the query.
    pub authorizer: Box<str>,
    /// How the request is rejected for it.
    pub rejection: Rejection,
    /// The request to it.
    pub attempt: AuthorizerAttempt,
}

impl AuthorizerAttempt {
    /// The failure in words. Those of upstreams are said of the authorizer.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        let text = self.failure?.detail();
        let text = text.replace("the upstream", "the authorizer");
        Some(match self.rule.filter(|rule| !text.contains(rule)) {
            Some(rule) => format!("{text}: {rule}"),
            None => text,
        })
    }

    /// The certificate of the authorizer, if it was refused.
    #[must_use]
    pub fn refused_certificate(&self) -> Option<std::sync::Arc<str>> {
        if self.failure?.token() != "tls_certificate_error" {
            return None;
        }
        match self.address.as_ref()? {
            Address::Tcp(address) => blitz_http::refused_certificate(*address),
            Address::Unix(_) => None,
        }
    }
}
