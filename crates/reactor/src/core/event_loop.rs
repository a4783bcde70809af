//! The loop of a core.

use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::{Core, Current};
use crate::driver::WaitPolicy;
use crate::executor::{main_waker, run_ready};
use crate::mailbox::CoreMessage;
use crate::socket::{SocketAction, Sockets, resume};
use crate::timer::TimerTarget;
use crate::trim::CoreMemory;

/// The longest wait for the last completions when a core ends.
const END_TIME: Duration = Duration::from_secs(1);

impl Core {
    /// Runs until `main` is done, then closes all sockets and drops all tasks.
    pub(crate) fn run<F: Future>(&self, main: F) -> io::Result<F::Output> {
        let _current = Current::enter(self);
        let mut main = pin!(main);
        let waker = main_waker(self);
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
    pub(super) fn step<F: Future + ?Sized>(
        &self,
        main: Pin<&mut F>,
        waker: &Waker,
    ) -> io::Result<Poll<F::Output>> {
        let woken = self.tasks.borrow_mut().take_main_woken();
        if woken && let Poll::Ready(output) = main.poll(&mut Context::from_waker(waker)) {
            return Ok(Poll::Ready(output));
        }
        run_ready(self);
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
            busy_sockets: sockets.table.busy(self.resources.clock.tick()),
            is_precise: self.alarms.borrow().next_at().is_some(),
            reap_all: self.tasks.borrow().is_any_held_back() || sockets.table.resumes_waiting() > 0,
        };
        self.resources.load.set_waits(true);
        sockets
            .table
            .driver
            .turn(policy, &self.resources.pool, &self.resources.counters)?;
        self.resources.load.set_waits(false);
        let now = sockets.table.driver.now();
        drop(sockets);
        self.resources.clock.update(now);
        self.resources.load.measure(now, || self.sockets().room());
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
        self.resources.counters.turns.add(1);
        Ok(())
    }

    /// Handles the messages of other threads.
    fn read_mailbox(&self) {
        if self.mailbox.begin_to_read() {
            self.resources.counters.mailbox_overflows.add(1);
            self.tasks.borrow_mut().wake_all(self.slot);
        }
        for forwarded in self.mailbox.take_trains() {
            self.sockets().take_forwarded(forwarded);
        }
        for message in self.mailbox.take_messages() {
            match message {
                CoreMessage::Wake(id) => self.tasks.borrow_mut().wake(id),
                CoreMessage::Take(given) => self.sockets().take(*given),
                CoreMessage::Run(job) => {
                    if catch_unwind(AssertUnwindSafe(job)).is_err() {
                        self.resources.counters.task_panics.add(1);
                    }
                }
            }
        }
    }

    fn handle_reports(&self) {
        loop {
            let action = self.sockets().next_action();
            if matches!(action, SocketAction::None) {
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
            self.resources.counters.task_panics.add(1);
        }
        done
    }

    /// Drops the sent chunks whose drop may run code of other crates.
    fn drop_sent(&self) {
        let to_drop = std::mem::take(&mut self.sockets.borrow_mut().to_drop);
        drop(to_drop);
    }

    /// How long the driver may wait: zero while there is work, `None` for no limit.
    pub(super) fn wait_time(
        &self,
        sockets: &mut Sockets<'_>,
        at_most: Option<Duration>,
    ) -> Option<Duration> {
        if self.tasks.borrow().any_ready() || sockets.table.is_busy() {
            return Some(Duration::ZERO);
        }
        let trim = self.try_trim(sockets);
        let timer = self
            .resources
            .wheel
            .borrow()
            .next_tick()
            .map(|tick| self.resources.clock.until(tick));
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
        let held = CoreMemory {
            parts: self.tasks.borrow().len() + sockets.table.len() + self.resources.pool.held(),
            copied: self.resources.pool.copied(),
        };
        let wait = self.trim.record(&held, self.resources.clock.now())?;
        let driver = &mut sockets.table.driver;
        if wait.is_zero() && self.trim.give_back(&held, driver, &self.resources.pool) {
            self.resources.counters.trims.add(1);
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
        self.alarms.borrow_mut().fire(self.resources.clock.now());
        let mut late = Vec::new();
        self.resources.wheel.borrow_mut().advance(
            self.resources.clock.tick(),
            |target| match target {
                TimerTarget::Task(waker) => waker.wake(),
                TimerTarget::Socket(key) => late.push(key),
            },
        );
        for key in late {
            let action = self.sockets().expired(key);
            self.guard(|| action.run());
        }
    }

    /// Drops the tasks, closes the sockets and waits for the last completions, so that no
    /// operation outlives the memory it was given.
    pub(super) fn end(&self) -> io::Result<()> {
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
        let deadline = self.resources.clock.now() + END_TIME;
        // At least one turn, without waiting: the drops may have queued messages to other rings.
        self.turn(Some(Duration::ZERO))?;
        while self.resources.clock.now() < deadline && self.sockets().anything_pending() {
            self.turn(Some(END_TIME / 10))?;
        }
        Ok(())
    }
}

impl SocketAction {
    fn run(self) {
        if let SocketAction::Resume(parking, key, cause) = self {
            resume(parking, key, cause);
        }
    }
}
