//! Servers of HTTP/3, and outside clients: `h3` over `quinn`, and exact bytes on streams of `quinn`.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use blitz_http::{
    Config, Counters, DatagramListener, IoChoice, ServeOptions, ServerTls, TlsSlot, service_fn,
};
use blitz_testing::quic::RawClient;
use bytes::{Buf, Bytes};
use h3::client::{RequestStream, SendRequest};
use h3::error::{ConnectionError, StreamError};
use h3_quinn::{BidiStream, OpenStreams};
use http::{HeaderMap, Request};
use quinn::TransportConfig;

use crate::support::{SOON, Server, answer, config, on_each_driver, options};
use crate::tls_support::{Authority, Outside};

pub(crate) use blitz_testing::quic::{Quic, block_on, pause, soon};

/// A running server of HTTP/3, and the authority that its clients trust.
pub(crate) struct QuicServer {
    server: Server,
    pub(crate) authority: Authority,
    pub(crate) slot: TlsSlot,
}

impl Deref for QuicServer {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

impl QuicServer {
    pub(crate) fn start(
        io: IoChoice,
        cores: usize,
        options: impl Fn() -> ServeOptions + Send + Sync + 'static,
    ) -> QuicServer {
        let authority = Authority::new();
        let tls = authority.server();
        QuicServer::with_tls(io, cores, authority, tls, options)
    }

    pub(crate) fn with_tls(
        io: IoChoice,
        cores: usize,
        authority: Authority,
        tls: ServerTls,
        options: impl Fn() -> ServeOptions + Send + Sync + 'static,
    ) -> QuicServer {
        let slot = TlsSlot::new(tls);
        let listener = DatagramListener::bind(any_port(), cores).unwrap();
        let address = listener.local();
        let of_server = slot.clone();
        let options = Arc::new(options);
        let config = Config {
            cores,
            ..config(io)
        };
        let cores = blitz_http::start(&config, move |_| {
            let (listener, slot) = (listener.clone(), of_server.clone());
            let options = Arc::clone(&options);
            async move {
                let service = Rc::new(service_fn(answer));
                let options = Rc::new(options());
                let listener = listener.of_core().expect("a descriptor is free");
                listener.serve(&slot, service, options).await;
            }
        });
        QuicServer {
            server: Server::of(address, cores.expect("the cores start")),
            authority,
            slot,
        }
    }

