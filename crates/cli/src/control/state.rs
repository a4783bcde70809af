//! The state that requests ask about. It is complete once the gateway has started.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use blitz_gateway::{MetricsReader, StateReader};
use blitz_http::TlsSlot;

use super::admission::Admission;
use super::health::Readiness;
use super::log_level::LogLevel;
use super::metrics::Renderings;
use super::waiting::Waiting;
use crate::followers::Followers;
use crate::in_use::InUse;
use crate::records::Consumers;

/// The subjects of requests.
pub(crate) struct ControlState {
    pub(crate) readiness: Readiness,
    pub(crate) waiting: Waiting,
    /// `None` without a configuration file.
    pub(super) in_use: Option<Arc<InUse>>,
    pub(super) log_level: LogLevel,
    pub(super) admission: Admission,
    pub(super) renderings: Renderings,
    pub(crate) followers: Arc<Followers>,
    /// The port of the control address, if it is open.
    port: OnceLock<u16>,
    observed: OnceLock<Observed>,
    tls: Mutex<Option<TlsSlot>>,
}

/// Readers of a running gateway.
pub(crate) struct Observed {
    pub(crate) gateway: StateReader,
    pub(crate) metrics: MetricsReader,
}

impl ControlState {
    pub(crate) fn new(
        in_use: Option<Arc<InUse>>,
        log_level: LogLevel,
        consumers: Consumers,
    ) -> ControlState {
        ControlState {
            readiness: Readiness::default(),
            waiting: Waiting::default(),
            in_use,
            log_level,
            admission: Admission::default(),
            renderings: Renderings::default(),
            followers: Arc::new(Followers::new(consumers)),
            port: OnceLock::new(),
            observed: OnceLock::new(),
            tls: Mutex::default(),
        }
    }

    pub(super) fn set_port(&self, port: u16) {
        // It is opened once.
        let _ = self.port.set(port);
    }

    pub(super) fn port(&self) -> Option<u16> {
        self.port.get().copied()
    }

    /// The gateway has started: from now on the process is ready.
    pub(crate) fn started(&self, observed: Observed) {
        // It starts once.
        let _ = self.observed.set(observed);
        self.readiness.begin();
    }

    /// The certificates of listeners from now on.
    pub(crate) fn set_tls(&self, tls: Option<TlsSlot>) {
        *self.tls.lock().unwrap_or_else(PoisonError::into_inner) = tls;
    }

    pub(crate) fn tls(&self) -> Option<TlsSlot> {
        let tls = self.tls.lock();
        tls.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The readers of the gateway; `None` before it has started.
    pub(super) fn observed(&self) -> Option<&Observed> {
        self.observed.get()
    }
}
