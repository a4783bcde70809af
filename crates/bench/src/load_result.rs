//! The result of a run of the generator.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::distribution::Distribution;

/// The version of the JSON form. It changes when a field changes its meaning or disappears.
pub const RESULT_VERSION: u32 = 1;

/// The result of a run of the generator.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadResult {
    /// [`RESULT_VERSION`] of the program that wrote it.
    pub version: u32,
    /// The command that repeats the run, for a POSIX shell; `…` stands for each secret that was left out.
    pub command: String,
    /// The requested target.
    pub target: TargetFacts,
    /// How it was requested.
    pub plan: PlanFacts,
    /// Start of the measured time, in seconds since 1970 (UTC).
    pub started_at: f64,
    /// Measured time, in seconds: without the warm-up. In an open loop it ends with the last response to a request that was
    /// planned for it.
    pub duration_s: f64,
    /// Warm-up before it, in seconds.
    pub warm_up_s: f64,
    /// Requests and responses.
    pub counts: Counts,
    /// The responses of the measured time, in an open loop.
    #[serde(default)]
    pub answered: Option<Answered>,
    /// Times of requests.
    pub times: Times,
    /// Each of several requests, in their order; none of a single one, nor of more than 256.
    #[serde(default)]
    pub requests: Vec<RequestResult>,
    /// Times of new connections.
    pub connects: Connects,
    /// One entry for each interval of the measured time.
    pub timeline: Vec<Interval>,
    /// The generator itself.
    pub generator: GeneratorFacts,
    /// Why figures of this run are not to be relied on. A valid run has none.
    pub problems: Vec<Problem>,
}

/// The requested target.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TargetFacts {
    /// The first URL.
    pub url: String,
    /// The address of the connections.
    pub address: String,
    /// The protocol of the connections, as in ALPN: `http/1.1`, `h2` or `h3`.
    pub protocol: String,
    /// Version and cipher suite of TLS; `None` in clear text.
    pub tls: Option<String>,
    /// Number of different requests.
    pub requests: usize,
    /// The checks of each response, in words.
    pub checks: String,
}

/// How it was requested.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlanFacts {
    /// Number of connections.
    pub connections: usize,
    /// Requests in flight on each connection.
    pub streams: usize,
    /// Number of generating cores.
    pub cores: usize,
    /// In words: `closed loop`, or `2000 requests/s, Poisson arrivals`.
    pub pacing: String,
    /// Planned requests per second, if all arrivals are planned at one rate.
    pub rate: Option<f64>,
    /// Whether each request has a connection of its own.
    pub new_connections: bool,
    /// Whether TLS sessions may be resumed.
    pub resume: bool,
    /// The windows that the client announced; `None` over HTTP/1.1, and in results of versions that did not state them.
    #[serde(default)]
    pub windows: Option<WindowFacts>,
    /// The seed of arrivals, templates and the mix.
    pub seed: u64,
}

/// The bytes that a server may send before they are read (RFC 9113, section 5.2; RFC 9000, section 4.1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WindowFacts {
    /// Bytes of a stream.
    pub stream_bytes: u32,
    /// Bytes of all streams of a connection.
    pub connection_bytes: u32,
}

/// Requests and responses of the measured time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Counts {
    /// Correct responses.
    pub completed: u64,
    /// Responses that failed a check, by what was wrong.
    pub wrong: BTreeMap<String, u64>,
    /// Requests and connections without a response, by the error. `more bytes behind a response` counts responses that
    /// are among the completed ones as well, also of the warm-up.
    pub failed: BTreeMap<String, u64>,
    /// Requests that had no response at the end: in an open loop all that were planned for the measured time, in a closed
    /// loop those that had waited much longer than others took.
    pub unfinished: u64,
    /// How often a request was sent again because the server had refused it with GOAWAY, REFUSED_STREAM or
    /// H3_REQUEST_REJECTED. Its latency has the time of all attempts.
    #[serde(default)]
    pub repeated: u64,
    /// Requests that waited in the generator because the server allowed no more at a time on their connection. The wait
    /// is part of their latency.
    #[serde(default)]
    pub queued: u64,
    /// Responses by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Bytes of content received.
    pub content_bytes_received: u64,
    /// Bytes of content sent.
    pub content_bytes_sent: u64,
}

/// Correct responses that came in the measured time of an open loop, whenever their requests were planned: in overload
/// those that were planned for it may all wait behind older ones.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Answered {
    /// Correct responses.
    pub completed: u64,
    /// Bytes of content received with them.
    pub content_bytes_received: u64,
    /// Length of the measured time as it was planned, in seconds.
    pub length_s: f64,
}

/// Times of requests.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Times {
    /// From the planned start of a request to the last byte of its response. In a closed loop the plan is the end of
    /// the previous request. The wait for a connection that a slow server keeps busy is part of it, so that nothing is
    /// omitted. Requests without a response at the end count with the time until then, which their latency exceeds.
    pub latency: Distribution,
    /// From the moment in which the request was sent to the last byte of its response. In an open loop this omits the
    /// time in which a slow server kept requests from being sent (coordinated omission).
    pub service: Distribution,
    /// From the moment in which the request was sent to the head of the response.
    pub first_byte: Distribution,
}

