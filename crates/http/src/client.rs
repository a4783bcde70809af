//! The client's side of an exchange: a request goes out, interim responses and a final one come
//! in, and both bodies may flow at once.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use blitz_proto::h2::StreamId;
use blitz_proto::{BodyLength, Limits, RequestHead, ResponseHead};
use blitz_reactor::{Address, Socket};

use crate::body::{RecvBody, SendBody, Tunnel};
use crate::counters::count;
use crate::error::ClientError;
use crate::pool::Lease;
use crate::recycle::Pooled;
use crate::tls::{self, Offer, Target, TlsInfo, UpstreamTls};
use crate::transport::Transport;
use crate::{h1, h2};

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

/// What is spoken on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Protocol {
    /// HTTP/1.1: a connection carries one request at a time.
    #[default]
    Http1,
    /// HTTP/2: a connection carries as many requests at a time as the server allows. In clear text
    /// it is spoken without asking first (RFC 9113, section 3.3).
    Http2,
}

/// What a connection can do for a request, whatever version of HTTP it speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Many exchanges share a connection at the same time.
    pub multiplexes: bool,
    /// Trailers reach the other side in both directions.
    pub carries_trailers: bool,
    /// The server can say that it did nothing about a request (GOAWAY, REFUSED_STREAM), so any
    /// method may be sent again.
    pub refuses_unprocessed: bool,
    /// How a WebSocket is asked for.
    pub upgrade: UpgradeForm,
}

/// How a request asks for a WebSocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpgradeForm {
    /// `Upgrade: websocket` with 101 (RFC 9110 section 7.8).
    UpgradeField,
    /// Extended CONNECT (RFC 8441, RFC 9220).
    ExtendedConnect,
}

impl Protocol {
    /// What connections of this protocol can do.
    fn capabilities(self) -> Capabilities {
        let is_http2 = self == Protocol::Http2;
        Capabilities {
            multiplexes: is_http2,
            carries_trailers: is_http2,
            refuses_unprocessed: is_http2,
            upgrade: match self {
                Protocol::Http1 => UpgradeForm::UpgradeField,
                Protocol::Http2 => UpgradeForm::ExtendedConnect,
            },
        }
    }
}

/// A connection that is ready for a request, or a place on one that others use too. Dropped
/// unused, it returns to its pool or closes.
pub struct Connection {
    place: Place,
    options: Rc<ClientOptions>,
    /// Of an HTTP/1 connection from a pool.
    lease: Option<Lease>,
    reused: bool,
}

enum Place {
    /// A request has taken it.
    Taken,
    /// All of an HTTP/1 connection.
    H1(Transport),
    /// One stream of an HTTP/2 connection, still to be opened.
    H2(Rc<h2::Wire>),
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
        let transport = connect(address, None, Offer::Http1, &options.limits).await?;
        Ok(Connection::new(transport, Rc::clone(options), None, false))
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
        let target = tls.target();
        let transport = connect(address, Some(&target), Offer::Http1, &options.limits).await?;
        Ok(Connection::new(transport, Rc::clone(options), None, false))
    }

    pub(crate) fn new(
        socket: Transport,
        options: Rc<ClientOptions>,
        lease: Option<Lease>,
        reused: bool,
    ) -> Connection {
        Connection {
            place: Place::H1(socket),
            options,
            lease,
            reused,
        }
    }

    /// What the TLS handshake has established; `None` in clear text.
    #[must_use]
    pub fn tls(&self) -> Option<Rc<TlsInfo>> {
        match &self.place {
            Place::H1(transport) => transport.info().cloned(),
            Place::H2(wire) => wire.tls(),
            Place::Taken => None,
        }
    }

    /// Whether a WebSocket may be asked for on it: with `Upgrade` on HTTP/1.1, and with an extended
    /// CONNECT where the server takes that, as its first SETTINGS say.
    ///
    /// # Errors
    /// The connection ended before they came.
    pub(crate) async fn takes_websocket(&self) -> Result<bool, ClientError> {
        match &self.place {
            Place::H2(wire) => poll_fn(|cx| wire.poll_extended_connect(cx)).await,
            Place::H1(_) | Place::Taken => Ok(true),
        }
    }

    /// What is spoken on it.
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        match &self.place {
            Place::H2(_) => Protocol::Http2,
            Place::H1(_) | Place::Taken => Protocol::Http1,
        }
    }

    /// What it can do for a request.
    #[inline]
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.protocol().capabilities()
    }

    /// A place on an HTTP/2 connection, where it was promised.
    pub(crate) fn on(wire: Rc<h2::Wire>, options: Rc<ClientOptions>, reused: bool) -> Connection {
        Connection {
            place: Place::H2(wire),
            options,
            lease: None,
            reused,
        }
    }

    /// Whether it has carried a request before, so that the server may be closing it just now.
    #[must_use]
    pub fn is_reused(&self) -> bool {
        self.reused
    }

    /// Sends the head of a request. Its content, if any, goes through the [`SendBody`]; the
    /// response can be awaited before, while and after it is sent.
    ///
    /// The target is sent in origin form with `Host` from the authority, or as the pseudo-fields
    /// of HTTP/2; framing fields and `Connection` of the head are ignored.
    #[must_use]
    pub fn request(mut self, head: &RequestHead, length: BodyLength) -> (SendBody, ResponseStream) {
        let (send, source) = match std::mem::replace(&mut self.place, Place::Taken) {
            Place::H1(socket) => {
                let lease = self.lease.take();
                let options = Rc::clone(&self.options);
                let wire = h1::Wire::client(socket, options, lease, self.reused);
                let (send, exchange) = h1::Wire::start_request(&wire, head, length);
                (send, Source::H1(wire, exchange))
            }
            Place::H2(wire) => match h2::Wire::start_request(&wire, head, length) {
                Ok((send, stream)) => (send, Source::H2(wire, stream)),
                // The connection has come to its end meanwhile.
                Err(error) => (SendBody::refused(), Source::Failed(error)),
            },
            Place::Taken => unreachable!("only this takes it"),
        };
        (send, ResponseStream { source })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.place, Place::Taken) {
            Place::Taken => {}
            Place::H1(socket) => {
                if let Some(lease) = self.lease.take() {
                    lease.put_back(socket);
                }
            }
            Place::H2(wire) => wire.give_back(),
        }
    }
}

