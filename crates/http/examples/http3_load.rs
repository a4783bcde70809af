//! Load for an HTTP/3 server: many requests at a time on each of many connections, with the client of `h3` and `quinn`.
//!
//! ```text
//! cargo run --profile dist --package blitz-http --example http3_load -- \
//!     https://localhost:8443/hello --ca ~/.local/state/blitz/ca.pem -c 32 -m 32 -t 10
//! ```
//!
//! | flag | effect |
//! |---|---|
//! | `--varied` | each request of a connection has another query |
//! | `--handshakes` | each request has a connection of its own, `-c` of them at a time |
//! | `-m 0` | each connection has one request and is then idle for the time of `-t` |
//! | `--once` | one request, whose content is printed |
//!
//! Connections use TLS_AES_128_GCM_SHA256 and X25519, each its own socket. Prints the requests, the failures and
//! percentiles of the latency, or the same as an object with `--json`. The caller reads the server's CPU time.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Buf;
use quinn::crypto::rustls::QuicClientConfig;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Sender = h3::client::SendRequest<h3_quinn::OpenStreams, bytes::Bytes>;

struct Plan {
    url: http::Uri,
    authorities: String,
    /// Where to connect to, if not to the host of the URL.
    address: Option<SocketAddr>,
    connections: usize,
    streams: usize,
    time: Duration,
    mode: Mode,
    is_varied: bool,
    is_json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Requests,
    Handshakes,
    Once,
}

#[derive(Default)]
struct Sums {
    latencies: Vec<Duration>,
    failures: u64,
    bytes: u64,
}

fn main() -> Result<(), Failure> {
    let plan = Arc::new(plan()?);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(run(plan))
}

fn plan() -> Result<Plan, Failure> {
    let mut plan = Plan {
        url: http::Uri::default(),
        authorities: String::new(),
        address: None,
        connections: 32,
        streams: 32,
        time: Duration::from_secs(10),
        mode: Mode::Requests,
        is_varied: false,
        is_json: false,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or("a value is missing");
        match argument.as_str() {
            "--ca" => plan.authorities = value()?,
            "--connect" => plan.address = Some(value()?.parse()?),
            "-c" => plan.connections = value()?.parse()?,
            "-m" => plan.streams = value()?.parse()?,
            "-t" => plan.time = Duration::from_secs_f64(value()?.parse()?),
            "--varied" => plan.is_varied = true,
            "--handshakes" => plan.mode = Mode::Handshakes,
            "--once" => plan.mode = Mode::Once,
            "--json" => plan.is_json = true,
            url => plan.url = url.parse()?,
        }
    }
    Ok(plan)
}

async fn run(plan: Arc<Plan>) -> Result<(), Failure> {
    let server = Server::of(&plan)?;
    match plan.mode {
        Mode::Once => {
            let (endpoint, mut sender) = server.connect().await?;
            let mut content = Vec::new();
            exchange(&mut sender, request(&plan, None)?, Some(&mut content)).await?;
            print!("{}", String::from_utf8_lossy(&content));
            server.close(&endpoint).await;
            Ok(())
        }
        Mode::Handshakes => handshakes(&plan, server).await,
        Mode::Requests => requests(&plan, &server).await,
    }
}

/// Where to connect to, and how.
#[derive(Clone)]
struct Server {
    host: String,
    address: SocketAddr,
    config: quinn::ClientConfig,
}

impl Server {
    fn of(plan: &Plan) -> Result<Server, Failure> {
        let host = plan.url.host().ok_or("the URL has no host")?.to_owned();
        let port = plan.url.port_u16().unwrap_or(443);
        let found = || {
            let mut found = (host.as_str(), port).to_socket_addrs().ok()?;
            found.find(SocketAddr::is_ipv4)
        };
        let address = plan.address.or_else(found);
        Ok(Server {
            address: address.ok_or("the host has no IPv4 address")?,
            config: client_config(plan)?,
            host,
        })
    }

    async fn connect(&self) -> Result<(quinn::Endpoint, Sender), Failure> {
        let mut endpoint = quinn::Endpoint::client(([0, 0, 0, 0], 0).into())?;
        endpoint.set_default_client_config(self.config.clone());
        let connection = endpoint.connect(self.address, &self.host)?.await?;
        let (mut driver, sender) = h3::client::new(h3_quinn::Connection::new(connection)).await?;
        tokio::spawn(async move {
            let _ = std::future::poll_fn(|cx| driver.poll_close(cx)).await;
        });
        Ok((endpoint, sender))
    }

    /// Tells the server that the connections of an endpoint are over.
    async fn close(&self, endpoint: &quinn::Endpoint) {
        endpoint.close(0x100_u32.into(), b"");
        endpoint.wait_idle().await;
    }
}

/// Many requests at a time on each connection.
async fn requests(plan: &Arc<Plan>, server: &Server) -> Result<(), Failure> {
    let mut connected = Vec::new();
    for _ in 0..plan.connections {
        connected.push(server.connect().await?);
    }
    let end = Instant::now() + plan.time;
    if plan.streams == 0 {
        return idle(plan, connected).await;
    }
    let mut streams = Vec::new();
    for (endpoint, sender) in connected {
        for number in 0..plan.streams {
            let (plan, sender, endpoint) = (Arc::clone(plan), sender.clone(), endpoint.clone());
            streams.push(tokio::spawn(async move {
                let sums = stream(&plan, sender, number, end).await;
                drop(endpoint);
                sums
            }));
        }
    }
    report_all(plan, streams).await
}

