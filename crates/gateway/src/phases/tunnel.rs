//! The tunnel of a WebSocket or of another protocol: both directions, until they have ended.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use blitz_http::{Name, Pooled, ResponseHead, Timer, Tunnel};
use blitz_site::{Ended, Failure, Record, Responder, ResponseEdits, count};

use super::relay::ended_by;
use crate::flow::{Flow, FlowError};
use crate::request::Request;
use crate::request_kind::RequestKind;

/// Relays a connection that leaves HTTP, until both directions have ended (rule 16). When one has, the
/// other may be silent for `half_close_timeout`.
pub(super) async fn switch_protocols(
    request: &mut Request<'_>,
    mut head: Pooled<ResponseHead>,
    upstream: Tunnel,
    half_close_timeout: Duration,
) -> Result<(), Ended> {
    let may_switch = blitz_http::Responder::upgrade_requested;
    let is_early = !request.responder.as_ref().is_some_and(may_switch);
    // The upstream did not wait for the end of the content.
    if is_early && matches!(request.kind, RequestKind::Upgrade(_)) {
        return Err(Ended::Failed(Failure::HttpUpgradeFailed));
    }
    let Some(responder) = request.responder.take() else {
        return Err(Ended::ClientGone);
    };
    request.kind.grant(&mut head);
    let responder = Responder::new(
        responder,
        ResponseEdits::default(),
        &mut request.record.response,
    );
    let Some(mut client) = responder.upgrade(&mut head) else {
        return Err(Ended::ClientGone);
    };
    if let Some(rules) = request.rules {
        client.recv.set_options(rules.timeouts);
    }
    drop(head);
    // A tunnel may last for days; of the request's fields only the id is kept for it.
    request.head.reduce();
    let fields = std::mem::take(&mut request.head.fields);
    if let Some(id) = fields.get(Name::XRequestId) {
        request.head.fields.append(Name::XRequestId, id);
    }
    let mut tunnel = Directions {
        up: Flow::new(client.recv, Some(upstream.send)),
        down: Flow::new(upstream.recv, Some(client.send)),
        is_taken: true,
        ends_with_upstream: request.kind.is_extended_connect(),
        half_close_timeout,
        silence: None,
    };
    let record = &mut request.record;
    poll_fn(|cx| tunnel.poll(record, cx)).await?;
    tunnel.close();
    Ok(())
}

struct Directions {
    up: Flow,
    down: Flow,
    /// The upstream takes the client's bytes.
    is_taken: bool,
    /// Bytes from the client after the upstream's end are discarded.
    ///
    /// RFC 9110, section 9.3.6: "When either side has closed, the intermediary MUST attempt to send any
    /// outstanding data that came from the closed side to the other side, close both connections, and
    /// then discard any remaining data left undelivered." Over HTTP/1.1 the client receives FIN, and
    /// clients close then. A stream has no such custom: Firefox does not end its side, and opens further
    /// streams as if it had.
    ends_with_upstream: bool,
    half_close_timeout: Duration,
    /// Runs while one direction has ended, and begins again with each byte of the other.
    silence: Option<Timer>,
}

impl Directions {
    fn poll(&mut self, record: &mut Record<'_>, cx: &mut Context<'_>) -> Poll<Result<(), Ended>> {
        let bytes_before = record.request_bytes + record.response.bytes;
        let up = match self.is_taken {
            true => self
                .up
                .poll(cx, |bytes| record.request_bytes += bytes.len() as u64),
            false => Poll::Ready(Ok(())),
        };
        // An upstream that stops reading may have sent its last bytes before.
        self.is_taken &= !matches!(up, Poll::Ready(Err(FlowError::To(_))));
        if let Poll::Ready(Err(FlowError::From(error))) = up {
            tracing::debug!(%error, "the client's side of a tunnel failed");
            return Poll::Ready(Err(Ended::ClientGone));
        }
        let down = self
            .down
            .poll(cx, |bytes| record.response.bytes += bytes.len() as u64)
            .map_err(|error| ended_by(&error, record))?;
        let has_moved = record.request_bytes + record.response.bytes > bytes_before;
        match (up.is_ready(), down.is_ready()) {
            (true, true) => Poll::Ready(Ok(())),
            (false, false) => Poll::Pending,
            (false, true) if self.ends_with_upstream => Poll::Ready(Ok(())),
            (true, false) => {
                // While the client takes nothing the upstream has no reason to send.
                let is_held_back = self.down.awaits_room();
                self.poll_silence(has_moved || is_held_back, cx).map(Ok)
            }
            (false, true) => self.poll_silence(has_moved, cx).map(Ok),
        }
    }

    /// Ready if a direction was silent for too long after the end of the other.
    fn poll_silence(&mut self, restarts: bool, cx: &mut Context<'_>) -> Poll<()> {
        let timeout = self.half_close_timeout;
        let silence = self
            .silence
            .get_or_insert_with(|| blitz_http::sleep(timeout));
        if restarts {
            silence.reset(blitz_http::now() + timeout);
        }
        Pin::new(silence).poll(cx).map(|()| {
            count(|counters| counters.tunnels_half_closed += 1);
            tracing::debug!("a tunnel that one side has ended is closed");
        })
    }

    /// Ends both directions. Bytes that the upstream has not taken are discarded.
    fn close(&mut self) {
        if let Some(to) = self.up.to.take() {
            to.close();
        }
        if let Some(to) = self.down.to.take() {
            // A client that is gone needs no end.
            let _ = to.finish(None);
        }
    }
}
