//! The means to respond to one request.

use std::rc::Rc;

use blitz_proto::{BodyLength, ResponseHead};
use blitz_reactor::Chunk;

use super::framing::ExchangeId;
use super::handle::{ExchangeHandle, ServerOps};
use super::recv_body::{RecvBody, Tunnel};
use super::respond::Started;
use super::send_body::SendBody;
use crate::error::BodyError;

/// Takes the response to one request; exactly one final response can be given.
///
/// Framing (`Content-Length`, `Transfer-Encoding`, `Connection`) is this layer's: such fields in a head
/// are ignored and the given length decides. `Date`, and `Server` if the options name one, are added
/// where missing. Dropping it without a response sends a 500.
pub struct Responder {
    /// `None` once a response was given.
    handle: Option<ExchangeHandle<dyn ServerOps>>,
}

impl Responder {
    pub(crate) fn new(connection: Rc<dyn ServerOps>, id: ExchangeId) -> Responder {
        Responder {
            handle: Some(ExchangeHandle::new(connection, id)),
        }
    }

    /// Sends an interim response: 100, 103 and their like, not 101. Clients of HTTP/1.0 do not
    /// get it (RFC 9110, section 15.2).
    pub fn informational(&mut self, head: &ResponseHead) {
        if let Some(ExchangeHandle { connection, id }) = &self.handle {
            connection.send_informational(*id, head);
        }
    }

    /// Whether the client waits for `100 Continue` (RFC 9110, section 10.1.1). Reading the body
    /// sends it; a gateway rather passes on its upstream's.
    #[must_use]
    pub fn expects_continue(&self) -> bool {
        let handle = self.handle.as_ref();
        handle.is_some_and(|handle| handle.connection.expects_continue(handle.id))
    }

    /// Whether the request asks for a protocol that a [`Tunnel`] can carry (RFC 9110, section
    /// 7.8), so that [`Responder::upgrade`] may be called.
    #[must_use]
    pub fn upgrade_requested(&self) -> bool {
        let handle = self.handle.as_ref();
        handle.is_some_and(|handle| handle.connection.is_upgrade_requested(handle.id))
    }

    /// Why the content of the request is incomplete, if it is.
    #[must_use]
    pub fn body_failure(&self) -> Option<BodyError> {
        let ExchangeHandle { connection, id } = self.handle.as_ref()?;
        connection.body_failure(*id)
    }

    /// Whether the client accepts problem+json, which it may have to name.
    #[must_use]
    pub fn accepts_problem(&self) -> bool {
        let handle = self.handle.as_ref();
        handle.is_some_and(|handle| handle.connection.accepts_problem(handle.id))
    }

    /// Sends the head of the response; the content follows through the returned body. With
    /// [`BodyLength::Empty`] the response is complete.
    ///
    /// # Panics
    /// If the status is informational: see [`Responder::informational`] and
    /// [`Responder::upgrade`].
    pub fn start(mut self, head: &mut ResponseHead, length: BodyLength) -> SendBody {
        assert_is_final(head);
        let Some(ExchangeHandle { connection, id }) = self.handle.take() else {
            return SendBody::closed();
        };
        match connection.start_response(id, head, length) {
            Started::Complete => SendBody::done(),
            Started::WithoutContent => SendBody::discard(),
            Started::Open => SendBody::new(connection, id),
        }
    }

    /// Sends a complete response: the quickest way for content that is at hand.
    ///
    /// # Panics
    /// If the status is informational.
    pub fn send(mut self, head: &mut ResponseHead, content: impl Into<Chunk>) {
        assert_is_final(head);
        if let Some(ExchangeHandle { connection, id }) = self.handle.take() {
            connection.send_response(id, head, content.into());
        }
    }

    /// Sends 101 (or 2xx to CONNECT) and leaves HTTP. Bytes that the client sent meanwhile are the
    /// first that the tunnel yields.
    ///
    /// # Panics
    /// If the request does not allow it: see [`Responder::upgrade_requested`].
    #[must_use]
    pub fn upgrade(mut self, head: &mut ResponseHead) -> Tunnel {
        let Some(ExchangeHandle { connection, id }) = self.handle.take() else {
            return Tunnel {
                recv: RecvBody::empty(),
                send: SendBody::closed(),
            };
        };
        connection.start_tunnel(id, head);
        Tunnel {
            recv: RecvBody::new(
                Rc::<dyn ServerOps>::clone(&connection),
                id,
                BodyLength::Unknown,
            ),
            send: SendBody::new(connection, id),
        }
    }

    /// Ends the exchange without a response: the connection is reset.
    pub fn abort(mut self) {
        if let Some(ExchangeHandle { connection, id }) = self.handle.take() {
            connection.abort(id);
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if let Some(ExchangeHandle { connection, id }) = &self.handle {
            connection.drop_responder(*id);
        }
    }
}

fn assert_is_final(head: &ResponseHead) {
    assert!(
        !head.status.is_informational(),
        "a final response has a final status"
    );
}
