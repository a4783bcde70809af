//! Tokens and key sets, most of them hostile, with their verdicts.

mod fetched;
mod key_sets;
mod reason;

use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    self, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RsaKeyPair,
};
use aws_lc_rs::{hmac, rsa::KeySize};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE, URL_SAFE_NO_PAD};
use blitz_http::{Method, RequestHead};

use super::token::{TOKEN_BYTES_MAX, TokenError, TokenError as E, verify};
use super::*;

const NOW: u64 = 1_800_000_000;

const SECRET: &[u8; 32] = b"a secret of exactly 32 bytes ...";

const CLAIMS: &str = r#"{"iss":"https://id.example/","aud":"api","exp":1800000060,"sub":"alice","scope":"read write"}"#;

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn token(header: &str, claims: &str, sign: impl FnOnce(&[u8]) -> Vec<u8>) -> String {
    let message = format!("{}.{}", encode(header), encode(claims));
    let signature = sign(message.as_bytes());
    format!("{message}.{}", encode(signature))
}

fn hmac_with(algorithm: hmac::Algorithm, secret: &[u8]) -> impl FnOnce(&[u8]) -> Vec<u8> + use<'_> {
    move |message| {
        let key = hmac::Key::new(algorithm, secret);
        hmac::sign(&key, message).as_ref().to_vec()
    }
}

/// Signed with the secret.
fn hs256(header: &str, claims: &str) -> String {
    token(header, claims, hmac_with(hmac::HMAC_SHA256, SECRET))
}

fn settings() -> JwtSettings {
    JwtSettings {
        keys: vec![JwtKey::secret(SECRET, &[]).expect("it is long enough")],
        issuers: vec!["https://id.example/".to_owned()],
        audiences: vec!["api".to_owned(), "other".to_owned()],
        sources: vec![TokenSource::Authorization],
        leeway: Duration::from_secs(30),
        ..JwtSettings::default()
    }
}

fn verdict(settings: &JwtSettings, token: impl AsRef<[u8]>) -> Result<(), TokenError> {
    verify(settings, &settings.keys, token.as_ref(), Some(NOW)).map(drop)
}

