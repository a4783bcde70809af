//! The UDP sockets of one address: which core receives what.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket as StdSocket};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use blitz_reactor::{Config, Cores, DatagramGroup, IoChoice, Steering, start, timeout};

use crate::config;

const SOON: Duration = Duration::from_secs(10);

const CORES: usize = 4;
const KEY: [u8; 16] = *b"known to clients";

const SHORT_HEADER: u8 = 0x40;
const LONG_HEADER: u8 = 0xC0;

/// The last datagram of a core.
const END: &[u8] = b"end";

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn steering() -> Steering {
    Steering::new(KEY, 5)
}

fn client() -> StdSocket {
    StdSocket::bind(loopback()).unwrap()
}

fn random(number: u32) -> [u8; 6] {
    let [a, b, c, d] = number.wrapping_mul(0x9E37_79B9).to_be_bytes();
    [a, b, c, d, b ^ c, a ^ d]
}

fn packet(header: u8, id: [u8; 8], content: &[u8]) -> Vec<u8> {
    [&[header], &id[..], content].concat()
}

/// Cores that report what they receive, and what they report: the core and the datagram.
struct Group {
    cores: Cores,
    address: SocketAddr,
    reports: Receiver<(usize, Vec<u8>)>,
}

impl Group {
    /// With `leaving`, this core closes its socket at once.
    fn start(io: IoChoice, leaving: Option<usize>) -> Group {
        let group = DatagramGroup::bind(loopback(), CORES, &steering()).unwrap();
        assert!(group.is_steered());
        let address = group.local();
        let settings = Config {
            cores: CORES,
            ..config(io)
        };
        let (reporter, reports) = mpsc::channel();
        let cores = start(&settings, move |index| {
            let (group, reporter) = (group.clone(), reporter.clone());
            async move {
                let socket = group.socket().unwrap();
                assert_eq!(socket.local(), group.local());
                if leaving == Some(index) {
                    return drop(socket);
                }
                loop {
                    let train = timeout(SOON, socket.recv())
                        .await
                        .expect("a datagram comes");
                    for datagram in train.datagrams() {
                        reporter.send((index, datagram.to_vec())).unwrap();
                    }
                    if train.datagrams().any(|datagram| datagram.ends_with(END)) {
                        break;
                    }
                }
            }
        })
        .unwrap();
        Group {
            cores,
            address,
            reports,
        }
    }

    fn send(&self, from: &StdSocket, datagram: &[u8]) {
        from.send_to(datagram, self.address).unwrap();
    }

    fn next(&self) -> (usize, Vec<u8>) {
        self.reports.recv_timeout(SOON).expect("a core reports")
    }

    /// The core that receives the datagram.
    fn core_of(&self, from: &StdSocket, datagram: &[u8]) -> usize {
        self.send(from, datagram);
        let (core, received) = self.next();
        assert_eq!(received, datagram);
        core
    }

    fn end(self, cores: impl Iterator<Item = usize>) {
        for core in cores {
            let id = steering().connection_id(core, random(0));
            self.send(&client(), &packet(SHORT_HEADER, id, END));
        }
        self.cores.join().unwrap();
    }
}

#[test]
fn a_connection_id_reaches_its_core_from_any_address() {
    for io in [IoChoice::Uring, IoChoice::Epoll] {
        let group = Group::start(io, None);
        for number in 0..200 {
            let core = number as usize % CORES;
            let id = steering().connection_id(core, random(number));
            let sent = packet(SHORT_HEADER, id, b"hello");
            assert_eq!(group.core_of(&client(), &sent), core, "{number}");
        }
        // Without content, and from one address to all cores.
        let client = client();
        for core in 0..CORES {
            let id = steering().connection_id(core, random(7));
            assert_eq!(group.core_of(&client, &packet(0, id, b"")), core);
        }
        group.end(0..CORES);
    }
}

#[test]
fn what_names_no_core_is_distributed_by_its_addresses() {
    for io in [IoChoice::Uring, IoChoice::Epoll] {
        let group = Group::start(io, None);
        let id = |core, number| steering().connection_id(core, random(number));
        let mut seen = HashSet::new();
        for number in 0..60 {
            let client = client();
            let core = group.core_of(&client, &packet(LONG_HEADER, id(0, number), b"first"));
            seen.insert(core);
            let other_generation = Steering::new(KEY, 6);
            for unknown in [
                packet(LONG_HEADER, id((core + 1) % CORES, number), b"handshake"),
                packet(
                    SHORT_HEADER,
                    other_generation.connection_id(0, random(number)),
                    b"",
                ),
                packet(SHORT_HEADER, id(CORES, number), b"too many cores"),
                packet(SHORT_HEADER, [0; 8], b"")[..8].to_vec(),
                vec![SHORT_HEADER],
            ] {
                assert_eq!(group.core_of(&client, &unknown), core, "{unknown:?}");
            }
        }
        assert_eq!(seen.len(), CORES, "60 clients use all cores");
        group.end(0..CORES);
    }
}

#[test]
fn a_core_that_leaves_does_not_change_the_numbers_of_others() {
    for io in [IoChoice::Uring, IoChoice::Epoll] {
        let group = Group::start(io, Some(1));
        // The kernel would give the last core the number of the one that left.
        for number in 0..30 {
            for core in [0, 2, 3] {
                let id = steering().connection_id(core, random(number));
                let sent = packet(SHORT_HEADER, id, b"");
                assert_eq!(group.core_of(&client(), &sent), core);
            }
        }
        group.end([0, 2, 3].into_iter());
    }
}

#[test]
fn an_address_that_another_socket_has_is_refused() {
    let bind = |address| DatagramGroup::bind(address, 2, &steering());
    let (group, client) = (bind(loopback()).unwrap(), client());
    for taken in [group.local(), client.local_addr().unwrap()] {
        let error = bind(taken).err().map(|error| error.kind());
        assert_eq!(error, Some(ErrorKind::AddrInUse));
    }
    let address = group.local();
    drop(group);
    assert!(bind(address).is_ok());
}
