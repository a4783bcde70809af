//! The answers of a process at one moment.

use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value;

use super::WINDOW;
use super::clients::{Client, clients};
use super::exposition::Exposition;
use super::failures::RecentFailure;
use crate::terminal::number::age;
use crate::timestamp::rfc3339;

/// The answers of a process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answers<'a> {
    pub(crate) metrics: &'a str,
    /// These are JSON.
    pub(crate) upstreams: &'a str,
    pub(crate) certificates: &'a str,
    pub(crate) failures: &'a str,
    pub(crate) clients: &'a str,
}

/// Metrics, upstreams, certificates, failures and clients of a moment.
#[derive(Debug)]
pub(crate) struct Reading {
    /// Time since the first reading or before.
    pub(super) at: Duration,
    /// Seconds since 1970.
    pub(super) unix_time: f64,
    pub(super) metrics: Exposition,
    pub(super) upstreams: Vec<Server>,
    pub(super) certificates: Vec<Certificate>,
    /// Those that occurred last come first.
    pub(super) failures: Vec<RecentFailure>,
    /// Those that need the most come first.
    pub(super) clients: Vec<Client>,
}

/// A server of an upstream.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Server {
    pub(super) url: String,
    /// The upstreams of the configuration to which it belongs.
    pub(super) names: Vec<String>,
    /// Whether routes have it alone, by its URL or as the one server of an upstream.
    pub(super) is_used_alone: bool,
    /// Why its name has no address.
    pub(super) failure: Option<String>,
    pub(super) addresses: Vec<Address>,
    /// Why its checks say that it is down.
    pub(super) check_problem: Option<String>,
    /// Whether it gets no new requests, because an operator said so.
    pub(super) is_drained: bool,
    /// The last change of the addresses of its name.
    pub(super) change: Option<NameChange>,
}

impl Server {
    /// The addresses that it has now.
    pub(super) fn present(&self) -> impl Iterator<Item = &Address> {
        self.addresses.iter().filter(|address| !address.is_former)
    }
}

/// A change of the addresses of a name.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct NameChange {
    pub(super) before: Vec<String>,
    /// RFC 3339.
    pub(super) at: String,
    /// Seconds since then.
    pub(super) age: f64,
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct Address {
    pub(super) address: String,
    /// Whether its name does not have it any more.
    pub(super) is_former: bool,
    pub(super) active: u64,
    pub(super) idle: u64,
    /// Whether any core has used it.
    pub(super) is_used: bool,
    /// Whether some core could not connect to it within the window, or avoids it because of that.
    pub(super) has_failed: bool,
    /// Whether it failed at TLS.
    pub(super) fails_at_tls: bool,
    /// Since it belongs to the upstream: attempts, those that failed, response heads, and the seconds until these came.
    pub(super) requests: u64,
    pub(super) failures: u64,
    pub(super) responses: u64,
    pub(super) response_seconds: f64,
    /// Requests since the last response head, and for how many seconds there have been some.
    pub(super) unanswered: u64,
    pub(super) seconds_unanswered: f64,
}

/// A certificate of the listeners.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Certificate {
    pub(crate) names: Vec<String>,
    /// Below zero if it has expired.
    pub(crate) days_left: i64,
    pub(crate) seconds_left: i64,
    pub(crate) file: Option<String>,
}

impl Certificate {
    /// `expired 5 min ago`, `expires in 3 h 20 min`, `expires in 12 days`.
    pub(crate) fn expiry(&self) -> String {
        let seconds = self.seconds_left as f64;
        match self.days_left {
            ..0 => format!("expired {} ago", age(-seconds)),
            0 => format!("expires in {}", age(seconds)),
            1 => "expires in 1 day".to_owned(),
            days => format!("expires in {days} days"),
        }
    }
}

impl Reading {
    /// # Errors
    /// One of the texts is not what Blitz writes: the problem.
    pub(crate) fn new(
        at: Duration,
        unix_time: f64,
        answers: Answers<'_>,
    ) -> Result<Reading, String> {
        let list = |text: &str, key: &str| {
            let value: Value = serde_json::from_str(text)
                .map_err(|error| format!("the {key} cannot be read: {error}"))?;
            let list = value[key].as_array().cloned();
            Ok::<_, String>(list.unwrap_or_default())
        };
        let recent = Duration::from_secs_f64(unix_time.max(0.0)).saturating_sub(WINDOW);
        let recent = rfc3339(UNIX_EPOCH + recent);
        let mut reading = Reading {
            at,
            unix_time,
            metrics: Exposition::parse(answers.metrics)?,
            upstreams: list(answers.upstreams, "upstreams")?
                .iter()
                .map(|value| server(value, &recent))
                .collect(),
            certificates: list(answers.certificates, "certificates")?
                .iter()
                .map(certificate)
                .collect(),
            failures: list(answers.failures, "failures")?
                .iter()
                .map(RecentFailure::read)
                .collect(),
            clients: clients(&serde_json::from_str(answers.clients).unwrap_or_default()),
        };
        reading
            .certificates
            .sort_by_key(|certificate| certificate.days_left);
        Ok(reading)
    }

