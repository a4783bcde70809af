//! The words for tokens that are refused.

use super::super::reason::reason;
use super::*;

#[test]
fn the_reason_of_a_refusal_is_said_in_words_without_the_token() {
    let settings = settings();
    let claims =
        |iss: &str, aud: &str, exp: u64| format!(r#"{{"iss":"{iss}","aud":"{aud}","exp":{exp}}}"#);
    let (iss, later) = ("https://id.example/", NOW + 60);
    let good = claims(iss, "api", later);
    let hs = r#"{"alg":"HS256"}"#;
    let forged = token(hs, &good, |_| vec![1; 32]);
    for (token, words) in [
        ("x".to_owned(), "it is no signed token"),
        (
            hs256(r#"{"alg":"HS256","typ":"secevent+jwt"}"#, &good),
            "`typ` is \"secevent+jwt\"",
        ),
        (
            hs256(r#"{"alg":"none"}"#, &good),
            "its algorithm \"none\" is not supported",
        ),
        (
            hs256(r#"{"alg":"RS256"}"#, &good),
            "no key is for its algorithm \"RS256\"",
        ),
        (
            hs256(r#"{"alg":"RS256","kid":"k\n1"}"#, &good),
            "no key has its key id \"k\\n1\"",
        ),
        (forged, "its signature is not one of the key"),
        (
            hs256(hs, r#"{"iss":"https://id.example/","aud":"api"}"#),
            "it has no claim `exp`",
        ),
        (
            hs256(hs, &claims(iss, "api", 1)),
            "it has expired: `exp` is 1, and now is 1800000000",
        ),
        (
            hs256(hs, r#"{"nbf":1900000000,"exp":1900000001,"aud":"api"}"#),
            "it is not valid yet: `nbf` is 1900000000",
        ),
        (
            hs256(hs, &claims("x", "api", later)),
            "its issuer `iss` is \"x\", and the route expects \"https://id.example/\"",
        ),
        (
            hs256(hs, &claims(iss, "web", later)),
            "its audience `aud` is \"web\", and the route expects \"api\" or \"other\"",
        ),
    ] {
        let said = reason(&settings, &settings.keys, token.as_bytes(), Some(NOW)).unwrap();
        assert!(said.contains(words), "{said}");
        let signature = token.rsplit('.').next().unwrap();
        assert!(signature.len() < 10 || !said.contains(signature), "{said}");
    }
    let long = hs256(hs, &claims(&"x".repeat(5000), "api", later));
    let said = reason(&settings, &settings.keys, long.as_bytes(), Some(NOW)).unwrap();
    assert!(said.len() < 300, "{said}");
    let accepted = hs256(hs, &good);
    assert_eq!(
        reason(&settings, &settings.keys, accepted.as_bytes(), Some(NOW)),
        None
    );
}
