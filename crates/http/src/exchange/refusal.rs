//! Responses that the core generates.

use std::net::SocketAddr;
use std::rc::Rc;

use blitz_proto::{Error, ErrorKind, Fields, Name, RequestHead, ResponseHead, Status, Version};
use tracing::Level;

use super::framing::ServerFraming;
use super::peer::Peer;
use super::respond::send_response;
use super::state::BodyState;
use crate::counters::count_refused;
use crate::error::{BodyError, Refusal, refusal_response};
use crate::log_limit::LogLimit;
use crate::log_text;
use crate::options::ServeOptions;
use crate::problem::accepts_problem;
use crate::refused::{Refused, RefusedRequest, tell};

/// Refuses a request for its content, or because the service did not respond. The service has its head.
pub(super) fn refuse_content<F: ServerFraming>(framing: &mut F, id: F::Id, refusal: Refusal) {
    let as_problem = framing
        .exchange(id)
        .is_some_and(|exchange| exchange.accepts_problem);
    respond(framing, id, refusal, None, as_problem);
}

/// Refuses a request that has no service yet, for its head, of which this part was received.
#[cold]
pub(crate) fn refuse_request<F: ServerFraming>(
    framing: &mut F,
    id: F::Id,
    refusal: Refusal,
    request: &RequestHead,
) {
    let as_problem = accepts_problem(&request.fields) == Some(true);
    refuse(framing, id, refusal, Some(request), as_problem);
}

/// Refuses a request that has no service yet. `request` is the part of its head that was received.
pub(crate) fn refuse<F: ServerFraming>(
    framing: &mut F,
    id: F::Id,
    refusal: Refusal,
    request: Option<&RequestHead>,
    as_problem: bool,
) {
    let options = Rc::clone(framing.options());
    let responded = respond(framing, id, refusal, request, as_problem);
    tell(&options, || {
        Refused::Request(RefusedRequest {
            head: request.filter(|request| request.known_path().is_some()),
            refusal,
            status: responded.map(|(status, _)| status),
            content_bytes: responded.map_or(0, |(_, bytes)| bytes),
            version: F::VERSION,
            peer: framing.peer(),
        })
    });
}

/// Responds instead of the service, if a response is still possible. Returns its status, and the bytes of its content.
fn respond<F: ServerFraming>(
    framing: &mut F,
    id: F::Id,
    refusal: Refusal,
    request: Option<&RequestHead>,
    as_problem: bool,
) -> Option<(Status, usize)> {
    count_refused(refusal.rule);
    let options = Rc::clone(framing.options());
    let mut logged = LoggedRefusal {
        request,
        is_whole: false,
        response: None,
        version: F::VERSION,
        peer: framing.peer().remote,
    };
    if framing.is_response_started(id) {
        logged.log(refusal, &options);
        None
    } else {
        let nothing = Fields::new();
        let fields = request.map_or(&nothing, |request| &request.fields);
        let (mut head, content) = refusal_response(refusal, fields, as_problem, &options);
        logged.response = Some(&head);
        logged.log(refusal, &options);
        framing.close_if_exclusive();
        let responded = (head.status, content.len());
        send_response(framing, id, &mut head, content);
        Some(responded)
    }
}

/// The content of the log line of a refusal.
pub(crate) struct LoggedRefusal<'a> {
    /// As far as it was received.
    pub(crate) request: Option<&'a RequestHead>,
    /// Whether that is all of it, and valid.
    pub(crate) is_whole: bool,
    /// If one is still possible.
    pub(crate) response: Option<&'a ResponseHead>,
    pub(crate) version: Version,
    pub(crate) peer: Option<SocketAddr>,
}

