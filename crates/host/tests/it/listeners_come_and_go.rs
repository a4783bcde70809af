//! Listeners are opened and closed while a service runs.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use blitz_host::serving::{self, ListenerConfig, Serving, StartError};
use blitz_http::{
    Address, Config, Exchange, IoChoice, Pinning, Pooled, ServeOptions, Status, service_fn, sleep,
};
use blitz_testing::Client;

/// More than a test takes.
const DRAIN: Duration = Duration::from_secs(20);
/// How long a request for `/slow` takes.
const SLOW: Duration = Duration::from_millis(300);

fn start(listeners: &[ListenerConfig]) -> Serving {
    start_with(IoChoice::Auto, listeners)
}

fn start_with(io: IoChoice, listeners: &[ListenerConfig]) -> Serving {
    let config = Config {
        io,
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

/// The addresses over TCP.
fn addresses(serving: &Serving) -> Vec<SocketAddr> {
    let address = |listener: &ListenerConfig| match &listener.address {
        Address::Tcp(address) => Some(*address),
        Address::Unix(_) => None,
    };
    serving.listeners().filter_map(address).collect()
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

/// Requests over new connections to a unix socket, until the flag is set. The counts of those that were answered, and of
/// attempts to connect that failed; a connection without an answer is a panic.
fn load(path: &Path, is_over: &AtomicBool) -> (usize, usize) {
    let (mut answered, mut refused) = (0, 0);
    while !is_over.load(Ordering::Relaxed) {
        let Ok(mut stream) = UnixStream::connect(path) else {
            refused += 1;
            std::thread::yield_now();
            continue;
        };
        let request = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        let mut response = String::new();
        let outcome = stream
            .write_all(request)
            .and_then(|()| stream.read_to_string(&mut response));
        assert!(
            response.ends_with("here"),
            "after {answered}: {outcome:?} {response:?}"
        );
        answered += 1;
    }
    (answered, refused)
}

/// Runs clients of a unix socket while `reload` replaces listeners.
fn under_load(path: &Path, reload: impl FnOnce()) -> (usize, usize) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| load(path, &is_over)))
            .collect();
        reload();
        is_over.store(true, Ordering::Relaxed);
        let counts = clients.into_iter().map(|client| client.join().unwrap());
        counts.fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1))
    })
}

fn unix_path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("blitz-{name}-{}", std::process::id()))
}

/// The same clients in the same way, but another listener.
fn changed(listener: &ListenerConfig) -> ListenerConfig {
    let mut changed = listener.clone();
    changed.alt_svc.port = Some(1);
    changed
}

#[test]
fn a_unix_socket_that_goes_under_load_loses_no_connection() {
    for io in [IoChoice::Uring, IoChoice::Epoll] {
        let path = unix_path("goes");
        let socket: ListenerConfig = Address::unix(&path).into();
        let mut serving = start_with(io, &[any_port(), socket.clone()]);
        let stays = at(addresses(&serving)[0]);
        let (answered, _) = under_load(&path, || {
            for _ in 0..8 {
                std::thread::sleep(Duration::from_millis(50));
                replace(&mut serving, std::slice::from_ref(&stays));
                std::thread::sleep(Duration::from_millis(50));
                replace(&mut serving, &[stays.clone(), socket.clone()]);
            }
            std::thread::sleep(Duration::from_millis(50));
            serving.drain(DRAIN);
            serving.join().unwrap();
        });
        assert!(answered > 100, "{answered}");
        assert!(!path.exists());
    }
}

#[test]
fn a_unix_socket_that_is_replaced_under_load_refuses_and_loses_no_connection() {
    for io in [IoChoice::Uring, IoChoice::Epoll] {
        let path = unix_path("replaced");
        let socket: ListenerConfig = Address::unix(&path).into();
        let mut serving = start_with(io, std::slice::from_ref(&socket));
        let (answered, refused) = under_load(&path, || {
            for _ in 0..8 {
                std::thread::sleep(Duration::from_millis(30));
                replace(&mut serving, &[changed(&socket)]);
                replace(&mut serving, std::slice::from_ref(&socket));
            }
            std::thread::sleep(Duration::from_millis(200));
        });
        assert!(answered > 100, "{answered}");
        assert_eq!(refused, 0);
        end(serving);
        assert!(!path.exists());
    }
}

/// The new one of the path is not used if another one cannot be opened.
#[test]
fn a_unix_socket_stays_if_its_replacement_fails() {
    let path = unix_path("stays");
    let socket: ListenerConfig = Address::unix(&path).into();
    let serving = start(std::slice::from_ref(&socket));
    let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let taken = at(other.local_addr().unwrap());
    let error = serving.prepare([changed(&socket), taken]);
    assert!(matches!(error, Err(StartError::Listen(..))));
    assert!(UnixStream::connect(&path).is_ok());
    end(serving);
    assert!(!path.exists());
}

/// Any user can lock a folder that it can read.
#[test]
fn a_lock_on_the_folder_of_a_unix_socket_delays_nobody() {
    let folder = unix_path("locked");
    std::fs::create_dir_all(&folder).unwrap();
    let held = File::open(&folder).unwrap();
    held.lock().unwrap();
    let path = folder.join("a.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let begun = Instant::now();
    end(start(&[Address::unix(&path).into()]));
    assert!(
        begun.elapsed() < Duration::from_secs(1),
        "{:?}",
        begun.elapsed()
    );
    // Neither the socket nor a lock stays.
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
    std::fs::remove_dir(&folder).unwrap();
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
