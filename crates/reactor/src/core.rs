//! The state of one core, and how the handles of its thread find it.
//!
//! A core is built on its parts, which do not know it: tables of sockets and tasks, timers, buffers, the mailbox and the
//! driver. The handles of the crates above, and the loop, are built on the core.

mod event_loop;
#[cfg(feature = "simulation")]
mod stepped;

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use crate::buffer::Pool;
use crate::counters::{CounterCells, Counters};
use crate::driver::{Driver, DriverKind, IoChoice, RingHandle, Workers};
use crate::executor::Tasks;
use crate::load::{CoreGroup, Load};
use crate::mailbox::Mailbox;
use crate::resources::CoreResources;
use crate::socket::{Lingering, SocketTable, Sockets};
use crate::socket_share::SocketShare;
use crate::timer::{Alarms, Clock, Random, Wheel};
use crate::trim::Trim;

/// Everything that one core owns. Its parts are borrowed one by one, and never while a task or
/// handler runs.
pub(crate) struct Core {
    /// The index of the core's mailbox, which its wakers contain.
    pub(crate) slot: u16,
    pub(crate) random: RefCell<Random>,
    pub(crate) alarms: RefCell<Alarms>,
    pub(crate) tasks: RefCell<Tasks>,
    pub(crate) mailbox: Arc<Mailbox>,
    sockets: RefCell<SocketTable>,
    /// Declared, and so dropped, after the sockets: the driver receives into the pool until it is closed.
    pub(crate) resources: CoreResources,
    trim: Trim,
}

/// The parameters of [`Core::open`].
pub(crate) struct CoreOptions {
    pub(crate) index: usize,
    pub(crate) io: IoChoice,
    pub(crate) sockets: SocketShare,
    pub(crate) lingering: Lingering,
    pub(crate) seed: Option<u64>,
    pub(crate) counters: Arc<CounterCells>,
    /// The cores that are started together.
    pub(crate) group: Arc<CoreGroup>,
}

thread_local! {
    static CURRENT: Cell<*const Core> = const { Cell::new(std::ptr::null()) };
}

/// Calls `f` with the core of this thread.
///
/// # Panics
/// If the thread runs no reactor.
#[inline]
pub(crate) fn with<R>(f: impl FnOnce(&Core) -> R) -> R {
    try_with(f).expect("sockets, timers and tasks live on threads that run a reactor")
}

/// Calls `f` with the core of this thread, if it has one.
#[inline]
pub(crate) fn try_with<R>(f: impl FnOnce(&Core) -> R) -> Option<R> {
    let current = CURRENT.get();
    // SAFETY: `Current` sets the pointer to a core that is borrowed for as long, on its own thread,
    // and clears it before the core is dropped.
    unsafe { current.as_ref() }.map(f)
}

impl Core {
    /// Opens the driver and the pools. Must be called on the thread that will run the core,
    /// because a ring belongs to the thread that made it.
    pub(crate) fn open(settings: CoreOptions) -> io::Result<Core> {
        let io = settings.io;
        Core::open_with(settings, |pool, mailbox| Driver::open(io, pool, mailbox))
    }

    /// As [`Core::open`], with the driver that `open` returns.
    pub(crate) fn open_with(
        settings: CoreOptions,
        open: impl FnOnce(&Rc<Pool>, &Arc<Mailbox>) -> io::Result<Driver>,
    ) -> io::Result<Core> {
        let pool = Rc::new(Pool::new()?);
        let (slot, mailbox) = Mailbox::claim()?;
        let opened = open(&pool, &mailbox);
        let driver = opened.inspect_err(|_| mailbox.release())?;
        let seed = settings.seed.unwrap_or_else(|| driver.entropy());
        let resources = CoreResources {
            index: settings.index,
            clock: Clock::new(driver.now()),
            wheel: RefCell::new(Wheel::new()),
            pool,
            counters: settings.counters,
            load: Load::new(settings.group, settings.index, &mailbox, driver.now()),
            sockets: settings.sockets,
            lingering: settings.lingering,
        };
        Ok(Core {
            slot,
            random: RefCell::new(Random::new(seed)),
            alarms: RefCell::new(Alarms::new()),
            tasks: RefCell::new(Tasks::new()),
            mailbox,
            sockets: RefCell::new(SocketTable::new(driver)),
            resources,
            trim: Trim::new(),
        })
    }

    /// Borrows the sockets for one command.
    pub(crate) fn sockets(&self) -> Sockets<'_> {
        Sockets {
            table: self.sockets.borrow_mut(),
            core: &self.resources,
        }
    }

    pub(crate) fn driver(&self) -> DriverKind {
        self.sockets.borrow().driver.kind()
    }

    /// The current time, which also moves within a turn.
    pub(crate) fn time(&self) -> Instant {
        self.sockets.borrow().driver.now()
    }

    /// Wall-clock time of this turn.
    pub(crate) fn wall(&self) -> SystemTime {
        let clock = &self.resources.clock;
        clock.wall(|| self.sockets.borrow().driver.wall())
    }

    /// The threads that run blocking jobs.
    pub(crate) fn workers(&self) -> Workers {
        self.sockets.borrow().driver.workers()
    }

    pub(crate) fn mailbox(&self) -> &Arc<Mailbox> {
        &self.mailbox
    }

    /// The counters of this core.
    pub(crate) fn read_counters(&self) -> Counters {
        self.resources.counters.read()
    }

    /// Wakes the core of another ring; false if the caller has to use the eventfd.
    pub(crate) fn message_ring(&self, ring: RingHandle) -> bool {
        // While the table is borrowed the caller uses the eventfd.
        let table = self.sockets.try_borrow_mut();
        table.is_ok_and(|mut table| table.driver.message_ring(ring))
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.resources.load.stop_taking();
        self.mailbox.release();
    }
}

/// Marks the thread as running a core.
struct Current;

impl Current {
    fn enter(core: &Core) -> Current {
        assert!(
            CURRENT.get().is_null(),
            "a thread runs one reactor at a time"
        );
        CURRENT.set(core);
        Current
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        CURRENT.set(std::ptr::null());
    }
}
