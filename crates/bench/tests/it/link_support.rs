//! Links for tests, and traffic on them.

use std::env;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use blitz_bench::link::{Link, LinkError};

/// If set, a test that cannot run on this machine fails instead of being skipped.
const TRY_ALL: &str = "BLITZ_TRY_ALL";

/// The longest time that a socket of a test waits.
pub(crate) const IO_TIMEOUT: Duration = Duration::from_secs(10);

/// A link for a test. Other tests wait until it is dropped, because links measure time.
pub(crate) struct TestLink {
    pub(crate) link: Link,
    pub(crate) turn: MutexGuard<'static, ()>,
}

static TURN: Mutex<()> = Mutex::new(());

/// Starts a link, or says why this machine has none.
pub(crate) fn start(spec: &str, seed: u64) -> Option<TestLink> {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    match Link::start(&spec.parse().unwrap(), seed) {
        Ok(link) => Some(TestLink { link, turn }),
        Err(error @ LinkError::Failed { .. }) => panic!("{error}"),
        Err(error) => {
            skip(&error.to_string());
            None
        }
    }
}

/// Whether no test may be skipped.
pub(crate) fn tries_all() -> bool {
    env::var_os(TRY_ALL).is_some()
}

/// Says why a test is skipped, unless it must not be.
pub(crate) fn skip(reason: &str) {
    let name = thread::current().name().unwrap_or_default().to_owned();
    let notice = format!("{name} is skipped: {reason}");
    assert!(!tries_all(), "{notice}");
    // Written directly, because the output of passed tests is not shown.
    io::stderr()
        .write_all(format!("{notice}\n").as_bytes())
        .unwrap();
}

impl TestLink {
    /// A UDP socket of the client that is connected to one of the server.
    pub(crate) fn udp(&self) -> Udp {
        self.udp_between(self.link.client_address(), self.link.server_address())
    }

    pub(crate) fn udp_between(&self, client: IpAddr, server: IpAddr) -> Udp {
        let bind = |address| move || UdpSocket::bind(SocketAddr::new(address, 0));
        let server = self.link.in_server(bind(server)).unwrap().unwrap();
        let client = self.link.in_client(bind(client)).unwrap().unwrap();
        client.connect(server.local_addr().unwrap()).unwrap();
        server.connect(client.local_addr().unwrap()).unwrap();
        for socket in [&server, &client] {
            socket.set_read_timeout(Some(IO_TIMEOUT)).unwrap();
        }
        Udp { server, client }
    }

    /// A TCP connection.
    pub(crate) fn tcp(&self) -> Tcp {
        let address = SocketAddr::new(self.link.server_address(), 0);
        let listener = self.link.in_server(|| TcpListener::bind(address)).unwrap();
        let listener = listener.unwrap();
        let address = listener.local_addr().unwrap();
        let client = self.link.in_client(|| TcpStream::connect(address));
        let client = client.unwrap().unwrap();
        let (server, _) = listener.accept().unwrap();
        for socket in [&server, &client] {
            socket.set_read_timeout(Some(IO_TIMEOUT)).unwrap();
        }
        Tcp { server, client }
    }
}

/// Two connected sockets.
pub(crate) struct Udp {
    pub(crate) server: UdpSocket,
    pub(crate) client: UdpSocket,
}

impl Udp {
    /// Measures round trips of small datagrams, with a pause after each. The server replies to each.
    pub(crate) fn round_trips(&self, count: usize, pause: Duration) -> Vec<Duration> {
        let echo = self.server.try_clone().unwrap();
        let echo = thread::spawn(move || {
            let mut buffer = [0; 64];
            for _ in 0..count {
                let length = echo.recv(&mut buffer).unwrap();
                echo.send(&buffer[..length]).unwrap();
            }
        });
        let mut times = Vec::new();
        for number in 0..count {
            let start = Instant::now();
            self.client.send(&number.to_be_bytes()).unwrap();
            let length = self.client.recv(&mut [0; 64]).unwrap();
            times.push(start.elapsed());
            assert_eq!(length, 8);
            thread::sleep(pause);
        }
        echo.join().unwrap();
        times
    }
}

/// Datagrams that are under way at most, so that no buffer of a socket is ever full.
const WINDOW: usize = 80;

impl TestLink {
    /// Sends datagrams of this length from the server, and returns the numbers of those that arrive.
    pub(crate) fn arrivals(&self, count: usize, length: usize) -> Vec<u32> {
        let udp = self.udp();
        udp.client.set_nonblocking(true).unwrap();
        let mut datagram = vec![0; length];
        let mut arrived = Vec::new();
        let (mut sent, mut settled) = (0, 0);
        let end = Instant::now() + IO_TIMEOUT;
        while settled < count {
            while sent < count && sent < settled + WINDOW {
                datagram[..4].copy_from_slice(&(sent as u32).to_be_bytes());
                udp.server.send(&datagram).unwrap();
                sent += 1;
            }
            while udp.client.recv(&mut datagram).is_ok() {
                arrived.push(u32::from_be_bytes(datagram[..4].try_into().unwrap()));
            }
            let down = self.link.counters().down;
            settled = arrived.len() + (down.lost + down.dropped) as usize;
            assert!(
                Instant::now() < end,
                "{} of {count} arrived; {down}",
                arrived.len()
            );
            thread::sleep(Duration::from_micros(100));
        }
        arrived
    }
}

/// Two connected sockets.
pub(crate) struct Tcp {
    pub(crate) server: TcpStream,
    pub(crate) client: TcpStream,
}

impl Tcp {
    /// Sends this many bytes from the server. Returns when each part of them arrived, with the sum of bytes.
    pub(crate) fn download(self, bytes: usize) -> Vec<(Instant, usize)> {
        let Tcp {
            mut server,
            mut client,
        } = self;
        let sender = thread::spawn(move || server.write_all(&vec![7; bytes]).unwrap());
        let mut buffer = vec![0; 1 << 16];
        let mut arrivals = Vec::new();
        let mut sum = 0;
        loop {
            let length = client.read(&mut buffer).unwrap();
            if length == 0 {
                break;
            }
            sum += length;
            arrivals.push((Instant::now(), sum));
        }
        sender.join().unwrap();
        assert_eq!(sum, bytes);
        arrivals
    }
}

/// The bytes per second of a transfer. The first part is left out, in which TCP increases its window.
pub(crate) fn rate(arrivals: &[(Instant, usize)]) -> f64 {
    let (end, sum) = *arrivals.last().unwrap();
    let (start, before) = *arrivals.iter().find(|(_, bytes)| *bytes > sum / 3).unwrap();
    (sum - before) as f64 / (end - start).as_secs_f64()
}

pub(crate) fn median(times: &[Duration]) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    times[times.len() / 2]
}
