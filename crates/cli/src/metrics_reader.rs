//! The reader of the metrics of a running gateway, with the facts of this process.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use blitz_gateway::{ExportFacts, MetricsReader, ProcessFacts, Running};
use blitz_http::TlsSlot;

use crate::control::ControlState;
use crate::otlp::ExportCounts;
use crate::rate_store::OpenRateStore;
use crate::version::REVISION;

/// Clock ticks per second in `/proc`, which Linux has fixed for programs.
const TICKS: f64 = 100.0;

/// A reader for any thread, with readiness and certificates of the control interface.
pub(crate) fn reader(
    running: &Running,
    state: &Arc<ControlState>,
    (exports, rate_store): (ExportCounts, OpenRateStore),
    files: ProcessFiles,
) -> MetricsReader {
    let (of_process, of_tls) = (Arc::clone(state), Arc::clone(state));
    let process = move || ProcessFacts {
        is_ready: Some(of_process.readiness.is_ready()),
        ..files.facts()
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
        .with_rate_store(move || rate_store.facts())
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

/// Files of `/proc`, which stay open: a process without free descriptors still tells its state. A container may hide some.
#[derive(Default)]
pub(crate) struct ProcessFiles {
    stat: Option<File>,
    status: Option<File>,
    limits: Option<File>,
    /// The start of the machine in Unix time.
    booted: Option<u64>,
}

/// The longest of these files is shorter.
const FILE_BYTES_MAX: usize = 16 << 10;

impl ProcessFiles {
    pub(crate) fn open() -> ProcessFiles {
        let open = |name: &str| File::open(format!("/proc/self/{name}")).ok();
        let machine = fs::read_to_string("/proc/stat").unwrap_or_default();
        ProcessFiles {
            stat: open("stat"),
            status: open("status"),
            limits: open("limits"),
            booted: number(line(&machine, "btime ")),
        }
    }

    fn facts(&self) -> ProcessFacts {
        let [stat, status, limits] = [&self.stat, &self.status, &self.limits].map(reread);
        let started = self.booted.zip(stat_field(&stat, 22));
        let times = stat_field(&stat, 14).zip(stat_field(&stat, 15));
        let kibibytes = |name| number(line(&status, name)).map(|kibibytes| kibibytes * 1024);
        let files_max = number(line(&limits, "Max open files"));
        ProcessFacts {
            cpu_seconds: times.map(|(user, system)| (user + system) as f64 / TICKS),
            resident_bytes: kibibytes("VmRSS:"),
            virtual_bytes: kibibytes("VmSize:"),
            open_files: open_files(files_max),
            files_max,
            started_seconds: started.map(|(boot, ticks)| boot as f64 + ticks as f64 / TICKS),
            is_ready: None,
        }
    }
}

/// The present content of a file of `/proc`, or nothing.
fn reread(file: &Option<File>) -> String {
    let mut content = vec![0; FILE_BYTES_MAX];
    let mut length = 0;
    while let Some(file) = file {
        match file.read_at(&mut content[length..], length as u64) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return String::new(),
        }
    }
    content.truncate(length);
    String::from_utf8_lossy(&content).into_owned()
}

/// The number of open descriptors. If none is left to count them, all are open.
fn open_files(files_max: Option<u64>) -> Option<u64> {
    const TOO_MANY_OPEN_FILES: i32 = 24;
    match fs::read_dir("/proc/self/fd") {
        // One of them is that of the list.
        Ok(list) => Some((list.count() as u64).saturating_sub(1)),
        Err(error) if error.raw_os_error() == Some(TOO_MANY_OPEN_FILES) => files_max,
        Err(_) => None,
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
        let facts = ProcessFiles::open().facts();
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

    #[test]
    fn the_files_are_read_again() {
        let files = ProcessFiles::open();
        let before = files.facts();
        let memory = vec![1_u8; 64 << 20];
        let after = files.facts();
        drop(memory);
        let [before, after] = [before, after].map(|facts| facts.resident_bytes.unwrap_or_default());
        assert!(after > before + (32 << 20), "{before} {after}");
        assert_eq!(reread(&None), "");
    }
}
