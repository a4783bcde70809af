//! A server of one core with a few fixed responses.

use std::cell::Cell;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use blitz_http::{
    Address, BodyLength, Chunk, Config, Cores, Counters, Drain, Exchange, IoChoice, Listener, Name,
    Part, Pinning, Pooled, ResponseHead, Scheme, ServeOptions, Status, counters, serve, service_fn,
};
use blitz_testing::Raw;

/// Maximum wait for an event that should happen at once.
pub(crate) const SOON: Duration = Duration::from_secs(5);

/// Runs a test on each I/O driver that this machine supports.
pub(crate) fn on_each_driver(test: impl Fn(IoChoice)) {
    // On a separate thread: when the kernel closes a ring, it interrupts the system calls of the
    // ring's thread.
    let allowed = |io: &IoChoice| {
        let config = config(*io);
        let tried = thread::spawn(move || blitz_http::block_on(&config, async {}).is_ok());
        tried.join().expect("trying does not panic")
    };
    let drivers: Vec<_> = [IoChoice::Uring, IoChoice::Epoll]
        .into_iter()
        .filter(allowed)
        .collect();
    assert!(drivers.contains(&IoChoice::Epoll), "epoll works everywhere");
    drivers.into_iter().for_each(test);
}

pub(crate) fn config(io: IoChoice) -> Config {
    Config {
        io,
        cores: 1,
        pin: Pinning::Off,
        ..Config::default()
    }
}

/// Runs `work` on a reactor of the calling thread.
pub(crate) fn run<T>(io: IoChoice, work: impl Future<Output = T>) -> T {
    blitz_http::block_on(&config(io), work).expect("the driver opens")
}

/// Options without the variable parts of responses.
pub(crate) fn options() -> ServeOptions {
    ServeOptions {
        date: false,
        ..ServeOptions::default()
    }
}

/// A running server; dropping it stops it and checks that it ends.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    cores: Option<Cores>,
}

impl Server {
    pub(crate) fn start(io: IoChoice) -> Server {
        Server::with(io, options)
    }

    pub(crate) fn with(
        io: IoChoice,
        options: impl Fn() -> ServeOptions + Send + Sync + 'static,
    ) -> Server {
        Server::with_config(&config(io), options)
    }

    pub(crate) fn with_config(
        config: &Config,
        options: impl Fn() -> ServeOptions + Send + Sync + 'static,
    ) -> Server {
        let (ready, is_ready) = mpsc::channel();
        let options = Arc::new(options);
        let cores = blitz_http::start(config, move |_| {
            let (options, ready) = (Arc::clone(&options), ready.clone());
            async move {
                let listener = Listener::bind(&any_port()).expect("a port is free");
                let _ = ready.send(listener.local().clone());
                serve(listener, Rc::new(service_fn(answer)), Rc::new(options())).await;
            }
        });
        let Ok(Address::Tcp(address)) = is_ready.recv_timeout(SOON) else {
            panic!("no address")
        };
        Server::of(address, cores.expect("the core starts"))
    }

    /// A server that runs on these cores.
    pub(crate) fn of(address: SocketAddr, cores: Cores) -> Server {
        Server {
            address,
            cores: Some(cores),
        }
    }

    pub(crate) fn connect(&self) -> Raw {
        Raw::connect(self.address)
    }

    pub(crate) fn counters(&self) -> Counters {
        self.ask(counters)
    }

    /// Reads the counters on the core's thread.
    pub(crate) fn ask<T: Send + 'static>(&self, question: fn() -> T) -> T {
        let (send, receive) = mpsc::channel();
        let cores = self.cores.as_ref().expect("only dropping takes it");
        cores.post_all(move |_| {
            let _ = send.send(question());
        });
        receive.recv_timeout(SOON).expect("the core answers")
    }

    /// The counters of each core.
    pub(crate) fn counters_of_cores(&self) -> Vec<Counters> {
        let (send, receive) = mpsc::channel();
        let cores = self.cores.as_ref().expect("only dropping takes it");
        cores.post_all(move |_| {
            let _ = send.send(counters());
        });
        let answers = (0..cores.count()).map(|_| receive.recv_timeout(SOON));
        answers.map(|answer| answer.expect("it answers")).collect()
    }

    /// Waits until the counters look as expected.
    pub(crate) fn until(&self, what: &str, holds: impl Fn(&Counters) -> bool) {
        let end = Instant::now() + SOON;
        while !holds(&self.counters()) {
            assert!(Instant::now() < end, "never {what}: {:?}", self.counters());
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until the writer of `/big-elsewhere` has ended.
    pub(crate) fn until_writer_ended(&self) {
        let end = Instant::now() + SOON;
        while self.ask(|| WRITERS_ENDED.get()) == 0 {
            assert!(Instant::now() < end, "the writer still waits");
            thread::sleep(Duration::from_millis(2));
        }
    }

    pub(crate) fn drain(&self, limit: Duration) {
        let cores = self.cores.as_ref().expect("only dropping takes it");
        cores.post_all(move |_| Drain::of_core().trigger(limit));
    }

    /// Waits until serving has ended by itself.
    pub(crate) fn join(mut self) {
        let cores = self.cores.take().expect("only dropping takes it");
        cores.join().expect("the core ends well");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some(cores) = self.cores.take() else {
            return;
        };
        cores.post_all(|_| Drain::of_core().trigger(Duration::ZERO));
        let ended = cores.join();
        if !thread::panicking() {
            ended.expect("the core ends well");
        }
    }
}

pub(crate) fn any_port() -> Address {
    Address::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))
}

