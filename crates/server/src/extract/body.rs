//! The content of a request as an argument, buffered within the app's limit.

use blitz_http::{Buffer, Name, Status};
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{FromBody, FromRequest};
use crate::body::Body;
use crate::problem::Problem;
use crate::request::Request;
use crate::response::{IntoResponse, Response};

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

/// Buffers the content within the app's limit.
async fn read(mut request: Request) -> Result<Buffer, Response> {
    let limit = request.core.body_bytes_max(request.route);
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