/// A connection that is ready to be used, with TLS if there is a target for it.
pub(crate) async fn connect(
    address: &Address,
    target: Option<&Rc<Target>>,
    offer: Offer,
    limits: &Limits,
) -> Result<Transport, ClientError> {
    let socket = connect_socket(address, limits.connect_timeout).await?;
    match target {
        None => Ok(Transport::Plain(socket)),
        Some(target) => {
            let connected = Box::pin(tls::connect(socket, target, offer, limits)).await;
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

/// What a server answers: interim responses, then the final one.
///
/// Dropping it gives the request up, and closes the connection or resets the stream.
pub struct ResponseStream {
    source: Source,
}

enum Source {
    /// Nothing more to come.
    Done,
    /// An HTTP/1 connection, in the exchange of this number.
    H1(Rc<h1::Wire>, u32),
    /// A stream of an HTTP/2 connection.
    H2(Rc<h2::Wire>, StreamId),
    /// The request was not even sent.
    Failed(ClientError),
}

/// One response head.
pub enum ResponseEvent {
    /// 100, 102, 103 and their like; another event follows.
    Informational(Pooled<ResponseHead>),
    /// The final response; nothing follows.
    Final(Response),
}

/// A final response.
pub struct Response {
    /// Status and fields.
    pub head: Pooled<ResponseHead>,
    /// The content, possibly still to come; of a tunnel, the bytes from the server.
    pub body: RecvBody,
    /// After 101, or 2xx to CONNECT: the way to the server.
    pub upgraded: Option<SendBody>,
}

impl Response {
    /// Both directions, if the server switched protocols; otherwise the response itself.
    ///
    /// # Errors
    /// The response, if it is an ordinary one.
    pub fn into_tunnel(self) -> Result<Tunnel, Response> {
        match self {
            Response {
                body,
                upgraded: Some(send),
                ..
            } => Ok(Tunnel { recv: body, send }),
            ordinary => Err(ordinary),
        }
    }
}

impl ResponseStream {
    /// Lets the server be silent for [`Limits::stream_idle_timeout`] before its response and within
    /// it: both messages are streams, which may last (rule 18).
    pub fn be_patient(&mut self) {
        match &self.source {
            Source::Done | Source::Failed(_) => {}
            Source::H1(wire, exchange) => wire.be_patient(*exchange),
            Source::H2(wire, stream) => wire.be_patient(*stream),
        }
    }

    /// The next response head.
    ///
    /// # Errors
    /// Why there will be none.
    ///
    /// # Panics
    /// If called again after the final response or an error.
    pub async fn next(&mut self) -> Result<ResponseEvent, ClientError> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// [`ResponseStream::next`] for hand-written futures. The last caller's task is the one woken.
    ///
    /// # Errors
    /// As [`ResponseStream::next`].
    ///
    /// # Panics
    /// As [`ResponseStream::next`].
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<ResponseEvent, ClientError>> {
        let polled = match &self.source {
            Source::H1(wire, exchange) => h1::Wire::poll_response(wire, *exchange, cx),
            Source::H2(wire, stream) => h2::Wire::poll_response(wire, *stream, cx),
            Source::Failed(error) => Poll::Ready(Err(error.clone())),
            Source::Done => panic!("the final response was taken"),
        };
        if matches!(polled, Poll::Ready(Ok(ResponseEvent::Final(_)) | Err(_))) {
            self.let_go();
        }
        polled
    }

    fn let_go(&mut self) {
        if let Source::H1(wire, _) = std::mem::replace(&mut self.source, Source::Done) {
            h1::Wire::let_go(wire);
        }
    }

    /// The final response; interim ones are passed over.
    ///
    /// # Errors
    /// As [`ResponseStream::next`].
    pub async fn response(mut self) -> Result<Response, ClientError> {
        loop {
            if let ResponseEvent::Final(response) = self.next().await? {
                return Ok(response);
            }
        }
    }
}

impl Drop for ResponseStream {
    fn drop(&mut self) {
        match &self.source {
            Source::Done | Source::Failed(_) => {}
            Source::H1(wire, exchange) => {
                wire.drop_response_stream(*exchange);
                self.let_go();
            }
            Source::H2(wire, stream) => wire.drop_response_stream(*stream),
        }
    }
}
