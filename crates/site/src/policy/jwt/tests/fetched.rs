//! Keys that are fetched: before there are any, after they change, and when tokens ask for others.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::*;
use crate::client::ClientAddress;
use crate::policy::{Notes, Prover};

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(NOW)
}

/// The verdict of a route with fetched keys.
fn decide(jwt: &Arc<Jwt>, token: &str) -> Result<(), Rejection> {
    let mut head = RequestHead::new(Method::Get, "/");
    head.fields
        .append("authorization", format!("Bearer {token}"));
    let request = PolicyRequest {
        head: &head,
        client: ClientAddress::Unknown,
        certificate: None,
        clock: Some(now),
        limits: None,
        authorizer: None,
    };
    let prover = Prover::Jwt(Arc::clone(jwt));
    let mut notes = Notes::default();
    let decided = prover.decide(&request, &mut notes);
    let decided = decided.map(|waiting| assert!(waiting.is_none()));
    let has = |name: &str| notes.response_edits.iter().any(|edit| &*edit.name == name);
    let is_missing = decided == Err(Rejection::NoKeys);
    assert_eq!(has("retry-after"), is_missing);
    assert_eq!(has("www-authenticate"), decided.is_err() && !is_missing);
    decided
}

fn route(url: &str) -> (Arc<Jwt>, Arc<FetchedKeys>) {
    let fetched = FetchedKeys::shared(url, &[], None);
    let jwt = Jwt::new(JwtSettings {
        keys: Vec::new(),
        fetched: Some(Arc::clone(&fetched)),
        ..settings()
    });
    (Arc::new(jwt), fetched)
}

#[test]
fn tokens_are_verified_with_the_latest_keys() {
    let (jwt, fetched) = route("https://id.example/latest");
    let (old, new) = (Issuer::new(), Issuer::new());
    let of_old = old.es256("e");
    assert_eq!(decide(&jwt, &of_old), Err(Rejection::NoKeys));
    assert!(!fetched.has_keys());
    assert_eq!(
        fetched.replace(old.set.as_bytes()),
        Ok(Some((3, Vec::new())))
    );
    // The second time the token is known.
    assert_eq!(decide(&jwt, &of_old), Ok(()));
    assert_eq!(decide(&jwt, &of_old), Ok(()));
    assert_eq!(fetched.replace(old.set.as_bytes()), Ok(None));
    assert!(fetched.replace(b"{}").is_err());
    assert_eq!(decide(&jwt, &of_old), Ok(()));
    assert!(
        fetched
            .replace(new.set.as_bytes())
            .is_ok_and(|change| change.is_some())
    );
    assert_eq!(decide(&jwt, &of_old), Err(Rejection::InvalidToken));
    assert_eq!(decide(&jwt, &new.es256("e")), Ok(()));
    fetched.remove();
    assert_eq!(decide(&jwt, &new.es256("e")), Err(Rejection::NoKeys));
}

#[test]
fn only_a_name_that_no_key_has_asks_for_others() {
    let (jwt, fetched) = route("https://id.example/wishes");
    let issuer = Issuer::new();
    assert!(fetched.replace(issuer.set.as_bytes()).is_ok());
    let forged = format!("{}AAAA", issuer.es256("e"));
    for text in [
        issuer.es256("e"),
        issuer.es256(""),
        issuer.rs256("e"),
        forged,
        "a.b.c".to_owned(),
        String::new(),
        format!("{}.e30.AA", encode(r#"{"alg":"ES256","kid":1}"#)),
        format!(
            "{}.e30.AA",
            encode(format!(r#"{{"alg":"ES256","kid":"{}"}}"#, "x".repeat(257)))
        ),
        format!(
            "{}.e30.AA",
            encode(r#"{"alg":"ES256","kid":"x","kid":"y"}"#)
        ),
    ] {
        let _ = decide(&jwt, &text);
        assert!(!fetched.take_wish(), "{text}");
    }
    assert_eq!(
        decide(&jwt, &issuer.es256("f")),
        Err(Rejection::InvalidToken)
    );
    assert!(fetched.take_wish() && !fetched.take_wish());
}

#[test]
fn secrets_of_everybody_verify_nothing() {
    let (jwt, fetched) = route("https://id.example/secrets");
    let secret = encode(SECRET);
    let oct = format!(r#"{{"kty":"oct","kid":"s","k":"{secret}"}}"#);
    let problem = fetched.replace(format!("{{\"keys\":[{oct}]}}").as_bytes());
    assert!(problem.is_err_and(|problem| problem.contains("secrets")));
    let issuer = Issuer::new();
    let both = issuer.set.replacen('[', &format!("[{oct},"), 1);
    let change = fetched.replace(both.as_bytes()).expect("a key set");
    assert_eq!(
        change.map(|(count, notes)| (count, notes.len())),
        Some((3, 1))
    );
    assert_eq!(
        decide(&jwt, &hs256(r#"{"alg":"HS256","kid":"s"}"#, CLAIMS)),
        Err(Rejection::InvalidToken)
    );
    // The public key as a secret.
    let point = issuer.p256.public_key().as_ref();
    let confused = token(
        &header("HS256", "e"),
        CLAIMS,
        hmac_with(hmac::HMAC_SHA256, point),
    );
    assert_eq!(decide(&jwt, &confused), Err(Rejection::InvalidToken));
    assert_eq!(decide(&jwt, &issuer.es256("e")), Ok(()));
}

#[test]
fn routes_with_the_same_url_share_its_keys() {
    let url = "https://id.example/shared";
    let (one, fetched) = route(url);
    let (other, same) = route(url);
    assert!(Arc::ptr_eq(&fetched, &same) && one == other);
    let chosen = FetchedKeys::shared(url, &[Algorithm::Es256], None);
    assert!(!Arc::ptr_eq(&fetched, &chosen));
    let is_in_use = || fetched_keys_in_use().iter().any(|keys| keys.url() == url);
    assert!(is_in_use());
    drop((one, other, fetched, same, chosen));
    assert!(!is_in_use());
}
