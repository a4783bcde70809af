//! The metrics of requests: the series of all cores, summed by the texts of their labels.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use blitz_site::metrics::{
    Exemplar, HISTOGRAM_LINES, Histogram, ROUTE_SERIES_MIN, ROUTE_SHARE, Series, SeriesKey,
};

use super::family::{Families, Measured, Value};
use super::labels::{LabelTexts, OTHER};

/// Lines that are kept for the requests without series of their own: those of a histogram for each class, on both
/// sides, and the bytes of both directions.
const RESERVED_LINES: usize = 6 * (2 * HISTOGRAM_LINES + CONTENT_LINES);

/// Bytes received and sent.
const CONTENT_LINES: usize = 2;

/// The labels of a series towards clients.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Server {
    route: Arc<str>,
    method: &'static str,
    scheme: &'static str,
    status: &'static str,
    version: &'static str,
}

/// The labels of a series towards an upstream.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Client {
    server: Server,
    upstream: Arc<str>,
    error_type: &'static str,
}

/// The labels of bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Content {
    route: Arc<str>,
    status: &'static str,
}

/// The labels that have series of their own. A series that was exposed once stays: otherwise its counts would move to
/// another one.
pub(super) struct Accepted {
    lines_max: usize,
    lines: usize,
    /// Those of the histograms of each route.
    by_route: HashMap<Arc<str>, usize>,
    servers: HashSet<Server>,
    clients: HashSet<Client>,
    contents: HashSet<Content>,
}

impl Accepted {
    /// At most so many lines have labels of their own, or are for all other requests.
    pub(super) fn new(lines_max: usize) -> Accepted {
        Accepted {
            lines_max: lines_max.saturating_sub(RESERVED_LINES),
            lines: 0,
            by_route: HashMap::new(),
            servers: HashSet::new(),
            clients: HashSet::new(),
            contents: HashSet::new(),
        }
    }

    fn has_room(&mut self, lines: usize) -> bool {
        let has_room = self.lines + lines <= self.lines_max;
        self.lines += if has_room { lines } else { 0 };
        has_room
    }

    /// As [`has_room`](Accepted::has_room), for a histogram of a route.
    fn has_room_for(&mut self, route: &Arc<str>) -> bool {
        let has_room = self.has_room(HISTOGRAM_LINES);
        if has_room {
            *self.by_route.entry(Arc::clone(route)).or_default() += HISTOGRAM_LINES;
        }
        has_room
    }

    /// Whether a route has so many lines that the free ones are for others. Cores have the same rule, but each of them
    /// may have other series of the route.
    fn has_many(&self, route: &Arc<str>) -> bool {
        let free = self.lines_max - self.lines;
        let own = self.by_route.get(route).copied().unwrap_or_default();
        // On both sides.
        let least = 2 * ROUTE_SERIES_MIN * HISTOGRAM_LINES;
        free <= self.lines_max / 2 && own >= (free / ROUTE_SHARE).max(least)
    }

    /// The labels themselves, if they have a series of their own.
    fn server(&mut self, labels: Server) -> Server {
        if self.servers.contains(&labels) {
            return labels;
        }
        if !labels.is_merged() && !labels.is_other() && self.has_many(&labels.route) {
            return self.server(labels.merged());
        }
        if labels.is_other() || !self.has_room_for(&labels.route) {
            return Server::other(labels.status);
        }
        self.servers.insert(labels.clone());
        labels
    }

    fn client(&mut self, labels: Client) -> Client {
        if self.clients.contains(&labels) {
            return labels;
        }
        let server = &labels.server;
        if !labels.is_merged() && !server.is_other() && self.has_many(&server.route) {
            return self.client(labels.merged());
        }
        if labels.server.is_other() || !self.has_room_for(&labels.server.route) {
            return Client::other(labels.server.status);
        }
        self.clients.insert(labels.clone());
        labels
    }

