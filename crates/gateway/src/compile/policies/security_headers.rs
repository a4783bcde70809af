//! `security_headers`: the fields and their values.

use std::sync::Arc;

use blitz_config::SecurityHeaders as Settings;
use blitz_site::{Policy, SecurityHeaders};

/// The policy of these settings.
pub(super) fn security_headers(settings: &Settings) -> Policy {
    let hsts = settings.hsts.map(|time| {
        let mut value = format!("max-age={}", time.as_secs());
        for (is_on, directive) in [
            (settings.hsts_subdomains, "; includeSubDomains"),
            (settings.hsts_preload, "; preload"),
        ] {
            if is_on {
                value += directive;
            }
        }
        ("strict-transport-security", value)
    });
    let nosniff = settings.nosniff.then(|| "nosniff".to_owned());
    let others = [
        ("x-content-type-options", &nosniff),
        ("content-security-policy", &settings.csp),
        ("x-frame-options", &settings.frame),
        ("referrer-policy", &settings.referrer),
        ("cross-origin-opener-policy", &settings.opener),
        ("permissions-policy", &settings.permissions),
    ];
    let others = others.into_iter();
    let others: Vec<_> = others
        .filter_map(|(name, value)| Some((name, value.clone()?)))
        .collect();
    Policy::SecurityHeaders(Arc::new(SecurityHeaders::new(
        hsts.as_slice(),
        &others,
        settings.replace,
    )))
}
