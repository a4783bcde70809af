//! Upstreams: the state of their servers, and the times of their responses.

use std::collections::BTreeMap;

use super::exposition::{Exposition, Sample};
use super::latency::{Buckets, Latency};
use super::reading::{Address, Server};
use super::servers::{AddressTimes, Change, times};
use super::view::grown;

/// With a greater share of failed requests an upstream needs attention.
const FAILING: f64 = 0.01;

/// An address without a response for so many seconds does not respond, if it has had so many requests meanwhile.
const SILENT_SECONDS: f64 = 10.0;
const SILENT_REQUESTS: u64 = 2;

/// One reading is enough if so many connections wait; else they have to be in use in the reading before as well.
const SILENT_CONNECTIONS: u64 = 5;

/// An upstream, or one of its servers.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Upstream {
    /// Its URL, or its name if it has several servers.
    pub(crate) name: String,
    /// Whether it is a server of the upstream before it.
    pub(crate) is_server: bool,
    /// Whether other upstreams have the server too: then all figures but `requests` of an upstream are those of all of
    /// them together.
    pub(crate) is_shared: bool,
    /// `None` for one that is not in the configuration.
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
    /// In seconds: of an upstream that of its requests, of a server that of all attempts.
    pub(crate) mean: Option<f64>,
    /// The share without a complete response, or with a 5xx.
    pub(crate) failed: f64,
}

/// Whether the servers of an upstream can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    Ok,
    /// No request needed it.
    Unused,
    /// Its name has no address, for this reason.
    Unresolved(String),
    /// To some of its addresses no connection could be made of late, or requests avoid them because of that.
    Unreachable {
        /// These addresses.
        failed: Vec<String>,
        /// The number of all.
        addresses: usize,
        /// Some of them accept connections, but TLS fails there.
        at_tls: bool,
    },
    /// Its checks say that it is down, for this reason.
    Unhealthy(String),
    /// It gets no new requests, because an operator said so.
    Drained,
    /// An address has got requests and responded to none of them of late.
    Silent {
        address: String,
        /// Connections with requests, and seconds without a response.
        active: u64,
        seconds: u64,
    },
    /// Of an upstream with servers: some of them have a problem.
    Servers {
        down: usize,
        servers: usize,
    },
}

impl State {
    /// `before` is the server in an earlier reading.
    fn of(before: Option<&Server>, server: &Server) -> State {
        if let Some(failure) = &server.failure {
            return State::Unresolved(failure.clone());
        }
        let addresses: Vec<_> = server.present().collect();
        let failed = addresses.iter().filter(|address| address.has_failed);
        let failed: Vec<_> = failed.map(|address| address.address.clone()).collect();
        if !failed.is_empty() {
            return State::Unreachable {
                failed,
                addresses: addresses.len(),
                at_tls: addresses.iter().any(|address| address.fails_at_tls),
            };
        }
        if let Some(problem) = &server.check_problem {
            return State::Unhealthy(problem.clone());
        }
        let silent = addresses.iter().find(|one| is_silent(before, one));
        match silent {
            Some(one) => State::Silent {
                address: one.address.clone(),
                active: one.active,
                seconds: one.seconds_unanswered as u64,
            },
            None if server.is_drained => State::Drained,
            None if addresses.iter().any(|address| address.is_used) => State::Ok,
            None => State::Unused,
        }
    }

    fn of_servers<'a>(states: impl Iterator<Item = &'a State>) -> State {
        let states: Vec<_> = states.collect();
        let down = states.iter().filter(|state| state.is_problem()).count();
        match down {
            0 if states.iter().all(|state| **state == State::Unused) => State::Unused,
            0 => State::Ok,
            _ => State::Servers {
                down,
                servers: states.len(),
            },
        }
    }

    fn is_problem(&self) -> bool {
        !matches!(self, State::Ok | State::Unused | State::Drained)
    }

    /// Whether requests cannot be sent to the server.
    pub(crate) fn is_down(&self) -> bool {
        match self {
            State::Unresolved(_) | State::Unhealthy(_) => true,
            State::Unreachable {
                failed, addresses, ..
            } => failed.len() == *addresses,
            State::Servers { down, servers } => down == servers,
            State::Ok | State::Unused | State::Drained | State::Silent { .. } => false,
        }
    }
}

