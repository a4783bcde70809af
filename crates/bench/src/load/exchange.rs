//! One request and its response.

use std::cell::Cell;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use blitz_http::{
    BodyError, Chunk, ClientError, Part, RecvBody, Response, ResponseEvent, ResponseStream,
    SendBody, timeout,
};

use super::check::{ContentCheck, Evidence, Expected, Wrong};
use super::request::ContentToSend;

/// Content that is sent in pieces of this size.
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

/// The longest wait for the content of a wrong response.
const EVIDENCE_WITHIN: Duration = Duration::from_millis(200);

/// A correct response.
pub(super) struct CorrectResponse {
    pub(super) status: u16,
    /// When its head was there.
    pub(super) head_at: Instant,
    /// When it was complete.
    pub(super) end: Instant,
    pub(super) content_bytes: u64,
    pub(super) sent_bytes: u64,
}

/// Why there is no correct response.
pub(super) enum ExchangeFailure {
    /// The response came and is wrong.
    Wrong { wrong: Wrong, evidence: Evidence },
    /// There is no response.
    Request(ClientError),
    /// The response ended within its content.
    Content(BodyError),
}

impl fmt::Display for ExchangeFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExchangeFailure::Wrong { wrong, .. } => f.write_str(wrong.name()),
            ExchangeFailure::Request(error) => error.fmt(f),
            ExchangeFailure::Content(error) => write!(f, "content: {error}"),
        }
    }
}

/// Sends the content, and receives and checks the response.
pub(super) async fn run(
    body: SendBody,
    mut response: ResponseStream,
    content: ContentToSend,
    expected: &Expected,
) -> Result<CorrectResponse, ExchangeFailure> {
    let mut upload = Upload::new(body, content);
    let response = upload.response(&mut response).await;
    let mut response = response.map_err(ExchangeFailure::Request)?;
    let head_at = Instant::now();
    let mut check = ContentCheck::new(expected);
    let length = response.body.length();
    if let Some(wrong) = expected.check_head(&response.head, length) {
        return Err(Box::pin(evidence(response, (wrong, expected), &check, None)).await);
    }
    if let Some(whole) = response.body.take_whole() {
        check.receive(&whole, expected);
        if let Some(wrong) = check.finish(expected) {
            return Err(
                Box::pin(evidence(response, (wrong, expected), &check, Some(&whole))).await,
            );
        }
        let sent = upload.sent_bytes();
        return Ok(received(&response, (head_at, head_at), &check, sent));
    }
    let is_empty = response.body.is_done();
    let mut last = None;
    while let Some(part) = upload
        .next(&mut response.body)
        .await
        .map_err(ExchangeFailure::Content)?
    {
        if let Part::Data(slice) = part {
            check.receive(&slice, expected);
            last = Some(slice);
        }
    }
    if let Some(wrong) = check.finish(expected) {
        return Err(Box::pin(evidence(
            response,
            (wrong, expected),
            &check,
            last.as_deref(),
        ))
        .await);
    }
    let end = if is_empty { head_at } else { Instant::now() };
    Ok(received(
        &response,
        (head_at, end),
        &check,
        upload.sent_bytes(),
    ))
}

/// The content of a request, which is sent while the response is awaited and read: a server may respond before it has
/// read everything, and read no further while nobody reads its response.
pub(super) struct Upload {
    /// `None` without content, and once it is sent.
    sending: Option<Pin<Box<dyn Future<Output = ()>>>>,
    /// Bytes that the connection has taken. `None` without content.
    sent: Option<Rc<Cell<u64>>>,
    /// The end of a request without content.
    _body: Option<SendBody>,
}

impl Upload {
    pub(super) fn new(body: SendBody, content: ContentToSend) -> Upload {
        match content {
            ContentToSend::None => Upload {
                sending: None,
                sent: None,
                _body: Some(body),
            },
            content => {
                let sent = Rc::<Cell<u64>>::default();
                Upload {
                    sending: Some(Box::pin(send(body, content, Rc::clone(&sent)))),
                    sent: Some(sent),
                    _body: None,
                }
            }
        }
    }

    /// Bytes of content that the connection has taken.
    fn sent_bytes(&self) -> u64 {
        self.sent.as_ref().map_or(0, |sent| sent.get())
    }

    /// The final response; sends until it comes.
    pub(super) async fn response(
        &mut self,
        stream: &mut ResponseStream,
    ) -> Result<Response, ClientError> {
        poll_fn(|cx| {
            self.send(cx);
            loop {
                if let ResponseEvent::Final(response) = ready!(stream.poll_next(cx))? {
                    return Poll::Ready(Ok(response));
                }
            }
        })
        .await
    }

    /// The next part of a response; sends until it comes.
    pub(super) async fn next(&mut self, body: &mut RecvBody) -> Result<Option<Part>, BodyError> {
        poll_fn(|cx| {
            self.send(cx);
            body.poll_next(cx)
        })
        .await
    }

    #[inline]
    fn send(&mut self, cx: &mut Context<'_>) {
        if let Some(sending) = &mut self.sending
            && sending.as_mut().poll(cx).is_ready()
        {
            self.sending = None;
        }
    }
}

fn received(
    response: &Response,
    (head_at, end): (Instant, Instant),
    check: &ContentCheck,
    sent_bytes: u64,
) -> CorrectResponse {
    CorrectResponse {
        status: response.head.status.code(),
        head_at,
        end,
        content_bytes: check.received,
        sent_bytes,
    }
}

async fn send(mut body: SendBody, content: ContentToSend, sent: Rc<Cell<u64>>) {
    let is_sent = match content {
        ContentToSend::None => Ok(()),
        ContentToSend::Bytes(bytes) => {
            let length = bytes.len() as u64;
            let is_sent = body.data(bytes).await;
            sent.set(if is_sent.is_ok() { length } else { 0 });
            is_sent
        }
        ContentToSend::Zeros(length) => send_zeros(&mut body, length, &sent).await,
    };
    if is_sent.is_ok() {
        // The response says whether the server has it.
        let _ = body.finish(None);
    }
}

async fn send_zeros(
    body: &mut SendBody,
    length: u64,
    sent: &Cell<u64>,
) -> Result<(), blitz_http::SendError> {
    let mut left = length;
    while left > 0 {
        let piece = left.min(ZEROS.len() as u64);
        body.data(Chunk::from(&ZEROS[..piece as usize])).await?;
        left -= piece;
        sent.set(length - left);
    }
    Ok(())
}

/// A wrong response, with the start of its content or the part that was received last.
#[cold]
async fn evidence(
    mut response: Response,
    (wrong, expected): (Wrong, &Expected),
    check: &ContentCheck,
    content: Option<&[u8]>,
) -> ExchangeFailure {
    let mut evidence = Evidence::new(
        (wrong, expected),
        (&response.head, response.body.length()),
        check.received,
    );
    match content {
        Some(content) => evidence.add_content(content),
        None => {
            let read = async {
                while let Ok(Some(Part::Data(slice))) = response.body.next().await {
                    evidence.add_content(&slice);
                    if evidence.is_full() {
                        break;
                    }
                }
            };
            // The content may never come, and the response is wrong all the same.
            let _ = timeout(EVIDENCE_WITHIN, read).await;
        }
    }
    ExchangeFailure::Wrong { wrong, evidence }
}
