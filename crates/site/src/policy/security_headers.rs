//! Fields that have browsers protect the pages of a site.

use crate::edit::{Edit, FieldChange};

/// The policy: changes of each response.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct SecurityHeaders {
    secure: Box<[Edit]>,
    /// The same without the fields that belong to TLS: RFC 6797, section 7.2: "An HSTS Host MUST NOT include the STS header
    /// field in HTTP responses conveyed over non-secure transport."
    plain: Box<[Edit]>,
}

impl SecurityHeaders {
    /// The policy of these fields, those with TLS only first. `replace` says whether those of the application are replaced.
    #[must_use]
    pub fn new(
        of_tls: &[(&'static str, String)],
        others: &[(&'static str, String)],
        replace: bool,
    ) -> SecurityHeaders {
        let edit = |(name, value): &(&'static str, String)| Edit {
            name: (*name).into(),
            change: match replace {
                true => FieldChange::Set(vec![value.as_bytes().to_vec()]),
                false => FieldChange::Default(value.as_bytes().to_vec()),
            },
        };
        SecurityHeaders {
            secure: of_tls.iter().chain(others).map(edit).collect(),
            plain: others.iter().map(edit).collect(),
        }
    }

    /// The changes of a response. `is_secure` says whether the client uses TLS.
    #[must_use]
    pub fn edits(&self, is_secure: bool) -> &[Edit] {
        match is_secure {
            true => &self.secure,
            false => &self.plain,
        }
    }
}
