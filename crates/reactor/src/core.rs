//! The state of one core, and its loop.

#[cfg(feature = "simulation")]
mod stepped;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant, SystemTime};

use crate::buffer::Pool;
use crate::counters::{CounterCells, Counters};
use crate::driver::{Driver, DriverKind, IoChoice, RingHandle, WaitPolicy, Workers};
use crate::executor::{self, Tasks};
use crate::load::{Group, Load};
use crate::mailbox::{Mailbox, Message};
use crate::socket::{self, Lingering, SocketTable, Sockets};
use crate::timer::{Alarms, Clock, Random, TimerTarget, Wheel};
use crate::trim::{Held, Trim};

/// The longest wait for the last completions when a core ends.
const END_TIME: Duration = Duration::from_secs(1);

/// Everything that one core owns. Its parts are borrowed one by one, and never while a task or
/// handler runs.
pub(crate) struct Core {
    /// The index of the core's mailbox, which its wakers contain.
    pub(crate) slot: u16,
    /// The index of this core among those that were started together.
    pub(crate) index: usize,
    pub(crate) clock: Clock,
    pub(crate) random: RefCell<Random>,
    pub(crate) wheel: RefCell<Wheel>,
    pub(crate) alarms: RefCell<Alarms>,
    pub(crate) tasks: RefCell<Tasks>,
    pub(crate) mailbox: Arc<Mailbox>,
    /// With this many open sockets idle ones are evicted before others are accepted (rule 20).
    pub(crate) sockets_max: usize,
    pub(crate) lingering: Lingering,
    sockets: RefCell<SocketTable>,
    /// Declared, and so dropped, after the sockets: the driver receives into it until it is closed.
    pub(crate) pool: Rc<Pool>,
    pub(crate) counters: Arc<CounterCells>,
    pub(crate) load: Load,
    trim: Trim,
}

/// The parameters of [`Core::open`].
pub(crate) struct Settings {
    pub(crate) index: usize,
    pub(crate) io: IoChoice,
    pub(crate) sockets_max: usize,
    pub(crate) lingering: Lingering,
    pub(crate) seed: Option<u64>,
    pub(crate) counters: Arc<CounterCells>,
    /// The cores that are started together.
    pub(crate) group: Arc<Group>,
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
    pub(crate) fn open(settings: Settings) -> io::Result<Core> {
        let io = settings.io;
        Core::open_with(settings, |pool, mailbox| Driver::open(io, pool, mailbox))
    }

    /// As [`Core::open`], with the driver that `open` returns.
    pub(crate) fn open_with(
        settings: Settings,
        open: impl FnOnce(&Rc<Pool>, &Arc<Mailbox>) -> io::Result<Driver>,
    ) -> io::Result<Core> {
        let pool = Rc::new(Pool::new()?);
        let (slot, mailbox) = Mailbox::claim()?;
        let opened = open(&pool, &mailbox);
        let driver = opened.inspect_err(|_| mailbox.release())?;
        let seed = settings.seed.unwrap_or_else(|| driver.entropy());
        Ok(Core {
            slot,
            index: settings.index,
            pool,
            clock: Clock::new(driver.now()),
            random: RefCell::new(Random::new(seed)),
            wheel: RefCell::new(Wheel::new()),
            alarms: RefCell::new(Alarms::new()),
            tasks: RefCell::new(Tasks::new()),
            load: Load::new(settings.group, settings.index, &mailbox, driver.now()),
            mailbox,
            sockets_max: settings.sockets_max,
            lingering: settings.lingering,
            sockets: RefCell::new(SocketTable::new(driver)),
            counters: settings.counters,
            trim: Trim::new(),
        })
    }

    /// Borrows the sockets for one command.
    pub(crate) fn sockets(&self) -> Sockets<'_> {
        Sockets {
            table: self.sockets.borrow_mut(),
            core: self,
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
        self.clock.wall(|| self.sockets.borrow().driver.wall())
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
        self.counters.read()
    }

