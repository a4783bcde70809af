//! Checks of the servers of upstreams, made by one core for all of them.
//!
//! A core of its own runs [`HealthChecker::run`]. It reads the servers from the snapshot in use, and stores its verdicts
//! where the cores of the gateway read them ([`Check`]). Each check uses a connection of its own, so that no earlier one
//! answers for a server that accepts no more.

mod grpc;
mod probe;
mod problem;
mod streak;
mod user_agent;

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::{Rc, Weak as LocalWeak};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;

use crate::snapshot::Snapshot;
use crate::upstream::{Check, Outcome};
use streak::Streak;

/// How often servers of a new configuration are looked for, and the shortest pause before an undecided check is repeated.
const TICK: Duration = Duration::from_millis(200);

/// The most checks at a time; others wait.
const RUNNING_MAX: usize = 256;

/// How long a check waits if so many run.
const FULL_PAUSE: Duration = Duration::from_millis(10);

/// Checks the servers of a gateway. Clones check those of the same gateway; one of them may run.
#[derive(Clone)]
pub struct HealthChecker {
    /// It must not keep the gateway's configuration in memory.
    newest: Weak<ArcSwap<Snapshot>>,
}

impl HealthChecker {
    pub(crate) fn new(newest: &Arc<ArcSwap<Snapshot>>) -> HealthChecker {
        HealthChecker {
            newest: Arc::downgrade(newest),
        }
    }

    /// Whether an upstream of the configuration in use has checks.
    #[must_use]
    pub fn is_needed(&self) -> bool {
        let newest = self.newest.upgrade();
        newest.is_some_and(|newest| newest.load().checks().next().is_some())
    }

    /// Checks servers until the gateway is gone, on a core that has little else to do.
    pub async fn run(self) {
        let mut schedule = Schedule::default();
        while let Some(newest) = self.newest.upgrade() {
            schedule.update(newest.load().checks());
            drop(newest);
            let pause = schedule.start_due(blitz_http::now());
            blitz_http::sleep(pause).await;
        }
    }
}

/// The servers that are checked.
#[derive(Default)]
struct Schedule {
    planned: HashMap<u64, Rc<Planned>>,
    running: Rc<Cell<usize>>,
}

/// A server that is checked again and again.
struct Planned {
    check: Weak<Check>,
    next: Cell<Instant>,
    is_running: Cell<bool>,
    streak: Streak,
    /// Starts of checks, from which the next pause follows.
    starts: Cell<u64>,
}

impl Schedule {
    /// Plans the checks that are new for now, and forgets those that are gone.
    fn update<'a>(&mut self, checks: impl Iterator<Item = (&'a Arc<Check>, &'a str)>) {
        let now = blitz_http::now();
        let mut planned = HashMap::with_capacity(self.planned.len());
        for (check, _) in checks {
            planned.entry(check.id).or_insert_with(|| {
                let known = self.planned.remove(&check.id);
                known.unwrap_or_else(|| {
                    Rc::new(Planned {
                        check: Arc::downgrade(check),
                        next: Cell::new(now),
                        is_running: Cell::new(false),
                        streak: Streak::default(),
                        starts: Cell::new(0),
                    })
                })
            });
        }
        self.planned = planned;
    }

    /// Starts the checks that are due. Returns the pause until others may be.
    fn start_due(&self, now: Instant) -> Duration {
        let mut pause = TICK;
        for planned in self.planned.values().filter(|one| !one.is_running.get()) {
            let left = planned.next.get().saturating_duration_since(now);
            if !left.is_zero() {
                pause = pause.min(left);
                continue;
            }
            if self.running.get() >= RUNNING_MAX {
                return FULL_PAUSE;
            }
            let Some(check) = planned.check.upgrade() else {
                continue;
            };
            planned.is_running.set(true);
            planned.next.set(now + planned.pause(&check));
            let running = Running::begin(&self.running);
            blitz_http::spawn(run_once(check, Rc::downgrade(planned), running));
        }
        pause
    }
}

impl Planned {
    /// The time from the start of a check to that of the next one: a fifth more or less than the interval, so that the
    /// servers are not checked all at once. It follows from the server and the number of the check.
    fn pause(&self, check: &Check) -> Duration {
        let start = self.starts.get();
        self.starts.set(start.wrapping_add(1));
        jittered(check.settings.interval, &check.subject.label, start)
    }
}

/// From 0.8 to 1.2 times the interval.
fn jittered(interval: Duration, label: &str, number: u64) -> Duration {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let bytes = label.bytes().chain(number.to_le_bytes());
    let mut hash = bytes.fold(0xcbf2_9ce4_8422_2325, step);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let share = (hash >> 11) as f64 / (1_u64 << 53) as f64;
    interval.mul_f64(0.8 + 0.4 * share)
}

/// A check that runs, counted until it ends.
struct Running(Rc<Cell<usize>>);

impl Running {
    fn begin(count: &Rc<Cell<usize>>) -> Running {
        count.set(count.get() + 1);
        Running(Rc::clone(count))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

async fn run_once(check: Arc<Check>, planned: LocalWeak<Planned>, _running: Running) {
    let started = blitz_http::now();
    let outcome = probe::probe(&check).await;
    let now = blitz_http::now();
    // A server that is not checked any more has no verdict either.
    let Some(planned) = planned.upgrade() else {
        return;
    };
    planned.is_running.set(false);
    let took = now.saturating_duration_since(started);
    check.note(&outcome, blitz_http::wall_clock(), took);
    match &outcome {
        Outcome::Undecided(problem) => {
            tracing::debug!(upstream = &*check.subject.label, %problem, "a check is undecided");
            // A name may have its first addresses soon.
            planned.next.set(planned.next.get().min(now + TICK));
        }
        Outcome::Passed => conclude(&check, &planned, None),
        Outcome::Failed(problem) => conclude(&check, &planned, Some(problem)),
    }
}

/// Changes the verdict if enough outcomes in a row say so, and logs that.
fn conclude(check: &Check, planned: &Planned, problem: Option<&str>) {
    let (before, settings) = (check.state(), &check.settings);
    let limits = (settings.rise, settings.fall);
    let after = planned.streak.note(before, problem.is_none(), limits);
    let label = &check.subject.label;
    tracing::debug!(upstream = &**label, problem, "a check has ended");
    if after == before {
        return;
    }
    check.set_state(after, blitz_http::wall_clock());
    match problem {
        Some(problem) => tracing::warn!(
            "the server {label} is down: {problem}; it gets no requests while others are up"
        ),
        None if before == crate::upstream::CheckState::Down => {
            check.returned(blitz_http::now());
            tracing::info!("the server {label} is up again");
        }
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_differ_by_a_fifth_and_follow_from_server_and_number() {
        let interval = Duration::from_secs(10);
        let all: Vec<_> = (0..1000)
            .map(|number| jittered(interval, "http://10.0.0.1:3000", number))
            .collect();
        let (least, most) = (all.iter().min().unwrap(), all.iter().max().unwrap());
        let second = Duration::from_secs(1);
        assert!((second * 8..second * 9).contains(least), "{least:?}");
        assert!((second * 11..=second * 12).contains(most), "{most:?}");
        let sum: Duration = all.iter().sum();
        let mean = sum / 1000;
        assert!(mean.abs_diff(interval) < second / 5, "{mean:?}");
        assert_eq!(jittered(interval, "http://10.0.0.1:3000", 7), all[7]);
        let other = jittered(interval, "http://10.0.0.2:3000", 7);
        assert_ne!(other, all[7]);
    }
}