impl LoggedRefusal<'_> {
    /// Logs the refusal. A status of 5xx is a warning.
    pub(crate) fn log(&self, refusal: Refusal, options: &ServeOptions) {
        static WARNINGS: LogLimit = LogLimit::new();
        let Refusal { status, rule } = refusal;
        let status = status.code();
        let (level, omitted) = match status {
            ..500 => (Level::DEBUG, Some(0)),
            _ => (Level::WARN, WARNINGS.allow(rule, "", blitz_reactor::now())),
        };
        let Some(omitted) = omitted else { return };
        let omitted = (omitted > 0).then_some(omitted);
        // The level of a line is a constant.
        macro_rules! line {
            ($log:ident) => {
                tracing::$log!(
                    request_id = self.request_id(),
                    status,
                    cause = rule,
                    client = self.client(options).map(display),
                    protocol = self.version.as_str(),
                    method = self.line().map(log_text::method),
                    host = self.line().and_then(log_text::host),
                    path = self.line().map(log_text::path).map(display),
                    omitted,
                    "refused"
                )
            };
        }
        match level {
            Level::WARN => line!(warn),
            _ => line!(debug),
        }
    }

    fn request_id(&self) -> Option<&str> {
        self.response?.fields.get_str(Name::XRequestId)
    }

    /// The request, if at least its request line is known.
    fn line(&self) -> Option<&RequestHead> {
        self.request
            .filter(|request| request.known_path().is_some())
    }

    /// The client, which a trusted proxy may tell. In a part of a head may be what the client wrote, and not what the
    /// proxy has added after it.
    fn client(&self, options: &ServeOptions) -> Option<String> {
        let told = options.forwarded_client.as_ref().filter(|_| self.is_whole);
        let told = told.and_then(|told| told(&self.request?.fields, self.peer));
        told.map(|client| client.to_string())
            .or_else(|| self.peer.map(|peer| peer.to_string()))
    }
}

/// Counts and logs a stream that is reset because it exceeds a limit or breaks a rule.
#[cold]
pub(crate) fn refuse_stream(error: Error, peer: Option<SocketAddr>) {
    static LINES: LogLimit = LogLimit::new();
    let rule = error.rule();
    count_refused(rule);
    if tracing::enabled!(Level::DEBUG)
        && let Some(omitted) = LINES.allow(rule, "", blitz_reactor::now())
    {
        let client = peer.map(tracing::field::display);
        let omitted = (omitted > 0).then_some(omitted);
        tracing::debug!(cause = rule, client, omitted, "stream refused");
    }
}

/// Tells the observer of a request whose head breaks a rule, so that its stream is reset and it has no response. A stream
/// that came too late, or beyond a limit of streams, is no request.
#[cold]
pub(crate) fn tell_reset_head(
    error: Error,
    options: &ServeOptions,
    version: Version,
    peer: &Rc<Peer>,
) {
    if matches!(
        error.kind(),
        ErrorKind::StreamClosed | ErrorKind::StreamLimit | ErrorKind::FlowControl
    ) {
        return;
    }
    tell(options, || {
        Refused::Request(RefusedRequest {
            head: None,
            refusal: refusal_of(error),
            status: None,
            content_bytes: 0,
            version,
            peer,
        })
    });
}

/// The refusal of a request that breaks a rule.
pub(crate) fn refusal_of(error: Error) -> Refusal {
    Refusal {
        status: error.status(),
        rule: error.rule(),
    }
}

/// The refusal of a request without a response: for the fault of its body, if it has one.
pub(super) fn missing_response<F: ServerFraming>(framing: &mut F, id: F::Id) -> Refusal {
    match framing
        .exchange(id)
        .map(|exchange| &exchange.receiving.body)
    {
        Some(BodyState::Failed(BodyError::Malformed(error))) => refusal_of(*error),
        Some(BodyState::Failed(error @ BodyError::Truncated)) => Refusal {
            status: error.status(),
            rule: "truncated-body",
        },
        _ => Refusal {
            status: Status::INTERNAL_SERVER_ERROR,
            rule: "no-answer",
        },
    }
}