/// One request of several.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RequestResult {
    /// Method and URL, placeholders included.
    pub name: String,
    /// Wrong responses and failures.
    pub errors: u64,
    /// Latency as [`Times::latency`], which counts unfinished requests as well, with a relative error of 1 %.
    pub latency: Distribution,
}

/// Times of new connections, each from the start of its step.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Connects {
    /// New connections of the whole run, warm-up included.
    pub count: u64,
    /// How many of them resumed a TLS session.
    pub resumed: u64,
    /// TCP connects.
    pub tcp: Distribution,
    /// Full TLS handshakes over TCP.
    pub tls: Distribution,
    /// Resumed TLS handshakes over TCP.
    pub tls_resumed: Distribution,
    /// Full QUIC handshakes.
    pub quic: Distribution,
    /// Resumed QUIC handshakes.
    pub quic_resumed: Distribution,
}

/// An interval of the measured time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interval {
    /// End of the interval, in seconds since the start.
    pub end_s: f64,
    /// Length, in seconds.
    pub length_s: f64,
    /// Correct responses.
    pub completed: u64,
    /// Wrong responses and failures.
    pub errors: u64,
    /// Bytes of content received.
    pub content_bytes_received: u64,
    /// Latency, as [`Times::latency`].
    pub latency: Distribution,
}

/// The generator itself. Where it is the bottleneck, the result says nothing about the server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GeneratorFacts {
    /// Program and version.
    pub program: String,
    /// The I/O driver.
    pub io: String,
    /// CPU time of the measured time, user and system, in seconds.
    pub cpu_s: f64,
    /// CPU time per completed request, in microseconds.
    pub cpu_us_per_request: f64,
    /// The share of the time in which the busiest core ran: 1.0 is a whole processor.
    pub busiest_core: f64,
    /// The share of the time in which the busiest core was ready and waited for a processor.
    pub busiest_core_waited: f64,
    /// From the planned start of a request to the moment in which the generator noticed it; in an open loop only.
    pub lag: Distribution,
    /// Context switches of the measured time: voluntary, and forced by other programs.
    pub context_switches: (u64, u64),
}

/// The figures that a problem makes unreliable.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Affects {
    /// Everything.
    Everything,
    /// Latency, throughput and everything else that takes the generator's time.
    Times,
    /// Requests per second only: latency at a fixed rate and CPU per request remain.
    Throughput,
    /// Latency only: the responses per second remain.
    Latency,
}

impl Affects {
    /// Whether a problem that makes these figures unreliable also concerns others: those of [`Affects::Times`] contain
    /// latency and throughput.
    #[must_use]
    pub(crate) fn concerns(self, figures: Affects) -> bool {
        match (self, figures) {
            (Affects::Latency, Affects::Throughput) | (Affects::Throughput, Affects::Latency) => {
                false
            }
            (Affects::Latency, Affects::Times) => true,
            _ => self <= figures,
        }
    }
}

/// Why figures of a run are not to be relied on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// The figures that it concerns.
    pub affects: Affects,
    /// The finding and the remedy, as a sentence for people.
    pub message: String,
}

impl LoadResult {
    /// Correct responses per second of the measured time.
    #[must_use]
    pub(crate) fn requests_per_second(&self) -> f64 {
        match &self.answered {
            Some(answered) => answered.completed as f64 / answered.length_s,
            None => self.counts.completed as f64 / self.duration_s,
        }
    }

    /// Content received, in bytes per second of the measured time.
    #[must_use]
    pub(crate) fn bytes_per_second(&self) -> f64 {
        match &self.answered {
            Some(answered) => answered.content_bytes_received as f64 / answered.length_s,
            None => self.counts.content_bytes_received as f64 / self.duration_s,
        }
    }

    /// Checks a result of a file, which may be damaged.
    ///
    /// # Errors
    /// The value that cannot be true.
    pub(crate) fn check(&self) -> Result<(), String> {
        if !(self.duration_s >= 0.0 && self.duration_s.is_finite()) {
            return Err("its duration is no time".to_owned());
        }
        let Times {
            latency,
            service,
            first_byte,
        } = &self.times;
        let connects = &self.connects;
        let intervals = self.timeline.iter().map(|interval| &interval.latency);
        let mut distributions = [
            latency,
            service,
            first_byte,
            &connects.tcp,
            &connects.tls,
            &connects.tls_resumed,
            &connects.quic,
            &connects.quic_resumed,
            &self.generator.lag,
        ]
        .into_iter()
        .chain(intervals);
        distributions
            .try_for_each(Distribution::check)
            .map_err(|problem| format!("a distribution is damaged: {problem}"))
    }

    /// Whether no problem concerns these figures.
    #[must_use]
    pub(crate) fn is_valid_for(&self, figures: Affects) -> bool {
        self.problems
            .iter()
            .all(|problem| !problem.affects.concerns(figures))
    }
}

impl Counts {
    /// Wrong responses and failures.
    #[must_use]
    pub fn errors(&self) -> u64 {
        let counts = self.wrong.values().chain(self.failed.values());
        // A file may have any counts.
        counts.fold(0, |sum, count| sum.saturating_add(*count))
    }
}