/// One request on each connection.
async fn handshakes(plan: &Arc<Plan>, server: Server) -> Result<(), Failure> {
    let end = Instant::now() + plan.time;
    let client = |_| {
        let (plan, server) = (Arc::clone(plan), server.clone());
        tokio::spawn(async move {
            let mut sums = Sums::default();
            while Instant::now() < end {
                let started = Instant::now();
                let connected = server.connect().await;
                let bytes = match connected {
                    Ok((endpoint, mut sender)) => {
                        let request = request(&plan, None);
                        let bytes = match request {
                            Ok(request) => exchange(&mut sender, request, None).await,
                            Err(error) => Err(error),
                        };
                        endpoint.close(0x100_u32.into(), b"");
                        bytes
                    }
                    Err(error) => Err(error),
                };
                sums.add(started, bytes).await;
            }
            sums
        })
    };
    report_all(plan, (0..plan.connections).map(client).collect()).await
}

async fn report_all(plan: &Plan, tasks: Vec<tokio::task::JoinHandle<Sums>>) -> Result<(), Failure> {
    let mut all = Sums::default();
    for task in tasks {
        let sums = task.await?;
        all.latencies.extend(sums.latencies);
        all.failures += sums.failures;
        all.bytes += sums.bytes;
    }
    report(plan, all);
    Ok(())
}

impl Sums {
    async fn add(&mut self, started: Instant, bytes: Result<u64, Failure>) {
        match bytes {
            Ok(bytes) => {
                self.latencies.push(started.elapsed());
                self.bytes += bytes;
            }
            Err(_) => {
                self.failures += 1;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

async fn idle(plan: &Plan, mut connected: Vec<(quinn::Endpoint, Sender)>) -> Result<(), Failure> {
    for (_, sender) in &mut connected {
        exchange(sender, request(plan, None)?, None).await?;
    }
    println!("{} connections are idle", connected.len());
    tokio::time::sleep(plan.time).await;
    Ok(())
}

/// One request after the other.
async fn stream(plan: &Plan, mut sender: Sender, number: usize, end: Instant) -> Sums {
    let mut sums = Sums::default();
    for round in 0.. {
        let started = Instant::now();
        // Streams differ, and the same query comes again after 10,000 requests of a connection.
        let query = plan
            .is_varied
            .then_some((number + round * plan.streams) % VARIED_QUERIES);
        let Ok(request) = request(plan, query) else {
            break;
        };
        let bytes = exchange(&mut sender, request, None).await;
        sums.add(started, bytes).await;
        if Instant::now() >= end {
            break;
        }
    }
    sums
}

const VARIED_QUERIES: usize = 10_000;

fn request(plan: &Plan, query: Option<usize>) -> Result<http::Request<()>, Failure> {
    let Some(query) = query else {
        return Ok(http::Request::get(plan.url.clone()).body(())?);
    };
    let mut parts = plan.url.clone().into_parts();
    let path = format!("{}?n={query}", plan.url.path());
    parts.path_and_query = Some(path.parse()?);
    Ok(http::Request::get(http::Uri::from_parts(parts)?).body(())?)
}

/// The bytes of the response's content, which is stored if there is a buffer for it.
async fn exchange(
    sender: &mut Sender,
    request: http::Request<()>,
    mut content: Option<&mut Vec<u8>>,
) -> Result<u64, Failure> {
    let mut stream = sender.send_request(request).await?;
    stream.finish().await?;
    let response = stream.recv_response().await?;
    if !response.status().is_success() {
        return Err(response.status().to_string().into());
    }
    let mut bytes = 0;
    while let Some(mut piece) = stream.recv_data().await? {
        bytes += piece.remaining() as u64;
        if let Some(content) = &mut content {
            content.extend_from_slice(&piece.copy_to_bytes(piece.remaining()));
        }
    }
    Ok(bytes)
}

fn report(plan: &Plan, mut all: Sums) {
    all.latencies.sort_unstable();
    let at = |part: f64| {
        let index = (all.latencies.len() as f64 * part) as usize;
        let latency = all.latencies.get(index).or(all.latencies.last());
        latency.copied().unwrap_or_default().as_secs_f64() * 1e3
    };
    let requests = all.latencies.len();
    if plan.is_json {
        let us = |part: f64| (at(part) * 1e3) as u64;
        return println!(
            r#"{{"requests":{requests},"bytes":{},"duration_us":{},"p50_us":{},"p99_us":{},"max_us":{},"errors":{}}}"#,
            all.bytes,
            plan.time.as_micros(),
            us(0.5),
            us(0.99),
            us(1.0),
            all.failures
        );
    }
    println!(
        "requests {requests} failures {} bytes {} rate {:.0}/s p50 {:.3} ms p99 {:.3} ms max {:.3} ms",
        all.failures,
        all.bytes,
        requests as f64 / plan.time.as_secs_f64(),
        at(0.5),
        at(0.99),
        at(1.0)
    );
}

fn client_config(plan: &Plan) -> Result<quinn::ClientConfig, Failure> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(&plan.authorities)? {
        roots.add(certificate?)?;
    }
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider
        .cipher_suites
        .retain(|suite| suite.suite() == rustls::CipherSuite::TLS13_AES_128_GCM_SHA256);
    provider
        .kx_groups
        .retain(|group| group.name() == rustls::NamedGroup::X25519);
    let mut tls = rustls::ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    if plan.mode == Mode::Handshakes {
        tls.resumption = rustls::client::Resumption::disabled();
    }
    let tls = QuicClientConfig::try_from(tls)?;
    // Those of `blitz load`: a browser's, and of a stream what cannot have more gaps than the library keeps.
    let mut transport = quinn::TransportConfig::default();
    transport
        .stream_receive_window(quinn::VarInt::from_u32(2 << 20))
        .receive_window(quinn::VarInt::from_u32(15 << 20));
    let mut config = quinn::ClientConfig::new(Arc::new(tls));
    config.transport_config(Arc::new(transport));
    Ok(config)
}
