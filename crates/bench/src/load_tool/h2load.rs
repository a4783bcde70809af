//! The load tool for HTTP/2: h2load with one thread.

use std::fmt::Write;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{LoadRun, LoadSummary};
use crate::group::ClientProtocol;
use crate::process::LOAD_CORE;
use crate::tls_files::HOST;

/// Targets in turn: more than one connection uses before the others have used as many.
const VARIED_TARGETS: u32 = 10_000;

/// Runs h2load on the load core and reads its summary. With `varied`, each request of a connection
/// has a new query.
pub(crate) fn run(
    load_run: &LoadRun<'_>,
    varied: bool,
    folder: &Path,
) -> Result<LoadSummary, String> {
    let mut command = Command::new("taskset");
    command
        .args(["-c", LOAD_CORE, "h2load", "-t1"])
        .args(["--tls13-ciphers=TLS_AES_128_GCM_SHA256", "--groups=X25519"])
        .arg(format!("--connect-to={}", load_run.address))
        .arg(format!("-c{}", load_run.connections))
        .arg(format!("-m{}", load_run.streams))
        .arg(format!("-D{}", load_run.length.as_secs()));
    if let Some(content) = load_run.upload {
        command.arg("-d").arg(content);
    }
    let target = target(load_run);
    if varied {
        command
            .arg("-i")
            .arg(varied_targets(&target, load_run.address, folder)?);
    } else {
        command.arg(target);
    }
    let output = load_run
        .output(&mut command)
        .map_err(|e| format!("h2load: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let length_us = u64::try_from(load_run.length.as_micros()).unwrap_or(u64::MAX);
    let summary = parse(&text, length_us).ok_or_else(|| {
        format!(
            "h2load printed no summary: {text}{}",
            String::from_utf8_lossy(&output.stderr)
        )
    })?;
    if load_run.protocol == ClientProtocol::Tls && !text.contains("Cipher: TLS_AES_128_GCM_SHA256")
    {
        return Err(
            "the handshake negotiated another cipher than TLS_AES_128_GCM_SHA256".to_owned(),
        );
    }
    Ok(summary)
}

fn target(load_run: &LoadRun<'_>) -> String {
    let LoadRun { address, path, .. } = load_run;
    let scheme = if load_run.protocol == ClientProtocol::Tls {
        "https"
    } else {
        "http"
    };
    format!("{scheme}://{HOST}:{}{path}", address.port())
}

fn varied_targets(target: &str, address: SocketAddr, folder: &Path) -> Result<PathBuf, String> {
    let file = folder.join(format!("targets-{}", address.port()));
    let mut lines = String::new();
    for number in 0..VARIED_TARGETS {
        let _ = writeln!(lines, "{target}?n={number}");
    }
    fs::write(&file, lines).map_err(|e| format!("{}: {e}", file.display()))?;
    Ok(file)
}

/// Requests in flight at the end are started and not done; they do not count, although their statuses may
/// be among those of the summary.
fn parse(text: &str, duration_us: u64) -> Option<LoadSummary> {
    let line = |start: &str| text.lines().find_map(|line| line.strip_prefix(start));
    let number = |line: &str, word: &str| {
        let parts = line.split(',');
        let found = parts
            .filter_map(|part| part.trim().strip_suffix(word))
            .next()?;
        found.trim().parse::<u64>().ok()
    };
    let requests = line("requests: ")?;
    let (done, succeeded) = (number(requests, "done")?, number(requests, "succeeded")?);
    let total = number(requests, "total")?;
    let codes = line("status codes: ")?;
    let good = number(codes, "2xx")?;
    let others = number(codes, "3xx")? + number(codes, "4xx")? + number(codes, "5xx")?;
    let data = line("traffic: ")?.rsplit_once('(')?.1;
    Some(LoadSummary {
        requests: succeeded,
        bytes: data.split_once(')')?.0.parse().ok()?,
        duration_us,
        p50_us: None,
        p99_us: None,
        max_us: None,
        errors: number(requests, "failed")?
            + number(requests, "errored")?
            + number(requests, "timeout")?
            + done.abs_diff(succeeded)
            + total.abs_diff(done)
            + succeeded.saturating_sub(good)
            + others,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
finished in 1.01s, 80864.00 req/s, 3.32MB/s
requests: 80864 total, 81888 started, 80864 done, 80864 succeeded, 0 failed, 0 errored, 0 timeout
status codes: 80864 2xx, 0 3xx, 0 4xx, 0 5xx
traffic: 3.32MB (3481632) total, 951.06KB (973888) headers (space savings 93.52%), 1.00MB (1051232) data
";

    #[test]
    fn requests_and_their_content_are_counted() {
        let summary = parse(TEXT, 1_000_000).unwrap();
        assert_eq!((summary.requests, summary.bytes), (80_864, 1_051_232));
        assert_eq!(summary.errors, 0);
        assert!(summary.check(13).is_ok());
        assert!(parse("nothing", 1).is_none());
    }

    #[test]
    fn heads_of_requests_in_flight_are_no_error() {
        let text = TEXT.replace("80864 2xx", "80896 2xx");
        assert_eq!(parse(&text, 1_000_000).unwrap().errors, 0);
    }

    #[test]
    fn everything_but_success_is_an_error() {
        for (correct, wrong) in [
            ("80864 succeeded, 0 failed", "80863 succeeded, 1 failed"),
            ("0 timeout", "3 timeout"),
            ("80864 2xx, 0 3xx", "80000 2xx, 864 3xx"),
            ("80864 total", "80865 total"),
            ("0 5xx", "1 5xx"),
        ] {
            let summary = parse(&TEXT.replace(correct, wrong), 1_000_000).unwrap();
            assert!(summary.errors > 0, "{wrong}");
        }
    }
}
