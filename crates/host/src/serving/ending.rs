//! The end of a service: the signals that begin it, and its stages.

use std::time::{Duration, Instant};

use blitz_http::{FOREVER, Signal};

/// Time between checks whether the cores have ended: some may end without a signal.
const CHECK: Duration = Duration::from_secs(1);

/// The same after a signal.
pub(super) const CHECK_WHILE_DRAINING: Duration = Duration::from_millis(10);

/// An event on the thread that waits for signals, at which it may do other work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tick {
    /// HUP: read the files again.
    Reload,
    /// USR1: open the files of logs anew.
    Reopen,
    /// No signal arrived for at most a second.
    Periodic,
    /// A signal ends the service, which still accepts connections for [`DrainTimes::delay`].
    NotReady,
    /// A signal ends the service; its cores still run.
    Drain,
}

/// How a service ends after TERM or QUIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrainTimes {
    /// How long connections are still accepted, so that load balancers notice first.
    pub delay: Duration,
    /// How long requests may then go on.
    pub timeout: Duration,
}

impl From<Duration> for DrainTimes {
    /// Without a delay.
    fn from(timeout: Duration) -> DrainTimes {
        DrainTimes {
            delay: Duration::ZERO,
            timeout,
        }
    }
}

/// The stage of a service, after the signals so far.
pub(super) struct Ending {
    times: DrainTimes,
    stage: Stage,
    is_interrupted: bool,
    /// Checks since the first signal to end.
    checks: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Serving,
    /// It ends, and accepts connections until then.
    NotReady(Instant),
    Draining,
}

/// The demand of a signal, or of its absence.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Nothing,
    Tick(Tick),
    /// Accept no more, and give requests this time.
    Drain {
        limit: Duration,
        is_first: bool,
    },
    EndAtOnce,
    Interrupted,
}

impl Ending {
    pub(super) fn new(times: DrainTimes) -> Ending {
        Ending {
            times,
            stage: Stage::Serving,
            is_interrupted: false,
            checks: 0,
        }
    }

    /// Whether a signal ends the service.
    pub(super) fn has_begun(&self) -> bool {
        self.stage != Stage::Serving
    }

    /// How long to wait for the next signal.
    pub(super) fn check(&self) -> Duration {
        match self.has_begun() {
            true => CHECK_WHILE_DRAINING,
            false => CHECK,
        }
    }

    /// The next step after a signal, or after none within [`Ending::check`].
    pub(super) fn step(&mut self, signal: Option<Signal>, now: Instant) -> Step {
        match (signal, self.stage) {
            // timeout(1) and others send TERM to the process and to its group, which is one TERM.
            // The first check may come at once.
            (Some(Signal::Terminate | Signal::Quit), _) if self.checks > 1 => Step::EndAtOnce,
            (Some(Signal::Terminate | Signal::Quit), Stage::NotReady(_)) => Step::Nothing,
            (Some(Signal::Terminate | Signal::Quit), Stage::Serving)
                if !self.times.delay.is_zero() =>
            {
                let delay = self.times.delay;
                tracing::info!(
                    "not ready: connections are accepted for {delay:?}, then the drain begins"
                );
                self.stage = Stage::NotReady(now + delay);
                Step::Tick(Tick::NotReady)
            }
            (Some(Signal::Terminate | Signal::Quit), _) => self.drain_in_time(),
            (Some(Signal::Interrupt), _) if self.is_interrupted => Step::Interrupted,
            (Some(Signal::Interrupt), _) => {
                self.is_interrupted = true;
                self.drain(Duration::ZERO)
            }
            (Some(Signal::Hangup), Stage::Serving) => Step::Tick(Tick::Reload),
            (Some(Signal::User1), _) => Step::Tick(Tick::Reopen),
            // Nothing begins with another configuration any more.
            (Some(Signal::Hangup | Signal::User2), _) => Step::Nothing,
            (None, Stage::NotReady(end)) if now >= end => self.drain_in_time(),
            (None, _) => {
                self.checks += u32::from(self.has_begun());
                Step::Tick(Tick::Periodic)
            }
        }
    }

    fn drain_in_time(&mut self) -> Step {
        let limit = self.times.timeout;
        match limit < FOREVER {
            true => tracing::info!("draining: running requests have {limit:?} to end"),
            false => tracing::info!("draining: running requests have no time limit"),
        }
        self.drain(limit)
    }

    fn drain(&mut self, limit: Duration) -> Step {
        let is_first = self.stage != Stage::Draining;
        self.stage = Stage::Draining;
        Step::Drain { limit, is_first }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(30);
    const DELAY: Duration = Duration::from_secs(5);

    fn drain(limit: Duration, is_first: bool) -> Step {
        Step::Drain { limit, is_first }
    }

    fn with_delay() -> Ending {
        Ending::new(DrainTimes {
            delay: DELAY,
            timeout: TIMEOUT,
        })
    }

    #[test]
    fn without_a_delay_the_drain_begins_with_the_signal() {
        let (mut ending, now) = (Ending::new(TIMEOUT.into()), Instant::now());
        assert_eq!(
            ending.step(Some(Signal::Hangup), now),
            Step::Tick(Tick::Reload)
        );
        assert_eq!(ending.step(None, now), Step::Tick(Tick::Periodic));
        assert_eq!(
            ending.step(Some(Signal::Terminate), now),
            drain(TIMEOUT, true)
        );
        assert_eq!(
            ending.step(Some(Signal::Terminate), now),
            drain(TIMEOUT, false),
            "the same TERM, sent to the group"
        );
        assert_eq!(ending.step(Some(Signal::Hangup), now), Step::Nothing);
        for _ in 0..2 {
            assert_eq!(ending.step(None, now), Step::Tick(Tick::Periodic));
        }
        assert_eq!(ending.step(Some(Signal::Quit), now), Step::EndAtOnce);
    }

    #[test]
    fn with_a_delay_readiness_ends_before_accepting() {
        let (mut ending, now) = (with_delay(), Instant::now());
        assert_eq!(
            ending.step(Some(Signal::Terminate), now),
            Step::Tick(Tick::NotReady)
        );
        assert!(ending.has_begun());
        assert_eq!(ending.step(Some(Signal::Terminate), now), Step::Nothing);
        assert_eq!(ending.step(None, now), Step::Tick(Tick::Periodic));
        let end = now + DELAY;
        assert_eq!(ending.step(None, end), drain(TIMEOUT, true));
        assert_eq!(ending.step(None, end), Step::Tick(Tick::Periodic));
    }

    #[test]
    fn the_delay_ends_with_int_and_with_a_second_term() {
        let (mut ending, now) = (with_delay(), Instant::now());
        ending.step(Some(Signal::Terminate), now);
        let int = Some(Signal::Interrupt);
        assert_eq!(ending.step(int, now), drain(Duration::ZERO, true));
        assert_eq!(ending.step(int, now), Step::Interrupted);
        let mut ending = with_delay();
        ending.step(Some(Signal::Terminate), now);
        ending.step(None, now);
        ending.step(None, now);
        assert_eq!(ending.step(Some(Signal::Terminate), now), Step::EndAtOnce);
    }
}
