//! Error responses: `application/problem+json` ([RFC 9457](https://www.rfc-editor.org/rfc/rfc9457)), or
//! plain text if the client prefers it.

use std::borrow::Cow;
use std::fmt;

use blitz_http::{Fields, Name, Status};
use serde_json::{Map, Value};

use crate::response::{IntoResponse, Response};

/// An error response. Its format is chosen when it is sent, after all middleware has run.
///
/// ```
/// use blitz::{Problem, Status};
///
/// fn find(id: u64) -> Result<String, Problem> {
///     Err(Problem::new(Status::NOT_FOUND).detail(format!("there is no user {id}")))
/// }
/// # assert_eq!(find(1).unwrap_err().status(), Status::NOT_FOUND);
/// ```
///
/// With `?` any other error becomes a 500; its text is logged and not sent to the client.
pub struct Problem(Box<Inner>);

struct Inner {
    status: Status,
    kind: Option<Cow<'static, str>>,
    title: Option<Cow<'static, str>>,
    detail: Option<Cow<'static, str>>,
    members: Map<String, Value>,
}

impl Problem {
    /// A problem with a status and no details.
    pub fn new(status: Status) -> Problem {
        let members = Map::new();
        Problem(Box::new(Inner {
            status,
            kind: None,
            title: None,
            detail: None,
            members,
        }))
    }

    /// 400 with a sentence that describes the error in the request.
    pub fn bad_request(detail: impl Into<Cow<'static, str>>) -> Problem {
        Problem::new(Status::BAD_REQUEST).detail(detail)
    }

    /// Explains this occurrence, for people.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<Cow<'static, str>>) -> Problem {
        self.0.detail = Some(detail.into());
        self
    }

    /// Sets the problem type: a URI, and a short title that is the same for all problems of the type.
    #[must_use]
    pub fn kind(
        mut self,
        uri: impl Into<Cow<'static, str>>,
        title: impl Into<Cow<'static, str>>,
    ) -> Problem {
        self.0.kind = Some(uri.into());
        self.0.title = Some(title.into());
        self
    }

    /// Adds an extension member, which appears only in JSON.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<Value>) -> Problem {
        self.0.members.insert(name.into(), value.into());
        self
    }

    /// The status of the response.
    pub fn status(&self) -> Status {
        self.0.status
    }

    /// Whether it says nothing but its status.
    pub(crate) fn is_bare(&self) -> bool {
        let Inner {
            status: _,
            kind,
            title,
            detail,
            members,
        } = &*self.0;
        kind.is_none() && title.is_none() && detail.is_none() && members.is_empty()
    }

    fn title(&self) -> &str {
        let reason = || match self.0.status.reason() {
            "" => "Error",
            reason => reason,
        };
        self.0.title.as_deref().unwrap_or_else(reason)
    }

    /// The content type and the content, as text or as JSON.
    pub(crate) fn render(&self, as_text: bool) -> (&'static str, Vec<u8>) {
        if as_text {
            let mut text = format!("{} {}", self.0.status.code(), self.title());
            if let Some(detail) = &self.0.detail {
                text.push_str(": ");
                text.push_str(detail);
            }
            text.push('\n');
            return ("text/plain; charset=utf-8", text.into_bytes());
        }
        let mut object = self.0.members.clone();
        if let Some(kind) = &self.0.kind {
            object.insert("type".into(), kind.as_ref().into());
        }
        object.insert("title".into(), self.title().into());
        object.insert("status".into(), self.0.status.code().into());
        if let Some(detail) = &self.0.detail {
            object.insert("detail".into(), detail.as_ref().into());
        }
        (
            "application/problem+json",
            Value::Object(object).to_string().into_bytes(),
        )
    }
}

impl fmt::Debug for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0.status.code(), self.title())?;
        self.0
            .detail
            .as_ref()
            .map_or(Ok(()), |detail| write!(f, ": {detail}"))
    }
}

// `Problem` itself is no `Error`, as otherwise this conversion could not be.
impl<E: std::error::Error> From<E> for Problem {
    fn from(error: E) -> Problem {
        tracing::error!(error = %error, "a handler failed");
        Problem::new(Status::INTERNAL_SERVER_ERROR)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        Response::problem(self)
    }
}

/// Whether the client prefers plain text to JSON
/// ([RFC 9110, section 12.5.1](https://www.rfc-editor.org/rfc/rfc9110#section-12.5.1)).
pub(crate) fn prefers_text(fields: &Fields) -> bool {
    match fields.get(Name::Accept) {
        None | Some(b"*/*") => false,
        Some(_) => {
            let json = quality(fields, "application", &["problem+json", "json"]);
            quality(fields, "text", &["plain"]) > json || json == 0
        }
    }
}

/// The highest quality, in thousandths, that `Accept` gives to one of these types. Of the ranges that
/// match a type, the most specific one applies.
fn quality(fields: &Fields, kind: &str, subtypes: &[&str]) -> u16 {
    let (mut exactness_best, mut quality_best) = (0, 0);
    for value in fields.get_all(Name::Accept) {
        let Ok(value) = std::str::from_utf8(value) else {
            continue;
        };
        for range in value.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let Some((range_kind, range_subtype)) = parts.next().and_then(|r| r.split_once('/'))
            else {
                continue;
            };
            let same_kind = range_kind.eq_ignore_ascii_case(kind);
            let same_subtype = subtypes
                .iter()
                .any(|s| range_subtype.eq_ignore_ascii_case(s));
            let exactness = match (range_kind, range_subtype) {
                ("*", "*") => 1,
                (_, "*") if same_kind => 2,
                _ if same_kind && same_subtype => 3,
                _ => continue,
            };
            let quality = parts.find_map(parse_quality).unwrap_or(1000);
            if exactness > exactness_best {
                (exactness_best, quality_best) = (exactness, quality);
            } else if exactness == exactness_best {
                quality_best = quality_best.max(quality);
            }
        }
    }
    quality_best
}

/// `q=0.75` in thousandths; a malformed weight is ignored.
fn parse_quality(parameter: &str) -> Option<u16> {
    let weight = parameter
        .strip_prefix("q=")
        .or_else(|| parameter.strip_prefix("Q="))?;
    let quality: f32 = weight.parse().ok()?;
    (0.0..=1.0)
        .contains(&quality)
        .then_some((quality * 1000.0) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept(value: &str) -> bool {
        let mut fields = Fields::default();
        fields.append(Name::Accept, value);
        prefers_text(&fields)
    }

    #[test]
    fn json_is_the_default() {
        assert!(!prefers_text(&Fields::default()));
        assert!(!accept("*/*"));
        assert!(!accept("application/json"));
        assert!(!accept("application/problem+json, text/plain;q=0.9"));
        assert!(!accept(
            "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
        ));
        assert!(!accept("text/plain, application/*"));
    }

    #[test]
    fn text_is_chosen_if_accept_prefers_it() {
        assert!(accept("text/plain"));
        assert!(accept("text/*, */*;q=0.1"));
        assert!(accept("text/html"));
        assert!(accept("application/json;q=0, */*"));
        assert!(accept("application/json;q=0.2, text/plain;q=0.3"));
    }

    #[test]
    fn members_cannot_replace_the_standard_ones() {
        let problem = Problem::bad_request("no")
            .with("status", 1)
            .with("field", "age");
        let (_, json) = problem.render(false);
        let json: Value = serde_json::from_slice(&json).expect("JSON");
        assert_eq!(json["status"], 400);
        assert_eq!(json["title"], "Bad Request");
        assert_eq!(json["field"], "age");
    }
}
