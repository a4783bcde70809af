//! The limit of descriptors of this process, which its servers inherit.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The soft and the hard limit; `None` where there is none.
pub(crate) fn limits() -> (Option<u64>, Option<u64>) {
    let limit = getrlimit(Resource::Nofile);
    (limit.current, limit.maximum)
}

/// Raises the soft limit to the hard one, if fewer than `wanted` descriptors are allowed.
pub(crate) fn allow(wanted: u64) -> Result<(), String> {
    let (current, maximum) = limits();
    if current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    if maximum.is_some_and(|maximum| maximum < wanted) {
        return Err(format!(
            "{wanted} descriptors are required; raise the limit (ulimit -Hn)"
        ));
    }
    let limit = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, limit)
        .map_err(|e| format!("the descriptor limit cannot be raised: {e}"))
}
