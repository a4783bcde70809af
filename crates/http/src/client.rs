//! Connections to servers, and requests on them.

mod connect;
mod connection;
mod datagrams;
mod proxy_header;

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use blitz_proto::{BodyLength, RequestHead};
use blitz_reactor::Address;

use crate::conn::{Capabilities, Protocol, exclusive};
use crate::error::ClientError;
use crate::exchange::{Carrier, ResponseStream, SendBody};
use crate::options::ClientOptions;
use crate::tls::{AlpnOffer, Handshakes, TlsInfo, UpstreamTls};
use crate::transport::Transport;

pub use connect::ConnectTimings;
pub use connection::{ClientConnection, ConnectOptions};
pub use proxy_header::ProxyHeader;

pub(crate) use connect::connect;

/// A connection that is ready for a request, alone or shared with other requests. If it is dropped
/// unused, it returns to its pool or closes.
pub struct Connection {
    /// `None` after a request was sent.
    carrier: Option<Rc<dyn Carrier>>,
    protocol: Protocol,
    is_reused: bool,
}

impl Connection {
    /// Makes an HTTP/1.1 connection outside of any pool. It closes after one exchange.
    ///
    /// # Errors
    /// Those of [`ClientError`] that are about connecting.
    pub async fn connect(
        address: &Address,
        options: &Rc<ClientOptions>,
    ) -> Result<Connection, ClientError> {
        let offer = AlpnOffer::Only(Protocol::EXCLUSIVE);
        let (transport, _) = connect(address, None, None, offer, &options.limits).await?;
        Ok(Connection::unpooled(transport, options))
    }

    /// As [`Connection::connect`], over TLS.
    ///
    /// # Errors
    /// Those of [`ClientError`] that are about connecting and TLS.
    pub async fn connect_tls(
        address: &Address,
        tls: &UpstreamTls,
        options: &Rc<ClientOptions>,
    ) -> Result<Connection, ClientError> {
        let connector = tls.connector(Handshakes::Resumable);
        let offer = AlpnOffer::Only(Protocol::EXCLUSIVE);
        let (transport, _) =
            connect(address, None, Some(&connector), offer, &options.limits).await?;
        Ok(Connection::unpooled(transport, options))
    }

    fn unpooled(transport: Transport, options: &Rc<ClientOptions>) -> Connection {
        let carrier = exclusive::ClientConn::new(transport, options, None, false, None);
        Connection::new(carrier, false)
    }

    /// A connection that carries one request.
    pub(crate) fn new(carrier: Rc<dyn Carrier>, is_reused: bool) -> Connection {
        Connection {
            protocol: carrier.protocol(),
            carrier: Some(carrier),
            is_reused,
        }
    }

    /// The result of the TLS handshake; `None` in clear text.
    #[must_use]
    pub fn tls(&self) -> Option<Rc<TlsInfo>> {
        self.carrier.as_ref()?.tls()
    }

    /// Whether a WebSocket can be opened: always on HTTP/1.1 (`Upgrade`); on HTTP/2 if the server's
    /// first SETTINGS enable extended CONNECT.
    ///
    /// # Errors
    /// The connection ended before the first SETTINGS.
    pub(crate) async fn takes_websocket(&self) -> Result<bool, ClientError> {
        poll_fn(|cx| match &self.carrier {
            Some(carrier) => carrier.poll_takes_websocket(cx),
            None => Poll::Ready(Ok(false)),
        })
        .await
    }

    /// The protocol of the connection.
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The capabilities of the connection's protocol.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.protocol.capabilities()
    }

    /// Whether the connection has carried a request before, so that the server may just be closing
    /// it.
    #[must_use]
    pub fn is_reused(&self) -> bool {
        self.is_reused
    }

    /// Sends the head of a request. The caller sends content, if any, through the [`SendBody`],
    /// and can await the response before, while and after it sends.
    ///
    /// The target is sent in origin form with `Host` from the authority, or as the pseudo-header
    /// fields of HTTP/2. Framing fields and `Connection` of the head are ignored.
    #[inline(always)]
    #[must_use]
    pub fn request(mut self, head: &RequestHead, length: BodyLength) -> (SendBody, ResponseStream) {
        let Some(carrier) = self.carrier.take() else {
            unreachable!("only this function takes the carrier, and it consumes self")
        };
        // The connection may have ended since the checkout.
        begin(carrier, head, length)
            .unwrap_or_else(|error| (SendBody::closed(), ResponseStream::failed(error)))
    }
}

/// Begins a request, with a permit for it.
fn begin(
    carrier: Rc<dyn Carrier>,
    head: &RequestHead,
    length: BodyLength,
) -> Result<(SendBody, ResponseStream), ClientError> {
    let (id, has_content) = carrier.start_request(head, length)?;
    let content = match has_content {
        true => SendBody::new(Rc::<dyn Carrier>::clone(&carrier), id),
        false => SendBody::done(),
    };
    Ok((content, ResponseStream::new(carrier, id)))
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(carrier) = self.carrier.take() {
            carrier.return_unused();
        }
    }
}