    fn content(&mut self, labels: Content) -> Content {
        if self.contents.contains(&labels) {
            return labels;
        }
        if &*labels.route == OTHER || !self.has_room(CONTENT_LINES) {
            return Content {
                route: OTHER.into(),
                status: labels.status,
            };
        }
        self.contents.insert(labels.clone());
        labels
    }
}

impl Server {
    fn of(key: SeriesKey, texts: &LabelTexts) -> Server {
        Server {
            route: Arc::clone(&texts.route),
            method: key.method(),
            scheme: key.scheme(),
            status: key.status(),
            version: key.version(),
        }
    }

    /// Of those labels the class of the status is left.
    fn other(status: &'static str) -> Server {
        Server {
            route: OTHER.into(),
            method: "_OTHER",
            scheme: OTHER,
            status,
            version: OTHER,
        }
    }

    /// Of those labels the route and the class of the status are left.
    fn merged(self) -> Server {
        Server {
            method: "_OTHER",
            scheme: OTHER,
            version: OTHER,
            ..self
        }
    }

    fn is_merged(&self) -> bool {
        self.version == OTHER
    }

    fn is_other(&self) -> bool {
        &*self.route == OTHER
    }

    fn labels(&self) -> Vec<(&'static str, String)> {
        vec![
            ("route", self.route.to_string()),
            ("method", self.method.to_owned()),
            ("scheme", self.scheme.to_owned()),
            ("status", self.status.to_owned()),
            ("version", self.version.to_owned()),
        ]
    }
}

impl Client {
    fn other(status: &'static str) -> Client {
        Client {
            server: Server::other(status),
            upstream: OTHER.into(),
            error_type: "",
        }
    }

    fn merged(self) -> Client {
        Client {
            server: self.server.merged(),
            error_type: "",
            ..self
        }
    }

    fn is_merged(&self) -> bool {
        self.server.is_merged() && self.error_type.is_empty()
    }

    /// A label without text is left out.
    fn labels(&self) -> Vec<(&'static str, String)> {
        let mut labels = self.server.labels();
        labels.push(("upstream", self.upstream.to_string()));
        if !self.error_type.is_empty() {
            labels.push(("error_type", self.error_type.to_owned()));
        }
        labels
    }
}

/// The sums of all cores.
#[derive(Default)]
struct Sums {
    servers: BTreeMap<Server, Measured>,
    clients: BTreeMap<Client, Measured>,
    /// Received, sent.
    contents: BTreeMap<Content, [u64; 2]>,
}

impl Sums {
    fn add(
        &mut self,
        accepted: &mut Accepted,
        texts: &LabelTexts,
        (key, series): &(SeriesKey, Series),
    ) {
        let labels = Server::of(*key, texts);
        let content = accepted.content(Content {
            route: Arc::clone(&texts.route),
            status: key.status(),
        });
        let bytes = self.contents.entry(content).or_default();
        bytes[0] += series.request_bytes;
        bytes[1] += series.response_bytes;
        if let Some(histogram) = &series.client {
            let client = accepted.client(Client {
                server: Server {
                    status: key.upstream_status(),
                    ..labels.clone()
                },
                upstream: texts.upstream.clone().unwrap_or_else(|| OTHER.into()),
                error_type: key.error_type().unwrap_or_default(),
            });
            add(&mut self.clients, client, histogram, None);
        }
        let exemplar = series.exemplar.as_deref();
        let server = accepted.server(labels);
        add(&mut self.servers, server, &series.server, exemplar);
    }
}

fn add<L: Ord>(
    sums: &mut BTreeMap<L, Measured>,
    labels: L,
    histogram: &Histogram,
    exemplar: Option<&Exemplar>,
) {
    match sums.get_mut(&labels) {
        Some(sum) => sum.add(histogram, exemplar),
        None => {
            let first = Measured {
                histogram: histogram.clone(),
                exemplar: exemplar.cloned().map(Box::new),
            };
            sums.insert(labels, first);
        }
    }
}