    /// Wakes the core of another ring; false if the caller has to use the eventfd.
    pub(crate) fn message_ring(&self, ring: RingHandle) -> bool {
        // While the table is borrowed the caller uses the eventfd.
        let table = self.sockets.try_borrow_mut();
        table.is_ok_and(|mut table| table.driver.message_ring(ring))
    }

    /// Runs until `main` is done, then closes all sockets and drops all tasks.
    pub(crate) fn run<F: Future>(&self, main: F) -> io::Result<F::Output> {
        let _current = Current::enter(self);
        let mut main = pin!(main);
        let waker = executor::main_waker(self);
        loop {
            match self.step(main.as_mut(), &waker) {
                Ok(Poll::Pending) => {}
                Ok(Poll::Ready(output)) => {
                    self.end()?;
                    return Ok(output);
                }
                Err(error) => {
                    // Closes gracefully what can still be closed; the first error is reported.
                    let _ = self.end();
                    return Err(error);
                }
            }
        }
    }

    /// Runs the ready tasks and one turn of the loop; ready once `main` is done.
    fn step<F: Future + ?Sized>(
        &self,
        main: Pin<&mut F>,
        waker: &Waker,
    ) -> io::Result<Poll<F::Output>> {
        let woken = self.tasks.borrow_mut().take_main_woken();
        if woken && let Poll::Ready(output) = main.poll(&mut Context::from_waker(waker)) {
            return Ok(Poll::Ready(output));
        }
        executor::run_ready(self);
        self.turn(None)?;
        Ok(Poll::Pending)
    }

    /// One turn: starts sends, waits, handles the reports of the driver, and wakes tasks.
    fn turn(&self, at_most: Option<Duration>) -> io::Result<()> {
        self.resume_waiting();
        let mut sockets = self.sockets();
        sockets.start_sends();
        sockets.start_datagrams();
        sockets.resume_starved();
        let timeout = self.wait_time(&mut sockets, at_most);
        let policy = WaitPolicy {
            timeout,
            busy_sockets: sockets.table.busy(self.clock.tick()),
            is_precise: self.alarms.borrow().next_at().is_some(),
            reap_all: self.tasks.borrow().is_any_held_back() || sockets.table.resumes_waiting() > 0,
        };
        self.load.set_waits(true);
        sockets
            .table
            .driver
            .turn(policy, &self.pool, &self.counters)?;
        self.load.set_waits(false);
        let now = sockets.table.driver.now();
        drop(sockets);
        self.clock.update(now);
        self.load.measure(now, || self.sockets().room());
        // One guard for all reports; after a panic the next guard handles those that are left.
        while !self.guard(|| self.handle_reports()) {}
        // Here, because all that has arrived by now is delivered: only idle sockets are evicted.
        if self.sockets.borrow().is_eviction_due() {
            self.evict_idle();
        }
        self.drop_sent();
        let notified = self.sockets.borrow_mut().driver.take_notified();
        if notified {
            self.read_mailbox();
        }
        self.fire_timers();
        self.counters.turns.add(1);
        Ok(())
    }

    /// Handles the messages of other threads.
    fn read_mailbox(&self) {
        if self.mailbox.begin_to_read() {
            self.counters.mailbox_overflows.add(1);
            self.tasks.borrow_mut().wake_all(self.slot);
        }
        for forwarded in self.mailbox.take_trains() {
            self.sockets().take_forwarded(forwarded);
        }
        for message in self.mailbox.take_messages() {
            match message {
                Message::Wake(id) => self.tasks.borrow_mut().wake(id),
                Message::Take(given) => self.sockets().take(*given),
                Message::Run(job) => {
                    if catch_unwind(AssertUnwindSafe(job)).is_err() {
                        self.counters.task_panics.add(1);
                    }
                }
            }
        }
    }

    fn handle_reports(&self) {
        loop {
            let action = self.sockets().next_action();
            if matches!(action, socket::Action::None) {
                break;
            }
            action.run();
        }
    }

    /// Runs code that calls handlers. A handler that panics ends its connection, not the core. Returns
    /// whether `work` completed.
    fn guard(&self, work: impl FnOnce()) -> bool {
        let done = catch_unwind(AssertUnwindSafe(work)).is_ok();
        if !done {
            self.counters.task_panics.add(1);
        }
        done
    }

