//! The checked plan of a run.

use std::rc::Rc;
use std::time::Duration;

use blitz_http::{Address, ClientOptions, ConnectOptions, IoChoice, Protocol, UpstreamTls};

use super::check::Expected;
use super::probe::{SAMPLES, is_safe};
use super::rate::{RateProfile, Spacing};
use super::request::RequestSpec;
use super::windows::Windows;

/// As browsers, curl and h2load, a client that is measured does not spend a round trip on the server's SETTINGS. Hardly any
/// server allows fewer (RFC 9113, section 6.5.2, recommends at least 100).
const REQUESTS_BEFORE_SETTINGS: usize = 100;

/// Everything that a core of the generator needs to know.
#[derive(Clone)]
pub(super) struct LoadPlan {
    pub(super) address: Address,
    pub(super) protocol: Protocol,
    pub(super) tls: Option<UpstreamTls>,
    pub(super) resume: bool,
    /// The requests, and what their responses must be.
    pub(super) requests: Vec<(RequestSpec, Expected)>,
    pub(super) connections: usize,
    /// Requests in flight on each connection.
    pub(super) streams: usize,
    pub(super) cores: usize,
    pub(super) io: IoChoice,
    /// Whether each request has a connection of its own.
    pub(super) new_connections: bool,
    /// `None` in a closed loop.
    pub(super) rate: Option<(RateProfile, Spacing)>,
    pub(super) warm_up: WarmUp,
    /// Length of the measured time; the longest one if a number of responses ends it.
    pub(super) duration: Option<Duration>,
    /// The minimum that ends the measured time of a closed loop before its longest length.
    pub(super) least: Option<Least>,
    /// Requests of a closed loop without a duration.
    pub(super) request_count: Option<u64>,
    /// The windows that are announced over HTTP/2 and HTTP/3.
    pub(super) windows: Windows,
    /// The longest time for a response, and the longest silence within it.
    pub(super) timeout: Duration,
    /// Whether wrong responses are counted and do not end the run.
    pub(super) keep_going: bool,
    /// Length of the intervals of the timeline.
    pub(super) interval: Duration,
    pub(super) seed: u64,
}

/// The least that is measured: both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Least {
    pub(super) time: Duration,
    pub(super) responses: u64,
}

/// The time before the measured time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WarmUp {
    /// Of this length; zero for a cold run.
    For(Duration),
    /// Until the rate of responses is steady, at most [`STEADY_WITHIN`].
    UntilSteady,
}

/// The longest warm-up of [`WarmUp::UntilSteady`].
pub(super) const STEADY_WITHIN: Duration = Duration::from_secs(15);

impl LoadPlan {
    /// The share of core `index` of a limited number of requests.
    pub(super) fn requests_of(&self, index: usize) -> Option<u64> {
        let count = self.request_count?;
        let cores = self.cores as u64;
        Some(count / cores + u64::from((index as u64) < count % cores))
    }

    /// The requests that [`probe`](super::probe::probe) sends before the run.
    pub(super) fn first_requests(&self) -> u64 {
        let safe = self.requests.iter().filter(|(spec, _)| is_safe(spec));
        SAMPLES * safe.count() as u64
    }

    /// How a core connects.
    pub(super) fn connect_options(&self) -> ConnectOptions {
        self.connect_options_for(self.protocol)
    }

    /// The same with another protocol.
    pub(super) fn connect_options_for(&self, protocol: Protocol) -> ConnectOptions {
        let mut client = ClientOptions {
            response_timeout: self.timeout,
            body_timeout: self.timeout,
            requests_before_settings: REQUESTS_BEFORE_SETTINGS,
            ..ClientOptions::default()
        };
        client.limits.connect_timeout = self.timeout;
        client.limits.tls_handshake_timeout = self.timeout;
        // Small frames are a cost to a gateway, and here what is measured.
        client.limits.small_data_frames_max = 1_000_000_000;
        client.limits.window_updates_max = 1_000_000_000;
        self.windows.apply(protocol, &mut client.limits);
        ConnectOptions {
            protocol,
            tls: self.tls.clone(),
            resume: self.resume,
            own_socket: true,
            client: Rc::new(client),
        }
    }

    /// How requests are sent, in words.
    pub(super) fn pacing(&self) -> String {
        match &self.rate {
            None => "closed loop".to_owned(),
            Some((rate, Spacing::Constant)) => format!("open loop, {rate}, constant spacing"),
            Some((rate, Spacing::Poisson)) => format!("open loop, {rate}, Poisson arrivals"),
        }
    }
}

impl WarmUp {
    /// The length of a warm-up that does not depend on what is measured.
    pub(super) fn fixed(self) -> Duration {
        match self {
            WarmUp::For(length) => length,
            WarmUp::UntilSteady => Duration::ZERO,
        }
    }
}
