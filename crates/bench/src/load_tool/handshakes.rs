//! The load tool for handshakes: `openssl s_time`, which opens a new connection for each request and
//! resumes no session.

use std::process::{Child, Command, Stdio};
use std::time::Instant;

use super::{LoadRun, LoadSummary};
use crate::group::ClientProtocol;
use crate::process::LOAD_CORE;
use crate::tls_files::HOST;

/// Concurrent handshakes: enough to keep a server busy while clients compute.
pub(crate) const CLIENTS: u32 = 8;

/// Runs the clients on the load core and adds up their counts.
pub(crate) fn run(load_run: &LoadRun<'_>) -> Result<LoadSummary, String> {
    let Some(tls) = load_run
        .tls
        .filter(|_| load_run.protocol == ClientProtocol::Tls)
    else {
        return Err("handshakes need TLS".to_owned());
    };
    let failed = |e: &dyn std::fmt::Display| format!("openssl s_time: {e}");
    let begun = Instant::now();
    let start = || {
        Command::new("taskset")
            .args(["-c", LOAD_CORE, "openssl", "s_time", "-new", "-verify", "2"])
            .arg("-CAfile")
            .arg(&tls.authority)
            .args(["-connect", &format!("{HOST}:{}", load_run.address.port())])
            .args([
                "-time",
                &load_run.length.as_secs().to_string(),
                "-www",
                load_run.path,
            ])
            .env("OPENSSL_CONF", &tls.openssl_config)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
    };
    let clients: Result<Vec<Child>, _> = (0..CLIENTS).map(|_| start()).collect();
    let mut all = LoadSummary {
        requests: 0,
        bytes: 0,
        duration_us: 0,
        p50_us: None,
        p99_us: None,
        max_us: None,
        errors: 0,
    };
    for client in clients.map_err(|e| failed(&e))? {
        let output = client.wait_with_output().map_err(|e| failed(&e))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let counted = parse(&text).filter(|_| output.status.success());
        let (requests, bytes_each) =
            counted.ok_or_else(|| failed(&String::from_utf8_lossy(&output.stderr)))?;
        all.requests += requests;
        all.bytes += requests * bytes_each;
    }
    all.duration_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
    Ok(all)
}

/// Connections, and the bytes read on each.
fn parse(text: &str) -> Option<(u64, u64)> {
    let line = text.lines().find(|line| line.contains(" real seconds, "))?;
    let (connections, rest) = line.split_once(" connections in ")?;
    let (_, bytes) = rest.split_once(" real seconds, ")?;
    let bytes = bytes.split_whitespace().next()?;
    Some((connections.trim().parse().ok()?, bytes.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_and_their_bytes_are_read() {
        let text = "Collecting connection statistics for 1 seconds\n***\n\n\
            435 connections in 0.46s; 945.65 connections/user sec, bytes read 64815\n\
            435 connections in 2 real seconds, 149 bytes read per connection\n";
        assert_eq!(parse(text), Some((435, 149)));
        assert_eq!(parse("ERROR"), None);
    }
}