/// The service under test, by path.
pub(crate) async fn answer(mut exchange: Exchange) {
    if exchange.request.path() == "/hello" {
        // Without an allocation: a test counts them.
        return say(exchange, "hello");
    }
    let path = exchange.request.path().to_owned();
    match path.as_str() {
        "/echo" => echo(exchange).await,
        "/identity" => identity(exchange),
        "/address" => address(exchange),
        "/whole" => whole(exchange).await,
        "/limited" => limited(exchange).await,
        "/patient" => {
            exchange.body.disable_min_rate();
            whole(exchange).await;
        }
        "/stream" => stream(exchange).await,
        "/never" => never(exchange).await,
        "/read-and-never" => {
            while let Ok(Some(_)) = exchange.body.next().await {}
            never(exchange).await;
        }
        "/slowly-read" => {
            while let Ok(Some(_)) = exchange.body.next().await {
                blitz_http::sleep(Duration::from_millis(20)).await;
            }
            never(exchange).await;
        }
        "/read-once-later" => read_once_later(exchange).await,
        "/slow" => {
            blitz_http::sleep(Duration::from_millis(100)).await;
            say(exchange, "slow");
        }
        "/late-whole" => late_whole(exchange, Duration::from_millis(200)).await,
        "/after-content" => late_whole(exchange, Duration::from_secs(4)).await,
        "/late-echo" => {
            blitz_http::sleep(Duration::from_millis(200)).await;
            echo(exchange).await;
        }
        "/none" => drop(exchange),
        "/cut" => cut(exchange, "half").await,
        "/cut-behind-all" => cut(exchange, "all of it").await,
        "/hints" => hints(exchange),
        "/upgrade" => upgrade(exchange).await,
        "/elsewhere" => elsewhere(exchange),
        "/big" => big(exchange).await,
        "/big-elsewhere" => big_elsewhere(exchange),
        "/burst-elsewhere" => burst_elsewhere(exchange),
        "/swallow-elsewhere" => {
            blitz_http::spawn(swallow(exchange));
        }
        "/blocks" => blocks(exchange).await,
        "/urgent" => urgent(exchange).await,
        "/busy" => {
            // Bytes that arrive meanwhile wait in the buffers of sockets, and then come at once.
            thread::sleep(Duration::from_millis(100));
            say(exchange, "hello");
        }
        "/later" => later(exchange).await,
        "/quiet" => {
            let mut head = Pooled::response(Status::OK);
            let send = exchange.responder.start(&mut head, BodyLength::Unknown);
            std::future::pending::<()>().await;
            drop(send);
        }
        "/ticks" => ticks(exchange).await,
        _ => say_status(exchange, Status::NOT_FOUND, "nothing here"),
    }
}

async fn late_whole(exchange: Exchange, after: Duration) {
    blitz_http::sleep(after).await;
    whole(exchange).await;
}

fn say(exchange: Exchange, content: &'static str) {
    say_status(exchange, Status::OK, content);
}

fn say_status(exchange: Exchange, status: Status, content: &'static str) {
    exchange
        .responder
        .send(&mut Pooled::response(status), content);
}

/// Sends each part back as it arrives.
async fn echo(mut exchange: Exchange) {
    let mut head = Pooled::response(Status::OK);
    let mut send = exchange.responder.start(&mut head, exchange.body.length());
    loop {
        match exchange.body.next().await {
            Ok(Some(Part::Data(slice))) => {
                if send.data(slice).await.is_err() {
                    return;
                }
            }
            Ok(Some(Part::Trailers(trailers))) => {
                let _ = send.finish(Some(&trailers));
                return;
            }
            Ok(None) => {
                let _ = send.finish(None);
                return;
            }
            Err(_) => return send.abort(),
        }
    }
}

