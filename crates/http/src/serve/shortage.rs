//! Reports that a core is at its limit of sockets, where idle connections are evicted (rule 20).

use std::cell::RefCell;
use std::time::{Duration, Instant};

use blitz_reactor::{Cause, core_local};

use crate::counters::count;

/// The time between two warnings of a core.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// Counts why an idle connection is closed.
pub(super) fn count_idle_end(cause: &Cause) {
    match cause {
        Cause::Expired => count(|counters| counters.idle_timeouts += 1),
        Cause::Received(_) | Cause::Ended | Cause::Evicted => {}
    }
}

/// Warns if the core is at its limit of sockets, at most every 10 s.
pub(super) fn warn_at_limit(warn: Option<fn(usize)>) {
    let (is_at_limit, sockets_max) = blitz_reactor::sockets_limit();
    if is_at_limit && is_warning_due() {
        warn.unwrap_or(warn_of_open_files)(sockets_max);
    }
}

#[cold]
fn is_warning_due() -> bool {
    let now = blitz_reactor::now();
    WARNED.with_borrow_mut(|warned| {
        let is_due = warned.is_none_or(|before| now.duration_since(before) >= WARNING_INTERVAL);
        if is_due {
            *warned = Some(now);
        }
        is_due
    })
}

fn warn_of_open_files(sockets_max: usize) {
    tracing::warn!(
        limit = sockets_max,
        core = blitz_reactor::core_index(),
        evicted = blitz_reactor::counters().evicted,
        "a core has as many open sockets as it may: connections that have been idle longest are \
         closed in favour of new ones; raise the limit of open files: LimitNOFILE=65536 in the \
         unit, --ulimit nofile=65536 for a container, or ulimit -Hn 65536"
    );
}

core_local! {
    static WARNED: RefCell<Option<Instant>> = const { RefCell::new(None) };
}
