//! Connections to servers, and how a request takes one.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use blitz_proto::{BodyLength, Limits, RequestHead};
use blitz_reactor::{Address, Socket};

use crate::conn::{Capabilities, Protocol, exclusive};
use crate::counters::count;
use crate::error::ClientError;
use crate::exchange::{ClientOps, ExchangeId, ResponseStream, SendBody};
use crate::tls::{self, AlpnOffer, TlsConnector, TlsInfo, UpstreamTls};
use crate::transport::Transport;

/// How connections to servers behave.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// Bounds for responses, buffers, idle connections and connecting.
    pub limits: Limits,
    /// Longest silence before the response head, counted from the last byte that the server took.
    pub response_timeout: Duration,
    /// Longest silence within a response body.
    pub body_timeout: Duration,
    /// How long an unused connection is kept; shorter than what common servers allow.
    pub idle_timeout: Duration,
}

impl Default for ClientOptions {
    fn default() -> ClientOptions {
        ClientOptions {
            limits: Limits::default(),
            response_timeout: Duration::from_secs(60),
            body_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(55),
        }
    }
}

/// What carries a request: a connection of its own, or a stream permit on one that others use too.
pub(crate) trait Carrier: ClientOps {
    /// Sends the head of a request; whether its content is to follow.
    ///
    /// # Errors
    /// The connection takes no request any more.
    fn start_request(
        &self,
        head: &RequestHead,
        length: BodyLength,
    ) -> Result<(ExchangeId, bool), ClientError>;

    /// There will be no request.
    fn give_back(self: Rc<Self>);

    fn protocol(&self) -> Protocol;

    /// What the TLS handshake has established; `None` in clear text.
    fn tls(&self) -> Option<Rc<TlsInfo>>;

    /// Whether a WebSocket may be asked for, once that is known.
    ///
    /// # Errors
    /// The connection ended before.
    fn poll_takes_websocket(&self, cx: &mut Context<'_>) -> Poll<Result<bool, ClientError>>;
}

/// A connection that is ready for a request, alone or beside those of others. Dropped unused, it
/// returns to its pool or closes.
pub struct Connection {
    /// `None` once a request was sent.
    carrier: Option<Rc<dyn Carrier>>,
    protocol: Protocol,
    is_reused: bool,
}

impl Connection {
    /// Connects outside of any pool, for HTTP/1.1; the connection closes after one exchange.
    ///
    /// # Errors
    /// Those of [`ClientError`] that are about connecting.
    pub async fn connect(
        address: &Address,
        options: &Rc<ClientOptions>,
    ) -> Result<Connection, ClientError> {
        let transport = connect(address, None, AlpnOffer::Http1, &options.limits).await?;
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
        let connector = tls.connector();
        let transport =
            connect(address, Some(&connector), AlpnOffer::Http1, &options.limits).await?;
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

    /// What the TLS handshake has established; `None` in clear text.
    #[must_use]
    pub fn tls(&self) -> Option<Rc<TlsInfo>> {
        self.carrier.as_ref()?.tls()
    }

    /// Whether a WebSocket may be asked for on it: with `Upgrade` on HTTP/1.1, and with an extended
    /// CONNECT where the server takes that, as its first SETTINGS say.
    ///
    /// # Errors
    /// The connection ended before they came.
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

    /// What it can do.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.protocol.capabilities()
    }

    /// Whether it has carried a request before, so that the server may be closing it just now.
    #[must_use]
    pub fn is_reused(&self) -> bool {
        self.is_reused
    }

    /// Sends the head of a request. Its content, if any, goes through the [`SendBody`]; the
    /// response can be awaited before, while and after it is sent.
    ///
    /// The target is sent in origin form with `Host` from the authority, or as the pseudo-fields
    /// of HTTP/2; framing fields and `Connection` of the head are ignored.
    #[must_use]
    pub fn request(mut self, head: &RequestHead, length: BodyLength) -> (SendBody, ResponseStream) {
        let Some(carrier) = self.carrier.take() else {
            unreachable!("only this takes it, and self with it")
        };
        match carrier.start_request(head, length) {
            Ok((id, true)) => (
                SendBody::new(Rc::<dyn Carrier>::clone(&carrier), id),
                ResponseStream::new(carrier, id),
            ),
            Ok((id, false)) => (SendBody::done(), ResponseStream::new(carrier, id)),
            // The connection has come to its end meanwhile.
            Err(error) => (SendBody::closed(), ResponseStream::failed(error)),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(carrier) = self.carrier.take() {
            carrier.give_back();
        }
    }
}

/// A connection that is ready to be used, with TLS if there is a target for it.
pub(crate) async fn connect(
    address: &Address,
    connector: Option<&Rc<TlsConnector>>,
    offer: AlpnOffer,
    limits: &Limits,
) -> Result<Transport, ClientError> {
    let socket = connect_socket(address, limits.connect_timeout).await?;
    match connector {
        None => Ok(Transport::Plain(socket)),
        Some(connector) => {
            let connected = Box::pin(tls::connect(socket, connector, offer, limits)).await;
            connected.map_err(ClientError::TlsHandshake)
        }
    }
}

async fn connect_socket(address: &Address, limit: Duration) -> Result<Socket, ClientError> {
    let connected = match blitz_reactor::timeout(limit, Socket::connect(address)).await {
        Ok(Ok(socket)) => Ok(socket),
        Ok(Err(error)) => Err(ClientError::from_connect(&error)),
        Err(_) => Err(ClientError::ConnectTimedOut),
    };
    count(|counters| match connected {
        Ok(_) => counters.upstream_connects += 1,
        Err(_) => counters.upstream_connect_failures += 1,
    });
    connected
}
