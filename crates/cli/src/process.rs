//! Settings of the process, of a file or of flags, as the options of gateway, listeners, reactor and log.

use std::time::Duration;

use blitz_config::{Bytes, MessageLimits, Placed, Process, TimeLimit};
use blitz_gateway::Options;
use blitz_host::serving::{AltSvc, ListenerConfig};
use blitz_http::{Config, FOREVER, IoChoice, Limits, Pinning, ReservedDescriptors};
use tracing::level_filters::LevelFilter;

/// Descriptors for a moment, beside those of connections: of files that are read, of names that are resolved, of the
/// export of traces.
const DESCRIPTORS_OF_FILES: usize = 12;

/// The reactor's settings. So many connections of the control interface have their descriptors.
pub(crate) fn reactor(process: &Process, control_connections: usize) -> Config {
    let server = &process.server;
    Config {
        io: io(process),
        cores: value(&server.cores).map_or(0, |cores| *cores as usize),
        pin: match value(&server.pin).map(String::as_str) {
            Some("on") => Pinning::On,
            Some("off") => Pinning::Off,
            Some("numa") => Pinning::Numa,
            _ => Pinning::Auto,
        },
        reserved: ReservedDescriptors {
            process: DESCRIPTORS_OF_FILES + control_connections,
            core: 0,
        },
        ..Config::default()
    }
}

/// The driver that is asked for.
pub(crate) fn io(process: &Process) -> IoChoice {
    match value(&process.server.io).map(String::as_str) {
        Some("uring") => IoChoice::Uring,
        Some("epoll") => IoChoice::Epoll,
        _ => IoChoice::Auto,
    }
}

/// The least level of the log.
pub(crate) fn level(process: &Process) -> LevelFilter {
    match value(&process.log.level).map(String::as_str) {
        Some("off") => LevelFilter::OFF,
        Some("error") => LevelFilter::ERROR,
        Some("warn") => LevelFilter::WARN,
        Some("debug") => LevelFilter::DEBUG,
        Some("trace") => LevelFilter::TRACE,
        _ => LevelFilter::INFO,
    }
}

/// Whether a change of the file is a reload.
pub(crate) fn watches(process: &Process) -> bool {
    value(&process.server.watch) == Some(&true)
}

/// A listener with the settings of HTTP/3.
pub(crate) fn listener(process: &Process, listener: ListenerConfig) -> ListenerConfig {
    let server = &process.server;
    let max_age = value(&server.alt_svc_max_age);
    ListenerConfig {
        http3: value(&server.http3).copied().unwrap_or(true),
        alt_svc: AltSvc {
            port: value(&server.alt_svc_port).and_then(|port| u16::try_from(*port).ok()),
            max_age: max_age.map_or_else(|| AltSvc::default().max_age, |age| *age),
        },
        ..listener
    }
}

/// The gateway's options with the settings of the file and the flags.
pub(crate) fn apply(process: &Process, options: &mut Options) {
    let server = &process.server;
    set(&mut options.drain_delay, &server.drain_delay, |delay| {
        (*delay).min(FOREVER)
    });
    set(&mut options.drain_timeout, &server.drain_timeout, limit);
    set(&mut options.via, &server.via, |is_on| *is_on);
    set(&mut options.h2c_upgrade, &server.h2c_upgrade, |is_on| {
        *is_on
    });
    // It was checked.
    options.loop_id = value(&server.id).and_then(|id| id.parse().ok());
    set(
        &mut options.summary_interval,
        &process.log.summary,
        |time| *time,
    );
    let limits = &mut options.limits;
    set(
        &mut limits.half_close_grace,
        &server.half_close_grace,
        |time| match time {
            TimeLimit::Forever => None,
            TimeLimit::After(grace) => Some(*grace),
        },
    );
    set(&mut limits.lingering_time, &server.lingering_time, |time| {
        *time
    });
    set(
        &mut limits.lingering_timeout,
        &server.lingering_timeout,
        |time| *time,
    );
    set(
        &mut options.series_max,
        &process.metrics.series_max,
        |series| *series as usize,
    );
    apply_limits(&process.limits, limits, &mut options.client.limits);
}

fn apply_limits(settings: &MessageLimits, clients: &mut Limits, upstreams: &mut Limits) {
    let bytes = |bytes: &Bytes| bytes.0 as usize;
    let number = |number: &u64| *number as usize;
    set(&mut clients.head_bytes_max, &settings.head_max, bytes);
    set(&mut clients.fields_max, &settings.fields_max, number);
    set(
        &mut clients.cookie_crumbs_max,
        &settings.cookies_max,
        number,
    );
    set(
        &mut clients.request_line_bytes_max,
        &settings.request_line_max,
        bytes,
    );
    set(
        &mut clients.trailer_bytes_max,
        &settings.trailers_max,
        bytes,
    );
    set(
        &mut clients.trailer_fields_max,
        &settings.trailer_fields_max,
        number,
    );
    set(
        &mut upstreams.head_bytes_max,
        &settings.upstream_head_max,
        bytes,
    );
    set(
        &mut upstreams.response_fields_max,
        &settings.upstream_fields_max,
        number,
    );
    clients.fit_header_blocks();
    upstreams.fit_header_blocks();
}