    /// Requests that ended until a later reading; `None` if it is of the same moment.
    pub(super) fn requests_per_second(&self, later: &Reading) -> Option<f64> {
        let seconds = later.at.saturating_sub(self.at).as_secs_f64();
        let count = |reading: &Reading| {
            let count = reading
                .metrics
                .sum("http_server_request_duration_seconds_count");
            count.unwrap_or_default()
        };
        (seconds > 0.0).then(|| (count(later) - count(self)).max(0.0) / seconds)
    }

    pub(super) fn is_of_same_process(&self, other: &Reading) -> bool {
        let started = |reading: &Reading| reading.metrics.sum("process_start_time_seconds");
        started(self) == started(other)
    }
}

/// `recent` is the beginning of the window.
fn server(value: &Value, recent: &str) -> Server {
    let addresses = value["addresses"].as_array().into_iter().flatten();
    let mut checks = value["checks"].as_array().into_iter().flatten();
    let down = checks.find(|check| check["state"] == "down");
    Server {
        check_problem: down.map(|check| text(&check["problem"])),
        is_drained: value["drained"].as_bool().unwrap_or_default(),
        url: text(&value["url"]),
        names: texts(&value["names"]),
        is_used_alone: value["used_alone"].as_bool().unwrap_or_default(),
        failure: value["failure"].as_str().map(str::to_owned),
        addresses: addresses.map(|value| address(value, recent)).collect(),
        change: value["changed"].as_str().map(|at| NameChange {
            before: texts(&value["addresses_before"]),
            at: at.to_owned(),
            age: value["seconds_since_change"].as_f64().unwrap_or_default(),
        }),
    }
}

fn address(value: &Value, recent: &str) -> Address {
    let cores = value["cores"].as_array().map_or(&[][..], Vec::as_slice);
    // Moments of the same form have the order of their texts.
    let has_failed = |core: &Value| {
        let last_failure = core["last_failure"].as_str();
        core["cooling_down_until"].is_string()
            || last_failure.is_some_and(|moment| moment >= recent)
    };
    let is_of_tls = |core: &Value| {
        let error_type = core["last_failure_type"].as_str();
        has_failed(core) && error_type.is_some_and(|token| token.starts_with("tls_"))
    };
    let number = |key: &str| value[key].as_u64().unwrap_or_default();
    Address {
        address: text(&value["address"]),
        is_former: value["former"].as_bool().unwrap_or_default(),
        fails_at_tls: cores.iter().any(is_of_tls),
        requests: number("requests"),
        failures: number("failures"),
        responses: number("responses"),
        response_seconds: value["response_seconds"].as_f64().unwrap_or_default(),
        unanswered: number("unanswered"),
        seconds_unanswered: value["seconds_unanswered"].as_f64().unwrap_or_default(),
        active: number("in_use"),
        idle: number("idle"),
        is_used: !cores.is_empty(),
        has_failed: cores.iter().any(has_failed),
    }
}

