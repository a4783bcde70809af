//! Why an authorizer gave no decision, for operators: clients learn only that there is none.

use blitz_http::{Address, Status};

use crate::failure::Failure;
use crate::rejection::Rejection;

/// The setting of the time of a response in the text of that failure: that of upstreams, and that of authorizers.
const UPSTREAM_SETTING: &str = "timeout.response or --timeout-response";
const AUTHORIZER_SETTING: &str = "forward_auth.timeout";

/// The known part of a request to an authorizer.
#[derive(Debug, Clone, Default)]
pub struct AuthorizerAttempt {
    /// Where it went.
    pub address: Option<Address>,
    /// Why it has no valid response.
    pub failure: Option<Failure>,
    /// Details of the failure.
    pub rule: Option<&'static str>,
    /// Whether the connection, or the stream of the request, ended before any byte of a response.
    pub has_broken_off: bool,
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

impl NoDecision {
    /// Whether a route with `on_failure = "open"` lets the request pass. All else can be the work of a client: a response
    /// that came and cannot be read, as that of an authorizer which repeats the client's bytes, and a limit of the
    /// gateway.
    pub(super) fn may_pass(&self) -> bool {
        let AuthorizerAttempt {
            status,
            has_broken_off,
            ..
        } = self.attempt;
        match self.rejection {
            Rejection::AuthorizerUnreachable | Rejection::AuthorizerTimeout => true,
            Rejection::AuthorizerFailed => match status {
                Some(status) => (500..600).contains(&status.code()),
                None => has_broken_off,
            },
            _ => false,
        }
    }
}

impl AuthorizerAttempt {
    /// The failure in words. Those of upstreams are said of the authorizer.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        let text = self.failure?.detail();
        let text = text.replace("the upstream", "the authorizer");
        let text = text.replace(UPSTREAM_SETTING, AUTHORIZER_SETTING);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_response_has_the_setting_of_authorizers() {
        let attempt = AuthorizerAttempt {
            failure: Some(Failure::HttpResponseTimeout),
            ..AuthorizerAttempt::default()
        };
        let problem = attempt.problem().unwrap();
        assert_eq!(
            problem,
            "the authorizer took too long to respond (forward_auth.timeout)"
        );
    }
}
