//! The load tool for HTTP/1.1: wrk with one thread and a JSON summary.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{LoadRun, LoadSummary};
use crate::group::ClientProtocol;
use crate::peer::write;
use crate::sites::SITES;
use crate::tls_files::HOST;

/// `request` and `response` are not defined here, so wrk runs no Lua per request. The argument is the file with
/// the content of the requests.
const SCRIPT: &str = r#"
function init(arguments)
  if arguments[1] then
    wrk.method = "POST"
    wrk.body = assert(io.open(arguments[1], "rb")):read("*a")
  end
end
function done(summary, latency)
  local e = summary.errors
  io.write(string.format(
    '\nsummary {"requests":%d,"bytes":%d,"duration_us":%d,"p50_us":%d,"p99_us":%d,"max_us":%d,' ..
    '"errors":%d}\n',
    summary.requests, summary.bytes, summary.duration, latency:percentile(50),
    latency:percentile(99), latency.max, e.connect + e.read + e.write + e.status + e.timeout))
end
"#;

/// Requests for all sites in turn. The head of each is made once.
const TO_SITES: &str = r#"
local requests, turn = {}, 0
function init(arguments)
  for site = 1, SITES do
    requests[site] = wrk.format(nil, nil, { Host = string.format("s%d.example", site - 1) })
  end
end
function request()
  turn = turn % SITES + 1
  return requests[turn]
end
"#;

/// The script files of wrk.
pub(crate) struct Wrk {
    script: PathBuf,
    to_sites: PathBuf,
}

impl Wrk {
    pub(crate) fn prepare(folder: &Path) -> Result<Wrk, String> {
        let (script, to_sites) = (folder.join("summary.lua"), folder.join("sites.lua"));
        write(&script, SCRIPT)?;
        // Of two functions of a name the later one counts.
        write(
            &to_sites,
            &format!("{SCRIPT}local SITES = {SITES}\n{TO_SITES}"),
        )?;
        Ok(Wrk { script, to_sites })
    }

    /// Runs wrk on a core and reads its summary. Its requests are for the host of the URL, or for all sites in turn.
    pub(crate) fn run_on(
        &self,
        core: &str,
        load_run: &LoadRun<'_>,
        to_sites: bool,
    ) -> Result<LoadSummary, String> {
        let script = match to_sites {
            true => &self.to_sites,
            false => &self.script,
        };
        run_script(core, load_run, script)
    }
}

/// A script that prints the summary, after these lines of its own.
pub(crate) fn script(lines: &str) -> String {
    format!("{SCRIPT}{lines}")
}

/// Runs wrk on a core with a script that prints the summary, and reads it.
pub(crate) fn run_script(
    core: &str,
    load_run: &LoadRun<'_>,
    script: &Path,
) -> Result<LoadSummary, String> {
    let LoadRun { address, path, .. } = load_run;
    let url = match load_run.protocol {
        ClientProtocol::Tls => format!("https://{HOST}:{}{path}", address.port()),
        ClientProtocol::Http1 | ClientProtocol::H2c => format!("http://{address}{path}"),
    };
    let mut command = Command::new("taskset");
    if let Some(tls) = load_run.tls {
        command.env("OPENSSL_CONF", &tls.openssl_config);
    }
    command
        .args(["-c", core, "wrk", "-t1", "--latency"])
        .arg(format!("-c{}", load_run.connections))
        .arg(format!("-d{}s", load_run.length.as_secs()))
        .arg(format!("--timeout={}s", load_run.timeout.as_secs()))
        .arg("-s")
        .arg(script)
        .arg(url);
    if let Some(content) = load_run.upload {
        command.arg("--").arg(content);
    }
    let output = load_run
        .output(&mut command)
        .map_err(|e| format!("wrk: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    parse(&text).ok_or_else(|| {
        format!(
            "wrk printed no summary: {text}{}",
            String::from_utf8_lossy(&output.stderr)
        )
    })
}

fn parse(text: &str) -> Option<LoadSummary> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("summary "))?;
    serde_json::from_str(line).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Running 1s test\nsummary {\"requests\":100,\"bytes\":13000,\
        \"duration_us\":500000,\"p50_us\":9,\"p99_us\":20,\"max_us\":30,\"errors\":0}\n";

    #[test]
    fn the_summary_is_found() {
        let summary = parse(TEXT).unwrap();
        assert_eq!((summary.requests, summary.bytes), (100, 13_000));
        assert_eq!(summary.p99_us, Some(20));
        assert!(parse("nothing").is_none());
    }
}
