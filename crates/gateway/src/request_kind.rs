//! Kinds of requests that phases treat differently: gRPC calls and WebSockets.
//!
//! Each phase calls the method of the kind that is named for the phase. Phases themselves know
//! neither gRPC nor WebSockets.

use blitz_config::Upgrades;
use blitz_http::{
    BodyLength, Capabilities, Chunk, Fields, Method, Name, RecvBody, RequestHead, Responder,
    ResponseHead, Timer, Version,
};
use blitz_site::{Ended, Failure, Rejection, Transform};

use crate::grpc::Call;
use crate::upgrade::Upgrade;
use crate::upload::Upload;
use crate::websocket::{InvalidKey, WebSocket};

/// The kind of a request, if it uses a protocol within HTTP.
pub(crate) enum RequestKind {
    Plain,
    /// A call of gRPC or gRPC-Web.
    Call(Call),
    /// A request for a WebSocket that the client may open.
    WebSocket(WebSocket),
    /// A request to switch to another protocol, which the route allows.
    Upgrade(Box<Upgrade>),
}

/// Content of a response on its way to the client.
pub(crate) enum ResponseContent {
    /// All of it is there.
    Whole(Chunk),
    /// It follows, with this declared length.
    Streamed(BodyLength, Option<Box<dyn Transform>>),
}

impl RequestKind {
    /// `upgrades` of the route; `None` is WebSockets only.
    #[inline(always)]
    pub(crate) fn of(
        head: &RequestHead,
        body: &RecvBody,
        responder: &Responder,
        upgrades: Option<&Upgrades>,
    ) -> RequestKind {
        if let Some(call) = Call::of(head) {
            return RequestKind::Call(call);
        }
        // Streams of HTTP/2 and HTTP/3 leave HTTP by CONNECT only, so that others need not be searched for.
        let has_upgrade = matches!(head.version, Version::Http10 | Version::Http11);
        let may_leave = has_upgrade || head.method == Method::Connect;
        let may_upgrade = may_leave && body.is_done() && responder.upgrade_requested();
        let may_open_websocket = may_upgrade && upgrades.is_none_or(|allowed| allowed.websocket);
        let websocket = may_open_websocket.then(|| WebSocket::requested(head));
        match (websocket.flatten(), upgrades) {
            (Some(websocket), _) => RequestKind::WebSocket(websocket),
            (None, None) => RequestKind::Plain,
            (None, Some(allowed)) => match Upgrade::requested(head, allowed) {
                Some(upgrade) => RequestKind::Upgrade(Box::new(upgrade)),
                None => RequestKind::Plain,
            },
        }
    }

    pub(crate) fn is_call(&self) -> bool {
        matches!(self, RequestKind::Call(_))
    }

    pub(crate) fn is_websocket(&self) -> bool {
        matches!(self, RequestKind::WebSocket(_))
    }

    /// The protocol that the upstream gets in `Upgrade`.
    pub(crate) fn upgrade(&self) -> Option<&str> {
        match self {
            RequestKind::WebSocket(_) => Some("websocket"),
            RequestKind::Upgrade(upgrade) => Some(upgrade.protocol()),
            RequestKind::Plain | RequestKind::Call(_) => None,
        }
    }

    pub(crate) fn call(&self) -> Option<&Call> {
        match self {
            RequestKind::Call(call) => Some(call),
            _ => None,
        }
    }

    /// Whether the request's content may be a stream of messages, which has no minimum rate.
    pub(crate) fn is_message_stream(&self) -> bool {
        self.call().is_some_and(Call::is_message_stream)
    }

    /// Phase `admit`: brings the head into the form that checks and forwarding expect.
    pub(crate) fn normalize(&self, head: &mut RequestHead) {
        if let RequestKind::WebSocket(websocket) = self {
            websocket.normalize(head);
        }
    }

    /// When the client stops waiting.
    pub(crate) fn deadline(&self) -> Option<Timer> {
        self.call().and_then(Call::timer)
    }

