//! gRPC as far as a gateway has to do with it: which requests are calls, what their clients
//! understand when it is the gateway that has to answer, when a call has lasted too long, and how
//! browsers' calls are translated (gRPC's documents PROTOCOL-HTTP2 and PROTOCOL-WEB).

mod answer;
mod base64;
mod relay;
mod status;
mod timeout;
mod web;

pub(crate) use answer::{answer, answer_unrouted, refusal};
pub(crate) use base64::NotBase64;
pub(crate) use relay::relay;
pub(crate) use status::Code;
pub(crate) use web::Translation;

use std::task::{Context, Poll, ready};
use std::time::Instant;

use blitz_http::{Fields, Method, Name, Protocol, RequestHead, ResponseHead, Timer, Version};

use crate::proxy_status::Failure;
use crate::relay::Upload;
use crate::request::Ended;

use web::{Encoder, Web};

/// What begins the content type of every call.
const GRPC: &[u8] = b"application/grpc";

/// A request that is a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Call {
    dialect: Dialect,
    /// When its client will not wait any longer.
    deadline: Option<Instant>,
    /// Its client speaks gRPC-Web, and its upstream is asked in gRPC.
    is_translated: bool,
}

/// What the client of a call speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dialect {
    /// gRPC, which needs HTTP/2.
    Grpc,
    /// gRPC-Web, which any version of HTTP carries.
    Web(Web),
}

impl Dialect {
    fn of(fields: &Fields) -> Option<Dialect> {
        let content_type = fields.get(Name::ContentType)?;
        if is_grpc(content_type) {
            Some(Dialect::Grpc)
        } else {
            Web::of(fields).map(Dialect::Web)
        }
    }
}

impl Call {
    /// What the request is to gRPC, beginning now; most requests are nothing to it.
    #[inline]
    pub(crate) fn of(head: &RequestHead) -> Option<Call> {
        if head.method == Method::Post {
            Call::of_post(head)
        } else {
            None
        }
    }

    fn of_post(head: &RequestHead) -> Option<Call> {
        let dialect = Dialect::of(&head.fields)?;
        // What says that it is gRPC over HTTP/1 has no client that knows what a trailer is.
        let has_trailers = matches!(head.version, Version::Http2 | Version::Http3);
        if dialect == Dialect::Grpc && !has_trailers {
            return None;
        }
        let timeout = head.fields.get(timeout::FIELD).and_then(timeout::parse);
        let deadline = timeout.and_then(|timeout| blitz_http::now().checked_add(timeout));
        Some(Call {
            dialect,
            deadline,
            is_translated: false,
        })
    }

    /// Whether the request may be a stream; those of browsers are a single message.
    pub(crate) fn streams(self) -> bool {
        self.dialect == Dialect::Grpc
    }

    /// Goes off when the client will not wait any longer.
    pub(crate) fn timer(self) -> Option<Timer> {
        self.deadline.map(blitz_http::sleep_until)
    }

    /// Makes the request ready for an upstream that speaks `protocol`. gRPC-Web is left as it is for
    /// one of HTTP/1.1, which has to understand it itself.
    ///
    /// # Errors
    /// gRPC needs HTTP/2.
    pub(crate) fn prepare(
        &mut self,
        head: &mut RequestHead,
        upload: &mut Upload,
        protocol: Protocol,
        is_repeated: bool,
    ) -> Result<(), Failure> {
        match (self.dialect, protocol) {
            (Dialect::Grpc, Protocol::Http1) => return Err(Failure::GrpcUnsupported),
            (Dialect::Web(_), Protocol::Http1) if self.is_translated => {
                return Err(Failure::GrpcUnsupported);
            }
            (Dialect::Web(web), Protocol::Http2) if !self.is_translated => {
                self.is_translated = true;
                Web::translate_request(head);
                upload.translate(web.decoder());
            }
            _ => {}
        }
        // The first attempt goes as the client sent it, a later one with what is left.
        if let Some(deadline) = self.deadline.filter(|_| is_repeated) {
            let left = deadline.saturating_duration_since(blitz_http::now());
            head.fields.set(timeout::FIELD, timeout::format(left));
        }
        Ok(())
    }

    /// What translates the answer with this head, if something has to.
    fn encoder(self, head: &ResponseHead) -> Option<Encoder> {
        match self.dialect {
            Dialect::Web(web) if self.is_translated => web.encoder(head),
            _ => None,
        }
    }
}

/// Whether the deadline of a call has passed while it waits for its answer.
pub(crate) fn poll_deadline<T>(
    timer: &mut Option<Timer>,
    cx: &mut Context<'_>,
) -> Poll<Result<T, Ended>> {
    ready!(poll_timer(timer, cx));
    Poll::Ready(Err(Ended::Failed(Failure::DeadlineExceeded)))
}

fn poll_timer(timer: &mut Option<Timer>, cx: &mut Context<'_>) -> Poll<()> {
    match timer {
        Some(timer) => std::pin::Pin::new(timer).poll(cx),
        None => Poll::Pending,
    }
}

fn is_grpc(content_type: &[u8]) -> bool {
    rest_behind(GRPC, content_type).is_some()
}

/// What stands behind a media type: nothing, a message format, parameters.
fn rest_behind<'a>(media_type: &[u8], content_type: &'a [u8]) -> Option<&'a [u8]> {
    let (start, rest) = content_type.split_at_checked(media_type.len())?;
    let is_whole = matches!(rest.first(), None | Some(b'+' | b';' | b' '));
    (is_whole && start.eq_ignore_ascii_case(media_type)).then_some(rest)
}