/// Responds with the client's address.
fn address(exchange: Exchange) {
    let address = exchange.peer.remote.map(|remote| remote.to_string());
    let mut head = Pooled::response(Status::OK);
    exchange
        .responder
        .send(&mut head, address.unwrap_or_default());
}

/// Responds with the client's identity.
fn identity(exchange: Exchange) {
    let name = match &exchange.peer.tls {
        None => "clear text".to_owned(),
        Some(tls) => {
            assert_eq!(exchange.peer.scheme, Scheme::Https);
            let client = tls.client.as_ref();
            let field = client.map_or(
                "anonymous".into(),
                blitz_http::ClientCertificate::field_value,
            );
            format!("{} {field}", tls.server_name.as_deref().unwrap_or("-"))
        }
    };
    exchange
        .responder
        .send(&mut Pooled::response(Status::OK), name);
}

/// Responds with the complete content.
async fn whole(mut exchange: Exchange) {
    match exchange.body.read_to_end(1 << 20).await {
        Ok(content) => exchange
            .responder
            .send(&mut Pooled::response(Status::OK), content),
        Err(_) => drop(exchange.responder),
    }
}

/// Responds with the content, at most five bytes, and what a reader gets after it: twice.
async fn limited(mut exchange: Exchange) {
    if exchange.body.limit(5).is_err() {
        return say_status(exchange, Status::CONTENT_TOO_LARGE, "declared");
    }
    let mut text = String::new();
    for _ in 0..2 {
        let end = loop {
            match exchange.body.next().await {
                Ok(Some(Part::Data(slice))) => text.push_str(&String::from_utf8_lossy(&slice)),
                Ok(Some(Part::Trailers(_))) => {}
                Ok(None) => break "end".to_owned(),
                Err(error) => break error.to_string(),
            }
        };
        text = format!("{text}, {end} {}", exchange.body.is_done());
    }
    exchange
        .responder
        .send(&mut Pooled::response(Status::OK), text);
}

async fn stream(exchange: Exchange) {
    let mut send = exchange
        .responder
        .start(&mut Pooled::response(Status::OK), BodyLength::Unknown);
    for part in ["one", "two", "three"] {
        if send.data(part).await.is_err() {
            return;
        }
        blitz_http::yield_now().await;
    }
    let _ = send.finish(None);
}

async fn ticks(exchange: Exchange) {
    let mut head = Pooled::response(Status::OK);
    let mut send = exchange.responder.start(&mut head, BodyLength::Unknown);
    for _ in 0..10 {
        blitz_http::sleep(Duration::from_millis(100)).await;
        if send.data("tick\n").await.is_err() {
            return;
        }
    }
    let _ = send.finish(None);
}

async fn never(exchange: Exchange) {
    std::future::pending::<()>().await;
    drop(exchange);
}

/// Sends only this part of nine declared bytes.
async fn cut(exchange: Exchange, sent: &'static str) {
    let mut send = exchange
        .responder
        .start(&mut Pooled::response(Status::OK), BodyLength::Known(9));
    let _ = send.data(sent).await;
    // The part is sent before the response is cancelled.
    blitz_http::sleep(Duration::from_millis(20)).await;
}

fn hints(mut exchange: Exchange) {
    let mut hints = ResponseHead::new(Status::EARLY_HINTS);
    hints.fields.append(Name::Link, "</style.css>; rel=preload");
    exchange.responder.informational(&hints);
    say(exchange, "hinted");
}

/// Echoes inside the tunnel until FIN.
async fn upgrade(exchange: Exchange) {
    if !exchange.responder.upgrade_requested() {
        return say_status(exchange, Status::UPGRADE_REQUIRED, "websocket only");
    }
    let mut head = Pooled::response(Status::SWITCHING_PROTOCOLS);
    head.fields.append(Name::Upgrade, "websocket");
    let mut tunnel = exchange.responder.upgrade(&mut head);
    while let Ok(Some(Part::Data(slice))) = tunnel.recv.next().await {
        if tunnel.send.data(slice).await.is_err() {
            return;
        }
    }
    let _ = tunnel.send.data("bye").await;
    let _ = tunnel.send.finish(None);
}

