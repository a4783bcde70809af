//! Requests of one kind on a machine without faults, for counting what they cost.

mod policies;

use std::cell::Cell;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use blitz_config::{Document, Environment, read};
use blitz_gateway::access_log::{AccessLog, LogSettings, LogSink};
use blitz_gateway::{Gateway, LoadedFile, Options, Site, compile};
use blitz_gateway::{RecordBatch, RecordSink};
use blitz_host::serving::ListenerConfig;
use blitz_http::{Address, DatagramListener, TlsSlot};
use blitz_reactor::Counters;
use blitz_reactor::simulation::{Conditions, Stop, Stream, World};
use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::service::service_fn;

use crate::http3::Counted;
use crate::io::{HyperIo, Tasks};
use crate::raw::{BodyFraming, Raw};
use crate::tls;
use policies::RoutePolicies;

/// Connections of HTTP/1.1 clients, or concurrent streams of the client of HTTP/2 or HTTP/3.
const AT_ONCE: usize = 16;

/// The secret of the gateway's QUIC endpoint.
const QUIC_SECRET: [u8; 32] = [7; 32];

/// Incomplete handshakes above which the gateway sends Retry: none of these runs has so many.
const RETRY_ABOVE: usize = 256;

const HELLO: &str = "Hello, World!";

/// Bytes of a large body.
const LARGE: usize = 1 << 20;

/// The port of the first server of an upstream.
const FIRST_PORT: u16 = 9000;

/// Sites of a file.
const SITES: usize = 100;