/// Keys whose values differ, as `server.cores`.
pub(crate) fn changed(before: &Process, after: &Process) -> Vec<String> {
    let (before, after) = (before.written(), after.written());
    let is_in = |(key, value, _): &(String, String, _), others: &[(String, String, _)]| {
        others
            .iter()
            .any(|(name, other, _)| name == key && other == value)
    };
    let differs_from = |others: &[_], all: &[(String, String, _)]| -> Vec<String> {
        let different = all.iter().filter(|one| !is_in(one, others));
        different.map(|(key, ..)| key.clone()).collect()
    };
    let mut keys = [differs_from(&before, &after), differs_from(&after, &before)].concat();
    keys.sort();
    keys.dedup();
    keys
}

/// The key of the access log, which a reload changes.
const ACCESS_LOG: &str = "log.access";

/// The start of the keys of traces, which a reload changes.
const TRACING: &str = "tracing.";

/// The start of the keys of the store of limits, which a reload changes.
const REDIS: &str = "redis.";

/// Whether a reload applies a key of the process.
pub(crate) fn is_reloaded(key: &str) -> bool {
    key == ACCESS_LOG || key.starts_with(TRACING) || key.starts_with(REDIS)
}

/// The access log as a file has it.
pub(crate) fn access_log(process: &Process) -> Option<String> {
    let written = process.written();
    let access = written.into_iter().find(|(key, ..)| key == ACCESS_LOG);
    access.map(|(_, value, _)| value)
}

/// The keys of traces as a file has them.
pub(crate) fn tracing(process: &Process) -> Vec<(String, String)> {
    let written = process.written().into_iter();
    let of_tracing = written.filter(|(key, ..)| key.starts_with(TRACING));
    of_tracing.map(|(key, value, _)| (key, value)).collect()
}

/// A time that can be added to another one.
pub(crate) fn limit(limit: &TimeLimit) -> Duration {
    match limit {
        TimeLimit::After(duration) => (*duration).min(FOREVER),
        TimeLimit::Forever => FOREVER,
    }
}

fn value<T>(setting: &Option<Placed<T>>) -> Option<&T> {
    setting.as_ref().map(|setting| &setting.value)
}

fn set<T, S>(option: &mut T, setting: &Option<Placed<S>>, convert: impl Fn(&S) -> T) {
    if let Some(setting) = setting {
        *option = convert(&setting.value);
    }
}

#[cfg(test)]
mod tests {
    use blitz_config::{Document, Environment, KEYS, Kind, Scope, Since, read};

    use super::*;

    fn options(text: &str) -> Options {
        let document = Document::new("blitz.toml", text);
        let (configuration, diagnostics) = read(&document, &Environment::default());
        let mistakes = diagnostics.iter().filter(|one| one.code != "no-site");
        assert_eq!(mistakes.count(), 0, "{text}{diagnostics:?}");
        let mut options = Options::default();
        apply(&configuration.process, &mut options);
        options
    }

    /// The reference, the schema and the help name these defaults.
    #[test]
    fn the_defaults_of_the_keys_are_those_that_apply() {
        let mut text = String::new();
        let mut keys = 0;
        for key in KEYS.iter().filter(|key| key.since != Since::NotYet) {
            let table = match key.scope {
                Scope::Server => "server",
                Scope::Log => "log",
                Scope::Limits => "limits",
                Scope::Metrics => "metrics",
                _ => continue,
            };
            let value = match key.kind {
                Kind::Boolean => key.default.to_owned(),
                Kind::NumberTo(_) if key.default.parse::<u64>().is_ok() => key.default.to_owned(),
                Kind::Time | Kind::Seconds | Kind::TimeLimit | Kind::SizeTo(_) => {
                    format!("\"{}\"", key.default)
                }
                _ => continue,
            };
            text += &format!("{table}.{} = {value}\n", key.name);
            keys += 1;
        }
        assert!(keys > 15, "{text}");
        let (written, default) = (options(&text), Options::default());
        assert_eq!(format!("{written:?}"), format!("{default:?}"));
        let process = |text: &str| {
            let document = Document::new("blitz.toml", text);
            read(&document, &Environment::default()).0.process
        };
        let alt_svc = |text: &str| {
            let plain = ListenerConfig::from(blitz_http::Address::Tcp(([127, 0, 0, 1], 80).into()));
            listener(&process(text), plain).alt_svc
        };
        assert_eq!(alt_svc(&text), AltSvc::default());
    }

    #[test]
    fn each_limit_is_that_of_its_key() {
        let limits = options(
            "limits = { head_max = \"1m\", fields_max = 1000, cookies_max = 2000, request_line_max = \"64k\", \
             trailers_max = \"128k\", trailer_fields_max = 300, upstream_head_max = \"512k\", \
             upstream_fields_max = 900 }\n\
             server = { half_close_grace = \"forever\", lingering_time = \"7s\", lingering_timeout = \"8s\", \
             drain_timeout = \"forever\" }\n",
        );
        let (clients, upstreams) = (&limits.limits, &limits.client.limits);
        assert_eq!(
            (clients.head_bytes_max, clients.fields_max),
            (1 << 20, 1_000)
        );
        assert_eq!(
            (clients.cookie_crumbs_max, clients.request_line_bytes_max),
            (2_000, 64 << 10)
        );
        assert_eq!(
            (clients.trailer_bytes_max, clients.trailer_fields_max),
            (128 << 10, 300)
        );
        assert_eq!(
            (upstreams.head_bytes_max, upstreams.response_fields_max),
            (512 << 10, 900)
        );
        assert_eq!(clients.half_close_grace, None);
        assert_eq!(clients.lingering_time, Duration::from_secs(7));
        assert_eq!(clients.lingering_timeout, Duration::from_secs(8));
        assert_eq!(limits.drain_timeout, FOREVER);
    }
}
