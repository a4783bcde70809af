//! Responses: a head, and content that is complete or streamed.

use blitz_http::{
    AsName, BodyError, BodyLength, Buffer, Chunk, Fields, InvalidField, Name, PoolFuture, Pooled,
    ResponseHead, SendError, Slice, Status,
};
use blitz_site::{ContentSender, Ended};
use bytes::Bytes;

use crate::body::ContentError;
use crate::files::FileBody;
use crate::problem::Problem;

/// A response to a request.
///
/// ```
/// use blitz::{Response, Status};
///
/// let response = Response::text("made").with_status(Status::CREATED).header("location", "/7");
/// assert_eq!(response.status(), Status::CREATED);
/// assert_eq!(response.fields().get_str("location"), Some("/7"));
/// ```
pub struct Response {
    head: Pooled<ResponseHead>,
    content: Content,
}

/// The content of a response.
pub(crate) enum Content {
    Empty,
    /// Complete content, sent in one buffer with the head if that is cheaper.
    Whole(Chunk),
    /// Rendered when it is sent.
    Problem(Problem),
    Stream(StreamedContent),
    /// Boxed, so that other responses are no larger.
    File(Box<FileBody>),
}

/// Content that is produced while it is sent.
pub(crate) struct StreamedContent {
    pub(crate) length: BodyLength,
    pub(crate) produce: Producer,
}

/// Sends the content.
pub(crate) type Producer = Box<dyn FnOnce(ContentSender) -> PoolFuture<Ended>>;

impl Response {
    /// A response with a status and without content.
    pub fn new(status: Status) -> Response {
        Response {
            head: Pooled::response(status),
            content: Content::Empty,
        }
    }

    /// `text/plain` in UTF-8.
    pub fn text(text: impl Into<Chunk>) -> Response {
        Response::whole("text/plain; charset=utf-8", text.into())
    }

    /// `text/html` in UTF-8.
    pub fn html(html: impl Into<Chunk>) -> Response {
        Response::whole("text/html; charset=utf-8", html.into())
    }

    /// `application/octet-stream`.
    pub fn bytes(bytes: impl Into<Chunk>) -> Response {
        Response::whole("application/octet-stream", bytes.into())
    }

    /// `application/json`. If the value cannot be serialized, the error is logged and the response is a
    /// 500.
    pub fn json(value: &impl serde::Serialize) -> Response {
        let mut text = Vec::with_capacity(128);
        match serde_json::to_writer(&mut text, value) {
            Ok(()) => Response::whole("application/json", text.into()),
            Err(error) => Problem::from(error).into_response(),
        }
    }

    /// A redirect with one of the 3xx statuses. The location is a URI reference (RFC 9110, section
    /// 10.2.2): not empty, and in visible ASCII characters, others escaped. Any other location is
    /// logged, and the response is a 500.
    ///
    /// ```
    /// use blitz::{Response, Status};
    ///
    /// let response = Response::redirect(Status::SEE_OTHER, "/caf%C3%A9");
    /// assert_eq!(response.fields().get_str("location"), Some("/caf%C3%A9"));
    /// let response = Response::redirect(Status::SEE_OTHER, "/a\r\nSet-Cookie: b=c");
    /// assert_eq!(response.status(), Status::INTERNAL_SERVER_ERROR);
    /// ```
    pub fn redirect(status: Status, location: impl AsRef<[u8]>) -> Response {
        let location = location.as_ref();
        if !is_location(location) {
            tracing::error!(location = %location.escape_ascii(), "the location of a redirect is invalid");
            return Response::problem(Problem::new(Status::INTERNAL_SERVER_ERROR));
        }
        Response::new(status).header(Name::Location, location)
    }