/// A kind of request: its name, the versions on both sides, and the bytes of both bodies.
struct RequestCase {
    name: &'static str,
    client: ClientKind,
    upstream: Option<UpstreamKind>,
    /// The upstream is that of a site in a file with many, and not that of a flag.
    is_of_file: bool,
    /// The upstream is that of a site with these policies, or with the same requests and none.
    policies: Option<RoutePolicies>,
    /// The upstream is one of so many servers of a site; 0: it is not.
    servers: u16,
    /// The gateway has an access log.
    is_logged: bool,
    request_bytes: usize,
    response_bytes: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ClientKind {
    Http1,
    Http2,
    Http3,
    /// Over HTTP/3, with a connection for each request.
    Handshakes,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum UpstreamKind {
    Http1,
    Http2,
}

impl RequestCase {
    const fn new(
        name: &'static str,
        client: ClientKind,
        upstream: Option<UpstreamKind>,
    ) -> RequestCase {
        RequestCase {
            name,
            client,
            upstream,
            is_of_file: false,
            policies: None,
            servers: 0,
            is_logged: false,
            request_bytes: 0,
            response_bytes: HELLO.len(),
        }
    }

    const fn of_file(self) -> RequestCase {
        RequestCase {
            is_of_file: true,
            ..self
        }
    }

    const fn with(self, policies: RoutePolicies) -> RequestCase {
        RequestCase {
            policies: Some(policies),
            ..self
        }
    }

    const fn among(self, servers: u16) -> RequestCase {
        RequestCase { servers, ..self }
    }

    const fn logged(self) -> RequestCase {
        RequestCase {
            is_logged: true,
            ..self
        }
    }

    const fn download(self) -> RequestCase {
        RequestCase {
            response_bytes: LARGE,
            ..self
        }
    }

    const fn upload(self) -> RequestCase {
        RequestCase {
            request_bytes: LARGE,
            ..self
        }
    }

    /// The target of the request. The built-in endpoints respond where there is no upstream.
    fn path(&self) -> String {
        match self.response_bytes == HELLO.len() {
            true => "/hello".to_owned(),
            false => format!("/data?size={}", self.response_bytes),
        }
    }
}

const KINDS: &[RequestCase] = &[
    RequestCase::new("h1-hello", ClientKind::Http1, None),
    RequestCase::new("h1-to-h1", ClientKind::Http1, Some(UpstreamKind::Http1)),
    RequestCase::new(
        "h1-to-h1-sites",
        ClientKind::Http1,
        Some(UpstreamKind::Http1),
    )
    .of_file(),
    RequestCase::new(
        "h1-to-h1-of-1",
        ClientKind::Http1,
        Some(UpstreamKind::Http1),
    )
    .among(1),
    RequestCase::new(
        "h1-to-h1-of-100",
        ClientKind::Http1,
        Some(UpstreamKind::Http1),
    )
    .among(100),
    RequestCase::new("h1-to-h1-log", ClientKind::Http1, Some(UpstreamKind::Http1)).logged(),
    RequestCase::new(
        "h1-to-h1-token",
        ClientKind::Http1,
        Some(UpstreamKind::Http1),
    )
    .with(RoutePolicies::None),
    RequestCase::new(
        "h1-to-h1-token-policies",
        ClientKind::Http1,
        Some(UpstreamKind::Http1),
    )
    .with(RoutePolicies::Known),
    RequestCase::new(
        "h1-to-h1-token-fresh",
        ClientKind::Http1,
        Some(UpstreamKind::Http1),
    )
    .with(RoutePolicies::Fresh),
    RequestCase::new("h2-hello", ClientKind::Http2, None),
    RequestCase::new("h2-to-h1", ClientKind::Http2, Some(UpstreamKind::Http1)),
    RequestCase::new(
        "h2-to-h1-sites",
        ClientKind::Http2,
        Some(UpstreamKind::Http1),
    )
    .of_file(),
    RequestCase::new("h2-to-h2", ClientKind::Http2, Some(UpstreamKind::Http2)),
    RequestCase::new("h1-data-1MiB", ClientKind::Http1, None).download(),
    RequestCase::new(
        "h1-to-h1-1MiB",
        ClientKind::Http1,
        Some(UpstreamKind::Http1),
    )
    .download(),
    RequestCase::new(
        "h1-to-h1-1MiB-up",
        ClientKind::Http1,
        Some(UpstreamKind::Http1),
    )
    .upload(),
    RequestCase::new(
        "h2-to-h1-1MiB",
        ClientKind::Http2,
        Some(UpstreamKind::Http1),
    )
    .download(),
    RequestCase::new(
        "h2-to-h1-1MiB-up",
        ClientKind::Http2,
        Some(UpstreamKind::Http1),
    )
    .upload(),
    RequestCase::new("h3-hello", ClientKind::Http3, None),
    RequestCase::new("h3-to-h1", ClientKind::Http3, Some(UpstreamKind::Http1)),
    RequestCase::new(
        "h3-to-h1-sites",
        ClientKind::Http3,
        Some(UpstreamKind::Http1),
    )
    .of_file(),
    RequestCase::new("h3-data-1MiB", ClientKind::Http3, None).download(),
    RequestCase::new("h3-handshake", ClientKind::Handshakes, None),
];

/// The kinds of requests that can be counted.
pub fn kinds() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|kind| kind.name)
}

