use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::rc::Rc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use blitz_host::serving::{self, EndError, ListenerConfig, StartError};
use blitz_http::{
    Address, Config, Drain, Exchange, Pinning, Pooled, ServeOptions, Service, Signals, Status,
    service_fn,
};
use blitz_testing::{Client, IO_TIMEOUT};

fn any_port() -> [ListenerConfig; 1] {
    [Address::Tcp((Ipv4Addr::LOCALHOST, 0).into()).into()]
}

fn two_cores() -> Config {
    Config {
        cores: 2,
        pin: Pinning::Off,
        ..Config::default()
    }
}

fn teapot() -> Rc<impl Service> {
    Rc::new(service_fn(async |exchange: Exchange| {
        let mut head = Pooled::response(Status::NOT_FOUND);
        exchange.responder.send(&mut head, "a teapot");
    }))
}

fn ip(address: &Address) -> SocketAddr {
    match address {
        Address::Tcp(address) => *address,
        Address::Unix(_) => panic!("it listens on TCP"),
    }
}

#[test]
fn a_service_runs_until_it_is_drained() {
    let listeners = serving::reserve(any_port()).expect("a port is free");
    let make = || (teapot(), ServeOptions::default());
    let serving = serving::start(listeners, &two_cores(), make).expect("it starts");
    let mut client = Client::connect(ip(&serving.listeners().next().unwrap().address));
    assert_eq!(client.get("/").text(), "a teapot");
    assert_eq!(serving.ended(), 0);
    serving.drain(Duration::ZERO);
    serving.join().expect("it ends in order");
}

#[test]
fn an_address_in_use_is_named() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    let address = Address::Tcp(taken.local_addr().expect("bound"));
    let error = serving::try_reserve([address.clone().into()]).expect_err("it is taken");
    assert!(
        matches!(&error, StartError::Listen(named, _) if ip(named) == ip(&address)),
        "{error}"
    );
}

/// Only a stale socket is replaced, never another file.
#[test]
fn a_file_is_not_replaced_by_a_socket() {
    let folder = std::env::temp_dir().join(format!("blitz-serving-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    let address = |name: &str| Address::Unix(std::sync::Arc::new(folder.join(name)));
    let (file, link, stale) = (
        folder.join("file"),
        folder.join("link"),
        folder.join("stale"),
    );
    std::fs::write(&file, "precious").expect("a file");
    std::os::unix::fs::symlink(&file, &link).expect("a link");
    drop(UnixListener::bind(&stale).expect("a socket"));
    for taken in ["file", "link"] {
        let error = serving::reserve([address(taken).into()]).expect_err(taken);
        assert!(error.to_string().contains("is not a socket"), "{error}");
    }
    assert_eq!(
        std::fs::read_to_string(&link).expect("it is there"),
        "precious"
    );
    assert!(serving::reserve([address("stale").into()]).is_ok());
    std::fs::remove_dir_all(&folder).expect("it is ours");
}

#[test]
fn a_panic_at_the_start_is_a_start_error() {
    let listeners = serving::reserve(any_port()).expect("a port is free");
    let make = || {
        assert!(blitz_http::core_index() == 0, "this core cannot be made");
        (teapot(), ServeOptions::default())
    };
    let error = serving::start(listeners, &two_cores(), make).err();
    assert!(matches!(error, Some(StartError::Start(_))), "{error:?}");
}

/// Otherwise the program would wait for a signal for ever.
#[test]
fn an_end_without_a_signal_is_an_error() {
    let (done, ended) = channel();
    thread::spawn(move || {
        let signals = Signals::install().expect("signals can be waited for");
        let listeners = serving::reserve(any_port()).expect("a port is free");
        let make = || {
            blitz_http::spawn(async {
                blitz_http::sleep(Duration::from_millis(100)).await;
                Drain::of_core().trigger(Duration::ZERO);
            });
            (teapot(), ServeOptions::default())
        };
        let serving = serving::start(listeners, &two_cores(), make).expect("it starts");
        done.send(serving.run_until_signal(&signals, Duration::ZERO))
    });
    let outcome = ended.recv_timeout(IO_TIMEOUT).expect("it notices");
    assert!(
        matches!(outcome, Err(EndError::ListenersEnded)),
        "{outcome:?}"
    );
}
