//! The load tool: wrk with one thread, its summary as JSON.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::probe::PATH;
use super::process::LOAD_CORE;

/// Only `done` is defined, so wrk runs no Lua per request.
pub(crate) const SCRIPT: &str = r#"
function done(summary, latency)
  local e = summary.errors
  io.write(string.format(
    '\nsummary {"requests":%d,"bytes":%d,"duration_us":%d,"p50_us":%d,"p99_us":%d,"max_us":%d,' ..
    '"errors":%d}\n',
    summary.requests, summary.bytes, summary.duration, latency:percentile(50),
    latency:percentile(99), latency.max, e.connect + e.read + e.write + e.status + e.timeout))
end
"#;

/// What one run of wrk counted.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Summary {
    pub(crate) requests: u64,
    /// All bytes received, heads included.
    pub(crate) bytes: u64,
    pub(crate) duration_us: u64,
    pub(crate) p50_us: u64,
    pub(crate) p99_us: u64,
    pub(crate) max_us: u64,
    /// Connect, read, write, timeout and status other than 2xx or 3xx.
    pub(crate) errors: u64,
}

/// Runs wrk on the load core and reads its summary.
pub(crate) fn run(
    script: &Path,
    address: SocketAddr,
    connections: u32,
    run: Duration,
) -> Result<Summary, String> {
    let output = Command::new("taskset")
        .args(["-c", LOAD_CORE, "wrk", "-t1", "--latency"])
        .arg(format!("-c{connections}"))
        .arg(format!("-d{}s", run.as_secs()))
        .arg("-s")
        .arg(script)
        .arg(format!("http://{address}{PATH}"))
        .output()
        .map_err(|e| format!("wrk: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    parse(&text).ok_or_else(|| {
        format!(
            "wrk said nothing to count: {text}{}",
            String::from_utf8_lossy(&output.stderr)
        )
    })
}

fn parse(text: &str) -> Option<Summary> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("summary "))?;
    serde_json::from_str(line).ok()
}

impl Summary {
    /// Nothing failed, and as many bytes came as that many responses have.
    pub(crate) fn check(&self, response_bytes: usize) -> Result<(), String> {
        if self.errors > 0 {
            return Err(format!(
                "{} of {} requests failed",
                self.errors, self.requests
            ));
        }
        if self.requests == 0 {
            return Err("no request was answered".to_owned());
        }
        // Responses under way at the end are counted in bytes only: far less than one in a hundred.
        let expected = self.requests as f64 * response_bytes as f64;
        if (self.bytes as f64 / expected - 1.0).abs() > 0.01 {
            let got = self.bytes / self.requests;
            return Err(format!(
                "responses had {got} bytes instead of {response_bytes}"
            ));
        }
        Ok(())
    }

    pub(crate) fn requests_per_second(&self) -> f64 {
        self.requests as f64 / (self.duration_us.max(1) as f64 / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Running 1s test\nsummary {\"requests\":100,\"bytes\":13000,\
        \"duration_us\":500000,\"p50_us\":9,\"p99_us\":20,\"max_us\":30,\"errors\":0}\n";

    #[test]
    fn the_summary_is_found_and_checked() {
        let summary = parse(TEXT).unwrap();
        assert_eq!(summary.requests_per_second(), 200.0);
        assert!(summary.check(130).is_ok());
        assert!(summary.check(120).is_err(), "responses of another length");
        assert!(
            Summary {
                errors: 1,
                ..summary
            }
            .check(130)
            .is_err(),
            "a failed request"
        );
        assert!(
            Summary {
                requests: 0,
                ..summary
            }
            .check(130)
            .is_err(),
            "no request at all"
        );
        assert!(parse("nothing").is_none());
    }
}