/// Sends this number of requests of a kind through a simulated gateway. Returns what its core counted.
///
/// # Errors
/// There is no such kind, or a request failed.
pub fn serve(name: &str, requests: usize) -> Result<Counters, String> {
    let kind = KINDS.iter().find(|kind| kind.name == name);
    let kind = kind.ok_or_else(|| format!("there is no kind '{name}'"))?;
    let world = World::new(1, Conditions::calm());
    let socket = SocketAddr::from(([127, 0, 0, 1], 8080));
    let address = Address::Tcp(socket);
    let upstream = |number: u16| Address::Tcp(([127, 0, 0, 1], FIRST_PORT + number).into());
    let mut gateway = Gateway::new().options(options(kind));
    gateway = match kind.client {
        ClientKind::Http1 | ClientKind::Http2 => gateway.listen(address.clone()),
        ClientKind::Http3 | ClientKind::Handshakes => {
            gateway.listen_tls(address.clone(), TlsSlot::new(tls::listener()))
        }
    };
    if let Some(version) = kind.upstream {
        let scheme = match version {
            UpstreamKind::Http1 => "http",
            UpstreamKind::Http2 => "h2c",
        };
        let target = format!("{scheme}://127.0.0.1:{FIRST_PORT}");
        gateway = match (kind.policies, kind.is_of_file) {
            _ if kind.servers > 0 => {
                let sites = compiled(&several(kind.servers))?;
                sites.into_iter().fold(gateway, Gateway::site)
            }
            (Some(policies), _) => {
                let sites = compiled(&policies.site(&target))?;
                sites.into_iter().fold(gateway, Gateway::site)
            }
            (None, true) => sites(&target)?.into_iter().fold(gateway, Gateway::site),
            (None, false) => gateway.to(target.parse().map_err(|error| format!("{error}"))?),
        };
        for number in 0..kind.servers.max(1) {
            answer_upstream(&world, &upstream(number), version, kind.response_bytes)?;
        }
    }
    let site = blitz::builtin::app().into_service();
    let site = site.map_err(|error| error.to_string())?;
    let serve = gateway.on_cores(&datagrams, move || site.on_core());
    let (serve, _) = serve.map_err(|error| error.to_string())?;
    let serving = serve();
    world
        .start_core(10_000, async move { drop(serving.await) })
        .map_err(|error| error.to_string())?;
    world.run(Duration::from_millis(1), || false);
    let done = Rc::new(Cell::new(0));
    let load = |requests| Load {
        world: world.clone(),
        gateway: address.clone(),
        requests,
        client: 0,
        kind,
        done: Rc::clone(&done),
    };
    start_clients(&world, kind, requests, socket, load);
    let stop = world.run(Duration::from_secs(3_600), || done.get() == requests);
    let answered = done.get();
    let counters = world.counters(0);
    world.close();
    match stop {
        Stop::Done => Ok(counters),
        stop => Err(format!("{stop:?} with {answered} of {requests} answers")),
    }
}

/// Answers the requests of the gateway.
fn answer_upstream(
    world: &World,
    upstream: &Address,
    version: UpstreamKind,
    bytes: usize,
) -> Result<(), String> {
    let acceptor = world.listen(upstream).map_err(|error| error.to_string())?;
    let theirs = world.clone();
    world.spawn(async move {
        loop {
            let stream = Rc::new(acceptor.accept().await);
            match version {
                UpstreamKind::Http1 => {
                    let pulse = Rc::new(Cell::new(Duration::ZERO));
                    let raw = Raw::new(stream, &theirs, pulse);
                    theirs.spawn(answer_http1(raw, bytes));
                }
                UpstreamKind::Http2 => {
                    theirs.spawn(answer_http2(theirs.clone(), stream, bytes));
                }
            }
        }
    });
    Ok(())
}

fn options(kind: &RequestCase) -> Options {
    let log = AccessLog::new(LogSettings::default(), Arc::new(Nowhere));
    Options {
        access_log: kind.is_logged.then(|| Arc::new(log)),
        record_sink: Some(Arc::new(Nowhere)),
        ..Options::default()
    }
}

/// In place of the thread that takes records and writes lines.
#[derive(Debug)]
struct Nowhere;

impl RecordSink for Nowhere {
    fn take(&self, batch: RecordBatch) -> Option<RecordBatch> {
        Some(batch)
    }
}

impl LogSink for Nowhere {
    fn write(&self, _lines: Vec<u8>) -> Vec<u8> {
        Vec::new()
    }
}

/// The sites of a file, that of the clients among the others.
fn sites(target: &str) -> Result<Vec<Site>, String> {
    let mut text = "[site]\n".to_owned();
    for number in 0..SITES - 1 {
        text += &format!("\"a{number}.example\" = \"http://127.0.0.1:1\"\n");
        if number == SITES / 2 {
            text += &format!("\"gateway\" = \"{target}\"\n");
        }
    }
    compiled(&text)
}

