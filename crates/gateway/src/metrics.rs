//! The metrics of a running gateway: the counts of all cores, summed and written by the thread that asks.

mod catalogue;
mod collect;
mod counts;
mod family;
mod labels;
mod protobuf;
mod requests;
mod servers;
mod status;
mod text;

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use blitz_http::{Cores, CoresHandle, DriverKind};
use blitz_site::rate::RateStoreFacts;

use collect::Samples;
use family::{Families, Family, Value};
use requests::{Accepted, add_requests};
use servers::add_servers;

pub(crate) use labels::{Labels, hidden_urls};
pub(crate) use servers::ServerFacts;

pub use status::ConfigurationStatus;

/// Certificates that have samples: those that expire first.
const CERTIFICATES_MAX: usize = 1_000;

/// Reads the metrics of a gateway, from any thread. All clones are the same reader.
#[derive(Clone)]
pub struct MetricsReader {
    cores: CoresHandle,
    driver: DriverKind,
    sockets_max: usize,
    labels: Arc<Labels>,
    status: ConfigurationStatus,
    series_max: usize,
    build: [String; 2],
    servers: Arc<dyn Fn() -> Vec<ServerFacts> + Send + Sync>,
    process: Arc<dyn Fn() -> ProcessFacts + Send + Sync>,
    certificates: Arc<dyn Fn() -> Vec<(String, f64)> + Send + Sync>,
    exports: Arc<dyn Fn() -> ExportFacts + Send + Sync>,
    rate_store: Arc<dyn Fn() -> Option<RateStoreFacts> + Send + Sync>,
    /// One reading at a time.
    known: Arc<Mutex<Known>>,
}

/// The memory of a reader.
struct Known {
    samples: Samples,
    accepted: Accepted,
}

/// Facts of the process that its program knows, most of them from the operating system; `None` are not exposed.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ProcessFacts {
    /// Processor time in seconds.
    pub cpu_seconds: Option<f64>,
    /// Memory in use.
    pub resident_bytes: Option<u64>,
    /// Address space.
    pub virtual_bytes: Option<u64>,
    /// Open descriptors.
    pub open_files: Option<u64>,
    /// The most descriptors.
    pub files_max: Option<u64>,
    /// The start in Unix time.
    pub started_seconds: Option<f64>,
    /// Whether load balancers may send requests to it.
    pub is_ready: Option<bool>,
}

/// Spans and log records since the start: how many were exported, and how many were dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExportFacts {
    /// Of traces.
    pub spans: [u64; 2],
    /// Of requests.
    pub log_records: [u64; 2],
}

impl MetricsReader {
    pub(crate) fn new(
        cores: &Cores,
        labels: Arc<Labels>,
        status: ConfigurationStatus,
        series_max: usize,
    ) -> MetricsReader {
        let known = Known {
            samples: Samples::default(),
            accepted: Accepted::new(series_max),
        };
        MetricsReader {
            cores: cores.handle(),
            driver: cores.driver(),
            sockets_max: cores.sockets_hard_max(),
            labels,
            status,
            series_max,
            build: Default::default(),
            servers: Arc::new(Vec::new),
            process: Arc::new(ProcessFacts::default),
            certificates: Arc::new(Vec::new),
            exports: Arc::new(ExportFacts::default),
            rate_store: Arc::new(|| None),
            known: Arc::new(Mutex::new(known)),
        }
    }

    /// With the version and the revision of the program.
    #[must_use]
    pub fn with_build(mut self, version: &str, revision: &str) -> MetricsReader {
        self.build = [version.to_owned(), revision.to_owned()];
        self
    }

    /// With facts of the servers of upstreams, which each reading asks for.
    pub(crate) fn with_servers(
        mut self,
        servers: impl Fn() -> Vec<ServerFacts> + Send + Sync + 'static,
    ) -> MetricsReader {
        self.servers = Arc::new(servers);
        self
    }

    /// With facts of the process, which each reading asks for.
    #[must_use]
    pub fn with_process(
        mut self,
        process: impl Fn() -> ProcessFacts + Send + Sync + 'static,
    ) -> MetricsReader {
        self.process = Arc::new(process);
        self
    }

    /// With the names of certificates and their expiry in Unix time, which each reading asks for.
    #[must_use]
    pub fn with_certificates(
        mut self,
        certificates: impl Fn() -> Vec<(String, f64)> + Send + Sync + 'static,
    ) -> MetricsReader {
        self.certificates = Arc::new(certificates);
        self
    }

    /// With the state of the store of rate limits, which each reading asks for; `None` is none.
    #[must_use]
    pub fn with_rate_store(
        mut self,
        facts: impl Fn() -> Option<RateStoreFacts> + Send + Sync + 'static,
    ) -> MetricsReader {
        self.rate_store = Arc::new(facts);
        self
    }

    /// With the counts of an export of traces, which each reading asks for.
    #[must_use]
    pub fn with_exports(
        mut self,
        exports: impl Fn() -> ExportFacts + Send + Sync + 'static,
    ) -> MetricsReader {
        self.exports = Arc::new(exports);
        self
    }

