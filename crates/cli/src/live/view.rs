//! The state of a process between two readings.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::causes::{Cause, causes};
use super::clients::Client;
use super::exposition::{Exposition, Sample};
use super::failures::{RecentFailure, failures};
use super::latency::{Buckets, Latency};
use super::reading::{Certificate, Reading};
use super::upstreams::{Upstream, upstreams};

/// The classes of statuses. Requests without a response are the last one.
pub(crate) const CLASSES: [&str; 5] = ["2xx", "3xx", "4xx", "5xx", "none"];

/// A process between two readings. Rates are per second.
#[derive(Debug, Default)]
pub(crate) struct View {
    pub(crate) version: String,
    /// Seconds since the start of the process.
    pub(crate) uptime: Option<f64>,
    pub(crate) cores: f64,
    /// Cores that do not answer.
    pub(crate) cores_absent: f64,
    /// Whether a signal ends the process: then it accepts no connections, and cores end one after another.
    pub(crate) is_draining: bool,
    pub(crate) configuration: Configuration,
    /// Between the readings; `None` if there is one only, which has no rates.
    pub(crate) window: Option<Duration>,
    pub(crate) total: Traffic,
    /// Bytes of content from clients and to clients.
    pub(crate) received: f64,
    pub(crate) sent: f64,
    pub(crate) now: Now,
    /// Routes with requests in the window.
    pub(crate) routes: Vec<Route>,
    pub(crate) upstreams: Vec<Upstream>,
    /// Those that occurred last come first.
    pub(crate) failures: Vec<RecentFailure>,
    /// Those that need the most come first.
    pub(crate) clients: Vec<Client>,
    pub(crate) causes: Vec<Cause>,
    /// The first to expire comes first.
    pub(crate) certificates: Vec<Certificate>,
}

/// The configuration in use.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Configuration {
    pub(crate) generation: f64,
    /// Whether the last reload was successful; `None` before the first.
    pub(crate) is_reload_successful: Option<bool>,
    /// Seconds since the last reload.
    pub(crate) reloaded: Option<f64>,
}

/// The state at the second reading.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Now {
    pub(crate) connections: f64,
    /// Those of which a part of a head has come.
    pub(crate) reading_head: f64,
    pub(crate) requests: f64,
    /// Bytes. These four are `None` if the process cannot tell.
    pub(crate) memory: Option<f64>,
    /// Processors in use.
    pub(crate) processors: Option<f64>,
    pub(crate) descriptors: Option<f64>,
    pub(crate) descriptors_max: Option<f64>,
    pub(crate) fullest: Option<FullestCore>,
    /// The most sockets of a core.
    pub(crate) sockets_max: f64,
    /// Bytes that the core with the least can receive before it reaches its limit.
    pub(crate) memory_available: Option<f64>,
}

/// More connections that wait for the rest of a head are a warning, if they are as many times the requests.
const READING_HEAD_HIGH: f64 = 100.0;
const READING_HEAD_TIMES: f64 = 10.0;
/// The core that has the most open sockets.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct FullestCore {
    pub(crate) core: String,
    pub(crate) sockets: f64,
}

/// More than this share of the descriptors or the sockets is a warning.
const DESCRIPTORS_HIGH: f64 = 0.9;

impl Now {
    pub(crate) fn lacks_descriptors(&self) -> bool {
        let both = self.descriptors.zip(self.descriptors_max);
        both.is_some_and(|(open, max)| open > max * DESCRIPTORS_HIGH)
    }

    /// Many connections bring no request.
    pub(crate) fn has_many_incomplete_heads(&self) -> bool {
        self.reading_head > READING_HEAD_HIGH
            && self.reading_head > self.requests * READING_HEAD_TIMES
    }

    pub(crate) fn lacks_sockets(&self) -> bool {
        let sockets = self.fullest.as_ref().map_or(0.0, |core| core.sockets);
        self.sockets_max > 0.0 && sockets > self.sockets_max * DESCRIPTORS_HIGH
    }
}

/// Requests that have ended.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Traffic {
    pub(crate) count: f64,
    pub(crate) rate: f64,
    pub(crate) latency: Latency,
    /// Shares of the count, in the order of [`CLASSES`].
    pub(crate) classes: [f64; CLASSES.len()],
}

