//! Clients that must agree, on a link whose times are known: `blitz load`, curl and h2load.
//!
//! They take a minute and real tools, so they run only if `BLITZ_TRY_ALL` is set: `.ci/run --full networks`.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use blitz_bench::link::Link;
use serde_json::Value;

use crate::https::Folder;

/// Others must not use the processors meanwhile.
static TURN: Mutex<()> = Mutex::new(());

/// 50 ms and 100 Mbit/s, with a queue that nothing overflows: a response takes the round trip and its bytes. Where it has
/// not opened the sender's congestion window, it takes another round trip.
const LINK: &str = "rtt=50ms,rate=100mbit,queue=20000p";
const RTT_S: f64 = 0.05;
const BYTES_PER_S: f64 = 100e6 / 8.0;

/// Bytes of packets for each byte of content: headers of IP, TCP or UDP, TLS or QUIC, and HTTP.
const OVERHEAD: f64 = 1.06;

/// Clients agree within this.
const TOLERANCE: f64 = 0.10;

/// A shared machine may be late; a wrong client is wrong each time.
const ATTEMPTS: usize = 4;

/// Content, and the number of responses: the first ones open the sender's window.
const WORK: [(usize, usize); 4] = [(1 << 10, 9), (64 << 10, 15), (1 << 20, 15), (10 << 20, 5)];

/// Where clients and servers are.
struct Place {
    link: Link,
    folder: Folder,
    servers: Vec<Child>,
    _turn: MutexGuard<'static, ()>,
}

impl Place {
    /// `None` where the tests are not wanted.
    fn new(link: &str) -> Option<Place> {
        env::var_os("BLITZ_TRY_ALL")?;
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let link = Link::start(&link.parse().unwrap(), 1).expect("root, or a namespace of users");
        // A later connection would begin with what an earlier one has learned.
        let forget = || fs::write("/proc/sys/net/ipv4/tcp_no_metrics_save", "1");
        link.in_server(forget).unwrap().unwrap();
        Some(Place {
            link,
            folder: Folder::new(),
            servers: Vec::new(),
            _turn: turn,
        })
    }

    fn blitz(&self, arguments: &[&str]) -> Command {
        // The release, if it was built: at 100 Mbit/s a slower build is what takes the time.
        let release = env::var_os("BLITZ").filter(|release| Path::new(release).exists());
        let mut command = urgent(release.unwrap_or_else(|| env!("CARGO_BIN_EXE_blitz").into()));
        command
            .args(arguments)
            .env("XDG_STATE_HOME", self.folder.file("state"));
        command
    }

    /// Starts `blitz run` beyond the link, or on the client's side.
    fn serve(&mut self, flags: &[&str], is_beyond: bool) {
        let mut command = self.blitz(&["run", "--cores", "1", "--control-listen=off"]);
        command
            .args(flags)
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut server = match is_beyond {
            true => self.link.spawn_server(&mut command),
            false => self.link.spawn_client(&mut command),
        }
        .unwrap();
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().trim().starts_with("try")));
        self.servers.push(server);
    }

    fn server(&self) -> IpAddr {
        self.link.server_address()
    }

    /// The output of a program on the client's side.
    fn output(&self, command: &mut Command) -> String {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = self.link.spawn_client(command).unwrap();
        let output = child.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        // 75: a machine that is busy with other things makes a run invalid, which has its times all the same.
        assert!(
            matches!(output.status.code(), Some(0 | 75)),
            "{command:?}: {errors}"
        );
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for server in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// The programs that are compared.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Program {
    BlitzLoad,
    Curl,
    H2load,
}

/// The least time of responses, one after the other on one connection, in seconds: what a busy machine adds is no part
/// of the truth, and a window that is too small adds to each.
fn least_time(
    place: &Place,
    program: Program,
    version: &str,
    (bytes, count): (usize, usize),
) -> f64 {
    let url = format!("https://{}:8443/data?size={bytes}", place.server());
    let mut times = match (program, version) {
        (Program::BlitzLoad, _) => {
            let count = count.to_string();
            let load = "load --json - --quiet --insecure -c 1 -t 1";
            let mut command = place.blitz(&load.split(' ').collect::<Vec<_>>());
            command.args(["-n", &count, "--http", version, &url]);
            let result: Value = serde_json::from_str(&place.output(&mut command)).unwrap();
            assert_eq!(result["counts"]["completed"].to_string(), count);
            return result["times"]["service"]["min_ns"].as_f64().unwrap() / 1e9;
        }
        (Program::Curl, "3") => {
            let mut command = urgent("python3");
            command
                .arg(concat!(
                    env!("CARGO_MANIFEST_DIR"),
                    "/../../tests/smoke/h3_times.py"
                ))
                .args([&url, &count.to_string()])
                .env("PYTHONPATH", tools().join("http3"));
            seconds(&place.output(&mut command), 1.0)
        }
        (Program::Curl, _) => {
            let mut command = urgent("curl");
            let flag = if version == "2" {
                "--http2"
            } else {
                "--http1.1"
            };
            command.args([flag, "--no-progress-meter", "-k", "-w", "%{time_total}\n"]);
            for _ in 0..count {
                command.args(["-o", "/dev/null", &url]);
            }
            seconds(&place.output(&mut command), 1.0)
        }
        (Program::H2load, _) => {
            let log = place.folder.file("h2load");
            let _ = fs::remove_file(&log);
            let mut command = urgent("h2load");
            command.args(["-c1", "-m1", "-t1", &format!("-n{count}")]);
            command.arg(format!("--log-file={log}"));
            if version == "1.1" {
                command.arg("--h1");
            }
            place.output(command.arg(&url));
            // Start, status and microseconds.
            let log = fs::read_to_string(&log).unwrap();
            let last = log.lines().map(|line| line.rsplit('\t').next().unwrap());
            seconds(&last.collect::<Vec<_>>().join("\n"), 1e-6)
        }
    };
    assert_eq!(times.len(), count);
    times.sort_by(f64::total_cmp);
    times[0]
}