    /// Phase `send`: adapts the request to a connection.
    ///
    /// # Errors
    /// The connection cannot carry a request of this kind.
    pub(crate) fn prepare_request(
        &mut self,
        head: &mut RequestHead,
        upload: &mut Upload,
        capabilities: Capabilities,
        is_retry: bool,
    ) -> Result<(), Ended> {
        match self {
            RequestKind::Plain | RequestKind::Upgrade(_) => Ok(()),
            RequestKind::Call(call) => {
                let prepared = call.prepare(head, capabilities, is_retry);
                if let Some(translation) = prepared.map_err(Ended::Failed)? {
                    upload.transform(translation);
                }
                Ok(())
            }
            RequestKind::WebSocket(websocket) => websocket
                .prepare(head, capabilities.upgrade, blitz_http::random_u64)
                .map_err(|InvalidKey| Ended::Rejected(Rejection::WebSocketKey)),
        }
    }

    /// Phase `prepare_retry`: whether sending the request twice has the effect of sending it once.
    pub(crate) fn is_idempotent(&self, head: &RequestHead) -> bool {
        // The handshake of a WebSocket is a GET, whatever form it has.
        self.is_websocket() || head.is_idempotent()
    }

    /// Phase `response_policy`: whether a final response is one that the client can get.
    ///
    /// # Errors
    /// The connection becomes a tunnel that was not requested, or the client would treat the
    /// response as one that opens a tunnel.
    pub(crate) fn check_response(
        &self,
        head: &ResponseHead,
        opens_tunnel: bool,
    ) -> Result<(), Ended> {
        let is_valid = match self {
            RequestKind::WebSocket(websocket) if opens_tunnel => websocket.is_granted(head),
            RequestKind::WebSocket(websocket) => {
                !(websocket.is_extended_connect() && head.status.is_success())
            }
            RequestKind::Upgrade(upgrade) => !opens_tunnel || upgrade.is_granted(head),
            RequestKind::Plain | RequestKind::Call(_) => !opens_tunnel,
        };
        match is_valid {
            true => Ok(()),
            false => Err(Ended::Failed(Failure::HttpUpgradeFailed)),
        }
    }

    /// Phase `relay`: completes the head that opens a tunnel.
    pub(crate) fn grant(&self, head: &mut ResponseHead) {
        match self {
            RequestKind::WebSocket(websocket) => websocket.grant(head),
            RequestKind::Upgrade(upgrade) => head.fields.append(Name::Upgrade, upgrade.protocol()),
            RequestKind::Plain | RequestKind::Call(_) => {}
        }
    }

    /// Phase `relay`: whether the tunnel is a stream of the client's connection.
    pub(crate) fn is_extended_connect(&self) -> bool {
        matches!(self, RequestKind::WebSocket(websocket) if websocket.is_extended_connect())
    }

    /// Phase `relay`: content of a response with this head, if it was not relayed as a whole.
    #[inline]
    pub(crate) fn response_content(
        &self,
        head: &mut ResponseHead,
        body: &mut RecvBody,
    ) -> ResponseContent {
        if let RequestKind::Call(call) = self {
            return call_content(call, head, body);
        }
        if is_event_stream(&head.fields) {
            body.disable_min_rate();
        }
        ResponseContent::Streamed(body.length(), None)
    }
}

/// Whether the content is a stream of events, whose sender is silent while nothing happens (HTML,
/// section 9.2).
fn is_event_stream(fields: &Fields) -> bool {
    let content_type = fields.get(Name::ContentType).unwrap_or_default();
    let media_type = content_type.split(|&byte| byte == b';').next();
    let media_type = media_type.unwrap_or_default().trim_ascii();
    media_type.eq_ignore_ascii_case(b"text/event-stream")
}

fn call_content(call: &Call, head: &mut ResponseHead, body: &RecvBody) -> ResponseContent {
    let Some(mut encoder) = call.encoder(head) else {
        return ResponseContent::Streamed(body.length(), None);
    };
    encoder.translate_head(head);
    if body.is_done() {
        return ResponseContent::Whole(encoder.end_of_response(None));
    }
    ResponseContent::Streamed(BodyLength::Unknown, Some(Box::new(encoder)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_streams_are_recognised_in_any_case_and_with_parameters() {
        let is_event_stream = |content_type: &str| {
            let mut fields = Fields::new();
            fields.append(Name::ContentType, content_type);
            is_event_stream(&fields)
        };
        for content_type in [
            "text/event-stream",
            "Text/Event-Stream;charset=utf-8",
            "text/event-stream ; charset=utf-8",
        ] {
            assert!(is_event_stream(content_type), "{content_type}");
        }
        for content_type in ["", "text/event-streams", "text/plain;x=text/event-stream"] {
            assert!(!is_event_stream(content_type), "{content_type}");
        }
        assert!(!super::is_event_stream(&Fields::new()));
    }
}