/// Headers of tokens that are signed with the right secret.
const HEADERS: &[(&str, Result<(), E>)] = &[
    (r#"{"alg":"HS256"}"#, Ok(())),
    (r#"{"alg":"HS256","typ":"JWT"}"#, Ok(())),
    (r#"{"alg":"HS256","typ":"jwt"}"#, Ok(())),
    (r#"{"alg":"HS256","typ":"at+jwt"}"#, Ok(())),
    (r#"{"alg":"HS256","typ":"application/at+jwt"}"#, Ok(())),
    (r#" {"alg" : "HS256"} "#, Ok(())),
    (r#"{"\u0061lg":"HS256"}"#, Ok(())),
    // The secret has no identifier, so that a token may have any.
    (r#"{"alg":"HS256","kid":"x"}"#, Ok(())),
    (r#"{"alg":"HS256","kid":""}"#, Ok(())),
    (r#"{"alg":"HS256","kid":"../../../../dev/null"}"#, Ok(())),
    (r#"{"alg":"HS256","kid":"x' UNION SELECT 'k"}"#, Ok(())),
    (r#"{"alg":"HS256","x5t":"abc","x5c":[]}"#, Ok(())),
    (r#"{"alg":"HS256","kid":1}"#, Err(E::Header)),
    (r#"{"alg":"HS256","kid":null}"#, Err(E::Header)),
    (r#"{"alg":"HS256","kid":["x"]}"#, Err(E::Header)),
    (r#"{"alg":"none"}"#, Err(E::Key)),
    (r#"{"alg":"None"}"#, Err(E::Key)),
    (r#"{"alg":"NONE"}"#, Err(E::Key)),
    (r#"{"alg":"nOnE"}"#, Err(E::Key)),
    (r#"{"alg":""}"#, Err(E::Key)),
    (r#"{"alg":"hs256"}"#, Err(E::Key)),
    (r#"{"alg":"HS256 "}"#, Err(E::Key)),
    (r#"{"alg":" HS256"}"#, Err(E::Key)),
    (r#"{"alg":"HS256\u0000"}"#, Err(E::Key)),
    (r#"{"alg":"ＨＳ256"}"#, Err(E::Key)),
    (r#"{"alg":"ΗS256"}"#, Err(E::Key)),
    (r#"{"alg":"HS384"}"#, Err(E::Key)),
    (r#"{"alg":"HS512"}"#, Err(E::Key)),
    (r#"{"alg":"RS256"}"#, Err(E::Key)),
    (r#"{"alg":"PS256"}"#, Err(E::Key)),
    (r#"{"alg":"ES256"}"#, Err(E::Key)),
    (r#"{"alg":"EdDSA"}"#, Err(E::Key)),
    (r#"{"alg":"HS1"}"#, Err(E::Key)),
    (r#"{"alg":"A128KW"}"#, Err(E::Key)),
    (r#"{"alg":"dir"}"#, Err(E::Key)),
    (r#"{"alg":null}"#, Err(E::Header)),
    (r#"{"alg":256}"#, Err(E::Header)),
    (r#"{"alg":["HS256"]}"#, Err(E::Header)),
    (r#"{"alg":{"HS256":1}}"#, Err(E::Header)),
    (r#"{}"#, Err(E::Header)),
    (r#"{"Alg":"HS256"}"#, Err(E::Header)),
    (r#"{"alg":"none","alg":"HS256"}"#, Err(E::Header)),
    (r#"{"alg":"HS256","alg":"none"}"#, Err(E::Header)),
    (r#"{"alg":"HS256","alg":"HS256"}"#, Err(E::Header)),
    (r#"{"alg":"HS256","\u0061lg":"none"}"#, Err(E::Header)),
    (r#"{"alg":"HS256","crit":["exp"]}"#, Err(E::Header)),
    (r#"{"alg":"HS256","crit":[]}"#, Err(E::Header)),
    (
        r#"{"alg":"HS256","crit":["b64"],"b64":false}"#,
        Err(E::Header),
    ),
    (r#"{"alg":"HS256","b64":false}"#, Err(E::Header)),
    (r#"{"alg":"HS256","zip":"DEF"}"#, Err(E::Header)),
    (r#"{"alg":"HS256","enc":"A128GCM"}"#, Err(E::Header)),
    (r#"{"alg":"HS256","cty":"JWT"}"#, Err(E::Header)),
    (
        r#"{"alg":"HS256","jwk":{"kty":"oct","k":"AAAA"}}"#,
        Err(E::Header),
    ),
    (r#"{"alg":"HS256","jwk":null}"#, Err(E::Header)),
    (
        r#"{"alg":"HS256","jku":"https://evil.example/jwks.json"}"#,
        Err(E::Header),
    ),
    (
        r#"{"alg":"HS256","x5u":"https://evil.example/x.pem"}"#,
        Err(E::Header),
    ),
    (r#"{"alg":"HS256","typ":"JWE"}"#, Err(E::Header)),
    (r#"{"alg":"HS256","typ":"logout+jwt"}"#, Err(E::Header)),
    (r#"{"alg":"HS256","typ":"dpop+jwt"}"#, Err(E::Header)),
    (r#"{"alg":"HS256","typ":"secevent+jwt"}"#, Err(E::Header)),
    (r#"{"alg":"HS256","typ":1}"#, Err(E::Header)),
    (r#"{"alg":"HS256","typ":""}"#, Err(E::Header)),
    (r#"["HS256"]"#, Err(E::Header)),
    (r#""HS256""#, Err(E::Header)),
    (r#"null"#, Err(E::Header)),
    (r#"{"alg":"HS256""#, Err(E::Header)),
    (r#"{"alg":"HS256"}x"#, Err(E::Header)),
    (r#"{"alg":"HS256"}{}"#, Err(E::Header)),
    (r#"{'alg':'HS256'}"#, Err(E::Header)),
    (r#"{"alg":"HS256",}"#, Err(E::Header)),
    (r#"/**/{"alg":"HS256"}"#, Err(E::Header)),
    ("\u{feff}{\"alg\":\"HS256\"}", Err(E::Header)),
    (
        r#"{"alg":"HS256","a":[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]}"#,
        Err(E::Header),
    ),
];

/// Claims of tokens that are signed with the right secret, beside `iss` and `aud`, which are right.
const TIMES: &[(&str, Result<(), E>)] = &[
    (r#""exp":1800000060"#, Ok(())),
    (r#""exp":1800000060.9"#, Ok(())),
    (r#""exp":1.80000006e9"#, Ok(())),
    (r#""exp":9007199254740991"#, Ok(())),
    // The leeway is 30 seconds.
    (r#""exp":1799999971"#, Ok(())),
    (r#""exp":1799999970"#, Err(E::Expired)),
    (r#""exp":1799999970.999"#, Err(E::Expired)),
    (r#""exp":0"#, Err(E::Expired)),
    (r#""exp":-0"#, Err(E::Expired)),
    (r#""exp":1e-300"#, Err(E::Expired)),
    (r#""iat":1"#, Err(E::Claims)),
    (r#""exp":null"#, Err(E::Claims)),
    (r#""exp":true"#, Err(E::Claims)),
    (r#""exp":"1800000060""#, Err(E::Claims)),
    (r#""exp":"never""#, Err(E::Claims)),
    (r#""exp":[1800000060]"#, Err(E::Claims)),
    (r#""exp":{}"#, Err(E::Claims)),
    (r#""exp":-1"#, Err(E::Claims)),
    (r#""exp":-1800000060"#, Err(E::Claims)),
    (r#""exp":9007199254740993"#, Err(E::Claims)),
    (r#""exp":18446744073709551615"#, Err(E::Claims)),
    (r#""exp":18446744073709551616"#, Err(E::Claims)),
    (r#""exp":99999999999999999999999999999999"#, Err(E::Claims)),
    (r#""exp":1e308"#, Err(E::Claims)),
    (r#""exp":1e309"#, Err(E::Claims)),
    (r#""exp":-1e309"#, Err(E::Claims)),
    (r#""exp":NaN"#, Err(E::Claims)),
    (r#""exp":Infinity"#, Err(E::Claims)),
    (r#""exp":0x6B49D23C"#, Err(E::Claims)),
    (r#""exp":01800000060"#, Err(E::Claims)),
    (r#""exp":+1800000060"#, Err(E::Claims)),
    (r#""exp":1800000060,"exp":1800000060"#, Err(E::Claims)),
    (r#""exp":1,"exp":1800000060"#, Err(E::Claims)),
    (r#""exp":1800000060,"e\u0078p":1"#, Err(E::Claims)),
    (r#""Exp":1800000060"#, Err(E::Claims)),
    (r#""еxp":1800000060"#, Err(E::Claims)),
    (r#""exp ":1800000060"#, Err(E::Claims)),
    (r#""exp":1800000060,"nbf":1800000030"#, Ok(())),
    (r#""exp":1800000060,"nbf":1800000031"#, Err(E::NotYet)),
    (r#""exp":1800000060,"nbf":"1""#, Err(E::Claims)),
    (r#""exp":1800000060,"nbf":null"#, Err(E::Claims)),
    (r#""exp":1800000060,"nbf":-1"#, Err(E::Claims)),
    (r#""exp":1800000060,"nbf":1e300"#, Err(E::Claims)),
    (r#""exp":1800000060,"iat":1800000030"#, Ok(())),
    (r#""exp":1800000060,"iat":1800000031"#, Err(E::NotYet)),
    (r#""exp":1800000060,"iat":"1""#, Err(E::Claims)),
    (r#""exp":1800000060,"iat":0"#, Ok(())),
    (r#""exp":1800000060,"sub":"alice""#, Ok(())),
    (r#""exp":1800000060,"sub":1"#, Err(E::Claims)),
    (r#""exp":1800000060,"sub":["alice"]"#, Err(E::Claims)),
    (r#""exp":1800000060,"sub":null"#, Err(E::Claims)),
    (
        r#""exp":1800000060,"sub":"alice","sub":"root""#,
        Err(E::Claims),
    ),
    (r#""exp":1800000060,"jti":"a""#, Ok(())),
    (r#""exp":1800000060,"jti":1"#, Err(E::Claims)),
    (r#""exp":1800000060,"a":{"b":1,"b":1}"#, Err(E::Claims)),
    (
        r#""exp":1800000060,"a":[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]"#,
        Err(E::Claims),
    ),
    (r#""exp":1800000060,"a":"\ud800""#, Err(E::Claims)),
    (r#""exp":1800000060,"a":"\u0000""#, Ok(())),
    (r#""exp":1800000060,"a":1e999"#, Err(E::Claims)),
    (r#""exp":1800000060,"#, Err(E::Claims)),
];

/// Claims for whom, and from whom, beside `exp`.
const PARTIES: &[(&str, Result<(), E>)] = &[
    (r#""iss":"https://id.example/","aud":"api""#, Ok(())),
    (r#""iss":"https://id.example/","aud":"other""#, Ok(())),
    (r#""iss":"https://id.example/","aud":["api"]"#, Ok(())),
    (r#""iss":"https://id.example/","aud":["x","api"]"#, Ok(())),
    (r#""iss":"https://id.example/","aud":"\u0061pi""#, Ok(())),
    (r#""iss":"https://id.example/","aud":[]"#, Err(E::Audience)),
    (
        r#""iss":"https://id.example/","aud":["x"]"#,
        Err(E::Audience),
    ),
    (r#""iss":"https://id.example/","aud":"""#, Err(E::Audience)),
    (
        r#""iss":"https://id.example/","aud":"API""#,
        Err(E::Audience),
    ),
    (
        r#""iss":"https://id.example/","aud":"api ""#,
        Err(E::Audience),
    ),
    (
        r#""iss":"https://id.example/","aud":"api,x""#,
        Err(E::Audience),
    ),
    (
        r#""iss":"https://id.example/","aud":"аpi""#,
        Err(E::Audience),
    ),
    (
        r#""iss":"https://id.example/","aud":"api\u0000""#,
        Err(E::Audience),
    ),
    (r#""iss":"https://id.example/""#, Err(E::Audience)),
    (r#""iss":"https://id.example/","aud":null"#, Err(E::Claims)),
    (r#""iss":"https://id.example/","aud":true"#, Err(E::Claims)),
    (
        r#""iss":"https://id.example/","aud":{"api":1}"#,
        Err(E::Claims),
    ),
    (
        r#""iss":"https://id.example/","aud":["api",1]"#,
        Err(E::Claims),
    ),
    (
        r#""iss":"https://id.example/","aud":[["api"]]"#,
        Err(E::Claims),
    ),
    (
        r#""iss":"https://id.example/","aud":"api","aud":"x""#,
        Err(E::Claims),
    ),
    (r#""aud":"api""#, Err(E::Issuer)),
    (r#""iss":"","aud":"api""#, Err(E::Issuer)),
    (r#""iss":"https://id.example","aud":"api""#, Err(E::Issuer)),
    (
        r#""iss":"https://id.example//","aud":"api""#,
        Err(E::Issuer),
    ),
    (
        r#""iss":"https://id.example/.evil.example","aud":"api""#,
        Err(E::Issuer),
    ),
    (r#""iss":"HTTPS://id.example/","aud":"api""#, Err(E::Issuer)),
    (
        r#""iss":["https://id.example/"],"aud":"api""#,
        Err(E::Claims),
    ),
    (r#""iss":null,"aud":"api""#, Err(E::Claims)),
    (r#""iss":1,"aud":"api""#, Err(E::Claims)),
];

#[test]
fn headers_have_their_verdicts() {
    for (header, expected) in HEADERS {
        let found = verdict(&settings(), hs256(header, CLAIMS));
        assert_eq!(found, *expected, "{header}");
    }
    let long = format!(r#"{{"alg":"HS256","kid":"{}"}}"#, "k".repeat(257));
    assert_eq!(verdict(&settings(), hs256(&long, CLAIMS)), Err(E::Header));
}

#[test]
fn claims_have_their_verdicts() {
    let header = r#"{"alg":"HS256"}"#;
    for (claims, expected) in TIMES {
        let claims = format!(r#"{{"iss":"https://id.example/","aud":"api",{claims}}}"#);
        let found = verdict(&settings(), hs256(header, &claims));
        assert_eq!(found, *expected, "{claims}");
    }
    for (claims, expected) in PARTIES {
        let claims = format!(r#"{{"exp":1800000060,{claims}}}"#);
        let found = verdict(&settings(), hs256(header, &claims));
        assert_eq!(found, *expected, "{claims}");
    }
    for claims in [
        "[]",
        "null",
        "\"alice\"",
        "",
        " ",
        "1",
        CLAIMS.trim_end_matches('}'),
    ] {
        let found = verdict(&settings(), hs256(header, claims));
        assert!(matches!(found, Err(E::Claims | E::Form)), "{claims}");
    }
    // A token for somebody is not for a route that does not say who it is.
    let mut open = settings();
    open.audiences.clear();
    open.issuers.clear();
    assert_eq!(verdict(&open, hs256(header, CLAIMS)), Err(E::Audience));
    assert_eq!(
        verdict(&open, hs256(header, r#"{"exp":1800000060}"#)),
        Ok(())
    );
}

#[test]
fn tokens_in_other_forms_are_refused() {
    let valid = hs256(r#"{"alg":"HS256"}"#, CLAIMS);
    let parts: Vec<&str> = valid.split('.').collect();
    let [header, claims, signature] = parts.try_into().expect("three parts");
    let key = settings();
    assert_eq!(verdict(&key, &valid), Ok(()));
    let padded = |text: &str| URL_SAFE.encode(URL_SAFE_NO_PAD.decode(text).expect("it is base64"));
    let standard = STANDARD.encode(b"\xff\xfe\xfd");
    for (case, text) in [
        ("no signature", format!("{header}.{claims}.")),
        ("two parts", format!("{header}.{claims}")),
        ("one part", header.to_owned()),
        ("four parts", format!("{valid}.{signature}")),
        ("five parts", format!("{header}.{claims}.{signature}.a.b")),
        ("an empty header", format!(".{claims}.{signature}")),
        ("empty claims", format!("{header}..{signature}")),
        ("nothing", String::new()),
        ("dots", "..".to_owned()),
        ("a line end", format!("{valid}\n")),
        ("white space", format!("{header} .{claims}.{signature}")),
        ("a space behind", format!("{valid} ")),
        ("a tab", format!("{header}.\t{claims}.{signature}")),
        ("NUL", format!("{valid}\0")),
        ("a comma", format!("{valid},{valid}")),
        ("a quote", format!("\"{valid}\"")),
        ("an escape", valid.replacen('.', "%2E", 1)),
        (
            "padding of the header",
            format!("{header}=.{claims}.{signature}"),
        ),
        (
            "padding of the signature",
            format!("{header}.{claims}.{}", padded(signature)),
        ),
        (
            "the other alphabet",
            format!("{header}.{claims}.{standard}"),
        ),
        ("look-alikes", valid.replace('a', "а")),
        ("a full stop", valid.replacen('.', "．", 1)),
        (
            "JSON in place of the compact form",
            format!(r#"{{"payload":"{claims}"}}"#),
        ),
    ] {
        assert_eq!(verdict(&key, &text), Err(E::Form), "{case}");
    }
}

#[test]
fn other_signatures_are_refused() {
    let valid = hs256(r#"{"alg":"HS256"}"#, CLAIMS);
    let parts: Vec<&str> = valid.split('.').collect();
    let [header, claims, signature] = parts.try_into().expect("three parts");
    let key = settings();
    let large = format!("{valid}{}", "A".repeat(TOKEN_BYTES_MAX));
    assert_eq!(verdict(&key, large), Err(E::Form));
    assert_eq!(verdict(&key, b"\xff\xff.\xff.\xff"), Err(E::Form));
    let wrong = |error| move |found: Result<(), E>| matches!(found, Err(found) if found == error || found == E::Form);
    let is_wrong = wrong(E::Signature);
    for length in 1..signature.len() {
        let text = format!("{header}.{claims}.{}", &signature[..length]);
        assert!(is_wrong(verdict(&key, text)), "a signature of {length}");
    }
    // Each changed character of the message or the signature is noticed; bits behind the last byte are refused.
    for at in (0..valid.len()).filter(|at| valid.as_bytes()[*at] != b'.') {
        let mut changed = valid.clone().into_bytes();
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        assert!(verdict(&key, &changed).is_err(), "at {at}");
    }
    let of_others = token(
        r#"{"alg":"HS256"}"#,
        CLAIMS,
        hmac_with(hmac::HMAC_SHA256, b"another"),
    );
    assert_eq!(verdict(&key, of_others), Err(E::Signature));
    let of_none = token(
        r#"{"alg":"HS256"}"#,
        CLAIMS,
        hmac_with(hmac::HMAC_SHA256, b""),
    );
    assert_eq!(verdict(&key, of_none), Err(E::Signature));
    let longer = token(
        r#"{"alg":"HS256"}"#,
        CLAIMS,
        hmac_with(hmac::HMAC_SHA512, SECRET),
    );
    assert_eq!(verdict(&key, longer), Err(E::Signature));
    let binary = format!("{}.{}.{}", encode(b"{\"alg\":\"\xff\"}"), claims, signature);
    assert_eq!(verdict(&key, binary), Err(E::Header));
}

/// Key pairs, and the set of their public keys.
struct Issuer {
    rsa: RsaKeyPair,
    p256: EcdsaKeyPair,
    ed25519: Ed25519KeyPair,
    set: String,
}

/// A key of 2,048 bits in DER: two headers and a zero, the modulus, the exponent.
fn modulus(key: &RsaKeyPair) -> &[u8] {
    &key.public_key().as_ref()[9..265]
}

impl Issuer {
    fn new() -> Issuer {
        let rsa = RsaKeyPair::generate(KeySize::Rsa2048).expect("a key");
        let p256 = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key");
        let ed25519 = Ed25519KeyPair::generate().expect("a key");
        let point = p256.public_key().as_ref();
        let set = format!(
            r#"{{"keys":[
                {{"kty":"RSA","kid":"r","use":"sig","n":"{}","e":"{}"}},
                {{"kty":"EC","kid":"e","crv":"P-256","x":"{}","y":"{}"}},
                {{"kty":"OKP","kid":"d","crv":"Ed25519","x":"{}"}}
            ]}}"#,
            encode(modulus(&rsa)),
            encode([1, 0, 1]),
            encode(&point[1..33]),
            encode(&point[33..]),
            encode(ed25519.public_key()),
        );
        Issuer {
            rsa,
            p256,
            ed25519,
            set,
        }
    }

    fn settings(&self, algorithms: &[Algorithm]) -> JwtSettings {
        let (keys, notes) = key_set(self.set.as_bytes(), algorithms).expect("a key set");
        assert_eq!(notes.len(), 3 - keys.len());
        JwtSettings { keys, ..settings() }
    }

    fn sign_rsa(
        &self,
        encoding: &'static dyn signature::RsaEncoding,
    ) -> impl FnOnce(&[u8]) -> Vec<u8> + use<'_> {
        move |message| {
            let mut signature = vec![0; self.rsa.public_modulus_len()];
            let signed = self
                .rsa
                .sign(encoding, &SystemRandom::new(), message, &mut signature);
            signed.expect("it is signed");
            signature
        }
    }

    fn sign_p256(&self) -> impl FnOnce(&[u8]) -> Vec<u8> + use<'_> {
        |message| {
            let signature = self.p256.sign(&SystemRandom::new(), message);
            signature.expect("it is signed").as_ref().to_vec()
        }
    }

    fn sign_ed25519(&self) -> impl FnOnce(&[u8]) -> Vec<u8> + use<'_> {
        |message| self.ed25519.sign(message).as_ref().to_vec()
    }
}

fn header(alg: &str, kid: &str) -> String {
    match kid {
        "" => format!(r#"{{"alg":"{alg}"}}"#),
        kid => format!(r#"{{"alg":"{alg}","kid":"{kid}"}}"#),
    }
}

impl Issuer {
    fn rs256(&self, kid: &str) -> String {
        let sign = self.sign_rsa(&signature::RSA_PKCS1_SHA256);
        token(&header("RS256", kid), CLAIMS, sign)
    }

    fn es256(&self, kid: &str) -> String {
        token(&header("ES256", kid), CLAIMS, self.sign_p256())
    }

    fn eddsa(&self, alg: &str, kid: &str) -> String {
        token(&header(alg, kid), CLAIMS, self.sign_ed25519())
    }
}

#[test]
fn a_key_has_its_algorithm() {
    let issuer = &Issuer::new();
    let all = issuer.settings(&[]);
    let ps256 = issuer.sign_rsa(&signature::RSA_PSS_SHA256);
    let ps256 = token(&header("PS256", "r"), CLAIMS, ps256);
    let rs512 = issuer.sign_rsa(&signature::RSA_PKCS1_SHA512);
    let rs512 = token(&header("RS512", "r"), CLAIMS, rs512);
    for (case, text, expected) in [
        ("RSA", issuer.rs256("r"), Ok(())),
        ("RSA without kid", issuer.rs256(""), Ok(())),
        ("EC", issuer.es256("e"), Ok(())),
        ("EC without kid", issuer.es256(""), Ok(())),
        ("Ed25519", issuer.eddsa("EdDSA", "d"), Ok(())),
        ("Ed25519, named", issuer.eddsa("Ed25519", "d"), Ok(())),
        ("an unknown kid", issuer.rs256("x"), Err(E::Key)),
        ("another case", issuer.rs256("R"), Err(E::Key)),
        ("RSA with EC", issuer.rs256("e"), Err(E::Key)),
        ("EC with RSA", issuer.es256("r"), Err(E::Key)),
        ("EdDSA as EC", issuer.eddsa("ES256", "e"), Err(E::Signature)),
        ("another hash", rs512, Err(E::Key)),
        ("another padding", ps256.clone(), Err(E::Key)),
    ] {
        assert_eq!(verdict(&all, text), expected, "{case}");
    }
    let chosen = issuer.settings(&[Algorithm::Ps256, Algorithm::Es256]);
    assert_eq!(verdict(&chosen, ps256), Ok(()));
    assert_eq!(verdict(&chosen, issuer.es256("e")), Ok(()));
    assert_eq!(verdict(&chosen, issuer.rs256("r")), Err(E::Key));
    assert_eq!(verdict(&chosen, issuer.eddsa("EdDSA", "d")), Err(E::Key));
}

#[test]
fn public_keys_are_no_secrets() {
    let issuer = &Issuer::new();
    let all = issuer.settings(&[]);
    let public = issuer.set.as_bytes();
    let point = issuer.p256.public_key().as_ref();
    for secret in [public, modulus(&issuer.rsa), point, &point[1..33], b""] {
        for kid in ["r", "e", "d", "x", ""] {
            let text = token(
                &header("HS256", kid),
                CLAIMS,
                hmac_with(hmac::HMAC_SHA256, secret),
            );
            assert_eq!(verdict(&all, text), Err(E::Key), "{kid}");
        }
    }
    // Signatures that some verifiers took for those of every message (CVE-2022-21449).
    for (alg, kid, forged) in [
        ("ES256", "e", vec![0; 64]),
        ("ES256", "e", vec![0xff; 64]),
        ("ES256", "e", vec![0x30, 6, 2, 1, 1, 2, 1, 1]),
        ("ES256", "e", vec![0]),
        ("RS256", "r", vec![0; 256]),
        ("RS256", "r", vec![1]),
        ("EdDSA", "d", vec![0; 64]),
        ("EdDSA", "d", vec![0; 63]),
    ] {
        let text = token(&header(alg, kid), CLAIMS, |_| forged);
        assert_eq!(verdict(&all, text), Err(E::Signature), "{alg}");
    }
}

#[test]
fn scopes_are_demanded() {
    for (claims, scopes, expected) in [
        (r#""scope":"read write""#, &["read", "write"][..], Ok(())),
        (r#""scope":"read""#, &["read", "write"], Err(E::Scope)),
        (r#""scope":"reads""#, &["read"], Err(E::Scope)),
        (r#""scope":["read"]"#, &["read"], Ok(())),
        (r#""scp":["read"]"#, &["read"], Ok(())),
        (r#""scope":{"read":1}"#, &["read"], Err(E::Scope)),
        (r#""a":1"#, &["read"], Err(E::Scope)),
    ] {
        let settings = JwtSettings {
            scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
            ..settings()
        };
        assert_eq!(verdict_of(&settings, claims), expected, "{claims}");
    }
}

/// That of a token with further claims.
fn verdict_of(settings: &JwtSettings, claims: &str) -> Result<(), E> {
    let claims =
        format!(r#"{{"iss":"https://id.example/","aud":"api","exp":1800000060,{claims}}}"#);
    verdict(settings, hs256(r#"{"alg":"HS256"}"#, &claims))
}

#[test]
fn claims_are_demanded() {
    for (claims, name, texts, expected) in [
        (r#""role":"admin""#, "role", &["admin"][..], Ok(())),
        (r#""role":"Admin""#, "role", &["admin"], Err(E::Scope)),
        (r#""role":["x","admin"]"#, "role", &["admin"], Ok(())),
        (r#""role":true"#, "role", &["true"], Ok(())),
        (
            r#""id":9007199254740993"#,
            "id",
            &["9007199254740993"],
            Ok(()),
        ),
        (
            r#""id":18446744073709551616"#,
            "id",
            &["18446744073709552000", "1.8446744073709552e19"],
            Err(E::Scope),
        ),
        (r#""role":null"#, "role", &[], Err(E::Scope)),
        (r#""role":{}"#, "role", &[], Ok(())),
        (r#""a":1"#, "role", &[], Err(E::Scope)),
        (r#""r":{"roles":["a"]}"#, "/r/roles", &["a"], Ok(())),
        (r#""r":{"roles":["b"]}"#, "/r/roles", &["a"], Err(E::Scope)),
        (r#""a/b":"x""#, "/a~1b", &["x"], Ok(())),
    ] {
        let demand = match texts {
            [] => ClaimDemand::Present,
            texts => ClaimDemand::OneOf(texts.iter().map(|text| (*text).to_owned()).collect()),
        };
        let settings = JwtSettings {
            require: vec![(Claim(name.to_owned()), demand)],
            ..settings()
        };
        assert_eq!(verdict_of(&settings, claims), expected, "{claims}");
    }
}

#[test]
fn values_of_fields_keep_their_meaning() {
    for (text, expected) in [
        (r#""alice""#, Some("alice")),
        (r#""Jörg""#, Some("Jörg")),
        (r#"["a","b"]"#, Some("a,b")),
        ("7", Some("7")),
        ("-7", Some("-7")),
        ("1.5", Some("1.5")),
        ("9007199254740993", Some("9007199254740993")),
        ("18446744073709551615", Some("18446744073709551615")),
        ("-9223372036854775808", Some("-9223372036854775808")),
        // As floating-point numbers these would be others.
        ("18446744073709551617", None),
        ("-9223372036854775809", None),
        ("9007199254740993.0", None),
        ("1e19", None),
        ("[1,18446744073709551617]", None),
        ("true", Some("true")),
        (r#""""#, None),
        (r#"" admin""#, None),
        (r#""admin ""#, None),
        (r#""a\r\nX-Admin: 1""#, None),
        (r#""a\u0000""#, None),
        (r#""a\u0085b""#, None),
        (r#"["a,b"]"#, None),
        (r#"["a",""]"#, None),
        (r#"["a",["b"]]"#, None),
        ("[]", None),
        ("null", None),
        ("{}", None),
    ] {
        let value: Value = serde_json::from_str(text).expect("it is JSON");
        assert_eq!(field_value(&value).as_deref(), expected, "{text}");
    }
}

#[test]
fn a_second_scheme_is_no_token() {
    let policy = Jwt::new(settings());
    let refused = |text: &str| {
        let mut head = RequestHead::new(Method::Get, "/");
        head.fields.append("authorization", text);
        let request = PolicyRequest {
            head: &head,
            client: crate::client::ClientAddress::Unix,
            certificate: None,
            clock: None,
            limits: None,
            authorizer: None,
        };
        policy.prove(&request).err()
    };
    let good = hs256(r#"{"alg":"HS256"}"#, CLAIMS);
    assert_eq!(refused(&format!("Bearer {good}")), None);
    assert_eq!(
        refused(&format!("Bearer {good},")),
        Some(Rejection::InvalidToken)
    );
    for line in [
        format!("Bearer {good}, Basic YTpi"),
        format!("Basic YTpi, Bearer {good}"),
    ] {
        assert_eq!(refused(&line), Some(Rejection::SeveralTokens), "{line}");
    }
}

#[test]
fn all_claims_are_told_as_they_are_written() {
    let policy = Jwt::new(JwtSettings {
        keeps_all: true,
        ..settings()
    });
    let claims =
        r#"{"iss":"https://id.example/","aud":"api","exp":1800000060,"id":18446744073709551617}"#;
    let token = hs256(r#"{"alg":"HS256"}"#, claims);
    let keys = &policy.settings.keys;
    let facts = policy.verify(keys, (0, 0), token.as_bytes(), None).unwrap();
    assert_eq!(facts.payload.as_deref(), Some(claims));
    assert!(facts.claims.iter().all(|(name, _)| &**name != "id"));
}

#[test]
fn several_tokens_are_refused() {
    let all = Jwt::new(JwtSettings {
        sources: vec![
            TokenSource::Authorization,
            TokenSource::Cookie("t".to_owned()),
            TokenSource::Query("t".to_owned()),
        ],
        ..JwtSettings::default()
    });
    for (target, fields, expected) in [
        ("/", &[][..], ""),
        ("/", &[("authorization", "Bearer a")], "a"),
        ("/", &[("authorization", "bEARER  a ")], "a"),
        ("/", &[("authorization", "Bearer")], "-"),
        ("/", &[("authorization", "Bearera")], ""),
        ("/", &[("authorization", "Basic YTpi")], ""),
        ("/", &[("authorization", "Basic YTpi, Bearer a")], "several"),
        ("/", &[("authorization", "Digest a=\"b\", c=d")], ""),
        (
            "/",
            &[("authorization", "Bearer a"), ("authorization", "Bearer a")],
            "several",
        ),
        (
            "/",
            &[("authorization", "Basic a"), ("authorization", "Bearer a")],
            "several",
        ),
        ("/", &[("cookie", "a=b; t=x")], "x"),
        ("/", &[("cookie", "tt=x; xt=y")], ""),
        ("/", &[("cookie", "tt=x; T=y")], "several"),
        ("/", &[("cookie", "t=x; t=y")], "several"),
        ("/", &[("cookie", "t=x"), ("cookie", "t=y")], "several"),
        ("/?t=x", &[], "x"),
        ("/?t=x&t=y", &[], "several"),
        ("/?tt=x&xt=y", &[], ""),
        ("/?tt=x&T=y", &[], "several"),
        ("/?t=x", &[("authorization", "Bearer a")], "several"),
        ("/?t=x", &[("cookie", "t=x")], "several"),
    ] {
        let mut head = RequestHead::new(Method::Get, target);
        for (name, value) in fields {
            head.fields.append(*name, value);
        }
        let found = match all.find(&head) {
            Found::None => "",
            Found::One(b"") => "-",
            Found::One(token) => str::from_utf8(token).expect("it is text"),
            Found::Several => "several",
        };
        assert_eq!(found, expected, "{target} {fields:?}");
    }
}
