//! The clock, which does not move within a turn, timers, and random numbers.

mod alarms;
mod clock;
mod wheel;

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};

use crate::core::{self, Core};

pub(crate) use alarms::{AlarmKey, Alarms};
pub(crate) use clock::{Clock, Random, ticks_up};
pub(crate) use wheel::{TimerKey, TimerTarget, Wheel};

/// The time of this turn of the loop. It does not move while a task runs.
pub fn now() -> Instant {
    core::with(|core| core.resources.clock.now())
}

/// The time at this moment, read from the driver's clock: for measurements within a turn.
pub fn read_clock() -> Instant {
    core::with(Core::time)
}

/// The wall-clock time of this turn.
pub fn wall_clock() -> SystemTime {
    core::with(Core::wall)
}

/// Sixty-four random bits from a generator that is seeded by the operating system or by
/// [`Config::seed`](crate::Config). Not for keys (rule 7).
pub fn random_u64() -> u64 {
    core::with(|core| core.random.borrow_mut().next())
}

/// Ready after `duration`, rounded up to a millisecond, never early.
pub fn sleep(duration: Duration) -> Timer {
    sleep_until(now() + duration)
}

/// Ready at `at`, rounded up to a millisecond, never early.
pub fn sleep_until(at: Instant) -> Timer {
    Timer { at, key: None }
}

/// Ready at `at`, not rounded, never early, and late only while the core is busy.
///
/// A core with such a timer waits for each completion alone, which costs more system calls: it is for programs that
/// keep a schedule, such as load generators.
pub fn precise_sleep_until(at: Instant) -> PreciseTimer {
    PreciseTimer { at, key: None }
}

/// A deadline as a future. Moving it to a later time costs one store, so one timer can serve all phases
/// of a connection.
#[derive(Debug)]
pub struct Timer {
    at: Instant,
    key: Option<TimerKey>,
}

impl Timer {
    /// Moves the deadline.
    pub fn reset(&mut self, at: Instant) {
        self.at = at;
        if let Some(key) = self.key {
            core::with(|core| {
                core.resources
                    .wheel
                    .borrow_mut()
                    .reset(key, core.resources.clock.tick_after(at))
            });
        }
    }

    /// When it is ready.
    pub fn deadline(&self) -> Instant {
        self.at
    }
}

impl Future for Timer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let at = self.at;
        core::with(|core| {
            if core.resources.clock.now() >= at {
                return Poll::Ready(());
            }
            let mut wheel = core.resources.wheel.borrow_mut();
            let target = TimerTarget::Task(cx.waker().clone());
            match self.key {
                Some(key) if wheel.retarget(key, &target) => {}
                _ => self.key = Some(wheel.insert(core.resources.clock.tick_after(at), target)),
            }
            Poll::Pending
        })
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            // A core that has ended has dropped its timers.
            core::try_with(|core| core.resources.wheel.borrow_mut().cancel(key));
        }
    }
}

/// See [`precise_sleep_until`].
#[derive(Debug)]
pub struct PreciseTimer {
    at: Instant,
    key: Option<AlarmKey>,
}

impl Future for PreciseTimer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let at = self.at;
        core::with(|core| {
            if core.resources.clock.now() >= at {
                return Poll::Ready(());
            }
            let mut alarms = core.alarms.borrow_mut();
            match self.key {
                Some(key) if alarms.retarget(key, cx.waker()) => {}
                _ => self.key = Some(alarms.insert(at, cx.waker().clone())),
            }
            Poll::Pending
        })
    }
}

impl Drop for PreciseTimer {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            // A core that has ended has dropped its timers.
            core::try_with(|core| core.alarms.borrow_mut().cancel(key));
        }
    }
}

/// The duration of a [`timeout`] has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elapsed;

/// The output of `future`, or [`Elapsed`] if it is not ready within `duration`.
pub async fn timeout<F: Future>(duration: Duration, future: F) -> Result<F::Output, Elapsed> {
    let mut future = pin!(future);
    let mut timer = sleep(duration);
    poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Ok(output));
        }
        Pin::new(&mut timer).poll(cx).map(|()| Err(Elapsed))
    })
    .await
}
