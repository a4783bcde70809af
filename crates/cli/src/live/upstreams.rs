//! Upstreams: the state of their servers, and the times of their responses.

use std::collections::BTreeMap;

use super::exposition::Exposition;
use super::latency::{Buckets, Latency};
use super::reading::Server;
use super::servers::{AddressTimes, Change, times};
use super::view::grown;

/// With a greater share of failed requests an upstream needs attention.
const FAILING: f64 = 0.01;

/// An upstream, or one of its servers.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Upstream {
    /// Its URL, or its name if it has several servers.
    pub(crate) name: String,
    /// Whether it is a server of the upstream before it.
    pub(crate) is_server: bool,
    /// `None` for an upstream whose servers follow.
    pub(crate) state: Option<State>,
    /// Connections with requests.
    pub(crate) active: Option<u64>,
    pub(crate) idle: Option<u64>,
    /// Those of a server count to its upstream as well.
    pub(crate) requests: Option<Responses>,
    /// The addresses that got requests in the window.
    pub(crate) addresses: Vec<AddressTimes>,
    /// The last change of the addresses of its name.
    pub(crate) change: Option<Change>,
}

/// Requests of the window that were sent to an upstream.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Responses {
    pub(crate) rate: f64,
    /// Until the head of the response; of servers of an upstream only the mean is known.
    pub(crate) latency: Latency,
    /// In seconds, of all attempts.
    pub(crate) mean: Option<f64>,
    /// The share without a complete response, or with a 5xx.
    pub(crate) failed: f64,
}

/// Whether the servers of an upstream can be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    Ok,
    /// No request needed it.
    Unused,
    /// Its name has no address, for this reason.
    Unresolved(String),
    /// To some of its addresses no connection could be made of late, or requests avoid them because of that.
    Unreachable {
        failed: usize,
        addresses: usize,
        /// Some of them accept connections, but TLS fails there.
        at_tls: bool,
    },
}

impl State {
    fn of(server: &Server) -> State {
        let addresses: Vec<_> = server.present().collect();
        let failed = addresses.iter().filter(|address| address.has_failed);
        let failed = failed.count();
        match (&server.failure, failed) {
            (Some(failure), _) => State::Unresolved(failure.clone()),
            (None, 0) if addresses.iter().any(|address| address.is_used) => State::Ok,
            (None, 0) => State::Unused,
            (None, failed) => State::Unreachable {
                failed,
                addresses: addresses.len(),
                at_tls: addresses.iter().any(|address| address.fails_at_tls),
            },
        }
    }

    /// Whether requests cannot be sent to the server.
    pub(crate) fn is_down(&self) -> bool {
        match self {
            State::Unresolved(_) => true,
            State::Unreachable {
                failed, addresses, ..
            } => failed == addresses,
            State::Ok | State::Unused => false,
        }
    }
}

impl Upstream {
    /// Those that need attention come first.
    fn rank(&self) -> u8 {
        let is_failing = self
            .requests
            .is_some_and(|requests| requests.failed > FAILING);
        match &self.state {
            Some(state) if state.is_down() => 0,
            Some(State::Unreachable { .. }) => 1,
            _ if is_failing => 1,
            Some(State::Unused) => 3,
            _ => 2,
        }
    }
}

/// The upstreams of the configuration in its order, those with a problem first.
pub(super) fn upstreams(
    earlier: Option<&[Server]>,
    servers: &[Server],
    (before, after): (Option<&Exposition>, &Exposition),
    seconds: f64,
) -> Vec<Upstream> {
    let mut requests = requests(before, after, seconds);
    let mut groups: Vec<(Option<&str>, Vec<Upstream>)> = Vec::new();
    for server in servers {
        let name = server.names.first().map(String::as_str);
        let addresses = times(earlier, server);
        let mean = AddressTimes::mean_of(&addresses);
        let counted = requests.remove(&*server.url);
        let row = Upstream {
            name: server.url.clone(),
            is_server: name.is_some(),
            state: Some(State::of(server)),
            active: Some(server.addresses.iter().map(|address| address.active).sum()),
            idle: Some(server.addresses.iter().map(|address| address.idle).sum()),
            requests: match name {
                None => counted.map(|counted| Responses { mean, ..counted }),
                Some(_) => Some(AddressTimes::responses(&addresses, seconds)),
            },
            change: server
                .change
                .as_ref()
                .map(|change| Change::of(server, change)),
            addresses,
        };
        match groups
            .iter_mut()
            .find(|(known, _)| name.is_some() && *known == name)
        {
            Some((_, rows)) => rows.push(row),
            None => groups.push((name, vec![row])),
        }
    }
    for (name, rows) in &mut groups {
        rows.sort_by_key(Upstream::rank);
        if let Some(name) = name {
            let addresses = rows.iter().flat_map(|row| &row.addresses);
            let mean = AddressTimes::mean_of(addresses);
            let counted = requests.remove(name);
            let upstream = Upstream {
                name: (*name).to_owned(),
                requests: counted.map(|counted| Responses { mean, ..counted }),
                ..Upstream::default()
            };
            rows.insert(0, upstream);
        }
    }
    groups.sort_by_key(|(_, rows)| rows.iter().map(Upstream::rank).min());
    let rows = groups.into_iter().flat_map(|(_, rows)| rows);
    let mut upstreams: Vec<_> = rows.collect();
    // Several names of one route, a name from a variable, and earlier configurations.
    let others = requests
        .into_iter()
        .filter(|(_, requests)| requests.rate > 0.0);
    upstreams.extend(others.map(|(name, requests)| Upstream {
        name: name.to_owned(),
        requests: Some(requests),
        ..Upstream::default()
    }));
    upstreams
}