/// A route of a site.
#[derive(Debug, PartialEq)]
pub(crate) struct Route {
    pub(crate) name: String,
    pub(crate) traffic: Traffic,
}

/// An order of routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Routes {
    #[default]
    Slowest,
    Busiest,
    /// By the share of requests with a 5xx, or without a response.
    Failing,
}

impl View {
    pub(crate) fn new(before: Option<&Reading>, after: &Reading) -> View {
        let window = before.map(|before| after.at.saturating_sub(before.at));
        let window = window.filter(|window| !window.is_zero());
        let earlier = window.and(before).map(|before| &before.metrics);
        // Without a window nothing has grown.
        let seconds = window.map_or(1.0, |window| window.as_secs_f64());
        let metrics = &after.metrics;
        let value = |name: &str| metrics.sum(name).unwrap_or_default();
        let rate = |name: &str| {
            let grown = grown(earlier, metrics, name).map(|(_, grown)| grown);
            // The sum of nothing is -0.
            (0.0 + grown.sum::<f64>()) / seconds
        };
        let since = |name: &str| {
            let moment = metrics.sum(name);
            moment.map(|moment| (after.unix_time - moment).max(0.0))
        };
        let of_cores = |name: &str| metrics.samples(name).iter().map(|sample| sample.value);
        let build = metrics.samples("blitz_build_info").first();
        let (total, routes) = traffic(earlier, metrics, seconds);
        View {
            version: build.map_or("", |build| build.label("version")).to_owned(),
            uptime: since("process_start_time_seconds"),
            cores: value("blitz_cores"),
            cores_absent: value("blitz_cores_absent"),
            is_draining: metrics.sum("blitz_ready") == Some(0.0),
            configuration: Configuration {
                generation: value("blitz_configuration_generation"),
                is_reload_successful: metrics
                    .sum("blitz_configuration_last_reload_successful")
                    .map(|value| value > 0.0),
                reloaded: since("blitz_configuration_last_reload_timestamp_seconds"),
            },
            window,
            total,
            received: rate("blitz_request_content_bytes_total"),
            sent: rate("blitz_response_content_bytes_total"),
            now: Now {
                connections: value("blitz_connections"),
                reading_head: value("blitz_connections_reading_head"),
                requests: value("blitz_requests_in_flight"),
                memory: metrics.sum("process_resident_memory_bytes"),
                processors: processors(earlier, metrics, seconds),
                descriptors: metrics.sum("process_open_fds"),
                descriptors_max: metrics.sum("process_max_fds"),
                fullest: fullest(metrics),
                sockets_max: value("blitz_sockets_max"),
                memory_available: of_cores("blitz_memory_available_bytes").reduce(f64::min),
            },
            routes,
            upstreams: upstreams(
                earlier.and(before).map(|before| &before.upstreams[..]),
                &after.upstreams,
                (earlier, metrics),
                seconds,
            ),
            failures: failures(
                window.and(before).map(|before| &*before.failures),
                &after.failures,
            ),
            clients: after.clients.clone(),
            causes: causes(earlier, metrics),
            certificates: after.certificates.clone(),
        }
    }

    /// The routes in an order.
    pub(crate) fn routes(&self, order: Routes) -> Vec<&Route> {
        let mut routes: Vec<_> = self.routes.iter().collect();
        routes.sort_by(|a, b| {
            let (a, b) = (&a.traffic, &b.traffic);
            let first = match order {
                Routes::Slowest => b.latency.p99.partial_cmp(&a.latency.p99),
                Routes::Busiest => None,
                Routes::Failing => b.failed().partial_cmp(&a.failed()),
            };
            first
                .unwrap_or(std::cmp::Ordering::Equal)
                .then(b.rate.total_cmp(&a.rate))
        });
        routes
    }
}

impl Traffic {
    /// The share with a 5xx, or without a response.
    pub(crate) fn failed(&self) -> f64 {
        let [.., server_errors, none] = self.classes;
        server_errors + none
    }
}

/// Requests of one kind, before their shares are known.
#[derive(Default)]
struct Sums {
    buckets: Buckets,
    count: f64,
    classes: [f64; CLASSES.len()],
}

