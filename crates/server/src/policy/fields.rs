//! Changes of fields, and the limit of content.

use std::sync::Arc;

use blitz_http::Fields;
use blitz_site::{Edit, FieldChange};

use super::{AppPolicy, Kind};
use crate::error::Error;

/// Fields that belong to the connection and to the framing of messages (RFC 9110, sections 7.6.1 and 10.1.1).
const RESERVED: [&str; 8] = [
    "connection",
    "content-length",
    "expect",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Changes fields of responses or requests; see [`headers`] and [`request_headers`].
#[must_use]
pub struct HeadersPolicy {
    edits: Vec<Edit>,
    is_of_request: bool,
    error: Option<Error>,
}

/// Changes fields of all responses, after all other policies. A nested app adds its changes to those of the outer one,
/// field by field.
///
/// ```
/// use blitz::{App, policy::headers};
///
/// let app = App::new()
///     .policy(headers().default("cache-control", "no-cache").set("server", "blitz"))
///     .get("/", || "Hello, World!");
/// # app.build().unwrap();
/// ```
pub fn headers() -> HeadersPolicy {
    HeadersPolicy {
        edits: Vec::new(),
        is_of_request: false,
        error: None,
    }
}

/// Changes fields of requests before middleware and handlers see them. Other spellings of a changed field, such as
/// `X_User` for `X-User`, are removed. See [`headers`].
pub fn request_headers() -> HeadersPolicy {
    HeadersPolicy {
        is_of_request: true,
        ..headers()
    }
}

impl HeadersPolicy {
    /// Replaces a field.
    pub fn set(self, name: &str, value: impl AsRef<[u8]>) -> HeadersPolicy {
        let value = value.as_ref().to_vec();
        self.change(name, FieldChange::Set(vec![value]))
    }

    /// Adds a field if there is none.
    pub fn default(self, name: &str, value: impl AsRef<[u8]>) -> HeadersPolicy {
        let value = value.as_ref().to_vec();
        self.change(name, FieldChange::Default(value))
    }

    /// Adds a line of a field.
    pub fn add(self, name: &str, value: impl AsRef<[u8]>) -> HeadersPolicy {
        let value = value.as_ref().to_vec();
        self.change(name, FieldChange::Add(value))
    }

    /// Removes a field.
    pub fn remove(self, name: &str) -> HeadersPolicy {
        self.change(name, FieldChange::Set(Vec::new()))
    }

    fn change(mut self, name: &str, change: FieldChange) -> HeadersPolicy {
        let name = name.to_ascii_lowercase();
        if let Err(error) = self.check(&name, &change) {
            self.error.get_or_insert(error);
        }
        self.edits.push(Edit {
            name: name.as_str().into(),
            change,
        });
        self
    }

    fn check(&self, name: &str, change: &FieldChange) -> Result<(), Error> {
        check_name(name)?;
        if let Some(known) = self
            .edits
            .iter()
            .find(|edit| is_same_name(&edit.name, name))
        {
            let problem = format!(
                "the field `{name}` is changed twice, also as `{}`",
                &*known.name
            );
            return Err(Error::new(problem).with_remedy("Keep one of the changes."));
        }
        let values = match change {
            FieldChange::Set(values) => values.as_slice(),
            FieldChange::Default(value) | FieldChange::Add(value) => std::slice::from_ref(value),
        };
        let is_invalid = |value: &&Vec<u8>| Fields::default().try_append(name, value).is_err();
        match values.iter().find(is_invalid) {
            None => Ok(()),
            Some(value) => {
                let problem = format!("`{}` is no value of a field", value.escape_ascii());
                Err(Error::new(problem).with_remedy("Leave control characters out."))
            }
        }
    }
}

impl From<HeadersPolicy> for AppPolicy {
    fn from(policy: HeadersPolicy) -> AppPolicy {
        if let Some(error) = policy.error {
            return AppPolicy(Err(error));
        }
        let edits: Arc<[Edit]> = policy.edits.into();
        AppPolicy(Ok(match policy.is_of_request {
            true => Kind::RequestHeaders(edits),
            false => Kind::Headers(edits),
        }))
    }
}

/// Limits the content of requests, in bytes; others get 413. Extractors such as [`Json`](crate::Json) take content up to
/// this limit, in place of that of [`App::body_bytes_max`](crate::App::body_bytes_max).
///
/// ```
/// use blitz::{App, extract::Text, policy::body_max};
///
/// let imports = App::new().policy(body_max(64 << 20)).post("/", |Text(text): Text| text);
/// let app = App::new().policy(body_max(64 << 10)).nest("/imports", imports);
/// # app.build().unwrap();
/// ```
pub fn body_max(bytes: u64) -> AppPolicy {
    AppPolicy(Ok(Kind::BodyMax(bytes)))
}

/// Whether applications behind CGI take the names for one.
pub(super) fn is_same_name(a: &str, b: &str) -> bool {
    let spelled = |name: &str| name.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    spelled(a) == spelled(b)
}

/// The name, in lower case, is that of a field that a policy may change.
pub(super) fn check_name(name: &str) -> Result<(), Error> {
    if Fields::default().try_append(name, "x").is_err() {
        let remedy = "Write letters, digits and hyphens, such as Cache-Control.";
        return Err(Error::new(format!("`{name}` is no name of a field")).with_remedy(remedy));
    }
    if RESERVED.contains(&name.replace('_', "-").as_str()) || name == "host" {
        let remedy = "Leave it out; it is set for each connection.";
        return Err(Error::new(format!("`{name}` belongs to the connection")).with_remedy(remedy));
    }
    Ok(())
}

/// Adds changes of an inner level. They replace those of the same fields.
pub(super) fn join(edits: &mut Vec<Edit>, inner: &[Edit]) {
    edits.retain(|edit| !inner.iter().any(|inner| inner.name == edit.name));
    edits.extend_from_slice(inner);
}
