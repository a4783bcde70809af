//! `cors`: a list of origins, or a table.

use std::sync::Arc;
use std::time::Duration;

use toml::Spanned;
use toml::de::DeValue;

use super::super::value::StringValue;
use super::super::{Reader, entries};
use crate::keys::{self, Scope};
use crate::policy::{Cors, CorsOrigin};
use crate::span::Placed;
use crate::units::ValueError;

const ORIGIN: &str = "\"https://app.example\"";

/// Until then browsers remember the response to a preflight, if nothing else is written. Chromium takes two hours at most.
const MAX_AGE: Duration = Duration::from_secs(3600);

impl Reader<'_> {
    pub(super) fn cors(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Arc<Placed<Cors>>> {
        let before = self.diagnostics.len();
        let mut cors = Cors {
            origins: Vec::new(),
            methods: None,
            headers: None,
            expose: Vec::new(),
            credentials: false,
            max_age: MAX_AGE,
        };
        let mut origins = None;
        let mut credentials = None;
        match value.get_ref() {
            DeValue::Table(table) => {
                for entry in entries(table) {
                    let Some(entry) = self.known(Scope::Cors, &entry) else {
                        continue;
                    };
                    let value = entry.value;
                    match entry.name {
                        "origins" => origins = Some(self.origins(value)),
                        "methods" => {
                            let texts = self.texts(value, "\"PUT\"");
                            cors.methods = self.tokens(&texts, false);
                        }
                        "headers" => {
                            let texts = self.texts(value, "\"Content-Type\"");
                            cors.headers = self.tokens(&texts, true);
                        }
                        "expose" => {
                            let texts = self.texts(value, "\"ETag\"");
                            cors.expose = self.tokens(&texts, true).unwrap_or_default();
                        }
                        "credentials" => {
                            cors.credentials = self.boolean(value).unwrap_or_default();
                            credentials = Some(value.span());
                        }
                        name => {
                            let key = keys::find(Scope::Cors, name);
                            let time = key.and_then(|key| self.time(value, key));
                            cors.max_age = time.unwrap_or(MAX_AGE);
                        }
                    }
                }
            }
            _ => origins = Some(self.origins(value)),
        }
        let Some(origins) = origins else {
            let label = format!("write for example {{ origins = [{ORIGIN}] }}");
            self.error("cors", value.span(), "`origins` is missing", label);
            return None;
        };
        cors.origins = origins;
        if let (true, Some(span)) = (cors.credentials, credentials)
            && cors.origins.contains(&CorsOrigin::Any)
        {
            let message = "any site could use the credentials of its visitors here";
            let label = "name the origins in place of \"*\", or leave `credentials` out";
            self.error("cors", span, message, label);
        }
        (self.diagnostics.len() == before).then(|| Arc::new(Placed::new(cors, value.span())))
    }

    fn origins(&mut self, value: &Spanned<DeValue<'_>>) -> Vec<CorsOrigin> {
        let mut origins = Vec::new();
        for text in self.texts(value, ORIGIN) {
            origins.extend(self.parsed(&text, origin));
        }
        origins
    }

    /// Names of methods, which are case-sensitive, or of fields.
    fn tokens(&mut self, texts: &[StringValue], are_fields: bool) -> Option<Vec<String>> {
        let mut tokens = Vec::new();
        for text in texts {
            let token = self.parsed(text, |text| match is_token(text) {
                true => Ok(text.to_owned()),
                false => Err(ValueError::new(
                    "cors",
                    format!("`{text}` is no name"),
                    "write one name in each text",
                )),
            })?;
            tokens.push(match are_fields {
                true => token.to_ascii_lowercase(),
                false => token,
            });
        }
        Some(tokens)
    }
}

/// RFC 9110, section 5.6.2.
fn is_token(text: &str) -> bool {
    let is_token_byte =
        |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text != "*" && text.bytes().all(is_token_byte)
}

fn origin(text: &str) -> Result<CorsOrigin, ValueError> {
    if text == "*" {
        return Ok(CorsOrigin::Any);
    }
    let error = |problem: String, remedy: String| Err(ValueError::new("origin", problem, remedy));
    if text == "null" {
        return error(
            "pages without an origin have this one, so any site can use it".to_owned(),
            "name the origins, or write \"*\"".to_owned(),
        );
    }
    let lower = text.to_ascii_lowercase();
    let Some((scheme, host)) = lower.split_once("://") else {
        return error(
            format!("`{text}` is no origin: it has no scheme"),
            format!("write \"https://{text}\""),
        );
    };
    if host.contains(['/', '?', '#', '@']) {
        let host = host.split(['/', '?', '#']).next().unwrap_or_default();
        return error(
            "an origin has a scheme, a host and perhaps a port only".to_owned(),
            format!("write \"{scheme}://{host}\""),
        );
    }
    let default = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => "",
    };
    if !default.is_empty()
        && let Some(bare) = host.strip_suffix(default)
    {
        return error(
            "browsers leave out the port of the scheme".to_owned(),
            format!("write \"{scheme}://{bare}\""),
        );
    }
    let (is_wildcard, name) = match host.strip_prefix("*.") {
        Some(name) => (true, name),
        None => (false, host),
    };
    if name.contains('*') || super::super::site::authority_problem(name).is_some() {
        return error(
            format!("`{host}` is no host"),
            "write for example \"https://app.example\" or \"https://*.app.example\"".to_owned(),
        );
    }
    Ok(match is_wildcard {
        true => CorsOrigin::Subdomains {
            before: format!("{scheme}://"),
            after: format!(".{name}"),
        },
        false => CorsOrigin::Exact(lower),
    })
}
