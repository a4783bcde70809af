//! Eviction of idle sockets in favour of sockets that connect.

use std::cell::RefCell;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::rc::Rc;
use std::time::Duration;

use blitz_reactor::{
    Address, Cause, Config, IoChoice, Resume, Socket, block_on, counters, sleep, spawn,
};

use crate::{config, listen};

/// The limit of sockets in these tests.
const SOCKETS_MAX: usize = 20;

fn at_the_limit(body: impl AsyncFn()) {
    for io in [IoChoice::Uring, IoChoice::Epoll] {
        println!("driver: {io:?}");
        let config = Config {
            sockets_max: SOCKETS_MAX,
            ..config(io)
        };
        block_on(&config, body()).unwrap();
    }
}

/// The ends of the parked sockets, by their tags. After the first eviction it sends these bytes.
#[derive(Default)]
struct Ends {
    causes: RefCell<Vec<(u64, bool)>>,
    sends: RefCell<Option<TcpStream>>,
}

impl Resume for Ends {
    fn resume(self: Rc<Self>, socket: Socket, tag: u64, cause: Cause) {
        let is_evicted = matches!(cause, Cause::Evicted);
        self.causes.borrow_mut().push((tag, is_evicted));
        if let Some(mut peer) = self.sends.borrow_mut().take() {
            peer.write_all(b"x").unwrap();
        }
        drop(socket);
    }
}

/// Parks as many sockets as there may be, the first one first. Returns their peers.
async fn park_all(ends: &Rc<Ends>) -> Vec<TcpStream> {
    let (listener, address) = listen();
    let mut peers = Vec::new();
    for tag in 0..SOCKETS_MAX as u64 {
        peers.push(TcpStream::connect(address).unwrap());
        let socket = listener.accept().await;
        socket.park(ends.clone(), tag, Duration::from_secs(60));
        sleep(Duration::from_millis(2)).await;
    }
    peers
}

/// Connects so many sockets in one turn, and waits until they are connected.
async fn connect_together(count: usize) -> Vec<Socket> {
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let address: Address = upstream.local_addr().unwrap().into();
    let connected = Rc::new(RefCell::new(Vec::new()));
    for _ in 0..count {
        let (address, connected) = (address.clone(), Rc::clone(&connected));
        spawn(async move {
            let socket = Socket::connect(&address).await.unwrap();
            connected.borrow_mut().push(socket);
        });
    }
    sleep(Duration::from_millis(50)).await;
    assert_eq!(connected.borrow().len(), count);
    connected.take()
}

#[test]
fn each_of_many_connections_evicts_an_idle_socket() {
    const NEW: usize = 15;
    at_the_limit(async || {
        let ends = Rc::<Ends>::default();
        let _peers = park_all(&ends).await;
        let _connected = connect_together(NEW).await;
        assert_eq!(counters().evicted, NEW as u64);
        let expected: Vec<_> = (0..NEW as u64).map(|tag| (tag, true)).collect();
        assert_eq!(*ends.causes.borrow(), expected);
    });
}

#[test]
fn a_socket_whose_bytes_have_arrived_is_not_evicted() {
    at_the_limit(async || {
        let ends = Rc::<Ends>::default();
        let mut peers = park_all(&ends).await;
        // One peer sends before the system call of the turn that evicts, another one during the turn.
        *ends.sends.borrow_mut() = Some(peers.remove(2));
        peers[0].write_all(b"x").unwrap();
        let _connected = connect_together(2).await;
        let mut causes = ends.causes.take();
        causes.sort_unstable();
        assert_eq!(causes, [(0, false), (1, true), (2, false), (3, true)]);
    });
}
