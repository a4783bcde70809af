//! One thread per core; cores share no state.

use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use crate::core::{self, Core, CoreOptions};
use crate::counters::{CounterCells, Counters};
use crate::driver::{self, CorePlacement, DriverKind, IoChoice, MemoryNode};
use crate::load::CoreGroup;
use crate::mailbox::{CoreMessage, Mailbox};
use crate::messages::post;
use crate::signal;
use crate::socket::Lingering;
use crate::socket_share::{ReservedDescriptors, SocketShare};

/// How to run the cores.
#[derive(Debug, Clone)]
pub struct Config {
    /// Which driver to use.
    pub io: IoChoice,
    /// Number of cores; 0 means one per processor that the process may run on.
    pub cores: usize,
    /// Whether each thread is pinned to a processor.
    pub pin: Pinning,
    /// With this many sockets a core evicts idle ones before it accepts; 0 means 90 % of its share of the descriptors
    /// that the process may open (rule 20).
    pub sockets_max: usize,
    /// The descriptors that are not shared.
    pub reserved: ReservedDescriptors,
    /// How long a connection that Blitz closes discards input (rule 16).
    pub lingering: Lingering,
    /// Seed of [`random_u64`](crate::random_u64); `None` takes one from the operating system.
    pub seed: Option<u64>,
}

/// Whether each core's thread runs on one processor only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pinning {
    /// If the process has as many cores as processors that it may run on. With fewer, several processes
    /// that start alike would share the same processors.
    #[default]
    Auto,
    /// Always; cores beyond the number of processors share them.
    On,
    /// To the processors of a node of memory (NUMA), from which the thread takes its memory: nodes get cores in the ratio
    /// of their processors. Without nodes as [`Pinning::On`].
    Numa,
    /// Never: the kernel moves threads between the processors that the process may run on.
    Off,
}

impl Pinning {
    /// The placement of each core; nothing if the kernel places them.
    fn place(self, cores: usize, processors: &[usize]) -> Vec<CorePlacement> {
        let is_pinned = match self {
            Pinning::Numa => {
                let nodes = MemoryNode::all(Path::new("/"), processors);
                let places = MemoryNode::place(&nodes, cores);
                if !places.is_empty() {
                    return places;
                }
                true
            }
            Pinning::Auto => cores == processors.len(),
            Pinning::On => true,
            Pinning::Off => false,
        };
        let place = |core| CorePlacement {
            processors: vec![processors[core % processors.len()]],
            node: None,
        };
        let cores = if is_pinned { cores } else { 0 };
        (0..cores).map(place).collect()
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            io: IoChoice::Auto,
            cores: 0,
            pin: Pinning::Auto,
            sockets_max: 0,
            reserved: ReservedDescriptors::default(),
            lingering: Lingering::default(),
            seed: None,
        }
    }
}

impl Config {
    /// The number of cores that [`start`] starts.
    pub(crate) fn core_count(&self) -> usize {
        match self.cores {
            0 => driver::processors().len(),
            cores => cores,
        }
    }

    /// The most sockets of each core. A number that is chosen limits what is accepted alone.
    fn share(&self, cores: usize) -> SocketShare {
        let limit = driver::raise_descriptor_limit();
        let share = SocketShare::new(limit, driver::open_descriptors(), cores, self.reserved);
        match self.sockets_max {
            0 => share,
            max => SocketShare {
                accepting_max: max,
                connecting_max: usize::MAX,
            },
        }
    }

    fn settings(&self, index: usize, group: &Arc<CoreGroup>, sockets: SocketShare) -> CoreOptions {
        driver::enlarge_descriptor_table();
        CoreOptions {
            index,
            io: self.io,
            sockets,
            lingering: self.lingering,
            seed: self.seed,
            counters: Arc::new(CounterCells::default()),
            group: Arc::clone(group),
        }
    }
}

/// The running cores. Dropping this value does not stop them.
pub struct Cores {
    threads: Vec<JoinHandle<io::Result<()>>>,
    mailboxes: Vec<Arc<Mailbox>>,
    counters: Vec<Arc<CounterCells>>,
    driver: DriverKind,
    fallback: Option<String>,
    sockets: SocketShare,
}

/// The first message of a core's thread: its core is open, or the error.
type Opened = io::Result<(Arc<Mailbox>, DriverKind)>;

