//! The reader of the metrics of a running gateway, with the facts of this process.

use std::fs;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use blitz_gateway::{ExportFacts, MetricsReader, ProcessFacts, Running};
use blitz_http::TlsSlot;

use crate::control::ControlState;
use crate::otlp::ExportCounts;
use crate::version::REVISION;

/// Clock ticks per second in `/proc`, which Linux has fixed for programs.
const TICKS: f64 = 100.0;

/// A reader for any thread, with readiness and certificates of the control interface.
pub(crate) fn reader(
    running: &Running,
    state: &Arc<ControlState>,
    exports: ExportCounts,
) -> MetricsReader {
    let (of_process, of_tls) = (Arc::clone(state), Arc::clone(state));
    let process = move || ProcessFacts {
        is_ready: Some(of_process.readiness.is_ready()),
        ..process_facts()
    };
    let in_use = move || {
        let tls = of_tls.tls();
        tls.as_ref().map_or_else(Vec::new, certificates)
    };
    running
        .metrics()
        .with_build(env!("CARGO_PKG_VERSION"), REVISION)
        .with_process(process)
        .with_certificates(in_use)
        .with_exports(move || ExportFacts {
            spans: exports.spans.read(),
            log_records: exports.logs.read(),
        })
}

/// The first names of the certificates in use, and their expiry in Unix time.
fn certificates(slot: &TlsSlot) -> Vec<(String, f64)> {
    let current = slot.current();
    let all = current.certificates().map(|certificate| {
        let name = certificate.names().first().cloned().unwrap_or_default();
        (name, unix_seconds(certificate.not_after()))
    });
    all.collect()
}

fn unix_seconds(time: SystemTime) -> f64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_secs_f64()
}

/// The facts that `/proc` tells; a container may hide some.
fn process_facts() -> ProcessFacts {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let (stat, status) = (read("/proc/self/stat"), read("/proc/self/status"));
    let booted = number(line(&read("/proc/stat"), "btime "));
    let started = booted.zip(stat_field(&stat, 22));
    let times = stat_field(&stat, 14).zip(stat_field(&stat, 15));
    let kibibytes = |name| number(line(&status, name)).map(|kibibytes| kibibytes * 1024);
    let files = fs::read_dir("/proc/self/fd").map(Iterator::count).ok();
    ProcessFacts {
        cpu_seconds: times.map(|(user, system)| (user + system) as f64 / TICKS),
        resident_bytes: kibibytes("VmRSS:"),
        virtual_bytes: kibibytes("VmSize:"),
        // One of them is that of the list.
        open_files: files.map(|count| (count as u64).saturating_sub(1)),
        files_max: number(line(&read("/proc/self/limits"), "Max open files")),
        started_seconds: started.map(|(boot, ticks)| boot as f64 + ticks as f64 / TICKS),
        is_ready: None,
    }
}

/// The rest of the first line that begins with this text.
fn line<'a>(text: &'a str, beginning: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(beginning))
}

/// The first number of a text.
fn number(text: Option<&str>) -> Option<u64> {
    text?.split_whitespace().next()?.parse().ok()
}

/// A field of `/proc/self/stat`, counted from 1. The second is a name in brackets, which may have spaces.
fn stat_field(stat: &str, position: usize) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(") ")?;
    let field = after_name
        .split_whitespace()
        .nth(position.checked_sub(3)?)?;
    field.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_behind_the_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 4 0 123456 1000 20";
        assert_eq!(
            (stat_field(stat, 14), stat_field(stat, 15)),
            (Some(250), Some(50))
        );
        assert_eq!(stat_field(stat, 22), Some(123_456));
        assert_eq!(stat_field("", 22), None);
    }

    #[test]
    fn this_process_has_all_facts() {
        let facts = process_facts();
        let now = unix_seconds(SystemTime::now());
        assert!(
            facts
                .started_seconds
                .is_some_and(|started| started > 1e9 && started < now + 60.0)
        );
        assert!(facts.resident_bytes.is_some_and(|bytes| bytes > 1 << 20));
        assert!(facts.virtual_bytes > facts.resident_bytes);
        assert!(
            facts.open_files.is_some_and(|count| count >= 3) && facts.files_max > facts.open_files
        );
        assert!(facts.cpu_seconds.is_some());
    }
}