/// A site with so many servers, whose choice is made also if there is one.
fn several(servers: u16) -> String {
    let urls = (0..servers).map(|number| format!("\"http://127.0.0.1:{}\"", FIRST_PORT + number));
    let urls: Vec<String> = urls.collect();
    let servers = urls.join(", ");
    format!(
        "[site.\"gateway\"]\nto = \"app\"\n[upstream.app]\nslow_start = \"1s\"\nservers = [{servers}]\n"
    )
}

/// The sites of a file's text.
fn compiled(text: &str) -> Result<Vec<Site>, String> {
    let document = Document::new("blitz.toml", text);
    let (configuration, mut diagnostics) = read(&document, &Environment::default());
    let mut read_file = |_: &str| {
        Ok(LoadedFile {
            content_type: "",
            content: policies::KEYS.as_bytes().into(),
        })
    };
    let sites = compile(&configuration, &mut read_file, &mut diagnostics);
    match diagnostics.first() {
        None => Ok(sites),
        Some(diagnostic) => Err(diagnostic.message.clone()),
    }
}

/// Starts the clients, each with its part of the requests.
fn start_clients(
    world: &World,
    kind: &RequestCase,
    requests: usize,
    gateway: SocketAddr,
    load: impl Fn(usize) -> Load,
) {
    match kind.client {
        ClientKind::Http2 => world.spawn(ask_http2(load(requests))),
        ClientKind::Http3 => world.spawn(ask_http3(load(requests), gateway)),
        ClientKind::Http1 => {
            for client in 0..AT_ONCE {
                let load = load(share(requests, client));
                world.spawn(ask_http1(Load { client, ..load }));
            }
        }
        ClientKind::Handshakes => {
            for client in 0..AT_ONCE {
                world.spawn(shake_hands(load(share(requests, client)), gateway, client));
            }
        }
    }
}

/// The UDP socket of a listener with TLS.
fn datagrams(listener: &ListenerConfig) -> Option<DatagramListener> {
    match listener.address {
        Address::Tcp(address) if listener.http3 => {
            let listener = DatagramListener::simulated(address, 1, &QUIC_SECRET, RETRY_ABOVE);
            Some(listener)
        }
        _ => None,
    }
}

/// The number of requests that one client sends.
fn share(requests: usize, client: usize) -> usize {
    requests / AT_ONCE + usize::from(client < requests % AT_ONCE)
}

async fn answer_http1(mut raw: Raw, bytes: usize) {
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {bytes}\r\n\r\n{}",
        "x".repeat(bytes)
    );
    while let Ok(Some(head)) = raw.head().await {
        let Ok(framing) = head.framing(false) else {
            return;
        };
        if raw.content(framing, None).await.is_err() || raw.write(answer.as_bytes()).await.is_err()
        {
            return;
        }
    }
}

async fn answer_http2(world: World, stream: Rc<Stream>, bytes: usize) {
    let service = service_fn(move |_: Request<Incoming>| async move {
        let content = Whole(Some(Bytes::from(vec![b'x'; bytes])));
        Response::builder()
            .header("content-type", "text/plain")
            .body(content)
    });
    let mut builder = hyper::server::conn::http2::Builder::new(Tasks(world));
    builder.auto_date_header(false);
    // The client notices an error.
    let _ = builder
        .serve_connection(HyperIo::new(stream, || ()), service)
        .await;
}

/// The requests of one connection.
struct Load {
    world: World,
    gateway: Address,
    requests: usize,
    /// The number of the connection.
    client: usize,
    kind: &'static RequestCase,
    /// Complete responses of all connections.
    done: Rc<Cell<usize>>,
}

impl Load {
    async fn connect(&self) -> Option<Rc<Stream>> {
        self.world.connect(&self.gateway).await.ok().map(Rc::new)
    }
}

