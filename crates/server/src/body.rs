//! The content of a request as a stream.

use std::cell::Cell;
use std::rc::Rc;

use blitz_http::{BodyError, BodyLength, Buffer, Fields, Part, Pooled, RecvBody, Slice};
use blitz_site::Rejection;

use crate::problem::Problem;
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
    /// The bytes that were read, if somebody counts them.
    received: Option<Rc<Cell<u64>>>,
}

impl Body {
    pub(crate) fn new(source: RecvBody, received: Option<Rc<Cell<u64>>>) -> Body {
        Body {
            source,
            trailers: None,
            received,
        }
    }

    /// Limits the content. Content without a declared length is counted while it is read.
    pub(crate) fn limit(&mut self, bytes_max: u64) -> Result<(), Rejection> {
        let limited = self.source.limit(bytes_max);
        limited.map_err(|_| Rejection::ContentTooLarge)
    }

    fn note(&self, bytes: usize) {
        if let Some(received) = &self.received {
            received.set(received.get() + bytes as u64);
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
                Some(Part::Data(slice)) => {
                    self.note(slice.len());
                    return Ok(Some(slice));
                }
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
        let content = self.source.read_to_end(limit).await?;
        self.note(content.len());
        Ok(content)
    }

    /// The trailer section, if there is one and [`chunk`](Body::chunk) has reached the end.
    pub fn trailers(&self) -> Option<&Fields> {
        self.trailers.as_deref()
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
