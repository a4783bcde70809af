//! Load from a `ClientConnection` for a server of this crate, each on a core of its own, and what a request costs the
//! client in CPU time.
//!
//! ```text
//! cargo run --profile dist --package blitz-http --example client_load -- h3 32 5
//! ```
//!
//! The arguments are the version (`h1`, `h2` or `h3`), the requests at a time, and the seconds.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use blitz_http::{
    Address, BodyLength, Certificate, ClientConnection, ClientTls, Config, ConnectOptions,
    DatagramListener, Exchange, Listener, Method, Pinning, Pooled, Protocol, RequestHead,
    ServeOptions, ServerTls, Status, TlsSlot, UpstreamTls, serve, service_fn,
};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let protocol = match arguments.next().as_deref() {
        Some("h1") => Protocol::Http1,
        Some("h2") => Protocol::Http2,
        _ => Protocol::Http3,
    };
    let streams: usize = arguments.next().map_or(Ok(32), |text| text.parse())?;
    let seconds: f64 = arguments.next().map_or(Ok(5.0), |text| text.parse())?;
    let config = Config {
        cores: 1,
        pin: Pinning::Off,
        ..Config::default()
    };
    let (address, cores) = start(&config, protocol)?;
    let any = ClientTls::builder().danger_accept_any_certificate();
    let options = ConnectOptions {
        protocol,
        tls: Some(UpstreamTls::new(&any.build()?.into(), "localhost")?),
        ..ConnectOptions::default()
    };
    let time = Duration::from_secs_f64(seconds);
    blitz_http::block_on(&config, load(address, options, streams, time))?;
    cores.post_all(|_| std::process::exit(0));
    cores.join()?;
    Ok(())
}

/// A server that responds to every request with a few bytes.
fn start(config: &Config, protocol: Protocol) -> Result<(Address, blitz_http::Cores), Failure> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let key = made.signing_key.serialize_pem();
    let certificate = Certificate::from_pem(made.cert.pem().as_bytes(), key.as_bytes())?;
    let slot = TlsSlot::new(ServerTls::builder().certificate(certificate).build()?);
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let datagrams = DatagramListener::bind(any, 1)?;
    let (send, receive) = mpsc::channel();
    let of_server = datagrams.clone();
    let cores = blitz_http::start(config, move |_| {
        let (datagrams, slot, send) = (of_server.clone(), slot.clone(), send.clone());
        async move {
            let service = Rc::new(service_fn(answer));
            let options = Rc::new(ServeOptions {
                tls: Some(slot.clone()),
                ..ServeOptions::default()
            });
            if protocol == Protocol::Http3 {
                let _ = send.send(Address::Tcp(datagrams.local()));
                let listener = datagrams.of_core().expect("a descriptor is free");
                return listener.serve(&slot, service, options).await;
            }
            let listener = Listener::bind(&Address::Tcp(any)).expect("a port is free");
            let _ = send.send(listener.local().clone());
            serve(listener, service, options).await;
        }
    })?;
    Ok((receive.recv()?, cores))
}

async fn answer(exchange: Exchange) {
    let mut head = Pooled::response(Status::OK);
    exchange.responder.send(&mut head, "Hello, World!");
}

async fn load(address: Address, options: ConnectOptions, streams: usize, time: Duration) {
    let connection = match ClientConnection::connect(&address, &options).await {
        Ok(connection) => connection,
        Err(error) => return println!("{error}"),
    };
    let (began, cpu) = (Instant::now(), cpu_time());
    let (done, running) = (Rc::new(Cell::new(0_u64)), Rc::new(Cell::new(streams)));
    for _ in 0..streams {
        let (connection, done, running) = (connection.clone(), done.clone(), running.clone());
        blitz_http::spawn(async move {
            while began.elapsed() < time && request(&connection).await {
                done.set(done.get() + 1);
            }
            running.set(running.get() - 1);
        });
    }
    while running.get() > 0 {
        blitz_http::sleep(Duration::from_millis(10)).await;
    }
    let (requests, cpu) = (done.get(), cpu_time() - cpu);
    let rate = requests as f64 / began.elapsed().as_secs_f64();
    let each = cpu.as_secs_f64() * 1e6 / requests.max(1) as f64;
    println!("{requests} requests, {rate:.0}/s, {each:.2} µs of CPU time for each at the client");
}

/// One exchange; whether it succeeded.
async fn request(connection: &ClientConnection) -> bool {
    let mut head = RequestHead::new(Method::Get, "/hello");
    head.set_authority("localhost");
    if connection.ready().await.is_err() {
        return false;
    }
    let Ok((_, response)) = connection.request(&head, BodyLength::Empty) else {
        return false;
    };
    match response.response().await {
        Ok(mut response) => {
            let content = response.body.read_to_end(1024).await;
            content.is_ok_and(|content| content.len() == 13)
        }
        Err(_) => false,
    }
}

/// CPU time of the calling thread, which the kernel counts in nanoseconds.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = stat.split(' ').next().and_then(|text| text.parse().ok());
    Duration::from_nanos(nanos.unwrap_or_default())
}
