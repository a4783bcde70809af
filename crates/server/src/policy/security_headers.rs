//! Fields that have browsers protect pages.

use std::sync::Arc;
use std::time::Duration;

use blitz_http::Fields;
use blitz_site::{Policy, SecurityHeaders};

use super::{AppPolicy, Kind};
use crate::error::Error;

/// As long as lists of browsers demand (hstspreload.org).
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Features that few pages use, and those only where they say so.
const PERMISSIONS: &str = "camera=(), display-capture=(), geolocation=(), hid=(), idle-detection=(), microphone=(), \
                           midi=(), payment=(), serial=(), usb=(), xr-spatial-tracking=()";

/// Adds fields to each response; see [`security_headers`].
#[must_use]
pub struct SecurityHeadersPolicy {
    hsts: Option<Duration>,
    hsts_subdomains: bool,
    hsts_preload: bool,
    nosniff: bool,
    csp: Option<String>,
    frame: Option<String>,
    referrer: Option<String>,
    opener: Option<String>,
    permissions: Option<String>,
    replace: bool,
}

/// Adds the fields by which browsers protect pages: the usual ones, as in the gateway, and those that differ. `None`
/// leaves one out. Fields that handlers set are kept, unless [`replace`](SecurityHeadersPolicy::replace) says otherwise.
///
/// ```
/// use blitz::{App, policy::security_headers};
///
/// let policy = security_headers().csp("default-src 'self'").frame("SAMEORIGIN").opener(None);
/// let app = App::new().policy(policy).get("/", || "Hello, World!");
/// # app.build().unwrap();
/// ```
pub fn security_headers() -> SecurityHeadersPolicy {
    SecurityHeadersPolicy {
        hsts: Some(YEAR),
        hsts_subdomains: false,
        hsts_preload: false,
        nosniff: true,
        csp: None,
        frame: Some("DENY".to_owned()),
        referrer: Some("strict-origin-when-cross-origin".to_owned()),
        opener: Some("same-origin".to_owned()),
        permissions: Some(PERMISSIONS.to_owned()),
        replace: false,
    }
}

/// Declares methods that set the text of a field.
macro_rules! texts {
    ($($(#[$doc:meta])* $name:ident)*) => {
        $($(#[$doc])*
        pub fn $name<'t>(mut self, value: impl Into<Option<&'t str>>) -> SecurityHeadersPolicy {
            self.$name = value.into().map(str::to_owned);
            self
        })*
    };
}

impl SecurityHeadersPolicy {
    texts! {
        /// `Content-Security-Policy`. Default: none.
        csp
        /// `X-Frame-Options`. Default: `DENY`.
        frame
        /// `Referrer-Policy`. Default: `strict-origin-when-cross-origin`.
        referrer
        /// `Cross-Origin-Opener-Policy`. Default: `same-origin`.
        opener
        /// `Permissions-Policy`. By default it forbids features that few pages use.
        permissions
    }

    /// How long browsers use the host over TLS only (RFC 6797), in whole seconds. Responses in clear text do not have
    /// it. Default: a year.
    pub fn hsts(mut self, time: impl Into<Option<Duration>>) -> SecurityHeadersPolicy {
        self.hsts = time.into();
        self
    }

    /// Whether that is for its subdomains as well. Default: no.
    pub fn hsts_subdomains(mut self, is_on: bool) -> SecurityHeadersPolicy {
        self.hsts_subdomains = is_on;
        self
    }

    /// Whether browsers may be delivered with it. Default: no.
    pub fn hsts_preload(mut self, is_on: bool) -> SecurityHeadersPolicy {
        self.hsts_preload = is_on;
        self
    }

    /// Whether types of content are taken as they are declared. Default: yes.
    pub fn nosniff(mut self, is_on: bool) -> SecurityHeadersPolicy {
        self.nosniff = is_on;
        self
    }

    /// Whether fields that handlers set are replaced. Default: no.
    pub fn replace(mut self, is_on: bool) -> SecurityHeadersPolicy {
        self.replace = is_on;
        self
    }

    fn build(&self) -> Result<SecurityHeaders, Error> {
        let hsts = self.hsts.map(|time| {
            let mut value = format!("max-age={}", time.as_secs());
            for (is_on, directive) in [
                (self.hsts_subdomains, "; includeSubDomains"),
                (self.hsts_preload, "; preload"),
            ] {
                if is_on {
                    value += directive;
                }
            }
            ("strict-transport-security", value)
        });
        let nosniff = self.nosniff.then(|| "nosniff".to_owned());
        let mut others = Vec::new();
        for (name, value) in [
            ("x-content-type-options", &nosniff),
            ("content-security-policy", &self.csp),
            ("x-frame-options", &self.frame),
            ("referrer-policy", &self.referrer),
            ("cross-origin-opener-policy", &self.opener),
            ("permissions-policy", &self.permissions),
        ] {
            let Some(value) = value else { continue };
            if Fields::default().try_append(name, value).is_err() {
                let problem = format!("`{}` is no value of `{name}`", value.escape_debug());
                return Err(Error::new(problem).with_remedy("Write one line of visible text."));
            }
            others.push((name, value.clone()));
        }
        Ok(SecurityHeaders::new(hsts.as_slice(), &others, self.replace))
    }
}

impl From<SecurityHeadersPolicy> for AppPolicy {
    fn from(policy: SecurityHeadersPolicy) -> AppPolicy {
        let built = policy.build();
        AppPolicy(built.map(|headers| Kind::Shared(Policy::SecurityHeaders(Arc::new(headers)))))
    }
}
