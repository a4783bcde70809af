//! Key sets, most of them unusable.

use super::super::keys::KEY_SET_BYTES_MAX;
use super::*;

fn assert_problem(text: &str, expected: &str) {
    let problem = key_set(text.as_bytes(), &[]).expect_err(text);
    assert!(
        problem.contains(expected),
        "{problem} is not about {expected}"
    );
}

fn oct(rest: &str) -> String {
    let secret = encode(SECRET);
    format!(r#"{{"keys":[{{"kty":"oct","k":"{secret}"{rest}}}]}}"#)
}

fn rsa(n: &str, e: &str, rest: &str) -> String {
    format!(r#"{{"keys":[{{"kty":"RSA","n":"{n}","e":"{e}"{rest}}}]}}"#)
}

#[test]
fn key_sets_are_read_strictly() {
    let secret = encode(SECRET);
    let n = encode([0xc1; 256]);
    for text in [
        oct(""),
        oct(r#","alg":"HS256""#),
        oct(r#","use":"sig","key_ops":["verify"]"#),
        rsa(&n, "AQAB", ""),
    ] {
        let (keys, notes) = key_set(text.as_bytes(), &[]).expect("it is a key set");
        assert_eq!((keys.len(), notes.len()), (1, 0), "{text}");
    }
    for (text, expected) in [
        ("".to_owned(), "no JSON object"),
        ("[]".to_owned(), "no JSON object"),
        ("{\"keys\":[],\"keys\":[]}".to_owned(), "no JSON object"),
        ("-----BEGIN PUBLIC KEY-----".to_owned(), "no JSON object"),
        ("{}".to_owned(), "no list `keys`"),
        ("{\"keys\":{}}".to_owned(), "no list `keys`"),
        ("{\"keys\":[]}".to_owned(), "no key"),
        ("{\"keys\":[1]}".to_owned(), "is no object"),
        ("{\"keys\":[{}]}".to_owned(), "`kty` is missing"),
        ("{\"keys\":[{\"kty\":1}]}".to_owned(), "`kty` is no text"),
        (oct(r#","kid":1"#), "`kid` is no text"),
        (oct(r#","alg":"HS512""#), "needs 64"),
        (oct(r#","alg":"RS256""#), "none of its `kty`"),
        (oct(r#","alg":"none""#), "is not supported"),
        (oct(r#","use":"enc""#), "is not \"sig\""),
        (oct(r#","key_ops":["sign"]"#), "lack \"verify\""),
        (oct(r#","key_ops":"verify""#), "is no list"),
        (
            r#"{"keys":[{"kty":"oct","k":"c2hvcnQ"}]}"#.to_owned(),
            "needs 32",
        ),
        (r#"{"keys":[{"kty":"oct"}]}"#.to_owned(), "`k` is missing"),
    ] {
        assert_problem(&text, expected);
    }
    let both =
        format!(r#"{{"keys":[{{"kty":"AKP","kid":"new"}},{{"kty":"oct","k":"{secret}"}}]}}"#);
    let (keys, notes) = key_set(both.as_bytes(), &[]).expect("one key is left");
    assert_eq!((keys.len(), notes.len()), (1, 1));
}

#[test]
fn keys_of_other_forms_are_refused() {
    let secret = encode(SECRET);
    let n = encode([0xc1; 256]);
    for (text, expected) in [
        (rsa(&encode([0xc1; 128]), "AQAB", ""), "1024 bits"),
        (rsa(&n, "AQ", ""), "no RSA key"),
        (rsa(&n, "Ag", ""), "no RSA key"),
        (rsa(&n, "AQAB=", ""), "no base64url"),
        (rsa(&n, "AQAB", r#","d":"AQAB""#), "private"),
        (rsa(&n, "AQAB", r#","alg":"HS256""#), "none of its `kty`"),
        (
            r#"{"keys":[{"kty":"EC","crv":"P-521"}]}"#.to_owned(),
            "is not supported",
        ),
        (
            r#"{"keys":[{"kty":"EC","crv":"P-256","x":"AAAA","y":"AAAA"}]}"#.to_owned(),
            "needs 32",
        ),
        (
            format!(r#"{{"keys":[{{"kty":"EC","crv":"P-256","x":"{secret}","y":"{secret}"}}]}}"#),
            "not on the curve",
        ),
        (
            r#"{"keys":[{"kty":"OKP","crv":"X25519","x":"AAAA"}]}"#.to_owned(),
            "is not supported",
        ),
        (r#"{"keys":[{"kty":"AKP"}]}"#.to_owned(), "is not supported"),
        (
            format!(
                r#"{{"keys":[{{"kty":"oct","kid":"a","k":"{secret}"}},{{"kty":"oct","kid":"a","k":"{secret}"}}]}}"#
            ),
            "two keys",
        ),
        (
            format!("{{\"keys\":[{}]}}", vec!["{\"kty\":\"AKP\"}"; 65].join(",")),
            "at most 64",
        ),
        (" ".repeat(KEY_SET_BYTES_MAX + 1), "at most 262144 bytes"),
    ] {
        assert_problem(&text, expected);
    }
}

#[test]
fn secrets_are_as_long_as_their_hash() {
    for (length, algorithms, is_taken) in [
        (31, &[][..], false),
        (32, &[], true),
        (32, &[Algorithm::Hs384], false),
        (48, &[Algorithm::Hs384], true),
        (63, &[Algorithm::Hs512], false),
        (64, &[Algorithm::Hs256, Algorithm::Hs512], true),
        (64, &[Algorithm::Rs256], false),
    ] {
        let key = JwtKey::secret(&vec![b'x'; length], algorithms);
        assert_eq!(key.is_ok(), is_taken, "{length} {algorithms:?}");
    }
    let shown = format!("{:?}", JwtKey::secret(SECRET, &[]));
    assert!(!shown.contains("secret of"), "{shown}");
}
