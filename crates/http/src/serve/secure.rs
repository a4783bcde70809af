//! Connections of TLS listeners. The handshake advances as bytes arrive, without a task: a
//! connection is parked until its first request.

use std::rc::Rc;
use std::time::Duration;

use blitz_proto::{Status, Version};
use blitz_reactor::{Cause, Resume, Slice, Socket};

use super::{Acceptor, ParkedState, count_idle_end};
use crate::counters::{count, count_refused};
use crate::error::Refusal;
use crate::exchange::{Peer, Scheme, Service};
use crate::refused::{FailedHandshake, Refused, RefusedRequest, tell};
use crate::tls::{ReadOutcome, TlsError, TlsStream, log_client_failure};
use crate::transport::Transport;

/// The cause of a handshake that was ended for a new connection, at the limit of sockets.
const EVICTED: &str = "evicted";

/// The refusal of clear-text HTTP on a TLS port.
const CLEAR_TEXT: Refusal = Refusal {
    status: Status::BAD_REQUEST,
    rule: "clear-text-on-tls-port",
};

/// Its response. The client may not support TLS, so this is the simplest response of HTTP/1.1.
const CLEAR_TEXT_ANSWER: &str = "HTTP/1.1 400 Bad Request\r\n\
    Content-Type: text/plain\r\n\
    Content-Length: 83\r\n\
    Connection: close\r\n\
    \r\n\
    400 Bad Request: this port speaks HTTPS, and the request came without encryption.\r\n";

impl<S: Service> Acceptor<S> {
    /// The deadline for the first byte of a connection.
    pub(super) fn first_byte_timeout(&self) -> Duration {
        let limits = &self.options.limits;
        match self.options.tls {
            Some(_) => limits.tls_handshake_timeout,
            None => limits.idle_timeout,
        }
    }

    /// Parks a connection between two requests.
    #[inline(always)]
    pub(super) fn park_idle(self: &Rc<Self>, transport: Transport, key: usize) {
        if transport.has_ended() {
            self.remove(key);
            return transport.finish();
        }
        let within = self.idle_timeout(&transport);
        self.park(transport, key, key as u64, within);
    }

    /// Parks a connection whose handshake is incomplete, or has just been completed.
    #[inline(never)]
    fn park_in_handshake(self: &Rc<Self>, transport: Transport, key: usize) {
        if transport.has_ended() {
            self.remove(key);
            return transport.finish();
        }
        let within = self.within_drain(self.idle_timeout(&transport));
        let me: Rc<dyn Resume> = Rc::<Self>::clone(self);
        let parked = transport.park_idle(me, key as u64, within);
        self.connections.borrow_mut()[key].parked_state = ParkedState::Tls(parked);
    }

    /// Closes a connection when draining begins; one in its handshake has a short time for its first request.
    pub(super) fn close_secure(self: &Rc<Self>, transport: Transport, key: usize) {
        if transport.tls().is_some_and(|tls| !tls.is_established()) {
            return self.park_in_handshake(transport, key);
        }
        self.remove(key);
        transport.finish();
    }

    #[inline(always)]
    pub(super) fn idle_timeout(&self, transport: &Transport) -> Duration {
        match transport.tls() {
            None => self.options.limits.idle_timeout,
            Some(tls) => self.idle_timeout_with(tls),
        }
    }

    /// The idle timeout of a TLS connection: less if the handshake or a record is incomplete.
    #[inline(never)]
    fn idle_timeout_with(&self, tls: &TlsStream) -> Duration {
        let limits = &self.options.limits;
        let Some(since) = tls.incomplete_since() else {
            return limits.idle_timeout;
        };
        let limit = match tls.is_established() {
            true => limits.head_timeout,
            false => limits.tls_handshake_timeout,
        };
        (since + limit).saturating_duration_since(blitz_reactor::now())
    }

    /// Decrypted content that a parked connection has received. Without content, the connection is
    /// parked again or closed.
    #[inline(never)]
    pub(super) fn receive_secure(
        self: &Rc<Self>,
        socket: Socket,
        key: usize,
        empty_lines: usize,
        cause: Cause,
    ) -> Option<(Transport, Slice)> {
        let parked = std::mem::take(&mut self.connections.borrow_mut()[key].parked_state);
        let transport = match parked {
            ParkedState::Tls(parked) => parked.unpark(socket),
            ParkedState::Nothing
            | ParkedState::Fresh
            | ParkedState::ProxyHeader(_)
            | ParkedState::Multiplexed(_) => Transport::Plain(socket),
        };
        match (transport, cause) {
            (Transport::Plain(socket), Cause::Received(first)) => {
                self.begin_handshake(socket, key, first)
            }
            (transport, Cause::Received(slice)) => {
                self.handle_records(transport, key, empty_lines, slice)
            }
            (transport, cause @ Cause::Evicted) => {
                count_idle_end(&cause);
                if transport.tls().is_some_and(|tls| !tls.is_established()) {
                    self.tell_failed(&transport, EVICTED);
                }
                self.remove(key);
                transport.finish();
                None
            }
            (transport, cause) => {
                self.count_end(&transport, matches!(cause, Cause::Expired));
                self.remove(key);
                transport.finish();
                None
            }
        }
    }