/// Adds the metrics of requests.
pub(super) fn add_requests<'s>(
    families: &mut Families,
    accepted: &mut Accepted,
    texts: &[LabelTexts],
    series: impl Iterator<Item = &'s (SeriesKey, Series)>,
) {
    let mut sums = Sums::default();
    for one in series {
        // A snapshot that was made just now may have new texts.
        let number = one.0.label().number();
        let texts = texts.get(number).unwrap_or(&texts[0]);
        sums.add(accepted, texts, one);
    }
    let others = sums.servers.iter().filter(|(labels, _)| labels.is_other());
    let merged = others.map(|(_, sum)| sum.histogram.count()).sum();
    let histograms = sums.servers.len() + sums.clients.len();
    let bytes = sums.contents.values().flatten();
    let lines = histograms * HISTOGRAM_LINES + bytes.filter(|bytes| **bytes > 0).count();
    for (labels, histogram) in sums.servers {
        let value = Value::Histogram(Box::new(histogram));
        families.add(
            "http_server_request_duration_seconds",
            labels.labels(),
            value,
        );
    }
    for (labels, histogram) in sums.clients {
        let value = Value::Histogram(Box::new(histogram));
        families.add(
            "http_client_request_duration_seconds",
            labels.labels(),
            value,
        );
    }
    for (name, direction) in [
        ("blitz_request_content_bytes", 0),
        ("blitz_response_content_bytes", 1),
    ] {
        for (Content { route, status }, bytes) in &sums.contents {
            let labels = vec![
                ("route", route.to_string()),
                ("status", (*status).to_owned()),
            ];
            families.count_with(name, labels, bytes[direction]);
        }
    }
    families.gauge("blitz_metrics_series", lines as f64);
    families.count("blitz_metrics_merged_requests", merged);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(route: &str) -> Server {
        Server {
            route: route.into(),
            method: "GET",
            scheme: "http",
            status: "2xx",
            version: "1.1",
        }
    }

    #[test]
    fn labels_that_had_a_series_keep_it() {
        let mut accepted = Accepted::new(RESERVED_LINES + 2 * HISTOGRAM_LINES);
        for _ in 0..2 {
            assert_eq!(accepted.server(server("a/")), server("a/"));
            assert_eq!(accepted.server(server("b/")), server("b/"));
            assert_eq!(accepted.server(server("c/")), Server::other("2xx"));
        }
        assert_eq!(accepted.lines, 2 * HISTOGRAM_LINES);
    }

    #[test]
    fn a_route_with_many_lines_leaves_some_to_later_ones() {
        const METHODS: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];
        let mut accepted = Accepted::new(RESERVED_LINES + 200 * HISTOGRAM_LINES);
        let mut shown = HashSet::new();
        for route in ["a/", "b/", "c/", "d/", "e/", "f/", "g/"] {
            for method in METHODS {
                for version in ["1.0", "1.1", "2"] {
                    for status in ["none", "2xx", "4xx"] {
                        let labels = Server {
                            method,
                            version,
                            status,
                            ..server(route)
                        };
                        shown.insert(accepted.server(labels));
                    }
                }
            }
        }
        assert!(shown.iter().all(|labels| !labels.is_other()));
        assert!(
            accepted.lines <= 180 * HISTOGRAM_LINES,
            "{}",
            accepted.lines
        );
        assert_eq!(accepted.server(server("h/")), server("h/"));
        let merged = accepted.server(Server {
            method: "TRACE",
            ..server("a/")
        });
        assert_eq!(merged, server("a/").merged());
    }

    #[test]
    fn below_the_reserve_no_request_has_a_series_of_its_own() {
        let mut accepted = Accepted::new(RESERVED_LINES - 1);
        assert_eq!(accepted.server(server("a/")), Server::other("2xx"));
        let client = Client {
            server: server("a/"),
            upstream: "http://u:1".into(),
            error_type: "",
        };
        assert_eq!(accepted.client(client), Client::other("2xx"));
    }
}
