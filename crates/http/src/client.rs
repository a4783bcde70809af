//! The client's side of an exchange: a request goes out, interim responses and a final one come
//! in, and both bodies may flow at once.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use blitz_proto::{BodyLength, Limits, RequestHead, ResponseHead};
use blitz_reactor::{Address, Socket};

use crate::body::{RecvBody, SendBody, Tunnel};
use crate::counters::count;
use crate::error::ClientError;
use crate::h1::Wire;
use crate::pool::Upstream;
use crate::recycle::Pooled;
use crate::tls::{self, Target, TlsInfo, UpstreamTls};
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

/// A connection that is ready for a request. Dropped unused, it returns to its pool or closes.
pub struct Connection {
    socket: Option<Transport>,
    options: Rc<ClientOptions>,
    upstream: Option<Upstream>,
    reused: bool,
}

impl Connection {
    /// Connects outside of any pool; the connection closes after one exchange.
    ///
    /// # Errors
    /// Those of [`ClientError`] that are about connecting.
    pub async fn connect(
        address: &Address,
        options: &Rc<ClientOptions>,
    ) -> Result<Connection, ClientError> {
        let transport = connect(address, None, &options.limits).await?;
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
        let transport = connect(address, Some(&tls.target()), &options.limits).await?;
        Ok(Connection::new(transport, Rc::clone(options), None, false))
    }

    pub(crate) fn new(
        socket: Transport,
        options: Rc<ClientOptions>,
        upstream: Option<Upstream>,
        reused: bool,
    ) -> Connection {
        Connection {
            socket: Some(socket),
            options,
            upstream,
            reused,
        }
    }

    /// What the TLS handshake has established; `None` in clear text.
    #[must_use]
    pub fn tls(&self) -> Option<&Rc<TlsInfo>> {
        self.socket.as_ref()?.info()
    }

    /// Whether it has carried a request before, so that the server may be closing it just now.
    #[must_use]
    pub fn is_reused(&self) -> bool {
        self.reused
    }

    /// Sends the head of a request. Its content, if any, goes through the [`SendBody`]; the
    /// response can be awaited before, while and after it is sent.
    ///
    /// The target is sent in origin form with `Host` from the authority; framing fields and
    /// `Connection` of the head are ignored.
    #[must_use]
    pub fn request(mut self, head: &RequestHead, length: BodyLength) -> (SendBody, ResponseStream) {
        let Some(socket) = self.socket.take() else {
            unreachable!("only this takes it")
        };
        let upstream = self.upstream.take();
        let wire = Wire::client(socket, Rc::clone(&self.options), upstream, self.reused);
        let (send, exchange) = Wire::start_request(&wire, head, length);
        (
            send,
            ResponseStream {
                wire: Some(wire),
                exchange,
            },
        )
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let (Some(socket), Some(upstream)) = (self.socket.take(), &self.upstream) {
            upstream.put_back(socket);
        }
    }
}

/// A connection that is ready to be used, with TLS if there is a target for it.
pub(crate) async fn connect(
    address: &Address,
    target: Option<&Rc<Target>>,
    limits: &Limits,
) -> Result<Transport, ClientError> {
    let socket = connect_socket(address, limits.connect_timeout).await?;
    match target {
        None => Ok(Transport::Plain(socket)),
        Some(target) => {
            let connected = Box::pin(tls::connect(socket, target, limits)).await;
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
/// Dropping it gives the request up and closes the connection.
pub struct ResponseStream {
    wire: Option<Rc<Wire>>,
    exchange: u32,
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
        let Some(wire) = &self.wire else {
            panic!("the final response was taken")
        };
        let polled = Wire::poll_response(wire, self.exchange, cx);
        if matches!(polled, Poll::Ready(Ok(ResponseEvent::Final(_)) | Err(_))) {
            self.let_go();
        }
        polled
    }

    fn let_go(&mut self) {
        if let Some(wire) = self.wire.take() {
            Wire::let_go(wire);
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
        if let Some(wire) = &self.wire {
            wire.drop_response_stream(self.exchange);
            self.let_go();
        }
    }
}