    /// Content of unknown length that is produced while it is sent.
    ///
    /// [`Writer::send`] waits until the client has read enough of the earlier content, so memory stays
    /// bounded. If `produce` returns an error or panics, the response is aborted, so that the client
    /// detects the truncation. For HEAD `produce` is not called.
    ///
    /// ```
    /// use blitz::{App, Response};
    ///
    /// let count = || Response::stream(async |writer| {
    ///     for number in 0..1_000_000 {
    ///         writer.send(format!("{number}\n")).await?;
    ///     }
    ///     Ok(())
    /// });
    /// # App::new().get("/count", count).build().unwrap();
    /// ```
    pub fn stream<F>(produce: F) -> Response
    where
        F: AsyncFnOnce(&mut Writer) -> Result<(), StreamError> + 'static,
    {
        Response::streamed(BodyLength::Unknown, produce)
    }

    /// As [`stream`](Response::stream), for exactly `length` bytes.
    pub fn stream_sized<F>(length: u64, produce: F) -> Response
    where
        F: AsyncFnOnce(&mut Writer) -> Result<(), StreamError> + 'static,
    {
        Response::streamed(BodyLength::Known(length), produce)
    }

    /// Changes the status.
    #[must_use]
    pub fn with_status(mut self, status: Status) -> Response {
        self.head.status = status;
        self
    }

    /// Adds a field. An invalid field, such as a value with a line break, is omitted and logged;
    /// [`try_header`](Response::try_header) returns an error instead.
    #[must_use]
    pub fn header(mut self, name: impl AsName, value: impl AsRef<[u8]>) -> Response {
        if let Err(error) = self.head.fields.try_append(name, value) {
            tracing::error!(%error, "an invalid response header was omitted");
        }
        self
    }

    /// Adds a field.
    ///
    /// # Errors
    /// [`InvalidField`] if the name or the value is invalid in HTTP.
    pub fn try_header(
        mut self,
        name: impl AsName,
        value: impl AsRef<[u8]>,
    ) -> Result<Response, InvalidField> {
        self.head.fields.try_append(name, value)?;
        Ok(self)
    }

    /// Replaces the content type.
    #[must_use]
    pub fn content_type(mut self, value: &str) -> Response {
        self.head.fields.remove(Name::ContentType);
        self.header(Name::ContentType, value)
    }

    /// The status.
    pub fn status(&self) -> Status {
        self.head.status
    }

    /// The header section; framing fields and `Date` are added when it is sent.
    pub fn fields(&self) -> &Fields {
        &self.head.fields
    }

    /// The header section, mutable.
    pub fn fields_mut(&mut self) -> &mut Fields {
        &mut self.head.fields
    }

    pub(crate) fn file(head: Pooled<ResponseHead>, file: FileBody) -> Response {
        let content = Content::File(Box::new(file));
        Response { head, content }
    }

    /// A problem with the status and the fields of a head.
    pub(crate) fn problem_with(head: Pooled<ResponseHead>, problem: Problem) -> Response {
        let content = Content::Problem(problem);
        Response { head, content }
    }

    pub(crate) fn problem(problem: Problem) -> Response {
        let head = Pooled::response(problem.status());
        Response {
            head,
            content: Content::Problem(problem),
        }
    }

    /// Whether it is not a redirect, or has a valid `Location`.
    pub(crate) fn is_complete(&self) -> bool {
        match self.head.status.code() {
            301 | 302 | 303 | 307 | 308 => {
                let location = self.head.fields.get(Name::Location);
                location.is_some_and(is_location)
            }
            _ => true,
        }
    }

    pub(crate) fn into_parts(self) -> (Pooled<ResponseHead>, Content) {
        (self.head, self.content)
    }

    fn whole(content_type: &'static str, chunk: Chunk) -> Response {
        let mut response = Response::new(Status::OK);
        response.head.fields.append(Name::ContentType, content_type);
        response.content = Content::Whole(chunk);
        response
    }

    fn streamed<F>(length: BodyLength, produce: F) -> Response
    where
        F: AsyncFnOnce(&mut Writer) -> Result<(), StreamError> + 'static,
    {
        let produce: Producer = Box::new(move |body| {
            PoolFuture::new(async move {
                let mut writer = Writer {
                    body,
                    trailers: None,
                };
                let finished = match produce(&mut writer).await {
                    Ok(()) => writer
                        .body
                        .finish(writer.trailers.as_ref())
                        .map_err(StreamError::from),
                    // Dropping the unfinished body aborts the response.
                    Err(error) => Err(error),
                };
                match finished {
                    Ok(()) => Ended::Complete,
                    Err(error) => aborted(&error),
                }
            })
        });
        let mut response = Response::new(Status::OK);
        response
            .head
            .fields
            .append(Name::ContentType, "application/octet-stream");
        response.content = Content::Stream(StreamedContent { length, produce });
        response
    }
}