impl Sums {
    fn count(&mut self, status: &str, count: f64) {
        self.count += count;
        // Tunnels over HTTP/1.1 have 1xx.
        if let Some(class) = CLASSES.iter().position(|class| *class == status) {
            self.classes[class] += count;
        }
    }

    fn traffic(self, seconds: f64) -> Traffic {
        Traffic {
            count: self.count,
            rate: self.count / seconds,
            latency: self.buckets.latency(),
            classes: self.classes.map(|count| count / self.count.max(1.0)),
        }
    }
}

/// Processors in use, if both readings tell the time in use.
fn processors(before: Option<&Exposition>, after: &Exposition, seconds: f64) -> Option<f64> {
    let used = |metrics: &Exposition| metrics.sum("process_cpu_seconds_total");
    let more = used(after)? - used(before?)?;
    Some(more.max(0.0) / seconds)
}

fn fullest(metrics: &Exposition) -> Option<FullestCore> {
    let cores = metrics.samples("blitz_sockets_open").iter();
    let fullest = cores.max_by(|one, other| one.value.total_cmp(&other.value))?;
    Some(FullestCore {
        core: fullest.label("core").to_owned(),
        sockets: fullest.value,
    })
}

/// All requests of the window, and those of each route.
fn traffic(before: Option<&Exposition>, after: &Exposition, seconds: f64) -> (Traffic, Vec<Route>) {
    let mut total = Sums::default();
    let mut routes: BTreeMap<&str, Sums> = BTreeMap::new();
    for (sample, count) in grown(before, after, "http_server_request_duration_seconds_bucket") {
        let Ok(bound) = sample.label("le").parse() else {
            continue;
        };
        if is_tunnel(sample) {
            continue;
        }
        total.buckets.add(bound, count);
        let route = routes.entry(sample.label("route")).or_default();
        route.buckets.add(bound, count);
    }
    for (sample, count) in grown(before, after, "http_server_request_duration_seconds_count") {
        let status = sample.label("status");
        total.count(status, count);
        routes
            .entry(sample.label("route"))
            .or_default()
            .count(status, count);
    }
    let routes = routes.into_iter().filter(|(_, sums)| sums.count > 0.0);
    let routes = routes.map(|(name, sums)| Route {
        name: name.to_owned(),
        traffic: sums.traffic(seconds),
    });
    (total.traffic(seconds), routes.collect())
}

/// Whether it is about tunnels, such as WebSockets, which last as long as their users want.
fn is_tunnel(sample: &Sample) -> bool {
    sample.label("status") == "1xx" || sample.label("method") == "CONNECT"
}

/// The samples of a name, and by how much each has grown. Without an earlier exposition nothing has.
pub(super) fn grown<'a>(
    before: Option<&'a Exposition>,
    after: &'a Exposition,
    name: &str,
) -> impl Iterator<Item = (&'a Sample, f64)> {
    let earlier = before.map(|before| {
        let samples = before.samples(name).iter();
        let known = samples.map(|sample| (&sample.labels, sample.value));
        known.collect::<HashMap<_, _>>()
    });
    after.samples(name).iter().map(move |sample| {
        let grown = earlier.as_ref().map_or(0.0, |earlier| {
            // A counter that was not exposed was zero.
            sample.value - earlier.get(&sample.labels).copied().unwrap_or_default()
        });
        (sample, grown.max(0.0))
    })
}

#[cfg(test)]
mod tests {
    use super::super::latency::Quantile;
    use super::super::reading::Answers;
    use super::*;

    const EARLIER: &str = r#"process_start_time_seconds 1000
process_cpu_seconds_total 10
http_server_request_duration_seconds_bucket{route="a/",status="2xx",le="0.001"} 100
http_server_request_duration_seconds_bucket{route="a/",status="2xx",le="+Inf"} 100
http_server_request_duration_seconds_count{route="a/",status="2xx"} 100
# EOF
"#;

