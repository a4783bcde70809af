//! `jwt`: a table with keys, and demands on tokens.

use std::sync::Arc;
use std::time::Duration;

use toml::Spanned;
use toml::de::DeValue;

use super::super::template::is_token;
use super::super::value::StringValue;
use super::super::{Entry, Reader, entries};
use crate::keys::Scope;
use crate::policy::{ClaimDemand, Jwt, JwtKeys, KeysUrl, Secret, TokenSource};
use crate::span::{Placed, Span};
use crate::units::{self, ValueError};

const EXAMPLE: &str = "write for example { keys_file = \"jwks.json\", audience = \"api\" }";
const SOURCE: &str = "\"header\", \"cookie:NAME\" or \"query:NAME\"";

const AUTHORITIES: &str = "\"/etc/blitz/id.pem\"";

const LEEWAY: Duration = Duration::from_secs(30);

/// The most that a leeway may be: it lengthens the life of every token.
const LEEWAY_MAX: Duration = Duration::from_secs(600);

const ALGORITHMS: [&str; 12] = [
    "HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256",
    "ES384", "EdDSA",
];

/// Claims that tell who the client is: registered ones (RFC 7519, OpenID Connect, RFC 9068), and those of common issuers.
const CLAIMS: [&str; 24] = [
    "iss",
    "sub",
    "aud",
    "jti",
    "azp",
    "sid",
    "acr",
    "amr",
    "name",
    "given_name",
    "family_name",
    "nickname",
    "preferred_username",
    "email",
    "email_verified",
    "phone_number",
    "locale",
    "scope",
    "scp",
    "roles",
    "role",
    "groups",
    "client_id",
    "tenant",
];