/// The requests of the window by the label of their upstream.
fn requests<'a>(
    before: Option<&'a Exposition>,
    after: &'a Exposition,
    seconds: f64,
) -> BTreeMap<&'a str, Responses> {
    #[derive(Default)]
    struct Sums {
        buckets: Buckets,
        count: f64,
        failed: f64,
    }
    let mut sums: BTreeMap<&str, Sums> = BTreeMap::new();
    for (sample, count) in grown(before, after, "http_client_request_duration_seconds_bucket") {
        if let Ok(bound) = sample.label("le").parse() {
            let sums = sums.entry(sample.label("upstream")).or_default();
            sums.buckets.add(bound, count);
        }
    }
    for (sample, count) in grown(before, after, "http_client_request_duration_seconds_count") {
        let sums = sums.entry(sample.label("upstream")).or_default();
        let is_failed = match sample.label("error_type") {
            // The client caused the end.
            "abandoned" => false,
            "" => sample.label("status") == "5xx",
            _ => true,
        };
        sums.count += count;
        sums.failed += if is_failed { count } else { 0.0 };
    }
    let responses = sums.into_iter().map(|(upstream, sums)| {
        let responses = Responses {
            rate: sums.count / seconds,
            latency: sums.buckets.latency(),
            mean: None,
            failed: sums.failed / sums.count.max(1.0),
        };
        (upstream, responses)
    });
    responses.collect()
}

#[cfg(test)]
mod tests {
    use super::super::reading::Address;
    use super::*;

    fn server(url: &str, names: &[&str], has_failed: bool) -> Server {
        let address = Address {
            active: 1,
            idle: 2,
            is_used: true,
            has_failed,
            ..Address::default()
        };
        Server {
            url: url.to_owned(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            addresses: vec![address],
            ..Server::default()
        }
    }

    #[test]
    fn servers_follow_their_upstream_and_problems_come_first() {
        let servers = [
            server("http://a:1", &[], false),
            server("http://b:1", &["app"], false),
            server("http://b:2", &["app"], true),
        ];
        let after = "http_client_request_duration_seconds_count{upstream=\"app\",status=\"2xx\"} 6\n\
            http_client_request_duration_seconds_count{upstream=\"app\",status=\"none\",error_type=\"connection_refused\"} 2\n\
            http_client_request_duration_seconds_count{upstream=\"app\",status=\"none\",error_type=\"abandoned\"} 2\n\
            http_client_request_duration_seconds_count{upstream=\"http://a:1\",status=\"5xx\"} 5\n\
            http_client_request_duration_seconds_count{upstream=\"${OLD}\",status=\"2xx\"} 1\n# EOF\n";
        let (before, after) = (Exposition::default(), Exposition::parse(after).unwrap());
        let rows = upstreams(Some(&[]), &servers, (Some(&before), &after), 2.0);
        let seen: Vec<_> = rows
            .iter()
            .map(|row| {
                let requests = row
                    .requests
                    .map(|requests| (requests.rate, requests.failed));
                (&*row.name, row.is_server, requests)
            })
            .collect();
        assert_eq!(
            seen,
            [
                ("app", false, Some((5.0, 0.2))),
                ("http://b:2", true, Some((0.0, 0.0))),
                ("http://b:1", true, Some((0.0, 0.0))),
                ("http://a:1", false, Some((2.5, 1.0))),
                ("${OLD}", false, Some((0.5, 0.0))),
            ]
        );
        let down = State::Unreachable {
            failed: 1,
            addresses: 1,
            at_tls: false,
        };
        assert_eq!(
            (&rows[1].state, rows[1].active, rows[1].idle),
            (&Some(down), Some(1), Some(2))
        );
    }

    #[test]
    fn failing_requests_are_a_problem_of_an_upstream_that_can_be_reached() {
        let servers = [
            server("http://a:1", &[], false),
            server("http://b:1", &[], false),
        ];
        let after = "http_client_request_duration_seconds_count{upstream=\"http://b:1\",status=\"5xx\"} 1\n# EOF\n";
        let after = Exposition::parse(after).unwrap();
        let before = Exposition::default();
        let rows = upstreams(Some(&[]), &servers, (Some(&before), &after), 1.0);
        assert_eq!(rows[0].name, "http://b:1");
    }

    #[test]
    fn states_follow_from_addresses() {
        let unresolved = Server {
            failure: Some("dns_error".to_owned()),
            ..Server::default()
        };
        let unused = Server {
            addresses: vec![Address::default()],
            ..Server::default()
        };
        for (server, state, is_down) in [
            (server("u", &[], false), State::Ok, false),
            (unresolved, State::Unresolved("dns_error".to_owned()), true),
            (Server::default(), State::Unused, false),
            (unused, State::Unused, false),
        ] {
            assert_eq!((State::of(&server), state.is_down()), (state, is_down));
        }
        let mut server = server("u", &[], true);
        assert!(State::of(&server).is_down());
        server.addresses.push(Address::default());
        assert!(!State::of(&server).is_down());
    }
}