    const LATER: &str = r#"process_start_time_seconds 1000
process_cpu_seconds_total 11.5
process_resident_memory_bytes 5e7
blitz_build_info{version="0.1.0",revision="abc"} 1
blitz_cores 2
blitz_connections{core="0"} 3
blitz_connections{core="1"} 4
blitz_requests_in_flight{core="0"} 1
blitz_configuration_generation 2
blitz_configuration_last_reload_successful 0
blitz_configuration_last_reload_timestamp_seconds 1050
blitz_response_content_bytes_total{route="a/",status="2xx"} 4000
http_server_request_duration_seconds_bucket{route="a/",status="2xx",le="0.001"} 108
http_server_request_duration_seconds_bucket{route="a/",status="2xx",le="+Inf"} 108
http_server_request_duration_seconds_count{route="a/",status="2xx"} 108
http_server_request_duration_seconds_bucket{route="b/",status="5xx",le="0.001"} 0
http_server_request_duration_seconds_bucket{route="b/",status="5xx",le="+Inf"} 1
http_server_request_duration_seconds_count{route="b/",status="5xx"} 1
http_server_request_duration_seconds_bucket{route="b/",status="none",le="0.001"} 1
http_server_request_duration_seconds_bucket{route="b/",status="none",le="+Inf"} 1
http_server_request_duration_seconds_count{route="b/",status="none"} 1
# EOF
"#;

    fn reading(seconds: u64, text: &str) -> Reading {
        Reading::new(
            Duration::from_secs(seconds),
            1060.0,
            Answers::of_metrics(text),
        )
        .unwrap()
    }

    #[test]
    fn rates_and_latencies_are_those_between_the_readings() {
        let view = View::new(Some(&reading(5, EARLIER)), &reading(7, LATER));
        assert_eq!(view.window, Some(Duration::from_secs(2)));
        assert_eq!((view.total.count, view.total.rate), (10.0, 5.0));
        assert_eq!(view.total.classes, [0.8, 0.0, 0.0, 0.1, 0.1]);
        assert_eq!(
            view.total.latency.p50,
            Some(Quantile::At(0.001 * 5.0 / 9.0))
        );
        assert_eq!(view.total.latency.p99, Some(Quantile::Above(0.001)));
        assert_eq!((view.sent, view.received), (2000.0, 0.0));
        assert_eq!((view.version.as_str(), view.uptime), ("0.1.0", Some(60.0)));
        let configuration = Configuration {
            generation: 2.0,
            is_reload_successful: Some(false),
            reloaded: Some(10.0),
        };
        assert_eq!(view.configuration, configuration);
        let now = Now {
            connections: 7.0,
            requests: 1.0,
            memory: Some(5e7),
            processors: Some(0.75),
            ..Now::default()
        };
        assert_eq!(view.now, now);
    }

    #[test]
    fn routes_have_an_order() {
        let view = View::new(Some(&reading(0, EARLIER)), &reading(1, LATER));
        let names = |order| {
            let routes = view.routes(order);
            routes
                .iter()
                .map(|route| route.name.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(Routes::Busiest), ["a/", "b/"]);
        assert_eq!(names(Routes::Slowest), ["b/", "a/"]);
        assert_eq!(names(Routes::Failing), ["b/", "a/"]);
        assert_eq!(view.routes(Routes::Failing)[0].traffic.failed(), 1.0);
    }

    #[test]
    fn tunnels_have_no_latency() {
        let name = "http_server_request_duration_seconds";
        for labels in ["status=\"1xx\"", "method=\"CONNECT\",status=\"2xx\""] {
            let text = format!(
                "{name}_bucket{{{labels},le=\"+Inf\"}} 5\n{name}_count{{{labels}}} 5\n# EOF\n"
            );
            let view = View::new(Some(&reading(0, "# EOF\n")), &reading(1, &text));
            assert_eq!(
                (view.total.count, view.total.latency),
                (5.0, Latency::default())
            );
        }
    }

    #[test]
    fn one_reading_has_no_rates() {
        let view = View::new(None, &reading(0, LATER));
        assert_eq!(
            (view.window, view.total.count, view.total.rate),
            (None, 0.0, 0.0)
        );
        assert!(view.routes.is_empty());
        assert_eq!((view.now.connections, view.now.processors), (7.0, None));
        // Nor have two of the same moment.
        let view = View::new(Some(&reading(0, EARLIER)), &reading(0, LATER));
        assert_eq!((view.window, view.total.rate), (None, 0.0));
    }
}