    /// Waits until the counters look as expected, while clients go on.
    pub(crate) async fn when(&self, what: &str, holds: impl Fn(&Counters) -> bool) {
        let end = Instant::now() + SOON;
        while !holds(&self.counters()) {
            assert!(Instant::now() < end, "never {what}: {:?}", self.counters());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Waits until the server has ended by itself.
    pub(crate) fn join(self) {
        self.server.join();
    }

    /// An outside client in TLS that trusts this server.
    pub(crate) fn outside(&self) -> Outside {
        self.authority
            .client_of(&[&rustls::version::TLS13], None)
            .of_h3()
    }

    pub(crate) async fn connect(&self) -> Client {
        self.connect_with(|_| {}).await
    }

    /// A client with other settings of QUIC.
    pub(crate) async fn connect_with(&self, change: impl FnOnce(&mut TransportConfig)) -> Client {
        Client::over(self.quic_with(change).await).await
    }

    /// A connection without streams.
    pub(crate) async fn quic(&self) -> Quic {
        self.quic_with(|_| {}).await
    }

    pub(crate) async fn quic_with(&self, change: impl FnOnce(&mut TransportConfig)) -> Quic {
        let mut transport = TransportConfig::default();
        change(&mut transport);
        let client = self.outside();
        let connected = Quic::connect(&client.config, transport, self.address, "localhost");
        connected.await.expect("connects")
    }

    /// A client that sends exact bytes.
    pub(crate) async fn raw_client(&self) -> RawClient {
        RawClient::begin(self.quic().await).await
    }
}

impl Outside {
    /// Offers HTTP/3.
    pub(crate) fn of_h3(mut self) -> Outside {
        self.change(|config| config.alpn_protocols = vec![b"h3".to_vec()]);
        self
    }
}

fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// Runs a test with a server of one core, on each driver.
pub(crate) fn with_server(test: impl AsyncFn(&QuicServer)) {
    with_options(options, test);
}

#[allow(
    clippy::needless_pass_by_value,
    reason = "closures are passed as they are written"
)]
pub(crate) fn with_options(
    options: impl Fn() -> ServeOptions + Clone + Send + Sync + 'static,
    test: impl AsyncFn(&QuicServer),
) {
    on_each_driver(|io| {
        let server = QuicServer::start(io, 1, options.clone());
        block_on(test(&server));
    });
}

/// A client of the library `h3`.
pub(crate) struct Client {
    pub(crate) quic: Quic,
    pub(crate) sender: SendRequest<OpenStreams, Bytes>,
    closed: tokio::task::JoinHandle<ConnectionError>,
}

/// A request of the library `h3`.
pub(crate) type Stream = RequestStream<BidiStream<Bytes>, Bytes>;

/// A response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) informational: Vec<u16>,
    pub(crate) fields: HeaderMap,
    pub(crate) content: Vec<u8>,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Client {
    pub(crate) async fn over(quic: Quic) -> Client {
        let connection = h3_quinn::Connection::new(quic.connection.clone());
        let (mut driver, sender) = h3::client::new(connection).await.unwrap();
        let closed = tokio::spawn(async move { poll_fn(|cx| driver.poll_close(cx)).await });
        Client {
            quic,
            sender,
            closed,
        }
    }

    pub(crate) async fn send(&self, request: http::request::Builder) -> Stream {
        let mut sender = self.sender.clone();
        let request = request.body(()).unwrap();
        soon(sender.send_request(request)).await.unwrap()
    }

    /// A complete request and its response.
    pub(crate) async fn get(&self, path: &str) -> Answer {
        let mut stream = self.send(get(path)).await;
        stream.finish().await.unwrap();
        receive(&mut stream).await.unwrap()
    }

    /// Sends content while it receives the response.
    pub(crate) async fn post(&self, path: &str, content: Vec<u8>) -> Answer {
        let (mut send, mut recv) = self.send(post(path)).await.split();
        let send = async {
            send.send_data(content.into()).await.unwrap();
            send.finish().await.unwrap();
        };
        let ((), answer) = tokio::join!(send, receive(&mut recv));
        answer.unwrap()
    }

    /// Waits until the connection has ended.
    pub(crate) async fn closed(self) -> ConnectionError {
        // It owns a sender of requests, without which the library would close by itself.
        let error = soon(self.closed).await.unwrap();
        drop(self.sender);
        error
    }
}

pub(crate) fn get(path: &str) -> http::request::Builder {
    Request::get(format!("https://localhost{path}"))
}

pub(crate) fn post(path: &str) -> http::request::Builder {
    Request::post(format!("https://localhost{path}"))
}

/// Receives all of a response.
pub(crate) async fn receive<S: h3::quic::RecvStream>(
    stream: &mut RequestStream<S, Bytes>,
) -> Result<Answer, StreamError> {
    let mut informational = Vec::new();
    let head = loop {
        let head = soon(stream.recv_response()).await?;
        match head.status().is_informational() {
            true => informational.push(head.status().as_u16()),
            false => break head,
        }
    };
    let mut content = Vec::new();
    while let Some(mut piece) = soon(stream.recv_data()).await? {
        let piece = piece.copy_to_bytes(piece.remaining());
        content.extend_from_slice(&piece);
    }
    Ok(Answer {
        status: head.status().as_u16(),
        informational,
        fields: head.headers().clone(),
        content,
        trailers: soon(stream.recv_trailers()).await?,
    })
}

/// The code with which the server has reset a stream.
pub(crate) fn reset_code(error: &StreamError) -> u64 {
    match error {
        StreamError::RemoteTerminate { code, .. } => code.value(),
        other => panic!("{other:?}"),
    }
}

/// Bytes that differ at every offset and for every seed.
pub(crate) fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    })
    .take(bytes)
    .collect()
}
