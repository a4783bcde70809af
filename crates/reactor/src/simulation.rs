//! A simulated machine: cores and their peers on one thread, a virtual clock, and a network whose
//! faults follow from a seed.
//!
//! Cores run what they run elsewhere. Peers are futures of the caller on streams of this network;
//! they need none of our machines. Everything that happens follows from the seed, as long as the
//! programs on it take time and chance from the reactor alone.

mod local;
mod peer;
mod random;
mod stream;
mod udp;

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use self::local::Locals;
use self::peer::Peers;
use crate::core::{Core, CoreOptions};
use crate::counters::{CounterCells, Counters};
use crate::driver::Driver;
use crate::driver::sim::{Network, SharedNetwork, Sim};
use crate::executor::main_waker;
use crate::load::CoreGroup;
use crate::socket::Address;
use crate::socket_share::SocketShare;

#[doc(hidden)]
pub use self::local::register;
pub use self::random::Random;
pub use self::stream::{Acceptor, Stream};
pub use self::udp::{PeerDatagram, PeerSocket};
pub use crate::driver::sim::Conditions;

/// Turns of cores and peers between two moments in which nobody has anything to do; more are a loop
/// that does not end.
const BUSY_TURNS_MAX: u32 = 2_000_000;

/// Cores that forward datagrams to each other; further ones lose them.
const FORWARDING_CORES: usize = 8;

/// One simulated machine. Cloning gives another handle to the same.
#[derive(Clone)]
pub struct World {
    network: SharedNetwork,
    peers: Peers,
    cores: Rc<RefCell<Vec<Stepped>>>,
    group: Arc<CoreGroup>,
}

/// A core that is stepped, and the future that it runs.
struct Stepped {
    /// `None` once it has ended.
    running: Option<RunningCore>,
    /// When it has something to do by itself.
    wake_at: Option<Duration>,
    counters: Arc<CounterCells>,
}

struct RunningCore {
    core: Box<Core>,
    main: Pin<Box<dyn Future<Output = ()>>>,
    waker: Waker,
    locals: Locals,
}

/// The resources that a core holds: after the last request they are those before the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holdings {
    /// Sockets of the core's table.
    pub sockets: usize,
    /// Tasks.
    pub tasks: usize,
    /// Receive buffers with views.
    pub buffers: usize,
    /// Bytes that can still be received.
    pub available: usize,
}

/// Why [`World::run`] returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The condition was met.
    Done,
    /// The time was over.
    Late,
    /// Nothing will ever happen any more.
    Stuck,
    /// Somebody is always busy: the programs wake each other without end.
    Spinning,
}

impl World {
    /// A machine without cores.
    #[must_use]
    pub fn new(seed: u64, conditions: Conditions) -> World {
        let network = Rc::new(RefCell::new(Network::new(seed, conditions)));
        World {
            network,
            peers: Peers::default(),
            cores: Rc::default(),
            group: CoreGroup::simulated(FORWARDING_CORES),
        }
    }

    /// Opens a core that will run `main`. Returns its index among the cores.
    ///
    /// # Errors
    /// If there is no memory or no mailbox for it.
    pub fn start_core(
        &self,
        sockets_max: usize,
        main: impl Future<Output = ()> + 'static,
    ) -> io::Result<usize> {
        let mut cores = self.cores.borrow_mut();
        let counters = Arc::new(CounterCells::default());
        let settings = CoreOptions {
            index: cores.len(),
            io: crate::driver::IoChoice::Auto,
            sockets: SocketShare {
                accepting_max: sockets_max,
                connecting_max: usize::MAX,
            },
            lingering: crate::Lingering::default(),
            seed: None,
            counters: Arc::clone(&counters),
            group: Arc::clone(&self.group),
        };
        let core = Core::open_with(settings, |_, mailbox| {
            Ok(Driver::Sim(Box::new(Sim::new(&self.network, mailbox))))
        })?;
        let waker = main_waker(&core);
        cores.push(Stepped {
            running: Some(RunningCore {
                core: Box::new(core),
                main: Box::pin(main),
                waker,
                locals: Locals::default(),
            }),
            wake_at: Some(self.now()),
            counters,
        });
        Ok(cores.len() - 1)
    }

