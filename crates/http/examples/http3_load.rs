//! Load for an HTTP/3 server: many requests at a time on each of many connections, with the client of `h3` and `quinn`.
//!
//! ```text
//! cargo run --release --package blitz-http --example http3_load -- \
//!     https://localhost:8443/hello --ca ~/.local/state/blitz/ca.pem -c 32 -m 32 -t 10
//! ```
//!
//! With `-m 0` each connection has one request and is then idle for the time of `-t`.
//!
//! Prints the requests, the failures, and percentiles of the latency. Whoever measures the server reads its CPU time.

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
    /// Each request has another field, so that no head is like the one before.
    is_varied: bool,
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
        is_varied: false,
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
            url => plan.url = url.parse()?,
        }
    }
    Ok(plan)
}

async fn run(plan: Arc<Plan>) -> Result<(), Failure> {
    let host = plan.url.host().ok_or("the URL has no host")?.to_owned();
    let port = plan.url.port_u16().unwrap_or(443);
    let found = || {
        let mut found = (host.as_str(), port).to_socket_addrs().ok()?;
        found.find(SocketAddr::is_ipv4)
    };
    let address = plan.address.or_else(found);
    let address = address.ok_or("the host has no IPv4 address")?;
    let config = client_config(&plan)?;
    let mut tasks = Vec::new();
    for _ in 0..plan.connections {
        let mut endpoint = quinn::Endpoint::client(([0, 0, 0, 0], 0).into())?;
        endpoint.set_default_client_config(config.clone());
        let connection = endpoint.connect(address, &host)?.await?;
        let (mut driver, sender) = h3::client::new(h3_quinn::Connection::new(connection)).await?;
        tokio::spawn(async move {
            let _ = std::future::poll_fn(|cx| driver.poll_close(cx)).await;
        });
        tasks.push((endpoint, sender));
    }
    let end = Instant::now() + plan.time;
    if plan.streams == 0 {
        return idle(&plan, tasks).await;
    }
    let mut streams = Vec::new();
    for (endpoint, sender) in tasks {
        for number in 0..plan.streams {
            let (plan, sender, endpoint) = (Arc::clone(&plan), sender.clone(), endpoint.clone());
            streams.push(tokio::spawn(async move {
                let sums = stream(&plan, sender, number, end).await;
                drop(endpoint);
                sums
            }));
        }
    }
    let mut all = Sums::default();
    for stream in streams {
        let sums = stream.await?;
        all.latencies.extend(sums.latencies);
        all.failures += sums.failures;
        all.bytes += sums.bytes;
    }
    report(&plan, all);
    Ok(())
}

async fn idle(plan: &Plan, mut tasks: Vec<(quinn::Endpoint, Sender)>) -> Result<(), Failure> {
    for (_, sender) in &mut tasks {
        exchange(sender, http::Request::get(plan.url.clone()).body(())?).await?;
    }
    println!("{} connections are idle", tasks.len());
    tokio::time::sleep(plan.time).await;
    Ok(())
}

async fn stream(plan: &Plan, mut sender: Sender, number: usize, end: Instant) -> Sums {
    let mut sums = Sums::default();
    while Instant::now() < end {
        let started = Instant::now();
        let mut request = http::Request::get(plan.url.clone());
        if plan.is_varied {
            let value = format!("{number}-{}", sums.latencies.len());
            request = request.header("x-request", value);
        }
        let Ok(request) = request.body(()) else {
            return sums;
        };
        match exchange(&mut sender, request).await {
            Ok(bytes) => {
                sums.latencies.push(started.elapsed());
                sums.bytes += bytes;
            }
            Err(_) => {
                sums.failures += 1;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
    sums
}

async fn exchange(sender: &mut Sender, request: http::Request<()>) -> Result<u64, Failure> {
    let mut stream = sender.send_request(request).await?;
    stream.finish().await?;
    let response = stream.recv_response().await?;
    if !response.status().is_success() {
        return Err(response.status().to_string().into());
    }
    let mut bytes = 0;
    while let Some(piece) = stream.recv_data().await? {
        bytes += piece.remaining() as u64;
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
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let tls = QuicClientConfig::try_from(tls)?;
    Ok(quinn::ClientConfig::new(Arc::new(tls)))
}
