//! A server for the duration of a test.

use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use blitz::{App, IoChoice, Service};
use blitz_http::{Address, Config, Cores, Drain, Listener, Pinning, ServeOptions, serve, start};

/// Runs the test against the app on either driver (twice on epoll if io_uring is forbidden).
pub(crate) fn on_both_drivers(app: impl Fn() -> App, test: impl Fn(SocketAddr)) {
    for io in [IoChoice::Auto, IoChoice::Epoll] {
        let service = app().build().expect("the app is sound");
        let (cores, address) = run(io, service);
        test(address);
        cores.post_all(|_| Drain::of_core().trigger(Duration::from_secs(1)));
        cores.join().expect("the core ends well");
    }
}

fn run(io: IoChoice, service: Service) -> (Cores, SocketAddr) {
    let (sender, receiver) = channel();
    let config = Config {
        io,
        cores: 1,
        pin: Pinning::Off,
        ..Config::default()
    };
    let cores = start(&config, move |_| {
        serve_core(service.clone(), sender.clone())
    });
    (
        cores.expect("the core starts"),
        receiver.recv().expect("it listens"),
    )
}

async fn serve_core(service: Service, sender: Sender<SocketAddr>) {
    let any = Address::Tcp((Ipv4Addr::LOCALHOST, 0).into());
    let listener = Listener::bind(&any).expect("a port is free");
    let Address::Tcp(address) = listener.local() else {
        panic!("not TCP")
    };
    sender.send(*address).expect("the test waits");
    serve(
        listener,
        service.on_core(),
        Rc::new(ServeOptions::default()),
    )
    .await;
}