/// A command that a busy machine keeps waiting less, as far as the user may ask for that.
fn urgent(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("nice");
    command.args(["-n", "-20"]).arg(program);
    command
}

/// Numbers, one a line, in units of so many seconds.
fn seconds(text: &str, unit: f64) -> Vec<f64> {
    let numbers = text.lines().map(|line| line.trim().parse::<f64>().unwrap());
    numbers.map(|number| number * unit).collect()
}

/// The folder of `.ci/tools`, beside that of the binary.
fn tools() -> PathBuf {
    let binary = Path::new(env!("CARGO_BIN_EXE_blitz"));
    binary.ancestors().nth(2).unwrap().join("tools")
}

/// Describes the disagreement about the times of a version and a size, if there is one.
fn disagreement(place: &Place, version: &str, work: (usize, usize)) -> Option<String> {
    let programs: &[Program] = match version {
        "3" => &[Program::BlitzLoad, Program::Curl],
        _ => &[Program::BlitzLoad, Program::Curl, Program::H2load],
    };
    let times: Vec<f64> = programs
        .iter()
        .map(|&program| least_time(place, program, version, work))
        .collect();
    println!(
        "HTTP/{version}, {} bytes: {times:.4?} s of {programs:?}",
        work.0
    );
    let least = times.iter().copied().fold(f64::MAX, f64::min);
    let most = times.iter().copied().fold(0.0, f64::max);
    let truth = RTT_S + work.0 as f64 / BYTES_PER_S;
    let wrong = match () {
        () if most > least * (1.0 + TOLERANCE) => "they disagree",
        () if least < truth => "faster than the link",
        () if most > (2.0 * RTT_S + work.0 as f64 * OVERHEAD / BYTES_PER_S) * (1.0 + TOLERANCE) => {
            "slower than the link"
        }
        () => return None,
    };
    Some(format!(
        "{wrong}: HTTP/{version}, {} bytes, {times:?} of {programs:?}",
        work.0
    ))
}

/// A window that is too small shows as a client that is slower than others.
#[test]
fn clients_agree_about_a_link_of_known_times() {
    let Some(mut place) = Place::new(LINK) else {
        return;
    };
    let listen = format!("{}:8443", place.server());
    place.serve(&["--listen-tls", &listen], true);
    for version in ["1.1", "2", "3"] {
        for work in WORK {
            let mut attempts = (0..ATTEMPTS).map(|_| disagreement(&place, version, work));
            let mut last = None;
            let is_right = attempts.any(|wrong| {
                last = wrong;
                last.is_none()
            });
            assert!(is_right, "{}", last.unwrap_or_default());
        }
    }
}

/// Its windows towards upstreams begin with 64 KiB, with which 10 MiB take 8 s here, and grow to 1 MiB.
#[test]
fn the_gateways_windows_to_an_upstream_grow_with_the_path() {
    let Some(mut place) = Place::new(LINK) else {
        return;
    };
    let upstream = SocketAddr::from((place.server(), 8080));
    place.serve(&["--listen", &format!("h2c://{upstream}")], true);
    let to = format!("h2c://{upstream}");
    let gateway = SocketAddr::from((place.link.client_address(), 8080));
    place.serve(&["--listen", &gateway.to_string(), "--to", &to], false);
    let url = format!("http://{gateway}/data?size={}", 10 << 20);
    let begun = Instant::now();
    let mut best = Duration::MAX;
    for _ in 0..ATTEMPTS {
        let mut command = urgent("curl");
        command.args([
            "--no-progress-meter",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code} %{time_total}",
            &url,
        ]);
        let output = place.output(&mut command);
        let (status, time) = output.split_once(' ').unwrap();
        assert_eq!(status, "200");
        println!("10 MiB through the gateway: {time} s");
        best = best.min(Duration::from_secs_f64(time.parse().unwrap()));
    }
    assert!(
        best < Duration::from_secs(4),
        "{best:?} of {:?}",
        begun.elapsed()
    );
}

/// QUIC's library closes a connection with more than 1,024 gaps, and a short queue loses every second packet while the
/// sender's window is twice of what the path carries.
#[test]
fn a_short_queue_breaks_no_download_over_http3() {
    let Some(mut place) = Place::new("rtt=100ms,rate=150mbit,queue=50p") else {
        return;
    };
    let listen = format!("{}:8443", place.server());
    place.serve(&["--listen-tls", &listen], true);
    let url = format!("https://{}:8443/data?size={}", place.server(), 30 << 20);
    let window = env::var("WINDOW").unwrap_or_else(|_| "6m".to_owned());
    let load = [
        "load",
        "--json",
        "-",
        "--quiet",
        "--insecure",
        "-c",
        "1",
        "-t",
        "1",
        "--http",
        "3",
    ];
    let mut command = place.blitz(&load);
    command.args(["-n", "2", "--window", &window, &url]);
    let result: Value = serde_json::from_str(&place.output(&mut command)).unwrap();
    println!("{} {}", result["counts"], place.link.counters().down);
    assert_eq!(result["counts"]["completed"], 2);
    assert_eq!(result["plan"]["windows"]["stream_bytes"], 2 << 20);
}
