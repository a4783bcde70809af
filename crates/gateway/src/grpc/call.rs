//! A gRPC call: recognised, prepared for its upstream, bounded by its deadline.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use blitz_http::{
    Capabilities, Fields, Method, Name, Pooled, RequestHead, ResponseHead, Timer, Version,
};
use blitz_site::{Failure, Rejection, Transform};

use super::content_type::is_grpc;
use super::status::Code;
use super::timeout;
use super::web::{Web, WebEncoder};

/// A request that is a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Call {
    pub(super) dialect: Dialect,
    /// When the client stops waiting.
    deadline: Option<Instant>,
    /// The client sends gRPC-Web, and the upstream gets gRPC.
    is_translated: bool,
}

/// The protocol that the client of a call uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// gRPC, which needs trailers.
    Grpc,
    /// gRPC-Web, which any version of HTTP carries.
    Web(Web),
}

impl Dialect {
    pub(super) fn of(fields: &Fields) -> Option<Dialect> {
        let content_type = fields.get(Name::ContentType)?;
        if is_grpc(content_type) {
            Some(Dialect::Grpc)
        } else {
            Web::of(fields).map(Dialect::Web)
        }
    }
}

impl Call {
    /// The call that begins with this request; most requests are none.
    #[inline]
    pub(crate) fn of(head: &RequestHead) -> Option<Call> {
        if head.method == Method::Post {
            Call::of_post(head)
        } else {
            None
        }
    }

    /// Whether a server may take the request for a call, in whatever version of HTTP it came.
    pub(crate) fn may_be(head: &RequestHead) -> bool {
        head.method == Method::Post && Dialect::of(&head.fields).is_some()
    }

    fn of_post(head: &RequestHead) -> Option<Call> {
        let dialect = Dialect::of(&head.fields)?;
        // Clients of HTTP/1 that send this content type cannot read the trailers of a call.
        let has_trailers = !matches!(head.version, Version::Http10 | Version::Http11);
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

    /// Whether the request may be a stream of messages; browsers send a single message.
    pub(crate) fn is_message_stream(&self) -> bool {
        self.dialect == Dialect::Grpc
    }

    /// Fires when the client stops waiting.
    pub(crate) fn timer(&self) -> Option<Timer> {
        self.deadline.map(blitz_http::sleep_until)
    }

    /// Prepares the request for a connection; gives the translation of its content, if it needs
    /// one. gRPC-Web stays as it is on a connection without trailers: the upstream has to
    /// understand it then.
    ///
    /// # Errors
    /// gRPC needs a connection that carries trailers.
    pub(crate) fn prepare(
        &mut self,
        head: &mut RequestHead,
        capabilities: Capabilities,
        is_retry: bool,
    ) -> Result<Option<Box<dyn Transform>>, Failure> {
        let mut translation = None;
        match (self.dialect, capabilities.carries_trailers) {
            (Dialect::Grpc, false) => return Err(Failure::GrpcUnsupported),
            (Dialect::Web(_), false) if self.is_translated => {
                return Err(Failure::GrpcUnsupported);
            }
            (Dialect::Web(web), true) if !self.is_translated => {
                self.is_translated = true;
                Web::translate_request(head);
                translation = web.decoder();
            }
            _ => {}
        }
        // The first attempt carries the client's timeout, a second one the time that is left.
        if let Some(deadline) = self.deadline.filter(|_| is_retry) {
            let left = deadline.saturating_duration_since(blitz_http::now());
            head.fields.set(timeout::FIELD, timeout::format(left));
        }
        Ok(translation)
    }

    /// Translates the response with this head, if it needs that.
    pub(crate) fn encoder(&self, head: &ResponseHead) -> Option<WebEncoder> {
        match self.dialect {
            Dialect::Web(web) if self.is_translated => web.encoder(head),
            _ => None,
        }
    }

    /// Trailers that end a response whose upstream failed. gRPC-Web has none.
    pub(crate) fn failed_trailers(
        &self,
        failure: Failure,
        rule: Option<&str>,
    ) -> Option<Pooled<Fields>> {
        let mut trailers = self.trailers(Code::of_failure(failure), failure.detail())?;
        trailers.append(Name::ProxyStatus, failure.proxy_status(rule));
        Some(trailers)
    }

    /// Trailers that end a response whose request is rejected. gRPC-Web has none.
    pub(crate) fn rejected_trailers(&self, rejection: Rejection) -> Option<Pooled<Fields>> {
        self.trailers(Code::of_status(rejection.status()), rejection.detail())
    }

    fn trailers(&self, code: Code, message: &str) -> Option<Pooled<Fields>> {
        if self.dialect != Dialect::Grpc {
            return None;
        }
        let mut trailers = Pooled::<Fields>::take();
        code.write(message, &mut trailers);
        Some(trailers)
    }
}

/// Ready when the timer has fired; never without one.
pub(crate) fn poll_timer(timer: &mut Option<Timer>, cx: &mut Context<'_>) -> Poll<()> {
    match timer {
        Some(timer) => Pin::new(timer).poll(cx),
        None => Poll::Pending,
    }
}
