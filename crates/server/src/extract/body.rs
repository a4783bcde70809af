//! The content of a request: as a stream, or buffered within the app's limit.

use blitz_http::{
    BodyError, BodyLength, Buffer, Fields, Name, Part, Pooled, RecvBody, Slice, Status,
};
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{FromBody, FromRequest};
use crate::problem::Problem;
use crate::request::Request;
use crate::response::{IntoResponse, Response};

/// The content as a stream. A client cannot send more while the handler does not read.
///
/// ```
/// use blitz::{App, Problem, extract::Body};
///
/// let count = async |mut body: Body| {
///     let mut bytes = 0;
///     while let Some(chunk) = body.chunk().await? {
///         bytes += chunk.len();
///     }
///     Ok::<_, Problem>(format!("{bytes} bytes\n"))
/// };
/// # App::new().post("/count", count).build().unwrap();
/// ```
pub struct Body {
    source: RecvBody,
    trailers: Option<Pooled<Fields>>,
}

impl Body {
    pub(crate) fn new(source: RecvBody) -> Body {
        Body {
            source,
            trailers: None,
        }
    }

    /// The length according to the head.
    pub fn length(&self) -> BodyLength {
        self.source.length()
    }

    /// The next received bytes; `None` at the end.
    ///
    /// # Errors
    /// Why the content is incomplete. With `?` in a handler that returns [`Problem`] it becomes the
    /// corresponding response.
    pub async fn chunk(&mut self) -> Result<Option<Slice>, ContentError> {
        loop {
            match self.source.next().await? {
                Some(Part::Data(slice)) => return Ok(Some(slice)),
                Some(Part::Trailers(trailers)) => self.trailers = Some(trailers),
                None => return Ok(None),
            }
        }
    }

    /// The whole content, at most `limit` bytes.
    ///
    /// # Errors
    /// As [`chunk`](Body::chunk), and if the content is larger than `limit`.
    pub async fn read(&mut self, limit: usize) -> Result<Buffer, ContentError> {
        Ok(self.source.read_to_end(limit).await?)
    }

    /// The trailer section, if there is one and [`chunk`](Body::chunk) has reached the end.
    pub fn trailers(&self) -> Option<&Fields> {
        self.trailers.as_deref()
    }
}

impl FromRequest for Body {
    fn from_request(request: &mut Request) -> Result<Self, Response> {
        request.take_body().ok_or_else(|| {
            tracing::error!(
                route = request.route(),
                "the request body was already taken"
            );
            Problem::new(Status::INTERNAL_SERVER_ERROR).into_response()
        })
    }
}

/// Why the content of a request could not be read. As a response it has the corresponding status.
#[derive(Debug, Clone)]
pub struct ContentError(BodyError);

impl ContentError {
    /// The cause.
    pub fn cause(&self) -> &BodyError {
        &self.0
    }

    /// The cause, owned.
    pub fn into_cause(self) -> BodyError {
        self.0
    }
}

impl From<BodyError> for ContentError {
    fn from(error: BodyError) -> Self {
        ContentError(error)
    }
}

impl From<ContentError> for Problem {
    fn from(error: ContentError) -> Problem {
        Problem::new(error.0.status()).detail(error.0.to_string())
    }
}

impl IntoResponse for ContentError {
    fn into_response(self) -> Response {
        Problem::from(self).into_response()
    }
}

/// Buffers the content within the app's limit.
async fn read(mut request: Request) -> Result<Buffer, Response> {
    let limit = request.core.site().body_bytes_max();
    let mut body = Body::from_request(&mut request)?;
    body.read(limit).await.map_err(IntoResponse::into_response)
}

/// The content as text; 400 if it is not UTF-8.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text(pub String);

impl FromBody for Text {
    async fn from_body(request: Request) -> Result<Self, Response> {
        let content = read(request).await?;
        match std::str::from_utf8(&content) {
            Ok(text) => Ok(Text(text.to_owned())),
            Err(_) => Err(Problem::bad_request("the content is not UTF-8").into_response()),
        }
    }
}

impl FromBody for Bytes {
    async fn from_body(request: Request) -> Result<Self, Response> {
        Ok(Bytes::copy_from_slice(&read(request).await?))
    }
}

impl FromBody for Vec<u8> {
    async fn from_body(request: Request) -> Result<Self, Response> {
        Ok(read(request).await?.to_vec())
    }
}

/// JSON: as an argument, the parsed content; as a result, a response.
///
/// The response is 415 if the content type is not JSON (`application/json` or a `+json` type), 400 if the
/// content is malformed, and 422 if it does not match the type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Json<T>(pub T);

impl<T: DeserializeOwned> FromBody for Json<T> {
    async fn from_body(request: Request) -> Result<Self, Response> {
        let is_json = |kind: &str| kind == "application/json" || kind.ends_with("+json");
        expect_type(&request, is_json, "application/json")?;
        let content = read(request).await?;
        serde_json::from_slice(&content).map(Json).map_err(|error| {
            let status = match error.classify() {
                serde_json::error::Category::Data => Status::UNPROCESSABLE_CONTENT,
                _ => Status::BAD_REQUEST,
            };
            Problem::new(status)
                .detail(error.to_string())
                .into_response()
        })
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        Response::json(&self.0)
    }
}

/// The content of a submitted form, `application/x-www-form-urlencoded`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Form<T>(pub T);

impl<T: DeserializeOwned> FromBody for Form<T> {
    async fn from_body(request: Request) -> Result<Self, Response> {
        const KIND: &str = "application/x-www-form-urlencoded";
        expect_type(&request, |kind| kind == KIND, KIND)?;
        let content = read(request).await?;
        serde_html_form::from_bytes(&content)
            .map(Form)
            .map_err(|error| {
                let problem = Problem::new(Status::UNPROCESSABLE_CONTENT);
                problem
                    .detail(format!("the form does not match: {error}"))
                    .into_response()
            })
    }
}

/// Rejects content of another type.
fn expect_type(
    request: &Request,
    accepts: impl Fn(&str) -> bool,
    wanted: &str,
) -> Result<(), Response> {
    let declared = request
        .fields()
        .get_str(Name::ContentType)
        .unwrap_or_default();
    let kind = declared
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    if accepts(&kind) {
        return Ok(());
    }
    let problem = Problem::new(Status::UNSUPPORTED_MEDIA_TYPE);
    Err(problem
        .detail(format!("the content must be {wanted}"))
        .into_response())
}
