//! The built-in site, part of which demands tokens if the environment has a secret.

use std::env;
use std::os::unix::ffi::OsStringExt;

use blitz::Service;

/// The variable of the environment with the secret.
const VARIABLE: &str = "JWT_SECRET";

/// The least bytes of a secret for HS256 (RFC 7518, section 3.2).
const SECRET_BYTES_MIN: usize = 32;

/// The built-in site of a process.
pub(crate) struct BuiltInSite {
    /// Of tokens. `None` without one, or with an empty one, which protects nothing.
    secret: Option<Vec<u8>>,
    /// Whether the variable is set, and empty.
    is_empty: bool,
}

impl BuiltInSite {
    /// That of the environment.
    pub(crate) fn of_environment() -> BuiltInSite {
        let secret = env::var_os(VARIABLE).map(OsStringExt::into_vec);
        BuiltInSite::new(secret)
    }

    fn new(secret: Option<Vec<u8>>) -> BuiltInSite {
        BuiltInSite {
            is_empty: secret.as_ref().is_some_and(Vec::is_empty),
            secret: secret.filter(|secret| !secret.is_empty()),
        }
    }

    /// A secret that is not as it should be.
    pub(crate) fn warning(&self) -> Option<String> {
        if self.is_empty {
            return Some(format!(
                "{VARIABLE} is empty, so that /api/json and /api/echo are not served"
            ));
        }
        let bytes = self.secret.as_ref()?.len();
        (bytes < SECRET_BYTES_MIN).then(|| {
            format!(
                "{VARIABLE} has {bytes} bytes, and can be guessed: HS256 needs {SECRET_BYTES_MIN}; \
                 make one with `openssl rand -hex 32`"
            )
        })
    }

    /// Whether it has paths that need a token.
    pub(crate) fn has_protected_paths(&self) -> bool {
        self.secret.is_some()
    }

    /// # Errors
    /// It cannot be built, which is a bug.
    pub(crate) fn service(&self) -> Result<Service, blitz::Error> {
        let app = match &self.secret {
            None => blitz::builtin::app(),
            Some(secret) => blitz::builtin::app_with_secret(secret),
        };
        app.into_service()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_that_is_empty_or_short_is_a_warning() {
        let site = |secret: Option<&str>| BuiltInSite::new(secret.map(Into::into));
        assert_eq!(site(None).warning(), None);
        assert_eq!(site(Some(&"x".repeat(32))).warning(), None);
        let short = site(Some(&"x".repeat(31))).warning().unwrap();
        assert!(
            short.contains("31 bytes") && short.contains("openssl rand"),
            "{short}"
        );
        let empty = site(Some(""));
        assert!(empty.warning().unwrap().contains("is empty"));
        assert!(!empty.has_protected_paths());
    }
}
