//! `/livez` and `/readyz`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use blitz::extract::State;
use blitz::{Response, Status};

use super::state::ControlState;

/// Whether load balancers may send requests to this process.
#[derive(Default)]
pub(crate) struct Readiness(AtomicU8);

const STARTING: u8 = 0;
const READY: u8 = 1;
const ENDING: u8 = 2;

impl Readiness {
    /// The first configuration is in use.
    pub(super) fn begin(&self) {
        // Not if a signal has come first.
        let (before, after) = (Ordering::AcqRel, Ordering::Acquire);
        let _ = self.0.compare_exchange(STARTING, READY, before, after);
    }

    /// A signal ends the process.
    pub(super) fn end(&self) {
        self.0.store(ENDING, Ordering::Release);
    }

    /// Whether a signal ends the process.
    pub(crate) fn is_ending(&self) -> bool {
        self.0.load(Ordering::Acquire) == ENDING
    }

    /// Whether [`readyz`] says so.
    pub(crate) fn is_ready(&self) -> bool {
        self.0.load(Ordering::Acquire) == READY
    }

    fn text(&self) -> Result<&'static str, &'static str> {
        match self.0.load(Ordering::Acquire) {
            READY => Ok("ready\n"),
            STARTING => Err("not ready: starting\n"),
            _ => Err("not ready: draining\n"),
        }
    }
}

pub(super) async fn livez() -> Response {
    Response::text("live\n").header("Cache-Control", "no-store")
}

pub(super) async fn readyz(State(state): State<Arc<ControlState>>) -> Response {
    let response = match state.readiness.text() {
        Ok(text) => Response::text(text),
        Err(text) => Response::text(text).with_status(Status::SERVICE_UNAVAILABLE),
    };
    response.header("Cache-Control", "no-store")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_ready_between_its_start_and_its_end() {
        let readiness = Readiness::default();
        assert_eq!(readiness.text(), Err("not ready: starting\n"));
        readiness.begin();
        assert_eq!(readiness.text(), Ok("ready\n"));
        readiness.end();
        readiness.begin();
        assert_eq!(readiness.text(), Err("not ready: draining\n"));
    }
}