/// Starts one thread per core. Each runs the future of `main(index)` until it is done, closes its
/// sockets, drops its tasks, and ends. All cores use the same driver.
///
/// # Errors
/// If a thread cannot be started or its driver cannot be opened; the other threads then end.
pub fn start<F, Fut>(config: &Config, main: F) -> io::Result<Cores>
where
    F: Fn(usize) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = ()> + 'static,
{
    let main = Arc::new(main);
    let with = |io| Config {
        io,
        ..config.clone()
    };
    if config.io == IoChoice::Epoll {
        return start_with(config, &main);
    }
    let on_uring =
        driver::survives_io_uring().and_then(|()| start_with(&with(IoChoice::Uring), &main));
    match on_uring {
        // Memory limits may allow rings for some cores only; then all cores use epoll.
        Err(reason) if config.io == IoChoice::Auto => {
            let cores = start_with(&with(IoChoice::Epoll), &main)?;
            Ok(Cores {
                fallback: Some(reason.to_string()),
                ..cores
            })
        }
        started => started,
    }
}

fn start_with<F, Fut>(config: &Config, main: &Arc<F>) -> io::Result<Cores>
where
    F: Fn(usize) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = ()> + 'static,
{
    let processors = driver::processors();
    let count = config.core_count();
    let places = config.pin.place(count, &processors);
    driver::set_processors(&processors, places.iter().any(|place| place.node.is_some()));
    let sockets = config.share(count);
    let mut cores = Cores {
        threads: Vec::new(),
        mailboxes: Vec::new(),
        counters: Vec::new(),
        driver: DriverKind::Epoll,
        fallback: None,
        sockets,
    };
    // No core runs before all are open: on an error the senders are dropped, and the threads end.
    let mut starters = Vec::new();
    let group = CoreGroup::new(count);
    for index in 0..count {
        let settings = config.settings(index, &group, sockets);
        cores.counters.push(Arc::clone(&settings.counters));
        let place = places.get(index).cloned();
        let (opened, was_opened) = mpsc::sync_channel::<Opened>(1);
        let (starter, start) = mpsc::sync_channel::<()>(1);
        let main = Arc::clone(main);
        let thread = thread::Builder::new().name(format!("blitz-core-{index}"));
        cores.threads.push(thread.spawn(move || {
            signal::block_in_thread();
            // A container may forbid pinning; the core runs unpinned then.
            let _ = place.map(|place| place.apply());
            let core = match Core::open(settings) {
                Ok(core) => core,
                Err(error) => return opened.send(Err(error)).map_err(io::Error::other),
            };
            let sent = opened.send(Ok((Arc::clone(core.mailbox()), core.driver())));
            if sent.is_ok() && start.recv().is_ok() {
                core.run(async { main(index).await })
            } else {
                Ok(())
            }
        })?);
        let (mailbox, driver) = was_opened.recv().map_err(io::Error::other)??;
        cores.mailboxes.push(mailbox);
        cores.driver = driver;
        starters.push(starter);
    }
    for starter in starters {
        // Fails only if the thread has panicked, which `join` reports.
        let _ = starter.send(());
    }
    Ok(cores)
}

impl Cores {
    /// The number of cores.
    pub fn count(&self) -> usize {
        self.threads.len()
    }

    /// The active driver.
    pub fn driver(&self) -> DriverKind {
        self.driver
    }

    /// Why [`IoChoice::Auto`] chose epoll, as a message for people; `None` if it did not.
    pub fn fallback_reason(&self) -> Option<&str> {
        self.fallback.as_deref()
    }

    /// The number of sockets with which each core evicts idle ones before it accepts (rule 20).
    pub fn sockets_max(&self) -> usize {
        self.sockets.accepting_max
    }

    /// The most sockets of each core, with those that requests need beyond [`Cores::sockets_max`].
    pub fn sockets_hard_max(&self) -> usize {
        match self.sockets.connecting_max {
            usize::MAX => self.sockets.accepting_max,
            max => max,
        }
    }

    /// Whether the process may have so few descriptors that its cores leave none for anything else.
    pub fn share_all_descriptors(&self) -> bool {
        self.sockets.is_least()
    }

