//! The reactor's clock for rustls.

use std::time::UNIX_EPOCH;

use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;

/// The time that certificates are verified at. Only cores can read it.
#[derive(Debug)]
pub(super) struct CoreTime;

impl TimeProvider for CoreTime {
    fn current_time(&self) -> Option<UnixTime> {
        let since = blitz_reactor::wall_clock()
            .duration_since(UNIX_EPOCH)
            .ok()?;
        Some(UnixTime::since_unix_epoch(since))
    }
}