impl Reader<'_> {
    pub(super) fn jwt(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Arc<Placed<Jwt>>> {
        let before = self.diagnostics.len();
        let DeValue::Table(table) = value.get_ref() else {
            self.wrong_type(value.span(), value.get_ref(), "a table", EXAMPLE);
            return None;
        };
        let (mut keys, mut demands) = (None, None);
        let all = entries(table);
        for entry in &all {
            let Some(entry) = self.known(Scope::Jwt, entry) else {
                continue;
            };
            match entry.name {
                "secret" | "secret_file" | "keys_file" | "keys_url" => {
                    self.jwt_keys(&entry, &mut keys);
                }
                _ => self.jwt_demand(&entry, demands.get_or_insert_with(no_demands)),
            }
        }
        if self.diagnostics.len() != before {
            return None;
        }
        let Some((_, keys)) = keys else {
            let message = "the keys of the tokens are missing";
            let label = "add `keys_url`, `keys_file`, `secret_file` or `secret`";
            self.error("jwt-keys", value.span(), message, label);
            return None;
        };
        let mut jwt = demands.unwrap_or_else(no_demands);
        jwt.keys = keys;
        self.check_keys_url(&jwt, value.span());
        if jwt.sources.is_empty() {
            jwt.sources.push(TokenSource::Header);
        }
        if self.diagnostics.len() != before {
            return None;
        }
        for entry in all.iter().filter(|entry| entry.name == "forward") {
            self.warn_of_swapped(entry.value);
        }
        Some(Arc::new(Placed::new(jwt, value.span())))
    }

    fn jwt_keys(&mut self, entry: &Entry<'_, '_>, keys: &mut Option<(&'static str, JwtKeys)>) {
        let value = entry.value;
        let read = match entry.name {
            "secret" => self.text(value, "\"${JWT_SECRET}\"").map(|text| {
                (
                    "secret",
                    JwtKeys::Secret(Placed::new(Secret(text.value), text.span)),
                )
            }),
            "secret_file" => self
                .file(value, "\"jwt.secret\"")
                .map(|file| ("secret_file", JwtKeys::SecretFile(file))),
            "keys_url" => self
                .text(value, "\"https://id.example/jwks.json\"")
                .and_then(|text| {
                    let url = self.parsed(&text, KeysUrl::parse)?;
                    Some(("keys_url", JwtKeys::KeysUrl(Placed::new(url, text.span))))
                }),
            _ => self
                .file(value, "\"jwks.json\"")
                .map(|file| ("keys_file", JwtKeys::KeysFile(file))),
        };
        match (&keys, read) {
            (None, read) => *keys = read,
            (Some((first, _)), Some((second, _))) => self.error(
                "jwt-keys",
                entry.key(),
                format!("`{first}` and `{second}` contradict each other"),
                "keep one of them; a key set may have several keys",
            ),
            (Some(_), None) => {}
        }
    }

    /// With a secret of a public set everybody could sign tokens. Authorities are for a server with a certificate.
    fn check_keys_url(&mut self, jwt: &Jwt, place: Span) {
        let is_symmetric = |name: &&&str| name.starts_with("HS");
        let is_tls = matches!(&jwt.keys, JwtKeys::KeysUrl(url) if url.value.is_tls);
        if let (false, Some(ca)) = (is_tls, &jwt.keys_ca) {
            let message =
                "`keys_ca` is for the certificate of a server, and the keys come from none";
            let label = "leave it out, or write a `keys_url` with https://";
            self.error("jwt-keys", ca.span.clone(), message, label);
        }
        let JwtKeys::KeysUrl(_) = &jwt.keys else {
            return;
        };
        if let Some(name) = jwt.algorithms.iter().find(is_symmetric) {
            let message = format!("`{name}` takes a secret, and a URL has public keys only");
            let label = "leave it out, or write `secret_file`";
            self.error("jwt-keys", place, message, label);
        }
    }

    fn jwt_demand(&mut self, entry: &Entry<'_, '_>, jwt: &mut Jwt) {
        let value = entry.value;
        let plain = |texts: Vec<StringValue>| texts.into_iter().map(|text| text.value).collect();
        match entry.name {
            "keys_ca" => jwt.keys_ca = self.file(value, AUTHORITIES),
            "algorithms" => {
                for text in self.one_or_more(value, "\"RS256\"") {
                    jwt.algorithms.extend(self.parsed(&text, algorithm));
                }
            }
            "issuer" => jwt.issuers = plain(self.one_or_more(value, "\"https://id.example/\"")),
            "audience" => jwt.audiences = plain(self.one_or_more(value, "\"api\"")),
            "scopes" => {
                for text in self.one_or_more(value, "\"orders:read\"") {
                    jwt.scopes.extend(self.parsed(&text, scope));
                }
            }
            "from" => {
                for text in self.one_or_more(value, SOURCE) {
                    jwt.sources.extend(self.parsed(&text, source));
                }
            }
            "require" => self.claim_demands(value, jwt),
            "forward" => self.claim_fields(value, jwt),
            "optional" => jwt.is_optional = self.boolean(value).unwrap_or_default(),
            _ => jwt.leeway = self.leeway(value).unwrap_or(LEEWAY),
        }
    }

    /// A text, or a list of texts, which is not empty.
    pub(super) fn one_or_more(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        example: &str,
    ) -> Vec<StringValue> {
        match value.get_ref() {
            DeValue::String(_) => self.text(value, example).into_iter().collect(),
            DeValue::Array(list) if list.is_empty() => {
                let message = "the list is empty";
                self.error("jwt", value.span(), message, format!("write {example}"));
                Vec::new()
            }
            _ => self.texts(value, example),
        }
    }

    fn claim_demands(&mut self, value: &Spanned<DeValue<'_>>, jwt: &mut Jwt) {
        let DeValue::Table(table) = value.get_ref() else {
            let label = "write for example { role = \"admin\" }";
            return self.wrong_type(value.span(), value.get_ref(), "a table", label);
        };
        for entry in entries(table) {
            let demand = match entry.value.get_ref() {
                DeValue::Boolean(true) => ClaimDemand::Present,
                DeValue::Boolean(false) => {
                    let message = "a claim cannot be forbidden";
                    let label = "write true for any value, or \"false\" for the value false";
                    self.error("jwt", entry.value.span(), message, label);
                    continue;
                }
                _ => {
                    let texts = self.one_or_more(entry.value, "\"admin\"");
                    ClaimDemand::OneOf(texts.into_iter().map(|text| text.value).collect())
                }
            };
            jwt.require.push((entry.name.to_owned(), demand));
        }
    }

    fn claim_fields(&mut self, value: &Spanned<DeValue<'_>>, jwt: &mut Jwt) {
        let DeValue::Table(table) = value.get_ref() else {
            let label = "write for example { X-User = \"sub\" }";
            return self.wrong_type(value.span(), value.get_ref(), "a table", label);
        };
        for entry in entries(table) {
            let Some(name) = self.field_name(&entry, Some("host")) else {
                continue;
            };
            // Other spellings of it are removed from requests, and would be these.
            let spelled = |name: &str| name.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
            let mut known = jwt.forward.iter();
            if known.any(|(known, _)| spelled(known) == spelled(&name)) {
                let message = format!("the field `{}` is defined twice", entry.name);
                let label = "applications take these spellings for one; keep one of them";
                self.error("defined-twice", entry.key(), message, label);
                continue;
            }
            let claim = self.text(entry.value, "\"sub\"");
            jwt.forward.extend(claim.map(|claim| (name, claim.value)));
        }
    }

    /// A field with the name of a claim, and the reverse, is valid. But the field that is meant stays the client's.
    fn warn_of_swapped(&mut self, value: &Spanned<DeValue<'_>>) {
        let DeValue::Table(table) = value.get_ref() else {
            return;
        };
        for entry in entries(table) {
            let DeValue::String(claim) = entry.value.get_ref() else {
                continue;
            };
            let name = entry.name.to_ascii_lowercase();
            if CLAIMS.contains(&&*name) && is_like_field(claim) {
                let field = entry.name;
                let message = format!(
                    "the field `{field}` gets the claim `{claim}`, and clients can send the field `{claim}`"
                );
                let label =
                    format!("the name of the field comes first: write {claim} = \"{name}\"");
                self.warning("swapped", entry.key(), message, label);
            }
        }
    }

    fn leeway(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Duration> {
        self.unit_value(
            value,
            "duration",
            "\"30s\"",
            |text| match units::parse_duration(text)? {
                time if time.subsec_nanos() == 0 && time <= LEEWAY_MAX => Ok(time),
                _ => Err(ValueError::new(
                    "duration",
                    "a leeway is in whole seconds, and at most 10 minutes",
                    "write for example \"30s\"",
                )),
            },
        )
    }
}

/// Whether a claim has the name of a field with an identity: hardly any claim has one.
fn is_like_field(claim: &str) -> bool {
    let lower = claim.to_ascii_lowercase();
    let has_capital = claim.contains(|letter: char| letter.is_ascii_uppercase());
    lower.starts_with("x-") || lower.starts_with("remote-") || has_capital && claim.contains('-')
}

fn no_demands() -> Jwt {
    Jwt {
        keys: JwtKeys::SecretFile(Placed::new(String::new(), 0..0)),
        keys_ca: None,
        algorithms: Vec::new(),
        issuers: Vec::new(),
        audiences: Vec::new(),
        require: Vec::new(),
        scopes: Vec::new(),
        forward: Vec::new(),
        sources: Vec::new(),
        leeway: LEEWAY,
        is_optional: false,
        also: Vec::new(),
    }
}

fn algorithm(text: &str) -> Result<&'static str, ValueError> {
    let known = ALGORITHMS.iter().find(|known| **known == text);
    known.copied().ok_or_else(|| {
        let similar = ALGORITHMS
            .iter()
            .find(|known| known.eq_ignore_ascii_case(text));
        ValueError::new(
            "algorithm",
            format!("`{text}` is no algorithm of signatures that is supported"),
            match similar {
                Some(similar) => format!("write \"{similar}\""),
                None => format!("write one of {}", ALGORITHMS.join(", ")),
            },
        )
    })
}

/// RFC 6749, section 3.3.
fn scope(text: &str) -> Result<String, ValueError> {
    let is_scope_byte = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
    match !text.is_empty() && text.bytes().all(is_scope_byte) {
        true => Ok(text.to_owned()),
        false => Err(ValueError::new(
            "scope",
            format!("`{text}` is no scope"),
            "write one scope in each text, such as [\"orders:read\", \"orders:write\"]",
        )),
    }
}

fn source(text: &str) -> Result<TokenSource, ValueError> {
    let named = text.split_once(':').filter(|(_, name)| is_token(name));
    match (text, named) {
        ("header", _) => Ok(TokenSource::Header),
        (_, Some(("cookie", name))) => Ok(TokenSource::Cookie(name.to_owned())),
        (_, Some(("query", name))) => Ok(TokenSource::Query(name.to_owned())),
        _ => Err(ValueError::new(
            "jwt",
            format!("`{text}` is no place of a token"),
            format!("write {SOURCE}"),
        )),
    }
}