    /// Checks that the process has descriptors left for a connection on each core, and one more, for an
    /// upstream.
    ///
    /// # Errors
    /// An error for people, with the number of open files that are needed.
    pub fn check_descriptors(&self) -> io::Result<()> {
        driver::check_descriptors(self.count() + 1)
    }

    /// A handle to these cores.
    #[must_use]
    pub fn handle(&self) -> CoresHandle {
        CoresHandle {
            mailboxes: self.mailboxes.clone(),
            counters: self.counters.clone(),
        }
    }

    /// As [`CoresHandle::post_all`].
    pub fn post_all(&self, job: impl Fn(usize) + Send + Sync + 'static) {
        post_all(&self.mailboxes, job);
    }

    /// The sums of all cores' counters.
    pub fn counters(&self) -> Counters {
        sum(&self.counters)
    }

    /// Waits until every core has ended. If the environment contains `BLITZ_REACTOR_COUNTERS`, the sums
    /// of the counters are then written to standard error as one line of JSON, for benchmarks.
    ///
    /// # Errors
    /// The first error of a driver, or an error for a core that panicked.
    pub fn join(self) -> io::Result<()> {
        let mut first = Ok(());
        for thread in self.threads {
            let ended = thread
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("a core panicked")));
            first = first.and(ended);
        }
        if std::env::var_os("BLITZ_REACTOR_COUNTERS").is_some() {
            let sums = sum(&self.counters);
            let named: Vec<String> = sums
                .named()
                .map(|(name, value)| format!("\"{name}\":{value}"))
                .collect();
            eprintln!("{{{}}}", named.join(","));
        }
        first
    }
}

/// Reaches running cores from any thread, as long as they run.
#[derive(Clone)]
pub struct CoresHandle {
    mailboxes: Vec<Arc<Mailbox>>,
    counters: Vec<Arc<CounterCells>>,
}

impl CoresHandle {
    /// The number of cores.
    #[must_use]
    pub fn count(&self) -> usize {
        self.mailboxes.len()
    }

    /// Runs `job` once on every core in its next turn, with the core's index. The job must not block or
    /// panic. Cores that have ended do not run it.
    pub fn post_all(&self, job: impl Fn(usize) + Send + Sync + 'static) {
        post_all(&self.mailboxes, job);
    }

    /// The sums of all cores' counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        sum(&self.counters)
    }
}

fn post_all(mailboxes: &[Arc<Mailbox>], job: impl Fn(usize) + Send + Sync + 'static) {
    let job = Arc::new(job);
    for (index, mailbox) in mailboxes.iter().enumerate() {
        if !mailbox.is_open() {
            continue;
        }
        let job = Arc::clone(&job);
        let mut message = CoreMessage::Run(Box::new(move || job(index)));
        // A core empties a full mailbox within a turn, unless it has ended.
        while let Err(back) = post(mailbox, message) {
            if !mailbox.is_open() {
                break;
            }
            message = back;
            thread::yield_now();
        }
    }
}

fn sum(counters: &[Arc<CounterCells>]) -> Counters {
    counters
        .iter()
        .map(|cells| cells.read())
        .fold(Counters::default(), |a, b| a + b)
}

/// Runs a single core on the calling thread until `future` is done: for tests and tools.
///
/// # Errors
/// If the driver cannot be opened or fails.
pub fn block_on<F: Future>(config: &Config, future: F) -> io::Result<F::Output> {
    Core::open(config.settings(0, &CoreGroup::new(1), config.share(1)))?.run(future)
}

/// The index of the calling core among those that were started together.
pub fn core_index() -> usize {
    core::with(|core| core.resources.index)
}

/// The number of cores that were started together with the calling one.
pub fn core_count() -> usize {
    core::with(|core| core.resources.load.cores())
}

/// The counters of the calling core.
pub fn counters() -> Counters {
    core::with(Core::read_counters)
}

/// Whether the calling core is at its limit of sockets, or was recently (rule 20), and that limit.
pub fn sockets_limit() -> (bool, usize) {
    core::with(|core| {
        (
            core.sockets().table.is_evicting(),
            core.resources.sockets.accepting_max,
        )
    })
}

/// The number of open sockets of the calling core.
pub fn sockets_open() -> usize {
    core::with(|core| core.sockets().table.len())
}
