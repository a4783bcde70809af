//! A relay between clients and a server, which loses and copies datagrams, and moves clients to other hosts.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::clients::socket;

/// The fate of a datagram at the relay.
pub(crate) struct Rules {
    /// The hosts that datagrams to the server are sent from, by their numbers: each from all of them, in order.
    pub(crate) from: Vec<usize>,
    /// Whether a datagram passes.
    pub(crate) passes: Box<Filter>,
}

type Filter = dyn FnMut(Way, &[u8]) -> bool + Send;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// To the server, from the host of this number.
    Up(usize),
    /// From the server, to the host of this number.
    Down(usize),
}

/// A relay for one client.
pub(crate) struct Relay {
    /// Where it takes the client's datagrams.
    pub(crate) address: SocketAddr,
    /// The addresses that it sends from, by their numbers.
    pub(crate) hosts: Vec<SocketAddr>,
    rules: Arc<Mutex<Rules>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// A relay that sends to `server` from the first of `hosts`.
    pub(crate) fn start(server: SocketAddr, hosts: &[[u8; 4]]) -> Relay {
        let near = socket();
        let far: Vec<_> = hosts.iter().copied().map(socket_of).collect();
        for socket in far.iter().chain([&near]) {
            socket.set_nonblocking(true).unwrap();
        }
        let rules = Arc::new(Mutex::new(Rules {
            from: vec![0],
            passes: Box::new(|_, _| true),
        }));
        let is_over = Arc::new(AtomicBool::new(false));
        let address = near.local_addr().unwrap();
        let hosts = far.iter().map(|far| far.local_addr().unwrap()).collect();
        let (shared, over) = (Arc::clone(&rules), Arc::clone(&is_over));
        let thread = std::thread::spawn(move || run(&near, &far, server, &shared, &over));
        Relay {
            address,
            hosts,
            rules,
            is_over,
            thread: Some(thread),
        }
    }

    /// Changes the rules.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Rules)) {
        change(&mut self.rules.lock().unwrap());
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn socket_of(host: [u8; 4]) -> UdpSocket {
    UdpSocket::bind(SocketAddr::new(IpAddr::from(host), 0)).unwrap()
}

fn run(
    near: &UdpSocket,
    far: &[UdpSocket],
    server: SocketAddr,
    rules: &Mutex<Rules>,
    is_over: &AtomicBool,
) {
    let mut client = None;
    while !is_over.load(Ordering::Acquire) {
        let mut is_idle = true;
        if let Some((datagram, from)) = receive(near) {
            is_idle = false;
            client = Some(from);
            let mut rules = rules.lock().unwrap();
            for number in rules.from.clone() {
                if (rules.passes)(Way::Up(number), &datagram) {
                    far[number].send_to(&datagram, server).unwrap();
                }
            }
        }
        for (number, socket) in far.iter().enumerate() {
            if let Some((datagram, _)) = receive(socket) {
                is_idle = false;
                let passes = (rules.lock().unwrap().passes)(Way::Down(number), &datagram);
                if let Some(client) = client.filter(|_| passes) {
                    near.send_to(&datagram, client).unwrap();
                }
            }
        }
        if is_idle {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

fn receive(socket: &UdpSocket) -> Option<(Vec<u8>, SocketAddr)> {
    let mut datagram = vec![0; 2_000];
    match socket.recv_from(&mut datagram) {
        Ok((len, from)) => {
            datagram.truncate(len);
            Some((datagram, from))
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        Err(error) => panic!("{error}"),
    }
}
