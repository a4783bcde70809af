//! A gateway under test, and scripted upstreams.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use blitz_config::{Document, Environment, read};
use blitz_gateway::{
    Counters, Gateway, HealthChecker, MetricsReader, Options, RecentFailure, Replacement, Running,
    Site, StateReader, Target, UpstreamReport, compile,
};
use blitz_host::serving::ListenerConfig;
use blitz_http::{
    Address, Chunk, ClientTls, Config, IoChoice, Name, Pinning, Pooled, PooledFuture, Status,
    TlsSlot,
};
use blitz_site::{Endpoint, Exchange};
use blitz_testing::{Client, H1Peer, Head, IO_TIMEOUT, PeerStream};

use crate::site_rules::test_file;
use crate::tls_support::Authority;

/// The longest wait; the HTTP/2 peers, which other crates use too, have the same.
pub(crate) const SOON: Duration = IO_TIMEOUT;

/// Runs each scenario once per driver.
macro_rules! scenarios {
    ($(fn $name:ident($io:ident) $body:block)*) => {
        $(fn $name($io: blitz_http::IoChoice) $body)*

        mod on_uring {
            $(#[test] fn $name() { super::$name(blitz_http::IoChoice::Auto); })*
        }
        mod on_epoll {
            $(#[test] fn $name() { super::$name(blitz_http::IoChoice::Epoll); })*
        }
    };
}

/// A gateway on one core; it stops when dropped.
pub(crate) struct Proxy {
    running: Option<Running>,
    pub(crate) address: SocketAddr,
}

impl Proxy {
    /// A gateway with these values of `--to`.
    pub(crate) fn to(io: IoChoice, targets: &[&str]) -> Proxy {
        Proxy::with(io, targets, Options::default())
    }

    pub(crate) fn with(io: IoChoice, targets: &[&str], options: Options) -> Proxy {
        let gateway = Proxy::gateway(io).options(options);
        Proxy::start(gateway, targets)
    }

    /// A gateway with targets over TLS, whose certificates this authority has issued.
    pub(crate) fn to_tls(io: IoChoice, targets: &[&str], authority: &Authority) -> Proxy {
        Proxy::start(
            Proxy::gateway(io).upstream_tls(trusting(authority)),
            targets,
        )
    }

    /// A gateway that listens with TLS.
    pub(crate) fn over_tls(io: IoChoice, targets: &[&str], tls: TlsSlot) -> Proxy {
        Proxy::over_tls_with(io, targets, tls, Options::default())
    }

    pub(crate) fn over_tls_with(
        io: IoChoice,
        targets: &[&str],
        tls: TlsSlot,
        options: Options,
    ) -> Proxy {
        Proxy::start(Proxy::gateway_over_tls(io, tls).options(options), targets)
    }

    /// Settings for one core and a free port with TLS.
    pub(crate) fn gateway_over_tls(io: IoChoice, tls: TlsSlot) -> Gateway {
        Gateway::new()
            .listen_tls(any_port(), tls)
            .config(config(io))
    }

    /// Settings for one core and a free port.
    pub(crate) fn gateway(io: IoChoice) -> Gateway {
        Gateway::new().listen(any_port()).config(config(io))
    }

    /// A gateway whose upstream gets the trailers of requests.
    pub(crate) fn with_request_trailers(io: IoChoice, target: &str) -> Proxy {
        let target = Target {
            request_trailers: true,
            ..target.parse().unwrap()
        };
        Proxy::start(Proxy::gateway(io).to(target), &[])
    }

    pub(crate) fn start(mut gateway: Gateway, targets: &[&str]) -> Proxy {
        for target in targets {
            gateway = gateway.to(target.parse().unwrap());
        }
        let running = gateway.start(|| Rc::new(BuiltIn)).unwrap();
        let Address::Tcp(address) = running.listeners().next().unwrap().address else {
            panic!("not a TCP address")
        };
        Proxy {
            running: Some(running),
            address,
        }
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// A client connection on the level of bytes.
    pub(crate) fn peer(&self) -> H1Peer {
        H1Peer::new(TcpStream::connect(self.address).unwrap())
    }

    /// The ports of the listeners, in order.
    pub(crate) fn ports(&self) -> Vec<u16> {
        let listeners = self.running.as_ref().unwrap().listeners();
        let port = |listener: &ListenerConfig| match &listener.address {
            Address::Tcp(address) => address.port(),
            Address::Unix(_) => panic!("not a TCP address"),
        };
        listeners.map(port).collect()
    }

    pub(crate) fn counters(&self) -> Counters {
        self.running.as_ref().unwrap().counters().0
    }

    /// Checks the servers of its upstreams, on a core that runs it.
    pub(crate) fn health_checker(&self) -> HealthChecker {
        self.running.as_ref().unwrap().health_checker()
    }

    pub(crate) fn state_reader(&self) -> StateReader {
        self.running.as_ref().unwrap().state_reader()
    }

    pub(crate) fn upstreams(&self) -> Vec<UpstreamReport> {
        self.running.as_ref().unwrap().state_reader().upstreams()
    }

    pub(crate) fn failures(&self) -> Vec<RecentFailure> {
        self.running.as_ref().unwrap().state_reader().failures()
    }

    /// A reader of its metrics.
    pub(crate) fn metrics(&self) -> MetricsReader {
        self.running.as_ref().unwrap().metrics()
    }

    /// Runs a job on its cores.
    pub(crate) fn post_all(&self, job: impl Fn(usize) + Send + Sync + 'static) {
        self.running.as_ref().unwrap().cores().post_all(job);
    }

    pub(crate) fn http_counters(&self) -> blitz_http::Counters {
        self.running.as_ref().unwrap().counters().1
    }
}

impl Proxy {
    /// Replaces its targets by these for all hosts, on its core when this returns.
    pub(crate) fn replace_targets(&mut self, targets: &[&str]) {
        let route = |target: &&str| match target.split_once('=') {
            Some((path, url)) => format!("\"{path}\" = \"{url}\"\n"),
            None => format!("to = \"{target}\"\n"),
        };
        let routes: String = targets.iter().map(route).collect();
        self.replace_sites(&format!("[site.\"*\"]\n{routes}"));
    }

    /// Has its services get the servers that they have now; returns whether that is a change.
    pub(crate) fn follow_services(&mut self) -> bool {
        self.running.as_mut().unwrap().reloading().follow_services()
    }

    /// Replaces its sites by those of a file, on its core when this returns.
    pub(crate) fn replace_sites(&mut self, text: &str) {
        self.replace(text, |replacement| replacement);
    }

    /// The same, with other changes of the replacement.
    pub(crate) fn replace(&mut self, text: &str, change: impl FnOnce(Replacement) -> Replacement) {
        let document = Document::new("blitz.toml", text);
        let (configuration, mut diagnostics) = read(&document, &Environment::default());
        let sites = compile(&configuration, &mut test_file, &mut diagnostics);
        assert_eq!(diagnostics, []);
        let running = self.running.as_mut().unwrap();
        let listeners: Vec<_> = running.listeners().cloned().collect();
        let mut running = running.reloading();
        let replacement = change(running.prepare(sites, listeners).unwrap());
        running.replace(replacement, || ()).unwrap();
        // The core answers behind the replacement.
        self.counters();
    }

    /// Closes all listeners but the first one, and replaces its sites.
    pub(crate) fn keep_one_listener(&mut self, sites: Vec<Site>) {
        let running = self.running.as_mut().unwrap();
        let listeners: Vec<_> = running.listeners().take(1).cloned().collect();
        let mut running = running.reloading();
        let replacement = running.prepare(sites, listeners).unwrap();
        running.replace(replacement, || ()).unwrap();
    }

    pub(crate) fn drain(&self, limit: Duration) {
        self.running.as_ref().unwrap().drain(limit);
    }

    /// The gateway, which does not stop with this value any more.
    pub(crate) fn take(&mut self) -> Running {
        self.running.take().unwrap()
    }

    /// Waits until it has ended.
    pub(crate) fn join(&mut self) {
        let Some(running) = self.running.take() else {
            return;
        };
        let joined = running.join();
        assert!(thread::panicking() || joined.is_ok(), "{joined:?}");
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if self.running.is_some() {
            self.drain(Duration::ZERO);
            self.join();
        }
    }
}

/// Settings that trust this authority.
pub(crate) fn trusting(authority: &Authority) -> ClientTls {
    let tls = ClientTls::builder().authorities(authority.set());
    tls.build().unwrap()
}

pub(crate) fn any_port() -> Address {
    Address::Tcp((Ipv4Addr::LOCALHOST, 0).into())
}

pub(crate) fn config(io: IoChoice) -> Config {
    Config {
        io,
        cores: 1,
        pin: Pinning::Off,
        ..Config::default()
    }
}

/// In place of the built-in endpoints.
struct BuiltIn;

impl Endpoint for BuiltIn {
    fn call<'a>(self: Rc<Self>, mut exchange: Exchange<'a>) -> Option<PooledFuture<'a, ()>> {
        Some(PooledFuture::new(async move {
            if exchange.request.path() == "/read" {
                let _ = exchange.body.read_to_end(1000).await;
            }
            let mut head = Pooled::response(Status::NOT_FOUND);
            let content = match exchange.request.path() {
                "/traceparent" => exchange.request.fields.get_str(Name::Traceparent),
                _ => Some("built in"),
            };
            let content = content.unwrap_or_default().to_owned();
            exchange.responder.send(&mut head, Chunk::from(content));
        }))
    }
}

/// An upstream that runs a script for each connection, with the connection's number from 0.
pub(crate) struct Upstream {
    address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    heads: Arc<Mutex<Vec<Head>>>,
}

impl Upstream {
    pub(crate) fn scripted(
        script: impl Fn(usize, &mut H1Peer) + Send + Sync + 'static,
    ) -> Upstream {
        serve_all(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap(), script)
    }

    /// Sends these bytes as the response to each request, after its content.
    pub(crate) fn with_response(response: impl Into<Vec<u8>>) -> Upstream {
        let response = response.into();
        Upstream::scripted(move |_, peer| {
            while peer.request().is_some() {
                peer.send(&response);
            }
        })
    }

    /// Responds with 200 and this text.
    pub(crate) fn with_text(text: &str) -> Upstream {
        Upstream::with_response(ok(text))
    }

    /// The value for `--to`.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Number of accepted connections.
    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    /// The request heads that it read, in order.
    pub(crate) fn heads(&self) -> Vec<Head> {
        self.heads.lock().unwrap().clone()
    }

    /// The only request that it read.
    pub(crate) fn head(&self) -> Head {
        let heads = self.heads();
        assert_eq!(heads.len(), 1, "{heads:?}");
        heads[0].clone()
    }
}

/// An upstream on this listener.
pub(crate) fn serve_all(
    listener: TcpListener,
    script: impl Fn(usize, &mut H1Peer) + Send + Sync + 'static,
) -> Upstream {
    let address = listener.local_addr().unwrap();
    let heads = Arc::default();
    let accepted = Arc::default();
    let streams = Streams {
        heads: Arc::clone(&heads),
        accepted: Arc::clone(&accepted),
    };
    thread::spawn(move || {
        streams.run(listener.incoming().flatten(), &Arc::new(script));
    });
    Upstream {
        address,
        accepted,
        heads,
    }
}

/// An upstream on a unix socket that responds to every request with this text.
pub(crate) fn unix_upstream(name: &str, text: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("blitz-{name}-{}.sock", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).unwrap();
    let response = ok(text);
    let streams = Streams {
        heads: Arc::default(),
        accepted: Arc::default(),
    };
    let script = move |_, peer: &mut H1Peer| {
        while peer.request().is_some() {
            peer.send(&response);
        }
    };
    thread::spawn(move || {
        streams.run(listener.incoming().flatten(), &Arc::new(script));
    });
    path
}

struct Streams {
    heads: Arc<Mutex<Vec<Head>>>,
    accepted: Arc<AtomicUsize>,
}

impl Streams {
    fn run(
        self,
        streams: impl Iterator<Item = impl PeerStream + 'static>,
        script: &Arc<impl Fn(usize, &mut H1Peer) + Send + Sync + 'static>,
    ) {
        for stream in streams {
            let number = self.accepted.fetch_add(1, Ordering::SeqCst);
            let script = Arc::clone(script);
            let heads = Arc::clone(&self.heads);
            thread::spawn(move || {
                script(number, &mut H1Peer::new(stream).recording(heads));
            });
        }
    }
}

/// A response with `Content-Length`.
pub(crate) fn ok(text: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}",
        text.len()
    )
}

/// Waits until the check succeeds.
pub(crate) fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let deadline = Instant::now() + IO_TIMEOUT;
    while !check() {
        assert!(Instant::now() < deadline, "never: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// An upstream that responds to a request when the sender sends.
pub(crate) fn held(text: &'static str) -> (Upstream, Sender<()>) {
    let (release, released) = channel();
    let released = Mutex::new(released);
    let upstream = Upstream::scripted(move |_, peer| {
        while peer.request().is_some() {
            let _ = released.lock().unwrap().recv();
            peer.send(ok(text));
        }
    });
    (upstream, release)
}

/// Numbers below the one that is asked for, which follow from a seed (xorshift).
pub(crate) fn numbers(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    }
}