    fn begin_handshake(
        self: &Rc<Self>,
        socket: Socket,
        key: usize,
        first: Slice,
    ) -> Option<(Transport, Slice)> {
        let slot = self.options.tls.as_ref()?;
        // The socket keeps the address for the record of a failure: after a reset it is unknown.
        let _ = socket.peer();
        if first.first().is_some_and(u8::is_ascii_uppercase) {
            self.refuse_clear_text(Transport::Plain(socket), key);
            return None;
        }
        match TlsStream::server(&slot.load(), &self.options.limits) {
            Ok(tls) => self.handle_records(Transport::secure(socket, tls), key, 0, first),
            Err(error) => {
                tracing::error!(%error, "cannot create a TLS session");
                count(|counters| counters.tls.count_failure(true, error.rule()));
                self.tell_failed(&Transport::Plain(socket), error.cause());
                self.remove(key);
                None
            }
        }
    }

    /// Responds to HTTP in clear text. Its request is not read.
    #[cold]
    fn refuse_clear_text(&self, mut transport: Transport, key: usize) {
        count(|counters| counters.tls.clear_text += 1);
        count_refused(CLEAR_TEXT.rule);
        transport.send_rarely(CLEAR_TEXT_ANSWER);
        if let Some(peer) = self.peer(&transport).map(Rc::new) {
            let content_bytes = CLEAR_TEXT_ANSWER
                .split_once("\r\n\r\n")
                .map_or(0, |(_, content)| content.len());
            tell(&self.options, || {
                Refused::Request(RefusedRequest {
                    head: None,
                    refusal: CLEAR_TEXT,
                    status: Some(CLEAR_TEXT.status),
                    content_bytes,
                    version: Version::Http11,
                    peer: &peer,
                })
            });
        }
        self.remove(key);
        transport.finish();
    }

    fn handle_records(
        self: &Rc<Self>,
        mut transport: Transport,
        key: usize,
        empty_lines: usize,
        slice: Slice,
    ) -> Option<(Transport, Slice)> {
        let (tls, socket) = transport.secure_parts()?;
        let was_established = tls.is_established();
        let outcome = tls.handle_received(slice, socket);
        if !was_established && tls.has_ended() && !tls.is_established() {
            self.end_handshake(&transport);
        }
        if let Some(first) = self.decrypted_content(outcome, key) {
            return Some((transport, first));
        }
        if !self.connections.borrow().contains(key) {
            transport.finish();
        } else if was_established {
            // Records without content do not restart the idle timeout.
            self.park_again(transport, key, empty_lines);
        } else {
            self.park_in_handshake(transport, key);
        }
        None
    }

    /// The content of a read, if any. Removes the connection from the table if it has ended.
    pub(super) fn decrypted_content(&self, outcome: ReadOutcome, key: usize) -> Option<Slice> {
        match outcome {
            ReadOutcome::Content(first) => return Some(first),
            ReadOutcome::NoContent => {}
            ReadOutcome::Ended => self.remove(key),
        }
        None
    }

    /// Counts the reason why a parked connection ends, and logs it for a handshake.
    fn count_end(&self, transport: &Transport, is_late: bool) {
        let error = if is_late {
            TlsError::TimedOut
        } else {
            TlsError::Ended
        };
        match transport.tls() {
            Some(tls) if tls.is_established() && is_late => {
                let is_within_record = tls.incomplete_since().is_some();
                count(|counters| match is_within_record {
                    true => counters.tls.record_timeouts += 1,
                    false => counters.idle_timeouts += 1,
                });
            }
            Some(tls) if tls.is_established() => {}
            // Port scanners and load balancers connect without sending a byte; this is not a failed
            // handshake.
            None if !is_late => {}
            Some(_) | None => self.fail_handshake(transport, error),
        }
    }

    /// Tells of a handshake that TLS has ended: it has counted and logged its failures, and a client may also close.
    #[cold]
    fn end_handshake(&self, transport: &Transport) {
        match transport.failure() {
            Some(error) => self.tell_failed(transport, error.cause()),
            None => self.fail_handshake(transport, TlsError::Ended),
        }
    }

    #[cold]
    fn fail_handshake(&self, transport: &Transport, error: TlsError) {
        count(|counters| counters.tls.count_failure(true, error.rule()));
        let server_name = transport.tls().and_then(TlsStream::server_name);
        log_client_failure(transport.peer(), server_name, error, &error);
        self.tell_failed(transport, error.cause());
    }

    /// Tells the observer of a failed handshake.
    #[cold]
    fn tell_failed(&self, transport: &Transport, cause: &'static str) {
        let tls = transport.tls();
        let now = blitz_reactor::now();
        let started = match tls {
            Some(tls) => tls.incomplete_since(),
            // It was silent until the timeout.
            None => now.checked_sub(self.options.limits.tls_handshake_timeout),
        };
        let peer = Rc::new(Peer {
            remote: transport.peer(),
            listener: self.listener,
            scheme: Scheme::Https,
            tls: tls.and_then(TlsStream::facts),
        });
        tell(&self.options, || {
            Refused::Handshake(FailedHandshake {
                cause,
                started: started.unwrap_or(now),
                version: None,
                peer: &peer,
            })
        });
    }
}

#[cfg(test)]
mod tests {
    use super::CLEAR_TEXT_ANSWER;

    #[test]
    fn the_answer_to_clear_text_has_its_declared_length() {
        let (head, content) = CLEAR_TEXT_ANSWER.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}\r\n", content.len())));
    }
}
