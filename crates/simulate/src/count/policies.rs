//! Requests for a route with policies: tokens, a limit, and fields for scripts of other origins.

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// The policies of a counted request's route.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RoutePolicies {
    /// None, but requests have the same fields.
    None,
    /// A token that the core knows, a limit and CORS.
    Known,
    /// A token that is another one in each request.
    Fresh,
}

const SECRET: &str = "the secret of counts, of 32 bytes or more";

/// The file with the key of [`TOKEN`].
pub(super) const KEYS: &str = r#"{"keys":[{"kty":"EC","crv":"P-256","kid":"one",
    "x":"HdNmdiYu8GGsdtioWoSdjPbeb1lTveO7nO4TAyB8T6I","y":"89kRcn6-OO4T8IHDgQDtsslUNKMACO1ONcFu3bO2HRY"}]}"#;

/// Signed with ES256 by a key that nobody has any more, and valid until the year 2100.
const TOKEN: &str = "eyJhbGciOiJFUzI1NiIsImtpZCI6Im9uZSJ9.eyJpc3MiOiJodHRwczovL2lkLmV4YW1wbGUvIiwiYXVkIjoiYXBpIiwic3ViIjo\
                     iYWxpY2UiLCJleHAiOjQxMDI0NDQ4MDB9.C1jDrr31MfZvLYBh3nVntBByrQPco4YMIaD0Z0SneMUm03uJXoHnPc8Pgko51i6K5z\
                     qTg8RRNenA9knxzlAUTA";

const CLAIMS: &str = r#"{"iss":"https://id.example/","aud":"api","sub":"alice","exp":4102444800}"#;

impl RoutePolicies {
    /// The site of the clients, beside the keys that a site needs.
    pub(super) fn site(self, target: &str) -> String {
        let demands =
            r#"issuer = "https://id.example/", audience = "api", forward = { X-User = "sub" }"#;
        let policies = match self {
            RoutePolicies::None => String::new(),
            RoutePolicies::Known => format!(
                "jwt = {{ keys_file = \"jwks.json\", {demands} }}\nrate_limit = \"1000000/s\"\n\
                 cors = [\"https://app.example\"]\n"
            ),
            RoutePolicies::Fresh => format!("jwt = {{ secret = \"{SECRET}\", {demands} }}\n"),
        };
        format!("[site.\"gateway\"]\nto = \"{target}\"\n{policies}")
    }

    /// The fields of the request with this number.
    pub(super) fn fields(self, number: usize) -> String {
        let token = match self {
            RoutePolicies::None | RoutePolicies::Known => TOKEN.to_owned(),
            RoutePolicies::Fresh => fresh_token(number),
        };
        format!("origin: https://app.example\r\nauthorization: Bearer {token}\r\n")
    }
}

/// The claims of [`TOKEN`] with a number, signed with HS256.
fn fresh_token(number: usize) -> String {
    let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let claims = CLAIMS.replace("}", &format!(",\"jti\":\"{number:08}\"}}"));
    let message = format!("{}.{}", encode(r#"{"alg":"HS256"}"#), encode(&claims));
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    let signature = hmac::sign(&key, message.as_bytes());
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
}
