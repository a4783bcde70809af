use blitz::serving::{self, EndError, StartError};
use blitz_http::{
    Address, Config, Drain, Exchange, Pooled, ServeOptions, Service, Signals, Status, service_fn,
};
use blitz_testing::{Client, PATIENCE};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

fn any_port() -> Vec<Address> {
    vec![Address::Tcp((Ipv4Addr::LOCALHOST, 0).into())]
}

fn two_cores() -> Config {
    Config {
        cores: 2,
        pin: false,
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
fn it_serves_until_it_is_drained() {
    let addresses = serving::reserve(&any_port()).expect("a port is free");
    let make = || (teapot(), ServeOptions::default());
    let serving = serving::start(addresses, &two_cores(), make).expect("it starts");
    let mut client = Client::connect(ip(&serving.addresses()[0]));
    assert_eq!(client.get("/").text(), "a teapot");
    assert_eq!(serving.ended(), 0);
    serving.drain(Duration::ZERO);
    serving.join().expect("it ends in order");
}

#[test]
fn an_address_that_cannot_be_had_is_named() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    let address = Address::Tcp(taken.local_addr().expect("bound"));
    let error = serving::reserve(std::slice::from_ref(&address)).expect_err("it is taken");
    assert!(
        matches!(&error, StartError::Listen(named, _) if ip(named) == ip(&address)),
        "{error}"
    );
}

#[test]
fn a_core_that_panics_while_it_starts_is_no_start() {
    let addresses = serving::reserve(&any_port()).expect("a port is free");
    let make = || {
        assert!(blitz_http::core_index() == 0, "this core cannot be made");
        (teapot(), ServeOptions::default())
    };
    let error = serving::start(addresses, &two_cores(), make).err();
    assert!(matches!(error, Some(StartError::Start(_))), "{error:?}");
}

/// Without a word the program would wait for a signal that has no reason to come.
#[test]
fn an_end_that_nobody_asked_for_is_an_error() {
    let (done, ended) = channel();
    thread::spawn(move || {
        let signals = Signals::block().expect("signals can be waited for");
        let addresses = serving::reserve(&any_port()).expect("a port is free");
        let make = || {
            blitz_http::spawn(async { Drain::of_core().trigger(Duration::ZERO) });
            (teapot(), ServeOptions::default())
        };
        let serving = serving::start(addresses, &two_cores(), make).expect("it starts");
        done.send(serving.obey(&signals, Duration::ZERO))
    });
    let outcome = ended.recv_timeout(PATIENCE).expect("it notices");
    assert!(matches!(outcome, Err(EndError::ByItself)), "{outcome:?}");
}
