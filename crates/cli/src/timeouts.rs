//! The timeouts of `blitz run`: the flags, and the options that they set.

use std::time::Duration;

use blitz_config::TimeLimit;
use blitz_gateway::Options;
use blitz_http::FOREVER;
use clap::Args;

use crate::heading;

/// The defaults of timeouts that a route has keys for.
const CONNECT: Duration = Duration::from_secs(4);
const RESPONSE: Duration = Duration::from_secs(60);
const IDLE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Args)]
pub(crate) struct TimeoutArguments {
    /// How long to connect to an address of an upstream
    ///
    /// Write 500ms, 1s or 5m. A TLS handshake has 10s more.
    #[arg(long, value_name = "DURATION", value_parser = positive, default_value = "4s", allow_hyphen_values = true, help_heading = heading::LIMITS)]
    timeout_connect: Duration,

    /// How long a request tries to connect again while its upstream refuses connections, for example because
    /// it restarts
    ///
    /// Write 500ms, 5s, 1m, or 0 to answer 502 at once. Only requests that the upstream has not received, or that
    /// may be sent again, wait.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "0", allow_hyphen_values = true, help_heading = heading::LIMITS)]
    connect_retry: Duration,

    /// How long to wait for the head of an upstream's response after the request
    ///
    /// Write 500ms, 60s, 5m or forever.
    #[arg(long, value_name = "DURATION", value_parser = positive_or_forever, default_value = "60s", allow_hyphen_values = true, help_heading = heading::LIMITS)]
    timeout_response: Duration,

    /// The longest silence of an upstream within the content of its response
    ///
    /// Write 500ms, 60s, 5m or forever. Tunnels such as WebSockets, text/event-stream and gRPC have at
    /// least 300s.
    #[arg(long, value_name = "DURATION", value_parser = positive_or_forever, default_value = "60s", allow_hyphen_values = true, help_heading = heading::LIMITS)]
    timeout_idle: Duration,

    /// How long a connection to an upstream may be idle before it is closed
    ///
    /// Write 500ms, 55s or 5m: less than the upstream keeps idle connections open, so that no request meets a
    /// connection that the upstream is closing. Where an upstream announces a time with Keep-Alive, that is
    /// respected as well.
    #[arg(long, value_name = "DURATION", value_parser = positive, default_value = "55s", allow_hyphen_values = true, help_heading = heading::LIMITS)]
    upstream_idle: Duration,
}

impl TimeoutArguments {
    /// Those that differ from the defaults and that a route has keys for.
    pub(crate) fn of_routes(&self) -> Vec<(&'static str, Duration)> {
        let all = [
            ("connect", self.timeout_connect, CONNECT),
            ("response", self.timeout_response, RESPONSE),
            ("idle", self.timeout_idle, IDLE),
        ];
        let others = all
            .into_iter()
            .filter(|(_, value, default)| value != default);
        others.map(|(key, value, _)| (key, value)).collect()
    }

    pub(crate) fn apply(&self, options: &mut Options) {
        options.connect_retry = self.connect_retry;
        let client = &mut options.client;
        client.response_timeout = self.timeout_response;
        client.body_timeout = self.timeout_idle;
        client.idle_timeout = self.upstream_idle;
        client.limits.connect_timeout = self.timeout_connect;
        // Other requests wait for a connection that is being made.
        let wait = &mut client.limits.upstream_wait_timeout;
        *wait = self.timeout_connect.max(*wait);
        for limits in [&mut options.limits, &mut client.limits] {
            limits.stream_idle_timeout = self.timeout_idle.max(limits.stream_idle_timeout);
        }
    }
}

/// A duration, which may be 0.
pub(crate) fn duration(value: &str) -> Result<Duration, String> {
    duration_or(value, "write 500ms, 1s, 5m or 0")
}

/// The same, with this remedy for a value that is none.
pub(crate) fn duration_or(value: &str, remedy: &str) -> Result<Duration, String> {
    parse(value).ok_or_else(|| not_a_duration(value, remedy))
}

/// A duration, 0, or `forever`: a service manager has a limit of its own.
pub(crate) fn time_limit(value: &str) -> Result<TimeLimit, String> {
    match value {
        "forever" => Ok(TimeLimit::Forever),
        _ => duration_or(value, "write 500ms, 1s, 5m, 0 or forever").map(TimeLimit::After),
    }
}

fn positive(value: &str) -> Result<Duration, String> {
    at_least_some(value, "write 500ms, 1s or 5m")
}

/// A duration above 0, or `forever`.
pub(crate) fn positive_or_forever(value: &str) -> Result<Duration, String> {
    match value {
        "forever" => Ok(FOREVER),
        _ => at_least_some(value, "write 500ms, 1s, 5m or forever"),
    }
}

fn at_least_some(value: &str, remedy: &str) -> Result<Duration, String> {
    match parse(value) {
        Some(Duration::ZERO) => Err(error("a timeout of 0 would end every request", remedy)),
        Some(duration) => Ok(duration),
        None => Err(not_a_duration(value, remedy)),
    }
}

/// At most [`FOREVER`], since more could not be added to a time.
fn parse(value: &str) -> Option<Duration> {
    let duration = blitz_config::parse_duration_sum(value).ok()?;
    Some(duration.min(FOREVER))
}

fn not_a_duration(value: &str, remedy: &str) -> String {
    match value.parse::<u64>() {
        Ok(seconds) => error("the unit is missing", &format!("write {seconds}s")),
        Err(_) => error("this is not a duration", remedy),
    }
}

fn error(problem: &str, remedy: &str) -> String {
    format!("{problem}\n  {remedy}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(connect: u64, idle: u64) -> Options {
        let arguments = TimeoutArguments {
            timeout_connect: Duration::from_secs(connect),
            connect_retry: Duration::ZERO,
            timeout_response: Duration::from_secs(2),
            timeout_idle: Duration::from_secs(idle),
            upstream_idle: Duration::from_secs(5),
        };
        let mut options = Options::default();
        arguments.apply(&mut options);
        options
    }

    #[test]
    fn streams_have_their_own_timeout_unless_the_idle_timeout_is_longer() {
        for (idle, stream_idle) in [(3, 300), (600, 600)] {
            let options = applied(1, idle);
            for limits in [&options.limits, &options.client.limits] {
                assert_eq!(limits.stream_idle_timeout.as_secs(), stream_idle);
            }
        }
    }

    #[test]
    fn requests_wait_as_long_as_connecting_may_take() {
        for (connect, wait) in [(1, 5), (20, 20)] {
            let limits = applied(connect, 60).client.limits;
            assert_eq!(limits.upstream_wait_timeout.as_secs(), wait);
        }
    }

    #[test]
    fn durations_of_any_length_can_be_added_to_a_time() {
        assert_eq!(duration("1000000000years"), Ok(FOREVER));
        assert_eq!(positive_or_forever("forever"), Ok(FOREVER));
        assert_eq!(time_limit("forever"), Ok(TimeLimit::Forever));
        assert_eq!(time_limit("0"), Ok(TimeLimit::After(Duration::ZERO)));
    }
}
