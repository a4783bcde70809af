//! Built-in endpoints that demand a token, for a server without configuration that has a secret in its environment.

use std::sync::Arc;
use std::time::Duration;

use blitz_http::wall_clock;
use blitz_site::{
    ClientAddress, Jwt, JwtKey, JwtSettings, Notes, Policies, Policy, PolicyRequest, Prover,
    TokenSource, apply, count_rejection,
};

use crate::{App, IntoResponse, Next, Outcome, Problem, Request};

/// How much the clocks of issuer and server may differ.
const LEEWAY: Duration = Duration::from_secs(30);

/// Puts these endpoints behind tokens that are signed with the secret, by HS256.
pub(super) fn protect(app: App, secret: &[u8]) -> App {
    let jwt = Jwt::new(JwtSettings {
        keys: vec![JwtKey::any_secret(secret)],
        sources: vec![TokenSource::Authorization],
        leeway: LEEWAY,
        ..JwtSettings::default()
    });
    let policies = Arc::new(Policies::new(vec![Policy::Proof(Prover::Jwt(Arc::new(
        jwt,
    )))]));
    app.wrap(move |request: Request, next: Next| check(&policies, request, next))
}

fn check(policies: &Policies, request: Request, next: Next) -> Outcome {
    let mut notes = Notes::default();
    let decided = policies.decide(
        &PolicyRequest {
            head: request.head(),
            client: ClientAddress::Unknown,
            certificate: None,
            clock: Some(wall_clock),
            limits: None,
            authorizer: None,
        },
        &mut notes,
    );
    let Err(rejection) = decided else {
        return next.run(request);
    };
    count_rejection(rejection);
    let problem = Problem::new(rejection.status()).detail(rejection.detail());
    let mut response = problem.into_response();
    apply(&notes.response_edits, response.fields_mut());
    Outcome::Ready(response)
}
