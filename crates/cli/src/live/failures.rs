//! The failures of late, by cause and route.

use serde_json::Value;

/// Requests that failed with the same cause on the same route.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct RecentFailure {
    pub(crate) cause: String,
    /// The site and the path of the route.
    pub(crate) route: String,
    /// The address of the last attempt, or else the URL of the upstream.
    pub(crate) upstream: String,
    /// That of the last one.
    pub(crate) status: Option<u64>,
    pub(crate) count: u64,
    /// Those of the window.
    pub(crate) recent: u64,
    /// That of the upstream, if it was refused; else empty.
    pub(crate) certificate: String,
    /// Seconds since the first one.
    pub(crate) since: f64,
    /// Seconds since the last one.
    pub(crate) age: f64,
}

impl RecentFailure {
    pub(super) fn read(value: &Value) -> RecentFailure {
        let text = |key: &str| value[key].as_str().unwrap_or_default();
        let details = match (text("problem"), value["authorizer_status"].as_u64()) {
            ("", Some(status)) => format!("status {status}"),
            ("", None) => text("rule").to_owned(),
            (problem, _) => problem.to_owned(),
        };
        let cause = match &*details {
            "" => text("cause").to_owned(),
            // Some causes name it themselves.
            rule if text("cause").contains(rule) => text("cause").to_owned(),
            rule => format!("{}: {rule}", text("cause")),
        };
        let upstream = match text("address") {
            "" if text("upstream").is_empty() => text("authorizer"),
            "" => text("upstream"),
            address => address,
        };
        RecentFailure {
            cause,
            route: format!("{}{}", text("site"), text("route")),
            upstream: upstream.to_owned(),
            status: value["status"].as_u64(),
            count: value["count"].as_u64().unwrap_or_default(),
            recent: 0,
            certificate: text("certificate").to_owned(),
            since: value["seconds_since_first"].as_f64().unwrap_or_default(),
            age: value["seconds_since_last"].as_f64().unwrap_or_default(),
        }
    }
}

/// The failures with the counts of the window; without an earlier reading nothing is of the window.
pub(super) fn failures(
    before: Option<&[RecentFailure]>,
    after: &[RecentFailure],
) -> Vec<RecentFailure> {
    let counted = |failure: &RecentFailure| {
        let mut earlier = before?.iter();
        let known =
            earlier.find(|known| (&known.cause, &known.route) == (&failure.cause, &failure.route));
        // One that was replaced and came back has a smaller count.
        let known = known.map_or(0, |known| known.count);
        Some(failure.count.checked_sub(known).unwrap_or(failure.count))
    };
    let all = after.iter().map(|failure| RecentFailure {
        recent: counted(failure).unwrap_or_default(),
        ..failure.clone()
    });
    all.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(route: &str, count: u64) -> RecentFailure {
        RecentFailure {
            cause: "refused".to_owned(),
            route: route.to_owned(),
            count,
            ..RecentFailure::default()
        }
    }

    #[test]
    fn failures_of_the_window_are_those_since_the_earlier_reading() {
        let before = [failure("/a", 5), failure("/b", 900)];
        let after = [failure("/a", 7), failure("/b", 3), failure("/c", 2)];
        let recent = |before| {
            let failures = failures(before, &after);
            failures.iter().map(|one| one.recent).collect::<Vec<_>>()
        };
        assert_eq!(recent(Some(&before[..])), [2, 3, 2]);
        assert_eq!(recent(None), [0, 0, 0]);
    }

    #[test]
    fn failures_are_read() {
        let value = serde_json::json!({
            "cause": "the upstream refused the connection", "rule": null, "site": "a.example", "route": "/b",
            "upstream": "http://u:1", "address": "10.0.0.1:1", "status": 502, "count": 3,
            "seconds_since_first": 300.0, "seconds_since_last": 1.5,
        });
        let expected = RecentFailure {
            cause: "the upstream refused the connection".to_owned(),
            route: "a.example/b".to_owned(),
            upstream: "10.0.0.1:1".to_owned(),
            status: Some(502),
            count: 3,
            recent: 0,
            certificate: String::new(),
            since: 300.0,
            age: 1.5,
        };
        assert_eq!(RecentFailure::read(&value), expected);
        let value = serde_json::json!({
            "cause": "no decision", "rule": "authorizer-failed", "authorizer": "http://auth:1/verify",
            "authorizer_status": 500,
        });
        let read = RecentFailure::read(&value);
        assert_eq!(
            (&*read.cause, &*read.upstream),
            ("no decision: status 500", "http://auth:1/verify")
        );
        let value = serde_json::json!({"cause": "c", "rule": "bare-lf", "upstream": "http://u:1"});
        let read = RecentFailure::read(&value);
        assert_eq!(
            (&*read.cause, &*read.upstream),
            ("c: bare-lf", "http://u:1")
        );
    }
}
