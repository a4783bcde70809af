//! The core that checks the servers of upstreams, one of its own beside those of the sites.

use blitz_gateway::HealthChecker;
use blitz_http::{Config, IoChoice, Pinning};

/// Starts the core when a configuration needs it.
pub(crate) struct HealthChecks {
    checker: HealthChecker,
    is_started: bool,
}

impl HealthChecks {
    /// Those of a gateway, which are started if they are needed.
    pub(crate) fn new(checker: HealthChecker) -> HealthChecks {
        let mut checks = HealthChecks {
            checker,
            is_started: false,
        };
        checks.start_if_needed();
        checks
    }

    /// Starts the core if the configuration in use has checks. It runs until the process ends.
    pub(crate) fn start_if_needed(&mut self) {
        if self.is_started || !self.checker.is_needed() {
            return;
        }
        self.is_started = true;
        // It waits most of the time, and a ring would be memory for nothing.
        let config = Config {
            io: IoChoice::Epoll,
            cores: 1,
            pin: Pinning::Off,
            ..Config::default()
        };
        let checker = self.checker.clone();
        if let Err(error) = blitz_http::start(&config, move |_| checker.clone().run()) {
            tracing::error!(
                "no server of an upstream is checked: {error}; raise the limit of threads, and start again"
            );
        }
    }
}
