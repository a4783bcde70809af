//! Connections to servers as requests see them.

use std::rc::Rc;
use std::task::{Context, Poll};

use blitz_proto::{BodyLength, RequestHead};

use super::framing::ExchangeId;
use super::handle::ClientOps;
use crate::conn::Protocol;
use crate::error::ClientError;
use crate::tls::TlsInfo;

/// Carries a request: a connection of its own, or a stream permit on a shared connection.
pub(crate) trait Carrier: ClientOps {
    /// Sends the head of a request. The returned `bool` is true if content must follow.
    ///
    /// # Errors
    /// The connection carries no more requests.
    fn start_request(
        &self,
        head: &RequestHead,
        length: BodyLength,
    ) -> Result<(ExchangeId, bool), ClientError>;

    /// Returns the carrier without a request.
    fn return_unused(self: Rc<Self>);

    fn protocol(&self) -> Protocol;

    /// The result of the TLS handshake; `None` in clear text.
    fn tls(&self) -> Option<Rc<TlsInfo>>;

    /// Whether the server supports WebSockets on this connection; pending until known.
    ///
    /// # Errors
    /// The connection ended before that was known.
    fn poll_takes_websocket(&self, cx: &mut Context<'_>) -> Poll<Result<bool, ClientError>>;
}

/// A connection that stays open between the requests of its handles.
pub(crate) trait OpenCarrier: Carrier {
    /// Requests that may begin now.
    fn requests_available(&self) -> usize;

    /// Reserves the slot of the request that begins next; `false` if there is none.
    fn reserve(&self) -> bool;

    /// Whether requests may begin, now or later.
    fn is_open(&self) -> bool;

    /// Closes the connection. Exchanges in progress fail.
    fn close(&self);

    /// No more requests begin: closes the connection after the exchanges in progress.
    fn retire(&self);
}
