//! Cross-origin requests.

use std::sync::Arc;
use std::time::Duration;

use blitz_site::{Cors, CorsSettings, Origin, Policy};

use super::{AppPolicy, Kind};
use crate::error::Error;

/// How long browsers remember the response to a preflight by default.
const MAX_AGE: Duration = Duration::from_secs(3600);

/// Lets scripts of other origins use the app; see [`cors`].
pub struct CorsPolicy {
    settings: CorsSettings,
    error: Option<Error>,
}

/// Lets scripts of other origins use the app (Fetch Standard, section 3.2).
///
/// Preflights take the route of the method that they ask for, and are answered before any handler. Fields of the protocol
/// that handlers set are replaced.
///
/// ```
/// use blitz::{App, policy::cors};
///
/// let app = App::new()
///     .policy(cors().allow_origin("https://app.example").allow_credentials(true))
///     .put("/items/{id}", || "changed");
/// # app.build().unwrap();
/// ```
pub fn cors() -> CorsPolicy {
    CorsPolicy {
        settings: CorsSettings {
            max_age: MAX_AGE,
            ..CorsSettings::default()
        },
        error: None,
    }
}

impl CorsPolicy {
    /// Allows an origin: `https://app.example`, `https://*.app.example` for hosts with one label more, or `*` for all.
    #[must_use]
    pub fn allow_origin(mut self, origin: &str) -> CorsPolicy {
        match Origin::parse(origin) {
            Some(origin) => self.settings.origins.push(origin),
            None => {
                let error = Error::new(format!("`{origin}` is no origin"));
                let remedy = "Write a scheme, a host and perhaps a port: `https://app.example`.";
                self.error.get_or_insert(error.with_remedy(remedy));
            }
        }
        self
    }

    /// Restricts the methods; without them all that preflights ask for are allowed.
    #[must_use]
    pub fn allow_methods<'t>(mut self, names: impl IntoIterator<Item = &'t str>) -> CorsPolicy {
        self.settings.methods = Some(self.tokens(names));
        self
    }

    /// Restricts the fields of requests; without them all that preflights ask for are allowed.
    #[must_use]
    pub fn allow_headers<'t>(mut self, names: impl IntoIterator<Item = &'t str>) -> CorsPolicy {
        self.settings.headers = Some(self.tokens(names));
        self
    }

    /// Lets scripts read these fields of responses, beside the safe ones.
    #[must_use]
    pub fn expose_headers<'t>(mut self, names: impl IntoIterator<Item = &'t str>) -> CorsPolicy {
        self.settings.expose = self.tokens(names);
        self
    }

    /// Whether requests may have cookies and other credentials; an error with the origin `*`.
    #[must_use]
    pub fn allow_credentials(mut self, are_allowed: bool) -> CorsPolicy {
        self.settings.credentials = are_allowed;
        self
    }

    /// How long browsers may remember the response to a preflight. Default: one hour.
    #[must_use]
    pub fn max_age(mut self, time: Duration) -> CorsPolicy {
        self.settings.max_age = time;
        self
    }

    fn tokens<'t>(&mut self, names: impl IntoIterator<Item = &'t str>) -> Vec<String> {
        let is_token_byte =
            |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        let is_token =
            |name: &str| !name.is_empty() && name != "*" && name.bytes().all(is_token_byte);
        let mut tokens = Vec::new();
        for name in names {
            match is_token(name) {
                true => tokens.push(name.to_owned()),
                false => {
                    let error = Error::new(format!("`{name}` is no name"));
                    self.error
                        .get_or_insert(error.with_remedy("Write one name in each text."));
                }
            }
        }
        tokens
    }
}

impl From<CorsPolicy> for AppPolicy {
    fn from(policy: CorsPolicy) -> AppPolicy {
        let CorsPolicy { settings, error } = policy;
        let is_for_any = settings.credentials && settings.origins.contains(&Origin::Any);
        AppPolicy(match error {
            Some(error) => Err(error),
            None if is_for_any => {
                let error = Error::new("any site could use the credentials of its visitors");
                Err(error.with_remedy("Name the origins in place of `*`."))
            }
            None => Ok(Kind::Shared(Policy::Cors(Arc::new(Cors::new(&settings))))),
        })
    }
}
