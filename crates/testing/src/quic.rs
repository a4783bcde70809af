//! Clients of QUIC by quinn, and HTTP/3 on their streams byte by byte.
//!
//! They wait for [`IO_TIMEOUT`] at most, and panic on unexpected input.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::rustls::QuicClientConfig;
use quinn::{
    ClientConfig, Connection, ConnectionError, Endpoint, ReadError, RecvStream, SendStream,
    TransportConfig, VarInt,
};

use crate::IO_TIMEOUT;
use crate::h3::kind::{DATA, HEADERS, SETTINGS};
use crate::h3::stream::CONTROL;
use crate::h3::{frame, integer, read_frame, request, status};

/// A connection of QUIC.
#[derive(Debug)]
pub struct Quic {
    /// The connection.
    pub connection: Connection,
    endpoint: Endpoint,
}

impl Quic {
    /// Connects from a port of its own.
    ///
    /// # Errors
    /// The handshake has failed.
    ///
    /// # Panics
    /// When the configuration has no cipher suite of QUIC.
    pub async fn connect(
        tls: &Arc<rustls::ClientConfig>,
        transport: TransportConfig,
        to: SocketAddr,
        name: &str,
    ) -> Result<Quic, ConnectionError> {
        let tls = QuicClientConfig::try_from(Arc::clone(tls)).expect("it has TLS 1.3");
        let mut config = ClientConfig::new(Arc::new(tls));
        config.transport_config(Arc::new(transport));
        let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let endpoint = Endpoint::client(any_port).expect("a port is free");
        let connecting = endpoint.connect_with(config, to, name);
        let connection = soon(connecting.expect("it is a server")).await?;
        Ok(Quic {
            connection,
            endpoint,
        })
    }

    /// Goes on with a socket at another host of the machine; returns its address.
    ///
    /// # Panics
    /// When no port is free.
    pub fn move_to(&self, host: [u8; 4]) -> SocketAddr {
        let socket = UdpSocket::bind(SocketAddr::from((host, 0))).expect("a port is free");
        let address = socket.local_addr().expect("it is bound");
        self.endpoint.rebind(socket).expect("it is a socket");
        address
    }

    /// The code with which the server closes the connection.
    ///
    /// # Panics
    /// When it ends without one.
    pub async fn close_code(&self) -> u64 {
        match soon(self.connection.closed()).await {
            ConnectionError::ApplicationClosed(close) => close.error_code.into_inner(),
            other => panic!("{other}"),
        }
    }

    /// Opens a stream in one direction.
    ///
    /// # Panics
    /// When the connection has ended.
    pub async fn stream(&self, kind: u64) -> SendStream {
        let opened = soon(self.connection.open_uni()).await;
        let mut stream = opened.expect("the connection is open");
        let sent = stream.write_all(&integer(kind)).await;
        sent.expect("the stream is open");
        stream
    }

    /// Opens a stream with a request, and does not end it.
    ///
    /// # Panics
    /// When the connection has ended.
    pub async fn exchange(&self, bytes: impl AsRef<[u8]>) -> RawExchange {
        let opened = soon(self.connection.open_bi()).await;
        let (mut send, recv) = opened.expect("the connection is open");
        let sent = send.write_all(bytes.as_ref()).await;
        sent.expect("the stream is open");
        RawExchange {
            send,
            recv,
            arrived: Vec::new(),
        }
    }

    /// Accepts the server's stream of this type.
    ///
    /// # Panics
    /// When the connection has ended.
    pub async fn accept(&self, wanted: u64) -> RecvStream {
        loop {
            let opened = soon(self.connection.accept_uni()).await;
            let mut stream = opened.expect("the connection is open");
            let mut kind = [0];
            let read = soon(stream.read_exact(&mut kind)).await;
            read.expect("a stream begins with its type");
            if u64::from(kind[0]) == wanted {
                return stream;
            }
        }
    }
}

/// A client of HTTP/3 with its control stream open.
#[derive(Debug)]
pub struct RawClient {
    /// The connection.
    pub quic: Quic,
    /// It would end with its handle.
    _control: SendStream,
}

impl RawClient {
    /// Opens the control stream.
    ///
    /// # Panics
    /// When the connection has ended.
    pub async fn begin(quic: Quic) -> RawClient {
        let mut control = quic.stream(CONTROL).await;
        let sent = control.write_all(&frame(SETTINGS, [])).await;
        sent.expect("the connection is open");
        RawClient::over(quic, control)
    }

    /// On a connection with such a control stream.
    pub fn over(quic: Quic, control: SendStream) -> RawClient {
        RawClient {
            quic,
            _control: control,
        }
    }

    /// Opens a stream with a request, and does not end it.
    pub async fn exchange(&self, bytes: impl AsRef<[u8]>) -> RawExchange {
        self.quic.exchange(bytes).await
    }

    /// A complete request and its response.
    ///
    /// # Panics
    /// When the connection has ended.
    pub async fn ask(&self, bytes: impl AsRef<[u8]>) -> RawResponse {
        let mut exchange = self.exchange(bytes).await;
        exchange.send.finish().expect("it is not finished");
        exchange.response().await
    }

    /// `/hello` is answered: nothing that came before has harmed the connection.
    pub async fn hello(&self) {
        let response = self.ask(request("GET", "/hello")).await;
        response.expect(200, "hello");
    }
}