async fn ask_http1(load: Load) {
    let Some(stream) = load.connect().await else {
        return;
    };
    let pulse = Rc::new(Cell::new(Duration::ZERO));
    let mut raw = Raw::new(stream, &load.world, pulse);
    let expected = BodyFraming::Length(load.kind.response_bytes as u64);
    let path = load.kind.path();
    let request = |fields: &str| match load.kind.request_bytes {
        0 => format!("GET {path} HTTP/1.1\r\nhost: gateway\r\n{fields}\r\n"),
        bytes => format!(
            "POST {path} HTTP/1.1\r\nhost: gateway\r\n{fields}content-length: {bytes}\r\n\r\n{}",
            "x".repeat(bytes)
        ),
    };
    let usual = request("");
    for number in 0..load.requests {
        let with_fields = load.kind.policies.map(|policies| {
            // No other client sends a token with this number.
            request(&policies.fields(number * AT_ONCE + load.client))
        });
        let request = with_fields.as_ref().unwrap_or(&usual);
        if raw.write(request.as_bytes()).await.is_err() {
            return;
        }
        let Ok(Some(head)) = raw.head().await else {
            return;
        };
        let is_right = head.framing(true).is_ok_and(|framing| framing == expected);
        if !is_right || raw.content(expected, None).await.is_err() {
            return;
        }
        load.done.set(load.done.get() + 1);
    }
}

async fn ask_http2(load: Load) {
    let Some(stream) = load.connect().await else {
        return;
    };
    let Load {
        world,
        requests,
        kind,
        done,
        ..
    } = load;
    let io = HyperIo::new(stream, || ());
    let shaken = hyper::client::conn::http2::handshake(Tasks(world.clone()), io).await;
    let Ok((sender, connection)) = shaken else {
        return;
    };
    world.spawn(async { drop(connection.await) });
    for client in 0..AT_ONCE {
        let share = share(requests, client);
        let (mut sender, done) = (sender.clone(), Rc::clone(&done));
        world.spawn(async move {
            for _ in 0..share {
                let uri = format!("http://gateway{}", kind.path());
                let request = match kind.request_bytes {
                    0 => Request::get(uri).body(Whole(None)),
                    bytes => Request::post(uri).body(Whole(Some(Bytes::from(vec![b'x'; bytes])))),
                };
                let request = request.expect("it is a valid request");
                let Ok(answer) = sender.send_request(request).await else {
                    return;
                };
                let mut body = pin!(answer.into_body());
                let mut received = 0;
                while let Some(Ok(frame)) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
                    received += frame.data_ref().map_or(0, Bytes::len);
                }
                if received != kind.response_bytes {
                    return;
                }
                done.set(done.get() + 1);
            }
        });
    }
}

/// Sends requests on one connection of HTTP/3.
async fn ask_http3(load: Load, gateway: SocketAddr) {
    let Some(connection) = Counted::connect(&load.world, gateway, 1).await else {
        return;
    };
    for client in 0..AT_ONCE {
        let share = share(load.requests, client);
        let (mut connection, done) = (connection.clone(), Rc::clone(&load.done));
        let kind = load.kind;
        load.world.spawn(async move {
            for _ in 0..share {
                if connection.get(&kind.path()).await != Some(kind.response_bytes) {
                    return;
                }
                done.set(done.get() + 1);
            }
        });
    }
}

/// Sends each request on a connection of its own.
async fn shake_hands(load: Load, gateway: SocketAddr, client: usize) {
    for request in 0..load.requests {
        let seed = (client << 32 | request) as u64;
        let Some(mut connection) = Counted::connect(&load.world, gateway, seed).await else {
            return;
        };
        if connection.get(&load.kind.path()).await != Some(load.kind.response_bytes) {
            return;
        }
        load.done.set(load.done.get() + 1);
    }
}

/// Content of one piece, or none.
struct Whole(Option<Bytes>);

impl Body for Whole {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Whole>,
        _cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, std::convert::Infallible>>> {
        std::task::Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}
