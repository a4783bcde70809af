//! How a core waits for its driver.

use std::time::Duration;

/// How a driver waits for completions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitPolicy {
    /// The longest wait; `None` waits until a completion arrives.
    pub(crate) timeout: Option<Duration>,
    /// Sockets that received recently. With many of them the driver waits a moment for several
    /// completions, which saves system calls and does not raise the median latency.
    pub(crate) busy_sockets: usize,
    /// Whether a wait must end with the timeout and with the first completion, because a task keeps a schedule.
    pub(crate) is_precise: bool,
    /// Whether tasks or sockets are held back until running requests are done. The driver then reaps all
    /// completions that are available, not only those that one system call returns.
    pub(crate) reap_all: bool,
}