/// Reads a tunnel until FIN, then sends the number of bytes.
async fn swallow(exchange: Exchange) {
    let mut head = Pooled::response(Status::SWITCHING_PROTOCOLS);
    head.fields.append(Name::Upgrade, "websocket");
    let mut tunnel = exchange.responder.upgrade(&mut head);
    let mut bytes = 0;
    while let Ok(Some(Part::Data(slice))) = tunnel.recv.next().await {
        bytes += slice.len();
    }
    let _ = tunnel.send.data(bytes.to_string()).await;
    let _ = tunnel.send.finish(None);
}

/// Responds from another task than the service's own.
fn elsewhere(exchange: Exchange) {
    blitz_http::spawn(async move {
        blitz_http::sleep(Duration::from_millis(10)).await;
        echo(exchange).await;
    });
}

pub(crate) const BIG: usize = 8 << 20;

thread_local! {
    /// Bytes that the core's `/big` has queued so far.
    pub(crate) static BIG_GIVEN: Cell<usize> = const { Cell::new(0) };
}

async fn big(exchange: Exchange) {
    give(exchange, &mut Pooled::response(Status::OK)).await;
}

thread_local! {
    /// Tasks of `/big-elsewhere` that have ended.
    pub(crate) static WRITERS_ENDED: Cell<usize> = const { Cell::new(0) };
}

/// As `big`, from another task.
fn big_elsewhere(exchange: Exchange) {
    blitz_http::spawn(async move {
        big(exchange).await;
        WRITERS_ENDED.set(WRITERS_ENDED.get() + 1);
    });
}

/// Queues the content of `big` at once from another task, after the head was sent, and never ends it.
fn burst_elsewhere(exchange: Exchange) {
    blitz_http::spawn(async move {
        let mut head = Pooled::response(Status::OK);
        let mut send = exchange.responder.start(&mut head, BodyLength::Unknown);
        blitz_http::sleep(Duration::from_millis(50)).await;
        let _ = send.queue(Chunk::from(vec![b'x'; BIG]));
        std::future::pending::<()>().await;
    });
}

/// Bytes of `/blocks`, and of each of its blocks.
pub(crate) const BLOCKS_BYTES: usize = 64 << 20;
pub(crate) const BLOCK_BYTES: usize = 16 << 10;

/// The content of a block: its number, over and over.
pub(crate) fn block(number: usize) -> Vec<u8> {
    (number as u64).to_be_bytes().repeat(BLOCK_BYTES / 8)
}

/// Sends blocks that are all different.
async fn blocks(exchange: Exchange) {
    let mut head = Pooled::response(Status::OK);
    let length = BodyLength::Known(BLOCKS_BYTES as u64);
    let mut send = exchange.responder.start(&mut head, length);
    for number in 0..BLOCKS_BYTES / BLOCK_BYTES {
        if send.data(Chunk::from(block(number))).await.is_err() {
            return;
        }
    }
    let _ = send.finish(None);
}

/// As `big`, with a higher priority than others.
async fn urgent(exchange: Exchange) {
    let mut head = Pooled::response(Status::OK);
    head.fields.append(Name::Priority, "u=0");
    give(exchange, &mut head).await;
}

thread_local! {
    /// Whether the core's `/later` may read.
    pub(crate) static IS_LATER: Cell<bool> = const { Cell::new(false) };
}

/// Reads a part of the content, once it may read.
async fn read_once_later(mut exchange: Exchange) {
    until_later().await;
    let _ = exchange.body.next().await;
    never(exchange).await;
}

async fn until_later() {
    while !IS_LATER.get() {
        blitz_http::sleep(Duration::from_millis(10)).await;
    }
}

/// Responds with the length of the content, once it may read.
async fn later(mut exchange: Exchange) {
    until_later().await;
    let mut bytes = 0;
    while let Ok(Some(Part::Data(slice))) = exchange.body.next().await {
        bytes += slice.len();
    }
    let mut head = Pooled::response(Status::OK);
    exchange.responder.send(&mut head, bytes.to_string());
}

async fn give(exchange: Exchange, head: &mut ResponseHead) {
    let length = BodyLength::Known(BIG as u64);
    let mut send = exchange.responder.start(head, length);
    for _ in 0..BIG / 8192 {
        if send.data(Chunk::from(vec![b'x'; 8192])).await.is_err() {
            return;
        }
        BIG_GIVEN.set(BIG_GIVEN.get() + 8192);
    }
    let _ = send.finish(None);
}

/// A scripted server, which accepts one connection after the other.
pub(crate) fn scripted(
    script: impl FnOnce(TcpListener) + Send + 'static,
) -> (Address, thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = Address::Tcp(listener.local_addr().expect("is bound"));
    (address, thread::spawn(move || script(listener)))
}