    /// Drops the sent chunks whose drop may run code of other crates.
    fn drop_sent(&self) {
        let to_drop = std::mem::take(&mut self.sockets.borrow_mut().to_drop);
        drop(to_drop);
    }

    /// How long the driver may wait: zero while there is work, `None` for no limit.
    fn wait_time(&self, sockets: &mut Sockets<'_>, at_most: Option<Duration>) -> Option<Duration> {
        if self.tasks.borrow().any_ready() || sockets.table.is_busy() {
            return Some(Duration::ZERO);
        }
        let trim = self.try_trim(sockets);
        let timer = self
            .wheel
            .borrow()
            .next_tick()
            .map(|tick| self.clock.until(tick));
        // The turn may have lasted longer than the time until an alarm.
        let alarm = self.alarms.borrow().next_at();
        let alarm = alarm.map(|at| at.saturating_duration_since(sockets.table.driver.now()));
        [timer, alarm, trim, sockets.starved_wait(), at_most]
            .into_iter()
            .flatten()
            .min()
    }

    /// Gives memory back to the operating system some time after a burst. Returns the time until then.
    fn try_trim(&self, sockets: &mut Sockets<'_>) -> Option<Duration> {
        let held = Held {
            parts: self.tasks.borrow().len() + sockets.table.len() + self.pool.held(),
            copied: self.pool.copied(),
        };
        let wait = self.trim.record(&held, self.clock.now())?;
        let driver = &mut sockets.table.driver;
        if wait.is_zero() && self.trim.give_back(&held, driver, &self.pool) {
            self.counters.trims.add(1);
            return None;
        }
        Some(wait)
    }

    /// Resumes parked sockets that are readable, each at most once per turn.
    fn resume_waiting(&self) {
        let waiting = {
            let mut table = self.sockets.borrow_mut();
            table.renew_resumes();
            table.resumes_waiting()
        };
        for _ in 0..waiting {
            let action = self.sockets().next_parked_readable();
            self.guard(|| action.run());
        }
    }

    /// Evicts sockets in favour of new ones (rule 20).
    #[cold]
    fn evict_idle(&self) {
        self.sockets().begin_evictions();
        loop {
            let Some(action) = self.sockets().evict_next() else {
                break;
            };
            self.guard(|| action.run());
        }
        self.sockets().end_evictions();
    }

    fn fire_timers(&self) {
        self.alarms.borrow_mut().fire(self.clock.now());
        let mut late = Vec::new();
        self.wheel
            .borrow_mut()
            .advance(self.clock.tick(), |target| match target {
                TimerTarget::Task(waker) => waker.wake(),
                TimerTarget::Socket(key) => late.push(key),
            });
        for key in late {
            let action = self.sockets().expired(key);
            self.guard(|| action.run());
        }
    }

    /// Drops the tasks, closes the sockets and waits for the last completions, so that no
    /// operation outlives the memory it was given.
    fn end(&self) -> io::Result<()> {
        // Sends the queued bytes that the kernel takes without waiting.
        self.turn(Some(Duration::ZERO))?;
        let more = self.sockets().large_sends();
        for _ in 0..more {
            self.turn(Some(Duration::ZERO))?;
        }
        loop {
            // A task may own sockets and other tasks, so it is dropped outside the borrow.
            let task = self.tasks.borrow_mut().remove_any();
            if task.is_none() {
                break;
            }
        }
        let handlers = self.sockets().close_all();
        drop(handlers);
        self.sockets().close_listeners();
        self.sockets().close_all_datagrams();
        self.tasks.borrow_mut().clear_ready();
        let deadline = self.clock.now() + END_TIME;
        // At least one turn, without waiting: the drops may have queued messages to other rings.
        self.turn(Some(Duration::ZERO))?;
        while self.clock.now() < deadline && self.sockets().anything_pending() {
            self.turn(Some(END_TIME / 10))?;
        }
        Ok(())
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.load.stop_taking();
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

impl socket::Action {
    fn run(self) {
        if let socket::Action::Resume(parking, key, cause) = self {
            socket::resume(parking, key, cause);
        }
    }
}
