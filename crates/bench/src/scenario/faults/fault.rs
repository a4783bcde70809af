//! The faults, and when they begin and end in a run.

use std::time::Duration;

/// A fault of one of three members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// SIGSTOP, then SIGCONT: it is reachable and silent.
    Stopped,
    /// Each response takes longer, then as before.
    Slowed,
    /// SIGKILL: its port refuses connections.
    Killed,
    /// SIGKILL, then a new process at the same address.
    Replaced,
}

/// The times of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Schedule {
    pub(super) warm_up: Duration,
    pub(super) measured: Duration,
}

impl Fault {
    pub(super) const ALL: [Fault; 4] = [
        Fault::Stopped,
        Fault::Slowed,
        Fault::Killed,
        Fault::Replaced,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Fault::Stopped => "stopped",
            Fault::Slowed => "slowed",
            Fault::Killed => "killed",
            Fault::Replaced => "replaced",
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Fault::Stopped => "A member is stopped",
            Fault::Slowed => "A member is slowed",
            Fault::Killed => "A member is killed",
            Fault::Replaced => "A member is replaced",
        }
    }

    pub(super) fn explanation(self) -> &'static str {
        match self {
            Fault::Stopped => {
                "The process gets SIGSTOP after a quarter of the time, and SIGCONT after three quarters. The kernel still \
                 accepts its connections; nothing reads them."
            }
            Fault::Slowed => {
                "Each response of the member takes 200 ms longer, from a quarter of the time to three quarters."
            }
            Fault::Killed => {
                "The process gets SIGKILL after a quarter of the time, and its port refuses connections from then on."
            }
            Fault::Replaced => {
                "The process gets SIGKILL after a quarter of the time. A new one listens on the same address after half of \
                 the time."
            }
        }
    }

    /// When it ends, as a share of the measured time; `None` if it does not.
    fn ends_at(self) -> Option<f64> {
        match self {
            Fault::Stopped | Fault::Slowed => Some(0.75),
            Fault::Killed => None,
            Fault::Replaced => Some(0.5),
        }
    }
}

impl Schedule {
    pub(super) fn new(warm_up: Duration, measured: Duration) -> Schedule {
        Schedule { warm_up, measured }
    }

    /// When the fault begins, since the start of the measured time.
    pub(super) fn fault_at(self) -> Duration {
        self.measured.mul_f64(0.25)
    }

    /// When the fault ends, since the start of the measured time.
    pub(super) fn repair_at(self, fault: Fault) -> Option<Duration> {
        Some(self.measured.mul_f64(fault.ends_at()?))
    }

    pub(super) fn planned(self) -> Duration {
        self.warm_up + self.measured
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_begins_after_a_quarter_and_ends_before_the_run_does() {
        let schedule = Schedule::new(Duration::from_secs(1), Duration::from_secs(8));
        assert_eq!(schedule.fault_at(), Duration::from_secs(2));
        let ends = Fault::ALL.map(|fault| schedule.repair_at(fault).map(|at| at.as_secs()));
        assert_eq!(ends, [Some(6), Some(6), None, Some(4)]);
    }
}