fn certificate(value: &Value) -> Certificate {
    Certificate {
        names: texts(&value["names"]),
        days_left: value["days_left"].as_i64().unwrap_or_default(),
        seconds_left: value["seconds_left"].as_i64().unwrap_or_default(),
        file: value["file"].as_str().map(str::to_owned),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn texts(value: &Value) -> Vec<String> {
    let list = value.as_array();
    list.into_iter().flatten().map(text).collect()
}

#[cfg(test)]
impl<'a> Answers<'a> {
    /// Metrics alone.
    pub(crate) fn of_metrics(metrics: &'a str) -> Answers<'a> {
        Answers {
            metrics,
            upstreams: "{}",
            certificates: "{}",
            failures: "{}",
            clients: "{}",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstreams_and_certificates_are_read() {
        let upstreams = r#"{"upstreams": [{"url": "http://u:1", "names": ["app"], "failure": null, "addresses": [
            {"address": "10.0.0.1:1", "idle": 3, "in_use": 2, "cores": [
                {"core": 0, "cooling_down_until": null}, {"core": 1, "cooling_down_until": "2026-11-29T18:55:00Z"}]},
            {"address": "10.0.0.2:1", "idle": 0, "in_use": 0, "cores": []},
            {"address": "10.0.0.3:1", "cores": [{"last_failure": "2001-09-09T01:46:35Z"}]},
            {"address": "10.0.0.4:1", "cores": [{"last_failure": "2001-09-09T01:46:25Z"}]}]},
            {"url": "http://v:1", "names": [], "failure": "dns_error", "addresses": []}]}"#;
        let certificates = r#"{"certificates": [
            {"names": ["a.example"], "days_left": 60, "file": "a.pem"},
            {"names": ["b.example"], "days_left": -1, "file": null}]}"#;
        let answers = Answers {
            upstreams,
            certificates,
            failures: r#"{"failures": [{"cause": "c", "site": "a", "route": "/b", "count": 2}]}"#,
            ..Answers::of_metrics("# EOF\n")
        };
        let reading = Reading::new(Duration::ZERO, 1e9, answers).unwrap();
        let failures: Vec<_> = reading
            .failures
            .iter()
            .map(|one| (&*one.route, one.count))
            .collect();
        assert_eq!(failures, [("a/b", 2)]);
        let addresses = &reading.upstreams[0].addresses;
        let used = Address {
            address: "10.0.0.1:1".to_owned(),
            active: 2,
            idle: 3,
            is_used: true,
            has_failed: true,
            ..Address::default()
        };
        let unused = Address {
            address: "10.0.0.2:1".to_owned(),
            ..Address::default()
        };
        assert_eq!(addresses[..2], [used, unused]);
        // The moment of the reading is 2001-09-09T01:46:40Z.
        assert_eq!(
            (addresses[2].has_failed, addresses[3].has_failed),
            (true, false)
        );
        assert_eq!(reading.upstreams[0].names, ["app"]);
        assert_eq!(reading.upstreams[1].failure.as_deref(), Some("dns_error"));
        let days: Vec<_> = reading
            .certificates
            .iter()
            .map(|one| one.days_left)
            .collect();
        assert_eq!(days, [-1, 60], "the first to expire comes first");
    }

    #[test]
    fn figures_of_addresses_and_changes_of_names_are_read() {
        let upstreams = r#"{"upstreams": [{"url": "http://u:1", "names": [], "failure": null, "addresses": [
            {"address": "10.0.0.3:1", "former": true, "requests": 4, "failures": 3, "responses": 2,
                "response_seconds": 0.5,
                "cores": [{"last_failure": "2001-09-09T01:46:35Z", "last_failure_type": "tls_protocol_error"}]}],
            "addresses_before": ["10.0.0.9:1"], "changed": "2001-09-09T01:46:00Z", "seconds_since_change": 40}]}"#;
        let answers = Answers {
            upstreams,
            ..Answers::of_metrics("# EOF\n")
        };
        let reading = Reading::new(Duration::ZERO, 1e9, answers).unwrap();
        let failing = Address {
            address: "10.0.0.3:1".to_owned(),
            is_former: true,
            is_used: true,
            has_failed: true,
            fails_at_tls: true,
            requests: 4,
            failures: 3,
            responses: 2,
            response_seconds: 0.5,
            ..Address::default()
        };
        let change = NameChange {
            before: vec!["10.0.0.9:1".to_owned()],
            at: "2001-09-09T01:46:00Z".to_owned(),
            age: 40.0,
        };
        let server = &reading.upstreams[0];
        assert_eq!(
            (&server.addresses[..], &server.change),
            (&[failing][..], &Some(change))
        );
        assert_eq!(server.present().count(), 0);
    }

    #[test]
    fn the_last_day_of_a_certificate_has_hours_and_minutes() {
        let expiry = |seconds_left: i64| {
            let certificate = Certificate {
                names: Vec::new(),
                days_left: seconds_left.div_euclid(86_400),
                seconds_left,
                file: None,
            };
            certificate.expiry()
        };
        for (seconds_left, text) in [
            (-7200, "expired 2 h ago"),
            (-1, "expired 1 s ago"),
            (100, "expires in 1 min"),
            (12_000, "expires in 3 h 20 min"),
            (86_400, "expires in 1 day"),
            (3 * 86_400, "expires in 3 days"),
        ] {
            assert_eq!(expiry(seconds_left), text);
        }
    }

    #[test]
    fn another_text_is_an_error() {
        let answers = Answers {
            upstreams: "<html>",
            ..Answers::of_metrics("# EOF\n")
        };
        let problem = Reading::new(Duration::ZERO, 0.0, answers).unwrap_err();
        assert!(
            problem.starts_with("the upstreams cannot be read: "),
            "{problem}"
        );
    }
}
