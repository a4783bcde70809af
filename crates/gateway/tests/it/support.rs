//! A gateway under test, and upstreams that follow a script.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use blitz_gateway::{Counters, Gateway, Options, Running};
use blitz_http::{
    Address, ClientTls, Config, Exchange, IoChoice, Pooled, Status, TlsSlot, service_fn,
};
use blitz_testing::{Client, IO_TIMEOUT};
use rustls::{ServerConnection, StreamOwned};
use socket2::SockRef;

use crate::tls_support::Authority;

/// The longest wait of the HTTP/2 peers, which other crates have too.
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
    /// With these values of `--to`.
    pub(crate) fn to(io: IoChoice, targets: &[&str]) -> Proxy {
        Proxy::with(io, targets, Options::default())
    }

    pub(crate) fn with(io: IoChoice, targets: &[&str], options: Options) -> Proxy {
        let gateway = Proxy::gateway(io).options(options);
        Proxy::start(gateway, targets)
    }

    /// For targets over TLS, whose certificates come from this authority.
    pub(crate) fn to_tls(io: IoChoice, targets: &[&str], authority: &Authority) -> Proxy {
        Proxy::start(
            Proxy::gateway(io).upstream_tls(believing(authority)),
            targets,
        )
    }

    /// One that speaks TLS itself.
    pub(crate) fn over_tls(io: IoChoice, targets: &[&str], tls: TlsSlot) -> Proxy {
        let gateway = Gateway::new().listen_tls(any_port(), tls);
        Proxy::start(gateway.config(config(io)), targets)
    }

    /// On one core, and a port that is free.
    pub(crate) fn gateway(io: IoChoice) -> Gateway {
        Gateway::new().listen(any_port()).config(config(io))
    }

    pub(crate) fn start(mut gateway: Gateway, targets: &[&str]) -> Proxy {
        for target in targets {
            gateway = gateway.to(target.parse().unwrap());
        }
        let running = gateway.start(|| Rc::new(service_fn(built_in))).unwrap();
        let Address::Tcp(address) = running.listeners()[0].address else {
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

    /// A client's end in the raw.
    pub(crate) fn peer(&self) -> Peer {
        Peer::new(Stream::Tcp(TcpStream::connect(self.address).unwrap()))
    }

    pub(crate) fn counters(&self) -> Counters {
        self.running.as_ref().unwrap().counters().0
    }

    pub(crate) fn http_counters(&self) -> blitz_http::Counters {
        self.running.as_ref().unwrap().counters().1
    }
}

impl Proxy {
    pub(crate) fn drain(&self, limit: Duration) {
        self.running.as_ref().unwrap().drain(limit);
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

/// Settings that believe this authority.
pub(crate) fn believing(authority: &Authority) -> ClientTls {
    let tls = ClientTls::builder().authorities(authority.set());
    tls.build().unwrap()
}

fn any_port() -> Address {
    Address::Tcp((Ipv4Addr::LOCALHOST, 0).into())
}

fn config(io: IoChoice) -> Config {
    Config {
        io,
        cores: 1,
        pin: false,
        ..Config::default()
    }
}

/// Stands for the built-in endpoints.
async fn built_in(exchange: Exchange) {
    let mut head = Pooled::response(Status::NOT_FOUND);
    exchange.responder.send(&mut head, "built in");
}

/// An upstream that runs a script for each connection, with the connection's number from 0.
pub(crate) struct Upstream {
    address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    heads: Arc<Mutex<Vec<Head>>>,
}

impl Upstream {
    pub(crate) fn scripted(script: impl Fn(usize, &mut Peer) + Send + Sync + 'static) -> Upstream {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let heads = Arc::default();
        let accepted = Arc::default();
        let streams = Streams {
            heads: Arc::clone(&heads),
            accepted: Arc::clone(&accepted),
        };
        thread::spawn(move || {
            streams.run(
                listener.incoming().flatten().map(Stream::Tcp),
                &Arc::new(script),
            );
        });
        Upstream {
            address,
            accepted,
            heads,
        }
    }

    /// Answers each request on every connection with these bytes, after reading its body.
    pub(crate) fn answering(answer: impl Into<Vec<u8>>) -> Upstream {
        let answer = answer.into();
        Upstream::scripted(move |_, peer| {
            while peer.request().is_some() {
                peer.send(&answer);
            }
        })
    }

    /// Answers with 200 and this text.
    pub(crate) fn saying(text: &str) -> Upstream {
        Upstream::answering(ok(text))
    }

    /// The value for `--to`.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// How many connections it was given.
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

/// An upstream on a unix socket that says the same to every request.
pub(crate) fn unix_upstream(name: &str, text: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("blitz-{name}-{}.sock", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).unwrap();
    let answer = ok(text);
    let streams = Streams {
        heads: Arc::default(),
        accepted: Arc::default(),
    };
    let script = move |_, peer: &mut Peer| {
        while peer.request().is_some() {
            peer.send(&answer);
        }
    };
    thread::spawn(move || {
        streams.run(
            listener.incoming().flatten().map(Stream::Unix),
            &Arc::new(script),
        );
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
        streams: impl Iterator<Item = Stream>,
        script: &Arc<impl Fn(usize, &mut Peer) + Send + Sync + 'static>,
    ) {
        for stream in streams {
            let number = self.accepted.fetch_add(1, Ordering::SeqCst);
            let script = Arc::clone(script);
            let heads = Arc::clone(&self.heads);
            thread::spawn(move || {
                let mut peer = Peer::new(stream);
                peer.heads = Some(heads);
                script(number, &mut peer);
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

/// A port that nobody listens on.
pub(crate) fn dead_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// Waits until something is so.
pub(crate) fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let deadline = Instant::now() + IO_TIMEOUT;
    while !check() {
        assert!(Instant::now() < deadline, "never: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A head as it was received: its first line, and its fields with names in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) line: String,
    pub(crate) fields: Vec<(String, String)>,
}

impl Head {
    /// The only field of that name.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut values = self
            .fields
            .iter()
            .filter(|(other, _)| other == name)
            .map(|(_, value)| value.as_str());
        let value = values.next();
        assert_eq!(values.next(), None, "{name} twice in {self:?}");
        value
    }
}

/// One end of a connection, blocking, with a bound on every wait.
pub(crate) struct Peer {
    reader: BufReader<Stream>,
    heads: Option<Arc<Mutex<Vec<Head>>>>,
}

pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    /// One that has its deadlines.
    Tls(Box<StreamOwned<ServerConnection, TcpStream>>),
}

impl Peer {
    pub(crate) fn new(stream: Stream) -> Peer {
        match &stream {
            Stream::Tcp(tcp) => {
                tcp.set_nodelay(true).unwrap();
                tcp.set_read_timeout(Some(IO_TIMEOUT)).unwrap();
                tcp.set_write_timeout(Some(IO_TIMEOUT)).unwrap();
            }
            Stream::Unix(unix) => unix.set_read_timeout(Some(IO_TIMEOUT)).unwrap(),
            Stream::Tls(_) => {}
        }
        Peer {
            reader: BufReader::new(stream),
            heads: None,
        }
    }

    /// Sends what can be sent: the other side may have had enough.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.reader.get_mut().write_all(bytes.as_ref()).is_ok()
    }

    /// The next head; `None` if the other side closes first.
    pub(crate) fn head(&mut self) -> Option<Head> {
        let line = self.line()?;
        let mut fields = Vec::new();
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(": ") else {
                break;
            };
            fields.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        let head = Head { line, fields };
        if let Some(heads) = &self.heads {
            heads.lock().unwrap().push(head.clone());
        }
        Some(head)
    }

    /// The next request and its body.
    pub(crate) fn request(&mut self) -> Option<(Head, Vec<u8>)> {
        let head = self.head()?;
        let body = match head.field("content-length") {
            Some(length) => self.exactly(length.parse().unwrap())?,
            None if head.field("transfer-encoding").is_some() => self.chunks()?,
            None => Vec::new(),
        };
        Some((head, body))
    }

    /// A chunked body, trailers dropped.
    pub(crate) fn chunks(&mut self) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let size = usize::from_str_radix(&self.line()?, 16).unwrap();
            if size == 0 {
                while !self.line()?.is_empty() {}
                return Some(body);
            }
            body.extend(self.exactly(size)?);
            assert_eq!(self.line()?, "");
        }
    }

    pub(crate) fn exactly(&mut self, length: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.reader.read_exact(&mut bytes).ok()?;
        Some(bytes)
    }

    /// What is there, or comes next; `None` at the end.
    pub(crate) fn some(&mut self) -> Option<Vec<u8>> {
        let bytes = self.reader.fill_buf().ok()?.to_vec();
        self.reader.consume(bytes.len());
        (!bytes.is_empty()).then_some(bytes)
    }

    /// Everything until the other side closes, and whether it did so with FIN.
    pub(crate) fn rest(&mut self) -> (Vec<u8>, bool) {
        let mut bytes = Vec::new();
        let clean = self.reader.read_to_end(&mut bytes).is_ok();
        (bytes, clean)
    }

    /// Whether the other side closes, in whatever way, without sending anything more.
    pub(crate) fn is_closed_by_peer(&mut self) -> bool {
        match self.reader.read(&mut [0]) {
            Ok(length) => length == 0,
            Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        }
    }

    /// Sends FIN and goes on reading.
    pub(crate) fn finish(&mut self) {
        match self.reader.get_mut() {
            Stream::Tcp(tcp) => tcp.shutdown(Shutdown::Write).unwrap(),
            Stream::Unix(unix) => unix.shutdown(Shutdown::Write).unwrap(),
            Stream::Tls(tls) => {
                tls.conn.send_close_notify();
                tls.flush().unwrap();
                tls.sock.shutdown(Shutdown::Write).unwrap();
            }
        }
    }

    /// Another handle to send with, while this one reads.
    pub(crate) fn writer(&self) -> TcpStream {
        match self.reader.get_ref() {
            Stream::Tcp(tcp) => tcp.try_clone().unwrap(),
            _ => panic!("only of TCP"),
        }
    }

    /// Closes with RST.
    pub(crate) fn reset(self) {
        let Stream::Tcp(tcp) = self.reader.into_inner() else {
            panic!("only TCP has RST")
        };
        SockRef::from(&tcp)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
    }

    pub(crate) fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        self.reader.read_line(&mut line).ok()?;
        line.strip_suffix("\r\n").map(str::to_owned)
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(tcp) => tcp.read(buffer),
            Stream::Unix(unix) => unix.read(buffer),
            Stream::Tls(tls) => tls.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(tcp) => tcp.write(bytes),
            Stream::Unix(unix) => unix.write(bytes),
            Stream::Tls(tls) => tls.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