    /// Asks all cores, and waits until they have answered: at most a second for each answer.
    #[must_use]
    pub fn read(&self) -> Exposition {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Known { samples, accepted } = &mut *known;
        samples.update(&self.cores);
        let mut families = Families::default();
        let cores = samples.cores.iter().enumerate();
        let cores = cores.filter_map(|(index, core)| Some((index, core.as_ref()?)));
        let series = cores.clone().flat_map(|(_, core)| &core.series);
        add_requests(&mut families, accepted, &self.labels.texts(), series);
        counts::add_counts(&mut families, cores, &self.cores.counters());
        add_servers(&mut families, &(self.servers)());
        self.add_facts(&mut families, samples.absent);
        Exposition {
            families: families.0,
        }
    }

    fn add_facts(&self, families: &mut Families, absent: usize) {
        let [version, revision] = self.build.clone();
        let build = vec![("version", version), ("revision", revision)];
        families.add("blitz_build_info", build, Value::Number(1.0));
        let driver = vec![("driver", self.driver.to_string())];
        families.add("blitz_io_driver_info", driver, Value::Number(1.0));
        families.gauge("blitz_cores", self.cores.count() as f64);
        families.gauge("blitz_cores_absent", absent as f64);
        families.gauge("blitz_sockets_max", self.sockets_max as f64);
        families.gauge("blitz_metrics_series_max", self.series_max as f64);
        families.count("blitz_log_lines_dropped", blitz_host::log::dropped_lines());
        let dropped = blitz_host::log::dropped_output_lines();
        families.count("blitz_access_log_lines_dropped", dropped);
        let ExportFacts { spans, log_records } = (self.exports)();
        for (name, count) in [
            ("blitz_trace_spans_exported", spans[0]),
            ("blitz_trace_spans_dropped", spans[1]),
            ("blitz_log_records_exported", log_records[0]),
            ("blitz_log_records_dropped", log_records[1]),
        ] {
            families.count(name, count);
        }
        let keys = blitz_site::key_fetches();
        families.count("blitz_jwt_key_fetches", keys.fetched);
        families.count("blitz_jwt_key_fetch_failures", keys.failed);
        families.gauge("blitz_jwt_key_sets_failing", keys.failing as f64);
        add_rate_store(families, (self.rate_store)());
        let generation = self.status.generation();
        families.gauge("blitz_configuration_generation", generation as f64);
        if let Some(last) = self.status.last_reload() {
            let is_successful = f64::from(u8::from(last.is_successful));
            families.gauge("blitz_configuration_last_reload_successful", is_successful);
            families.gauge(
                "blitz_configuration_last_reload_timestamp_seconds",
                last.ended,
            );
        }
        add_process(families, (self.process)());
        let mut certificates = (self.certificates)();
        certificates.sort_by(|(_, one), (_, other)| one.total_cmp(other));
        // Of several for the same name the first to expire has a sample.
        let mut names = HashSet::new();
        certificates.retain(|(name, _)| names.insert(name.clone()));
        for (name, expiry) in certificates.into_iter().take(CERTIFICATES_MAX) {
            let (labels, value) = (vec![("name", name)], Value::Number(expiry));
            families.add("blitz_certificate_expiry_timestamp_seconds", labels, value);
        }
    }
}

fn add_rate_store(families: &mut Families, facts: Option<RateStoreFacts>) {
    let Some(facts) = facts else { return };
    let is_up = f64::from(u8::from(facts.is_reachable));
    families.gauge("blitz_rate_limit_store_up", is_up);
    families.gauge("blitz_rate_limit_store_instances", facts.processes.into());
    families.count("blitz_rate_limit_store_tokens", facts.granted);
    families.count("blitz_rate_limit_store_exchanges", facts.exchanges);
    families.count("blitz_rate_limit_store_failures", facts.failures);
    families.gauge("blitz_rate_limit_store_exchange_seconds", facts.seconds);
}

fn add_process(families: &mut Families, facts: ProcessFacts) {
    let ProcessFacts {
        cpu_seconds,
        resident_bytes,
        virtual_bytes,
        open_files,
        files_max,
        started_seconds,
        is_ready,
    } = facts;
    let number = |count: Option<u64>| count.map(|count| count as f64);
    for (name, value) in [
        ("process_cpu_seconds", cpu_seconds),
        ("process_resident_memory_bytes", number(resident_bytes)),
        ("process_virtual_memory_bytes", number(virtual_bytes)),
        ("process_open_fds", number(open_files)),
        ("process_max_fds", number(files_max)),
        ("process_start_time_seconds", started_seconds),
        ("blitz_ready", is_ready.map(|it| f64::from(u8::from(it)))),
    ] {
        if let Some(value) = value {
            families.gauge(name, value);
        }
    }
}

impl fmt::Debug for MetricsReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MetricsReader")
    }
}

/// Metrics at one time, for all formats.
#[derive(Debug)]
pub struct Exposition {
    families: Vec<Family>,
}

impl Exposition {
    /// OpenMetrics 1.0: `application/openmetrics-text; version=1.0.0; charset=utf-8`. It has classic histograms.
    #[must_use]
    pub fn open_metrics(&self) -> String {
        text::write(&self.families)
    }

    /// The messages of Prometheus, with classic and native histograms:
    /// `application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited`.
    #[must_use]
    pub fn protobuf(&self) -> Vec<u8> {
        protobuf::write(&self.families)
    }
}