/// Logs why a response was given up.
#[cold]
fn aborted(error: &StreamError) -> Ended {
    if error.is_clients() {
        tracing::debug!(%error, "a streamed response was aborted");
        Ended::ClientGone
    } else {
        tracing::error!(%error, "a streamed response was aborted");
        Ended::Aborted
    }
}

/// Whether this is a valid value of `Location`.
fn is_location(value: &[u8]) -> bool {
    !value.is_empty() && value.iter().all(u8::is_ascii_graphic)
}

/// Sends the content of a streamed response.
pub struct Writer {
    body: ContentSender,
    trailers: Option<Fields>,
}

impl Writer {
    /// Waits for room, then sends bytes.
    ///
    /// # Errors
    /// If the client has closed the connection or stopped reading; the handler should return.
    pub async fn send(&mut self, bytes: impl Into<Chunk>) -> Result<(), SendError> {
        self.body.send(bytes.into()).await
    }

    /// Sets the trailer section, which is sent after the content if the version of HTTP allows it.
    pub fn set_trailers(&mut self, trailers: Fields) {
        self.trailers = Some(trailers);
    }
}

/// Why a streamed response is aborted; any error becomes one with `?`. The reason is logged as an error,
/// also if the content does not have its declared length; or at debug level if the client left.
#[derive(Debug)]
pub struct StreamError(Box<dyn std::error::Error>);

impl StreamError {
    /// Whether the client caused it: it left, or its request broke off.
    fn is_clients(&self) -> bool {
        let has_left = self.0.downcast_ref() == Some(&SendError::Closed);
        has_left || self.0.is::<BodyError>()
    }
}

impl<E: std::error::Error + 'static> From<E> for StreamError {
    fn from(error: E) -> StreamError {
        StreamError(Box::new(error))
    }
}

impl From<ContentError> for StreamError {
    fn from(error: ContentError) -> StreamError {
        error.into_cause().into()
    }
}

impl std::fmt::Display for StreamError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Types that a handler may return.
pub trait IntoResponse {
    /// Converts the value to a response.
    fn into_response(self) -> Response;
}

impl IntoResponse for Response {
    fn into_response(self) -> Response {
        self
    }
}

/// 204.
impl IntoResponse for () {
    fn into_response(self) -> Response {
        Response::new(Status::NO_CONTENT)
    }
}

impl IntoResponse for Status {
    fn into_response(self) -> Response {
        match self.class() {
            4 | 5 => Problem::new(self).into_response(),
            _ => Response::new(self),
        }
    }
}

/// The value's response with another status.
impl<T: IntoResponse> IntoResponse for (Status, T) {
    fn into_response(self) -> Response {
        self.1.into_response().with_status(self.0)
    }
}

impl<T: IntoResponse, E: IntoResponse> IntoResponse for Result<T, E> {
    fn into_response(self) -> Response {
        match self {
            Ok(value) => value.into_response(),
            Err(error) => error.into_response(),
        }
    }
}

/// `None` is 404.
impl<T: IntoResponse> IntoResponse for Option<T> {
    fn into_response(self) -> Response {
        match self {
            Some(value) => value.into_response(),
            None => Problem::new(Status::NOT_FOUND).into_response(),
        }
    }
}

macro_rules! into_response {
    ($($type:ty => $make:ident)*) => {
        $(impl IntoResponse for $type {
            fn into_response(self) -> Response {
                Response::$make(self)
            }
        })*
    };
}
into_response! {
    &'static str => text
    String => text
    Vec<u8> => bytes
    Bytes => bytes
    Slice => bytes
    Buffer => bytes
    &'static [u8] => bytes
}