/// Whether connections to an address wait for responses, and none has come for long. Downloads and tunnels have had
/// theirs.
fn is_silent(before: Option<&Server>, address: &Address) -> bool {
    let was_active = before.is_some_and(|server| {
        let mut all = server.addresses.iter();
        all.any(|one| one.address == address.address && one.active > 0)
    });
    let connections_min = if was_active { 1 } else { SILENT_CONNECTIONS };
    address.active >= connections_min
        && address.unanswered >= SILENT_REQUESTS
        && address.seconds_unanswered >= SILENT_SECONDS
}

impl Upstream {
    /// Those that need attention come first.
    fn rank(&self) -> u8 {
        match &self.state {
            Some(state) if state.is_down() => 0,
            Some(state) if state.is_problem() => 1,
            _ if self.is_failing() => 1,
            Some(State::Unused) => 3,
            _ => 2,
        }
    }

    /// Whether too many of its own requests fail.
    pub(crate) fn is_failing(&self) -> bool {
        let are_own = !(self.is_server && self.is_shared);
        let requests = self.requests.filter(|_| are_own);
        requests.is_some_and(|requests| requests.failed > FAILING)
    }
}

/// The upstreams of the configuration in its order, those with a problem first. A server follows each upstream that it
/// belongs to.
pub(super) fn upstreams(
    earlier: Option<&[Server]>,
    servers: &[Server],
    (before, after): (Option<&Exposition>, &Exposition),
    seconds: f64,
) -> Vec<Upstream> {
    let mut requests = requests(before, after, seconds);
    let mut groups: Vec<(Option<&str>, Vec<Upstream>)> = Vec::new();
    for server in servers {
        if server.is_used_alone || server.names.is_empty() {
            let mut row = row(earlier, server, seconds);
            row.requests = requests.remove(&*server.url);
            groups.push((None, vec![row]));
        }
        for name in &server.names {
            let row = Upstream {
                is_server: true,
                ..row(earlier, server, seconds)
            };
            let name = Some(name.as_str());
            match groups.iter_mut().find(|(known, _)| *known == name) {
                Some((_, rows)) => rows.push(row),
                None => groups.push((name, vec![row])),
            }
        }
    }
    for (name, rows) in &mut groups {
        rows.sort_by_key(Upstream::rank);
        if let Some(name) = name {
            let states = rows.iter().filter_map(|row| row.state.as_ref());
            let upstream = Upstream {
                name: (*name).to_owned(),
                state: Some(State::of_servers(states)),
                requests: requests.remove(name),
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

/// A server with its attempts.
fn row(earlier: Option<&[Server]>, server: &Server, seconds: f64) -> Upstream {
    let before = earlier.and_then(|all| all.iter().find(|one| one.url == server.url));
    let addresses = times(earlier, server);
    let change = server.change.as_ref();
    Upstream {
        name: server.url.clone(),
        is_server: false,
        is_shared: server.names.len() + usize::from(server.is_used_alone) > 1,
        state: Some(State::of(before, server)),
        active: Some(server.addresses.iter().map(|address| address.active).sum()),
        idle: Some(server.addresses.iter().map(|address| address.idle).sum()),
        requests: Some(AddressTimes::responses(&addresses, seconds)),
        change: change.map(|change| Change::of(server, change)),
        addresses,
    }
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
        /// Those with a response, and the seconds until its head.
        responses: f64,
        time: f64,
    }
    const NAME: &str = "http_client_request_duration_seconds";
    let mut sums: BTreeMap<&str, Sums> = BTreeMap::new();
    for (sample, count) in grown(before, after, &format!("{NAME}_bucket")) {
        if let Ok(bound) = sample.label("le").parse() {
            let sums = sums.entry(sample.label("upstream")).or_default();
            sums.buckets.add(bound, count);
        }
    }
    let has_response = |sample: &Sample| !matches!(sample.label("status"), "" | "none");
    for (sample, count) in grown(before, after, &format!("{NAME}_count")) {
        let sums = sums.entry(sample.label("upstream")).or_default();
        let is_failed = match sample.label("error_type") {
            // The client caused the end.
            "abandoned" => false,
            "" => sample.label("status") == "5xx",
            _ => true,
        };
        sums.count += count;
        sums.failed += if is_failed { count } else { 0.0 };
        sums.responses += if has_response(sample) { count } else { 0.0 };
    }
    for (sample, time) in grown(before, after, &format!("{NAME}_sum")) {
        if has_response(sample) {
            sums.entry(sample.label("upstream")).or_default().time += time;
        }
    }
    let responses = sums.into_iter().map(|(upstream, sums)| {
        let responses = Responses {
            rate: sums.count / seconds,
            latency: sums.buckets.latency(),
            mean: (sums.responses > 0.0).then(|| sums.time / sums.responses),
            failed: sums.failed / sums.count.max(1.0),
        };
        (upstream, responses)
    });
    responses.collect()
}

#[cfg(test)]
mod tests {
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
    fn a_server_is_down_by_its_checks_or_drained() {
        let mut one = server("http://b:1", &["app"], false);
        one.is_drained = true;
        assert_eq!(State::of(None, &one), State::Drained);
        assert!(!State::Drained.is_problem() && !State::Drained.is_down());
        one.check_problem = Some("connection refused".to_owned());
        let unhealthy = State::Unhealthy("connection refused".to_owned());
        assert_eq!(State::of(None, &one), unhealthy);
        assert!(unhealthy.is_problem() && unhealthy.is_down());
        let both = State::of_servers([&unhealthy, &State::Ok].into_iter());
        assert_eq!(
            both,
            State::Servers {
                down: 1,
                servers: 2
            }
        );
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
            failed: vec![String::new()],
            addresses: 1,
            at_tls: false,
        };
        assert_eq!(
            (&rows[1].state, rows[1].active, rows[1].idle),
            (&Some(down), Some(1), Some(2))
        );
    }

    #[test]
    fn a_server_of_several_upstreams_is_one_of_each() {
        let mut shared = server("http://a:1", &["pool", "other"], false);
        shared.is_used_alone = true;
        shared.addresses[0].requests = 9;
        shared.addresses[0].failures = 6;
        let servers = [
            shared,
            server("http://a:2", &["pool"], false),
            server("http://a:3", &["other"], true),
        ];
        let name = "http_client_request_duration_seconds";
        let after = format!(
            "{name}_count{{upstream=\"pool\",status=\"2xx\"}} 4\n{name}_sum{{upstream=\"pool\",status=\"2xx\"}} 2\n\
             {name}_count{{upstream=\"http://a:1\",status=\"5xx\"}} 6\n# EOF\n"
        );
        let (before, after) = (Exposition::default(), Exposition::parse(&after).unwrap());
        let rows = upstreams(Some(&[]), &servers, (Some(&before), &after), 2.0);
        let seen: Vec<_> = rows
            .iter()
            .map(|row| (&*row.name, row.is_server, row.is_shared, row.is_failing()))
            .collect();
        assert_eq!(
            seen,
            [
                ("other", false, false, false),
                ("http://a:3", true, false, false),
                ("http://a:1", true, true, false),
                ("http://a:1", false, true, true),
                ("pool", false, false, false),
                ("http://a:1", true, true, false),
                ("http://a:2", true, false, false),
            ]
        );
        let down = State::Servers {
            down: 1,
            servers: 2,
        };
        assert_eq!(
            (&rows[0].state, &rows[4].state),
            (&Some(down), &Some(State::Ok))
        );
        let mean = |row: &Upstream| row.requests.and_then(|requests| requests.mean);
        assert_eq!((mean(&rows[4]), mean(&rows[3])), (Some(0.5), Some(0.0)));
    }

    #[test]
    fn connections_that_wait_without_a_response_are_a_state() {
        let waiting = |active, unanswered, seconds_unanswered| {
            let mut server = server("http://a:1", &[], false);
            server.addresses[0] = Address {
                active,
                unanswered,
                seconds_unanswered,
                is_used: true,
                ..Address::default()
            };
            server
        };
        let silent = |before: Option<&Server>, server: &Server| {
            matches!(State::of(before, server), State::Silent { .. })
        };
        let before = waiting(1, 1, 5.0);
        assert!(silent(None, &waiting(17, 17, 12.0)));
        assert!(silent(Some(&before), &waiting(2, 2, 12.0)));
        assert!(!silent(None, &waiting(2, 2, 12.0)), "one reading");
        assert!(
            !silent(Some(&before), &waiting(17, 17, 9.0)),
            "not for long"
        );
        assert!(!silent(Some(&before), &waiting(17, 0, 0.0)), "downloads");
        assert!(
            !silent(Some(&before), &waiting(1, 1, 30.0)),
            "one slow request"
        );
        assert!(
            !silent(Some(&before), &waiting(0, 9, 30.0)),
            "its clients left"
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
            assert_eq!(
                (State::of(None, &server), state.is_down()),
                (state, is_down)
            );
        }
        let mut server = server("u", &[], true);
        assert!(State::of(None, &server).is_down());
        server.addresses.push(Address::default());
        assert!(!State::of(None, &server).is_down());
    }
}
