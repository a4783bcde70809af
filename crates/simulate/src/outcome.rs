//! The outcome of a run.

use std::fmt;
use std::time::Duration;

/// The result of a run without violations.
#[derive(Debug, Clone, Default)]
pub struct RunSummary {
    /// Requests that were sent.
    pub requests: usize,
    /// Whether it has a set of servers with faults.
    pub has_set: bool,
    /// How often a core took another configuration.
    pub reloads: usize,
    /// Virtual time that it took.
    pub time: Duration,
    /// Events of the network and the peers, if they were kept.
    pub trace: Vec<String>,
}

/// The violations of a run, and the events before them if they were kept.
#[derive(Debug)]
pub struct RunFailure {
    /// The seed of the run.
    pub seed: u64,
    /// The violations, in order.
    pub violations: Vec<String>,
    /// Events of the network and the peers.
    pub trace: Vec<String>,
    /// The smallest plan that fails, if the plan was shrunk.
    pub shrunk: Option<String>,
}

impl fmt::Display for RunFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {} failed:", self.seed)?;
        for violation in &self.violations {
            writeln!(f, "  {violation}")?;
        }
        Ok(())
    }
}
