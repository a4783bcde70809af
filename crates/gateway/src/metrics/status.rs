//! The configuration in use and the last reload, for metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// How many configurations were in use, and how the last reload ended. All clones are the same.
#[derive(Debug, Clone)]
pub struct ConfigurationStatus(Arc<Status>);

#[derive(Debug)]
struct Status {
    generation: AtomicU64,
    /// Milliseconds since 1970, and in the last bit whether the reload was successful; 0 before the first.
    last_reload: AtomicU64,
}

/// A reload that has ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LastReload {
    pub(super) is_successful: bool,
    /// Unix time in seconds.
    pub(super) ended: f64,
}

impl ConfigurationStatus {
    /// That of the start.
    pub(crate) fn new() -> ConfigurationStatus {
        ConfigurationStatus(Arc::new(Status {
            generation: AtomicU64::new(1),
            last_reload: AtomicU64::new(0),
        }))
    }

    /// Another configuration is in use.
    pub(crate) fn count_generation(&self) {
        self.0.generation.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes a reload that has ended now.
    pub fn note_reload(&self, is_successful: bool, now: SystemTime) {
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let noted = (since.as_millis() as u64) << 1 | u64::from(is_successful);
        self.0.last_reload.store(noted, Ordering::Relaxed);
    }

    pub(super) fn generation(&self) -> u64 {
        self.0.generation.load(Ordering::Relaxed)
    }

    pub(super) fn last_reload(&self) -> Option<LastReload> {
        let noted = self.0.last_reload.load(Ordering::Relaxed);
        (noted > 0).then(|| LastReload {
            is_successful: noted & 1 == 1,
            ended: (noted >> 1) as f64 / 1e3,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_last_reload_is_told() {
        let status = ConfigurationStatus::new();
        assert_eq!((status.generation(), status.last_reload()), (1, None));
        let now = UNIX_EPOCH + Duration::from_millis(1_700_000_000_250);
        for is_successful in [true, false] {
            status.note_reload(is_successful, now);
            let expected = LastReload {
                is_successful,
                ended: 1_700_000_000.25,
            };
            assert_eq!(status.last_reload(), Some(expected));
        }
        status.count_generation();
        assert_eq!(status.clone().generation(), 2);
    }
}
