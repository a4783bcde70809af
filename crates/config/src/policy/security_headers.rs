//! `security_headers`: fields that have browsers protect the pages of a site.

use std::time::Duration;

/// The fields of responses; `None` leaves one out.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SecurityHeaders {
    /// How long browsers use the host over TLS only, in whole seconds.
    pub hsts: Option<Duration>,
    /// Whether that is for its subdomains as well.
    pub hsts_subdomains: bool,
    /// Whether browsers may be delivered with it.
    pub hsts_preload: bool,
    /// Whether types of content are taken as they are declared.
    pub nosniff: bool,
    /// `Content-Security-Policy`.
    pub csp: Option<String>,
    /// `X-Frame-Options`.
    pub frame: Option<String>,
    /// `Referrer-Policy`.
    pub referrer: Option<String>,
    /// `Cross-Origin-Opener-Policy`.
    pub opener: Option<String>,
    /// `Permissions-Policy`.
    pub permissions: Option<String>,
    /// Whether fields of the application are replaced; by default they are kept.
    pub replace: bool,
}

/// As long as lists of browsers demand (hstspreload.org).
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Features that few pages use, and those only where they say so.
const PERMISSIONS: &str = "camera=(), display-capture=(), geolocation=(), hid=(), idle-detection=(), microphone=(), \
                           midi=(), payment=(), serial=(), usb=(), xr-spatial-tracking=()";

impl Default for SecurityHeaders {
    /// Those that suit most sites.
    fn default() -> Self {
        SecurityHeaders {
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
}
