//! An emulated network link between a server and a client: delay, jitter, loss, reordering, rate and queue.
//!
//! Each side runs in a network namespace of its own, whose only interface besides `lo` is a TUN device. One
//! thread moves the packets between the two devices, and delays or loses them as a model of each direction
//! says, which depends on a seed. The link knows nothing of transports: packets of TCP and QUIC suffer
//! alike. The MTU is 1,500 bytes.

mod awake;
mod counters;
mod device;
mod emulator;
mod error;
mod jitter;
mod loss;
mod model;
mod moves;
mod namespace;
mod netlink;
mod parse;
mod profile;
mod random;
mod report;
mod spec;

use std::io::{self, PipeWriter};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::panic;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::net::sockopt;

use self::awake::Awake;
use self::device::{Device, dropped_by_kernel};
use self::emulator::{Emulator, LinkSummary};
use self::model::LinkDirection;
use self::moves::Moves;
use self::namespace::Namespace;
use self::random::Random;

pub use self::counters::{DirectionCounters, LinkCounters};
pub use self::error::LinkError;
pub use self::namespace::enter_user_namespace;
pub use self::parse::LinkSpecError;
pub use self::report::LinkReport;
pub use self::spec::LinkSpec;

/// The stream of random numbers from which the client's packets have their seed.
const UP: u64 = 1;

/// A link that works until it is stopped or dropped.
///
/// Its namespaces disappear with it and with the processes and sockets in them. A process that outlives the
/// link has no network any more.
#[derive(Debug)]
pub struct Link {
    spec: LinkSpec,
    seed: u64,
    server: Namespace,
    client: Namespace,
    has_ipv6: bool,
    counters: Arc<Mutex<LinkCounters>>,
    /// None after the link was stopped.
    emulator: Option<EmulatorThread>,
    _awake: Awake,
}

/// The thread of the emulator. It ends when `stop` is dropped.
#[derive(Debug)]
struct EmulatorThread {
    stop: PipeWriter,
    thread: JoinHandle<LinkSummary>,
}

impl Link {
    /// Makes both namespaces and starts the emulator. The same seed makes the same random choices for the
    /// same packets.
    ///
    /// # Errors
    /// The missing permission or device, with the remedy.
    pub fn start(spec: &LinkSpec, seed: u64) -> Result<Link, LinkError> {
        let (server, server_device) = Namespace::new(|| Device::open(device::SERVER))?;
        let (client, client_device) = Namespace::new(|| Device::open(device::CLIENT))?;
        let has_ipv6 = server_device.has_ipv6() && client_device.has_ipv6();
        let counters = Arc::new(Mutex::new(LinkCounters::default()));
        let (stopped, stop) = io::pipe().map_err(LinkError::failed("open a pipe"))?;
        let emulator = Emulator::new(
            [server_device, client_device],
            [
                LinkDirection::new(spec.down.clone(), seed),
                LinkDirection::new(spec.up.clone(), Random::new(seed, UP).next()),
            ],
            Moves::new(device::CLIENT.v4, spec.move_every),
            stopped,
            Arc::clone(&counters),
        );
        let thread = thread::Builder::new()
            .name("link".to_owned())
            .spawn(|| emulator.run())
            .map_err(LinkError::failed("start its thread"))?;
        Ok(Link {
            spec: spec.clone(),
            seed,
            server,
            client,
            has_ipv6,
            counters,
            emulator: Some(EmulatorThread { stop, thread }),
            _awake: Awake::start(),
        })
    }

    /// The address on which a server is reached by clients of the link.
    #[must_use]
    pub fn server_address(&self) -> IpAddr {
        IpAddr::V4(device::SERVER.v4)
    }

    /// The same for IPv6, if the kernel has it.
    #[must_use]
    pub fn server_address_v6(&self) -> Option<Ipv6Addr> {
        self.has_ipv6.then_some(device::SERVER.v6)
    }

    /// The address of the client.
    #[must_use]
    pub fn client_address(&self) -> IpAddr {
        IpAddr::V4(device::CLIENT.v4)
    }

    /// The congestion control of TCP, as the two sockets of a connection over the link say: `cubic`, unless the kernel
    /// lacks it. Two names if the ends differ.
    ///
    /// # Errors
    /// The connection cannot be made.
    pub fn congestion_control(&self) -> io::Result<String> {
        let address = SocketAddr::new(self.server_address(), 0);
        let listener = self.server.run(|| TcpListener::bind(address))??;
        let to = listener.local_addr()?;
        let client = self.client.run(|| TcpStream::connect(to))??;
        let (server, _) = listener.accept()?;
        let [client, server] = [client, server].map(sockopt::tcp_congestion);
        let (client, server) = (client?, server?);
        Ok(match client == server {
            true => client,
            false => format!("{client} and {server}"),
        })
    }

    /// Starts a process on the server's side.
    ///
    /// # Errors
    /// Those of [`Command::spawn`].
    pub fn spawn_server(&self, command: &mut Command) -> io::Result<Child> {
        self.server.run(|| command.spawn())?
    }

    /// Starts a process on the client's side.
    ///
    /// # Errors
    /// Those of [`Command::spawn`].
    pub fn spawn_client(&self, command: &mut Command) -> io::Result<Child> {
        self.client.run(|| command.spawn())?
    }

    /// Calls `work` on a thread of the server's side. Sockets that it opens and threads that it starts belong
    /// to this side for as long as they exist.
    ///
    /// # Errors
    /// The process has lost the permission to enter the namespace.
    pub fn in_server<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        self.server.run(work)
    }

    /// The same for the client's side.
    ///
    /// # Errors
    /// The process has lost the permission to enter the namespace.
    pub fn in_client<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        self.client.run(work)
    }

    /// The counts so far.
    #[must_use]
    pub fn counters(&self) -> LinkCounters {
        *self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops the link. Packets under way are lost.
    #[must_use]
    pub fn stop(mut self) -> LinkReport {
        // The devices, and their statistics, disappear with the emulator.
        let dropped = [&self.server, &self.client].map(|side| side.run(dropped_by_kernel));
        let dropped = dropped.into_iter().map(Result::flatten);
        let (kernel_drops, unknown) = match dropped.sum::<io::Result<u64>>() {
            Ok(kernel_drops) => (kernel_drops, None),
            Err(error) => (0, Some(error)),
        };
        let summary = self.end().expect("only this function takes the emulator");
        let failure = summary.failure.or(unknown);
        LinkReport {
            spec: self.spec.clone(),
            seed: self.seed,
            counters: self.counters(),
            lateness_p99: summary.lateness_p99,
            elapsed: summary.elapsed,
            cpu_time: summary.cpu_time,
            is_real_time: summary.is_real_time,
            kernel_drops,
            failure: failure.map(|error| error.to_string()),
        }
    }

    fn end(&mut self) -> Option<LinkSummary> {
        let EmulatorThread { stop, thread } = self.emulator.take()?;
        drop(stop);
        Some(
            thread
                .join()
                .unwrap_or_else(|payload| panic::resume_unwind(payload)),
        )
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.end();
        }
    }
}