    /// Starts a peer.
    pub fn spawn(&self, peer: impl Future<Output = ()> + 'static) {
        self.peers.spawn(Box::pin(peer));
    }

    /// Virtual time since the start.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.network.borrow().now
    }

    /// Virtual time, as the cores see it.
    #[must_use]
    pub fn instant(&self) -> Instant {
        self.network.borrow().instant()
    }

    /// Wakes once after `duration` of virtual time.
    pub fn wake_after(&self, duration: Duration, waker: &Waker) {
        let mut network = self.network.borrow_mut();
        network.wake_after(duration, waker.clone());
    }

    /// Ready after `duration` of virtual time.
    pub async fn sleep(&self, duration: Duration) {
        let until = self.now() + duration;
        std::future::poll_fn(|cx| {
            let mut network = self.network.borrow_mut();
            if network.now >= until {
                return std::task::Poll::Ready(());
            }
            let left = until - network.now;
            network.wake_after(left, cx.waker().clone());
            std::task::Poll::Pending
        })
        .await;
    }

    /// Connects a peer.
    ///
    /// # Errors
    /// As `connect(2)`.
    pub async fn connect(&self, address: &Address) -> io::Result<Stream> {
        Stream::connect(&self.network, address).await
    }

    /// Listens for a peer.
    ///
    /// # Errors
    /// `AddrInUse`.
    pub fn listen(&self, address: &Address) -> io::Result<Acceptor> {
        Acceptor::listen(&self.network, address)
    }

    /// Binds a UDP socket of a peer. Port 0 takes a free one.
    #[must_use]
    pub fn bind_udp(&self, address: SocketAddr) -> PeerSocket {
        PeerSocket::bind(&self.network, address)
    }

    /// Runs until `is_done` or for `limit`, whichever is first.
    pub fn run(&self, limit: Duration, mut is_done: impl FnMut() -> bool) -> Stop {
        let deadline = self.now() + limit;
        let mut busy_turns = 0;
        loop {
            self.network.borrow_mut().run_events();
            if is_done() {
                return Stop::Done;
            }
            if self.step_one() {
                busy_turns += 1;
                if busy_turns > BUSY_TURNS_MAX {
                    return Stop::Spinning;
                }
                continue;
            }
            busy_turns = 0;
            let event = self.network.borrow().next_event();
            let cores = self.cores.borrow();
            let wakes = cores.iter().filter_map(|core| core.wake_at);
            let Some(next) = wakes.chain(event).min() else {
                return Stop::Stuck;
            };
            if next > deadline {
                self.network.borrow_mut().now = deadline;
                return Stop::Late;
            }
            let mut network = self.network.borrow_mut();
            network.now = network.now.max(next);
        }
    }

    /// Gives one core, or all peers that are ready, a turn; whether there was one.
    fn step_one(&self) -> bool {
        let mut runnable: Vec<usize> = Vec::new();
        {
            let network = self.network.borrow();
            for (index, core) in self.cores.borrow().iter().enumerate() {
                let Some(running) = &core.running else {
                    continue;
                };
                let is_due = core.wake_at.is_some_and(|at| at <= network.now);
                if is_due || network.is_ready(index) || running.core.mailbox().is_notified() {
                    runnable.push(index);
                }
            }
        }
        let choices = runnable.len() as u64 + u64::from(self.peers.are_ready());
        if choices == 0 {
            return false;
        }
        let choice = match choices {
            1 => 0,
            choices => (self.network.borrow_mut().random.next() % choices) as usize,
        };
        match runnable.get(choice) {
            Some(&index) => self.step_core(index),
            None => self.peers.run_ready(),
        }
        true
    }

    fn step_core(&self, index: usize) {
        // Taken out, because what the core runs may use this world.
        let mut running = self.cores.borrow_mut()[index]
            .running
            .take()
            .expect("only a running core is runnable");
        let RunningCore {
            core,
            main,
            waker,
            locals,
        } = &mut running;
        let ended = locals.within(|| core.step_once(main.as_mut(), waker));
        let idle = running.core.idle_time();
        let now = self.now();
        let mut cores = self.cores.borrow_mut();
        let stepped = &mut cores[index];
        if ended {
            stepped.wake_at = None;
        } else {
            stepped.wake_at = idle.map(|idle| now + idle);
            stepped.running = Some(running);
        }
    }

    /// Calls `f` with what a core keeps for itself, of which the core learns nothing; `None` if it has
    /// ended.
    pub fn look<R>(&self, index: usize, f: impl FnOnce() -> R) -> Option<R> {
        let mut cores = self.cores.borrow_mut();
        let RunningCore { core, locals, .. } = cores[index].running.as_mut()?;
        Some(locals.within(|| core.enter(f)))
    }

    /// Packets to this address are lost from now on, so that connecting never ends by itself before
    /// the kernel gives up.
    pub fn add_black_hole(&self, address: &Address) {
        self.network.borrow_mut().add_black_hole(address);
    }

    /// Packets to this address arrive again from now on.
    pub fn remove_black_hole(&self, address: &Address) {
        self.network.borrow_mut().remove_black_hole(address);
    }

    /// The attempts to connect that nobody accepted since the last call: those that were refused and those to black
    /// holes, with the time at which their first packet arrived.
    #[must_use]
    pub fn take_not_accepted(&self) -> Vec<(Duration, Address)> {
        self.network.borrow_mut().take_not_accepted()
    }

    /// Changes how often a descriptor lacks, per thousand attempts.
    pub fn set_no_descriptors(&self, per_mille: u16) {
        self.network.borrow_mut().conditions.no_descriptors = per_mille;
    }

    /// The largest datagrams that are not lost.
    #[must_use]
    pub fn datagram_bytes_max(&self) -> usize {
        self.network.borrow().conditions.datagram_bytes_max
    }

    /// From now on datagrams above this size are lost: the path has a router with a smaller MTU.
    pub fn set_datagram_bytes_max(&self, bytes: usize) {
        self.network.borrow_mut().conditions.datagram_bytes_max = bytes;
    }

    /// Calls `f` on a core, as a message from another thread would; `None` if the core has ended.
    pub fn on_core<R>(&self, index: usize, f: impl FnOnce() -> R) -> Option<R> {
        let mut running = self.cores.borrow_mut()[index].running.take()?;
        let RunningCore { core, locals, .. } = &mut running;
        let value = locals.within(|| core.enter(f));
        let now = self.now();
        let stepped = &mut self.cores.borrow_mut()[index];
        stepped.wake_at = Some(now);
        stepped.running = Some(running);
        Some(value)
    }

    /// The resources that a core holds; `None` if it has ended.
    #[must_use]
    pub fn holdings(&self, index: usize) -> Option<Holdings> {
        let cores = self.cores.borrow();
        let core = &cores[index].running.as_ref()?.core;
        Some(core.holdings())
    }

    /// The counters of a core.
    #[must_use]
    pub fn counters(&self, index: usize) -> Counters {
        self.cores.borrow()[index].counters.read()
    }

    /// Sockets of the network: closed ones with bytes on their way are included, UDP sockets of peers are not.
    #[must_use]
    pub fn open_sockets(&self) -> usize {
        self.network.borrow().open_sockets()
    }

    /// From now on events of the network are noted.
    pub fn keep_trace(&self) {
        self.network.borrow_mut().keep_trace();
    }

    /// Adds a line to the trace, if one is kept.
    pub fn note(&self, line: impl FnOnce() -> String) {
        self.network.borrow_mut().note(line);
    }

    /// The events that were noted.
    #[must_use]
    pub fn take_trace(&self) -> Vec<String> {
        self.network.borrow_mut().take_trace()
    }

    /// Drops all peers, then all cores.
    pub fn close(&self) {
        self.peers.clear();
        let cores = std::mem::take(&mut *self.cores.borrow_mut());
        for mut stepped in cores {
            if let Some(running) = stepped.running.take() {
                let (core, main, mut locals) = (running.core, running.main, running.locals);
                locals.within(|| core.close(main));
            }
        }
    }
}