/// How a stream of the server has ended.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub enum ResponseEnd {
    /// With FIN.
    Fin,
    /// With this code.
    Reset(u64),
    /// The connection was closed with this code.
    Closed(u64),
}

/// A response as frames.
#[derive(Debug)]
pub struct RawResponse {
    /// The final status is the last; a status of `None` belongs to trailers.
    pub heads: Vec<Option<u16>>,
    /// The content.
    pub content: Vec<u8>,
    /// How the stream has ended.
    pub end: ResponseEnd,
}

impl RawResponse {
    /// It is complete, with this status and this content.
    ///
    /// # Panics
    /// When it is another.
    #[track_caller]
    pub fn expect(&self, status: u16, content: impl AsRef<[u8]>) {
        assert_eq!(self.end, ResponseEnd::Fin, "{self:?}");
        assert_eq!(self.heads.first(), Some(&Some(status)), "{self:?}");
        assert!(self.content == content.as_ref(), "{self:?}");
    }
}

/// A stream with a request.
#[derive(Debug)]
pub struct RawExchange {
    /// The direction to the server.
    pub send: SendStream,
    /// The direction to the client.
    pub recv: RecvStream,
    arrived: Vec<u8>,
}

impl RawExchange {
    /// Sends `bytes` unchanged.
    ///
    /// # Panics
    /// When the stream has ended.
    pub async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        let sent = soon(self.send.write_all(bytes.as_ref())).await;
        sent.expect("the stream is open");
    }

    /// Sends bytes that leave at once.
    pub async fn write_alone(&mut self, bytes: impl AsRef<[u8]>) {
        self.write(bytes).await;
        pause(2).await;
    }

    /// The next frame, or how the stream has ended.
    ///
    /// # Errors
    /// The end of the stream.
    pub async fn frame(&mut self) -> Result<(u64, Vec<u8>), ResponseEnd> {
        next_frame(&mut self.recv, &mut self.arrived).await
    }

    /// The next frame, which carries content.
    ///
    /// # Panics
    /// When it is another.
    pub async fn content(&mut self) -> Vec<u8> {
        match self.frame().await {
            Ok((DATA, content)) => content,
            other => panic!("no DATA: {other:?}"),
        }
    }

    /// The response to its end.
    ///
    /// # Panics
    /// When it has frames of other types than HEADERS and DATA.
    pub async fn response(&mut self) -> RawResponse {
        let (mut heads, mut content) = (Vec::new(), Vec::new());
        let end = loop {
            match self.frame().await {
                Ok((HEADERS, section)) => heads.push(status(&section)),
                Ok((DATA, piece)) => content.extend_from_slice(&piece),
                Ok((kind, _)) => panic!("frame of type {kind:#x}"),
                Err(end) => break end,
            }
        };
        RawResponse {
            heads,
            content,
            end,
        }
    }

    /// The code with which the server resets its direction.
    ///
    /// # Panics
    /// When it ends in another way.
    pub async fn reset_code(&mut self) -> u64 {
        let response = self.response().await;
        match response.end {
            ResponseEnd::Reset(code) => code,
            _ => panic!("{response:?}"),
        }
    }

    /// The code with which the server stops ours.
    ///
    /// # Panics
    /// When the connection has ended.
    pub async fn stop_code(&mut self) -> Option<u64> {
        let stopped = soon(self.send.stopped()).await;
        let code = stopped.expect("the connection is open");
        code.map(VarInt::into_inner)
    }
}

/// The next frame of a stream; `arrived` keeps the bytes behind it.
///
/// # Errors
/// The end of the stream.
///
/// # Panics
/// When it ends within a frame, or the connection is lost.
pub async fn next_frame(
    stream: &mut RecvStream,
    arrived: &mut Vec<u8>,
) -> Result<(u64, Vec<u8>), ResponseEnd> {
    loop {
        if let Some((kind, payload, len)) = read_frame(arrived) {
            let payload = payload.to_vec();
            arrived.drain(..len);
            return Ok((kind, payload));
        }
        match soon(stream.read_chunk(usize::MAX, true)).await {
            Ok(Some(chunk)) => arrived.extend_from_slice(&chunk.bytes),
            Ok(None) => {
                assert!(arrived.is_empty(), "an incomplete frame: {arrived:?}");
                return Err(ResponseEnd::Fin);
            }
            Err(ReadError::Reset(code)) => return Err(ResponseEnd::Reset(code.into_inner())),
            Err(ReadError::ConnectionLost(ConnectionError::ApplicationClosed(close))) => {
                return Err(ResponseEnd::Closed(close.error_code.into_inner()));
            }
            Err(other) => panic!("{other}"),
        }
    }
}

/// Runs clients on the calling thread.
///
/// # Panics
/// When they do not end.
pub fn block_on<F: Future>(clients: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let clients = async { tokio::time::timeout(6 * IO_TIMEOUT, clients).await };
    let ended = runtime.expect("the runtime starts").block_on(clients);
    ended.expect("the clients end")
}

/// Waits for an event that should happen at once.
///
/// # Panics
/// When it does not happen.
#[track_caller]
pub fn soon<F: Future>(event: F) -> impl Future<Output = F::Output> {
    let caller = Location::caller();
    async move {
        match tokio::time::timeout(IO_TIMEOUT, event).await {
            Ok(output) => output,
            Err(_) => panic!("nothing happens at {caller}"),
        }
    }
}

/// Waits, while the connections of the calling thread go on.
pub async fn pause(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}
