//! Listeners are opened and closed while a service runs.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use blitz_host::serving::{self, ListenerConfig, Serving, StartError};
use blitz_http::{
    Address, Config, Exchange, Pinning, Pooled, ServeOptions, Status, service_fn, sleep,
};
use blitz_testing::Client;

/// More than a test takes.
const DRAIN: Duration = Duration::from_secs(20);
/// How long a request for `/slow` takes.
const SLOW: Duration = Duration::from_millis(300);

fn start(listeners: &[ListenerConfig]) -> Serving {
    let config = Config {
        cores: 2,
        pin: Pinning::Off,
        ..Config::default()
    };
    let make = || {
        let service = service_fn(async |exchange: Exchange| {
            if exchange.request.path() == "/slow" {
                sleep(SLOW).await;
            }
            let mut head = Pooled::response(Status::OK);
            exchange.responder.send(&mut head, "here");
        });
        (Rc::new(service), ServeOptions::default())
    };
    let listeners = serving::reserve(listeners.to_vec()).unwrap();
    serving::start(listeners, &config, make).unwrap()
}

fn replace(serving: &mut Serving, listeners: &[ListenerConfig]) {
    let new = serving.prepare(listeners.to_vec()).unwrap();
    let superseded = serving.open_listeners(new).unwrap();
    serving.close_listeners(superseded, DRAIN);
}

fn any_port() -> ListenerConfig {
    at((Ipv4Addr::LOCALHOST, 0))
}

fn at(address: impl Into<SocketAddr>) -> ListenerConfig {
    Address::Tcp(address.into()).into()
}

fn addresses(serving: &Serving) -> Vec<SocketAddr> {
    let address = |listener: &ListenerConfig| match &listener.address {
        Address::Tcp(address) => *address,
        Address::Unix(_) => panic!("not TCP"),
    };
    serving.listeners().map(address).collect()
}

/// Connections to all cores.
fn all_answer(address: SocketAddr) {
    for _ in 0..20 {
        assert_eq!(Client::connect(address).get("/").text(), "here");
    }
}

fn eventually_refuses(address: SocketAddr) {
    let end = Instant::now() + Duration::from_secs(5);
    while TcpStream::connect(address).is_ok() {
        assert!(Instant::now() < end, "{address} still accepts");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn end(serving: Serving) {
    serving.drain(Duration::ZERO);
    serving.join().unwrap();
}

#[test]
fn a_new_listener_answers_and_those_that_stay_keep_their_connections() {
    let mut serving = start(&[any_port()]);
    let [first] = addresses(&serving)[..] else {
        panic!("one listener")
    };
    let mut client = Client::connect(first);
    assert_eq!(client.get("/").text(), "here");
    // The same one with its actual port, and another.
    replace(&mut serving, &[at(first), any_port()]);
    let both = addresses(&serving);
    assert_eq!(both[0], first);
    assert_eq!(client.get("/").text(), "here");
    both.iter().for_each(|address| all_answer(*address));
    end(serving);
}

#[test]
fn a_listener_that_goes_finishes_its_requests() {
    let mut serving = start(&[any_port(), any_port()]);
    let [stays, goes] = addresses(&serving)[..] else {
        panic!("two listeners")
    };
    let (mut kept, mut busy, mut idle) = (
        Client::connect(stays),
        Client::connect(goes),
        Client::connect(goes),
    );
    assert_eq!(kept.get("/").text(), "here");
    assert_eq!(idle.get("/").text(), "here");
    busy.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    std::thread::sleep(SLOW / 3);
    replace(&mut serving, &[at(stays)]);
    eventually_refuses(goes);
    let response = busy.response();
    assert_eq!(response.text(), "here");
    assert_eq!(response.field("connection"), Some("close"));
    assert_eq!(idle.rest(), b"");
    assert_eq!(kept.get("/").text(), "here");
    all_answer(stays);
    end(serving);
}

/// No connection that waits at the old one is lost.
#[test]
fn an_address_can_be_replaced_by_one_that_includes_it() {
    let mut serving = start(&[any_port()]);
    let port = addresses(&serving)[0].port();
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    for _ in 0..2 {
        replace(&mut serving, &[at((Ipv6Addr::UNSPECIFIED, port))]);
        all_answer(local);
        replace(&mut serving, &[at(local)]);
        all_answer(local);
    }
    end(serving);
}

#[test]
fn an_address_of_another_program_changes_nothing() {
    let mut serving = start(&[any_port()]);
    let stays = addresses(&serving)[0];
    let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let taken = other.local_addr().unwrap();
    let error = serving.prepare([any_port(), at(taken)]);
    assert!(matches!(error, Err(StartError::Listen(..))));
    all_answer(stays);
    assert_eq!(addresses(&serving), [stays]);
    replace(&mut serving, &[at(stays)]);
    all_answer(stays);
    end(serving);
}

#[test]
fn a_unix_socket_comes_and_goes_with_its_file() {
    let path = std::env::temp_dir().join(format!("blitz-listeners-{}", std::process::id()));
    let socket: ListenerConfig = Address::Unix(Arc::new(path.clone())).into();
    let mut serving = start(&[any_port()]);
    let stays = at(addresses(&serving)[0]);
    for _ in 0..3 {
        replace(&mut serving, &[stays.clone(), socket.clone()]);
        assert!(UnixStream::connect(&path).is_ok());
        replace(&mut serving, std::slice::from_ref(&stays));
        let end = Instant::now() + Duration::from_secs(5);
        while path.exists() {
            assert!(Instant::now() < end, "the file stays");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    end(serving);
}

/// A listener that is drained ends with the core, if that is sooner.
#[test]
fn the_end_of_the_service_ends_closed_listeners_too() {
    let mut serving = start(&[any_port(), any_port()]);
    let [stays, goes] = addresses(&serving)[..] else {
        panic!("two listeners")
    };
    let mut busy = Client::connect(goes);
    busy.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    std::thread::sleep(SLOW / 3);
    replace(&mut serving, &[at(stays)]);
    let begun = Instant::now();
    end(serving);
    assert!(begun.elapsed() < SLOW / 2, "{:?}", begun.elapsed());
}
