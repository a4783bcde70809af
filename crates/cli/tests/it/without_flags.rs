//! A start without flags. It uses fixed ports, which may be in use on this machine, so the tests run in a
//! separate network namespace if the kernel permits one.

use std::env;
use std::fs;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use blitz_testing::{Client, IO_TIMEOUT};

const HTTP: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
const HTTPS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8443);
const CONTROL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9180);

/// Set in the process that runs in a separate network namespace.
const ALONE: &str = "BLITZ_TEST_NETWORK";

/// If set, a test that cannot run on this machine fails instead of being skipped.
const TRY_ALL: &str = "BLITZ_TRY_ALL";

/// Arguments of `unshare` for a new network namespace: as root, and as another user.
const WAYS: [&[&str]; 2] = [&["--net"], &["--user", "--map-root-user", "--net"]];

/// Runs `test` in a new network namespace, as the only test of another process of this program. `name` is
/// its path.
fn alone(name: &str, test: impl FnOnce(&Path)) {
    if let Some(folder) = env::var_os(ALONE) {
        return test(folder.as_ref());
    }
    let way = match way_to_a_network() {
        Ok(way) => way,
        Err(refused) => {
            let notice = format!("{name} is skipped: it needs a network namespace. {refused}");
            assert!(env::var_os(TRY_ALL).is_none(), "{notice}");
            // Written directly, because the output of passed tests is not shown.
            return io::stderr()
                .write_all(format!("{notice}\n").as_bytes())
                .unwrap();
        }
    };
    let this = env::current_exe().unwrap();
    let folder = env::temp_dir().join(format!("blitz-alone-{}-{name}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let output = Command::new("unshare")
        .args(way)
        .args(["sh", "-c", "ip link set lo up && exec \"$@\"", "sh"])
        .arg(this)
        .args(["--exact", name, "--nocapture"])
        .env(ALONE, &folder)
        .output();
    let _ = fs::remove_dir_all(&folder);
    let output = output.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{errors}");
    assert!(text.contains("1 passed"), "{text}");
}

/// The arguments of `unshare` that work here.
///
/// # Errors
/// The error of each attempt, and the remedy.
fn way_to_a_network() -> Result<&'static [&'static str], String> {
    let mut refused = String::new();
    for way in WAYS {
        let tried = Command::new("unshare")
            .args(way)
            .args(["ip", "link", "set", "lo", "up"])
            .output();
        let error = match tried {
            Ok(output) if output.status.success() => return Ok(way),
            Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Err(error) => error.to_string(),
        };
        refused += &format!("`unshare {}`: {error}. ", way.join(" "));
    }
    Err(refused
        + "It needs unshare (on Debian: apt-get install util-linux), ip (apt-get install iproute2) and \
           permission to make namespaces")
}

/// `blitz` without flags, killed when dropped.
struct Started {
    child: Child,
    log: std::path::PathBuf,
}

impl Started {
    fn new(folder: &Path, name: &str) -> Started {
        let log = folder.join(name);
        let file = fs::File::create(&log).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_blitz"))
            .env("XDG_STATE_HOME", folder)
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .stdin(Stdio::null())
            .spawn()
            .expect("the binary starts");
        Started { child, log }
    }

    fn wait_for_log(&self, what: &str) -> String {
        let end = Instant::now() + IO_TIMEOUT;
        loop {
            let log = fs::read_to_string(&self.log).unwrap();
            if log.contains(what) {
                return log;
            }
            assert!(Instant::now() < end, "{what}: {log}");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn http_is_on_8080_and_https_on_8443() {
    alone(
        "without_flags::http_is_on_8080_and_https_on_8443",
        |folder| {
            let started = Started::new(folder, "log");
            let log = started.wait_for_log("try           curl --cacert");
            assert!(log.contains("http://127.0.0.1:8080\n"), "{log}");
            assert!(
                log.contains("control at    http://127.0.0.1:9180\n"),
                "{log}"
            );
            let mut control = Client::connect(CONTROL);
            control.send("GET /readyz HTTP/1.1\r\nHost: localhost:9180\r\n\r\n");
            assert_eq!(control.response().text(), "ready\n");
            assert!(log.contains("https://127.0.0.1:8443\n"), "{log}");
            let has_ipv6 = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
            for address in [
                "http://[::1]:8080",
                "https://[::1]:8443",
                "[::1]:8443 over UDP",
            ] {
                assert_eq!(log.contains(address), has_ipv6, "{address}: {log}");
            }
            let ca = folder.join("blitz/ca.pem");
            let config = crate::https::config(&ca, None);
            // Browsers that resolve localhost try ::1 first, and over HTTP/3 nothing else.
            let local = [
                Some(Ipv4Addr::LOCALHOST.into()),
                has_ipv6.then_some(Ipv6Addr::LOCALHOST.into()),
            ];
            for ip in local.into_iter().flatten() {
                let ip: IpAddr = ip;
                let mut client = Client::connect(SocketAddr::new(ip, HTTP.port()));
                assert_eq!(client.get("/hello").text(), "Hello, World!");
                let https = SocketAddr::new(ip, HTTPS.port());
                let mut stream = crate::https::connect(https, "localhost", &config);
                assert!(
                    crate::https::get(&mut stream, "localhost", "/hello")
                        .unwrap()
                        .ends_with("Hello, World!")
                );
                assert!(UdpSocket::bind(https).is_err(), "HTTP/3 has the port");
            }
        },
    );
}

#[test]
fn port_8443_in_use_is_a_warning_and_port_8080_in_use_an_error() {
    let name = "without_flags::port_8443_in_use_is_a_warning_and_port_8080_in_use_an_error";
    alone(name, |folder| {
        let taken = TcpListener::bind(HTTPS).unwrap();
        let _control = TcpListener::bind(CONTROL).unwrap();
        let started = Started::new(folder, "one");
        let log = started.wait_for_log("try           curl http://127.0.0.1:8080/hello");
        assert!(
            log.contains("no HTTPS: cannot listen on 127.0.0.1:8443"),
            "{log}"
        );
        assert!(
            log.contains("choose another port with --listen-tls ADDR"),
            "{log}"
        );
        assert!(!log.contains("https://"), "{log}");
        let warning = "no control address: cannot listen on 127.0.0.1:9180";
        assert!(
            log.contains(warning) && !log.contains("control at"),
            "{log}"
        );
        let mut client = Client::connect(HTTP);
        assert_eq!(client.get("/hello").text(), "Hello, World!");
        drop(taken);
        let mut second = Started::new(folder, "two");
        assert_eq!(second.child.wait().unwrap().code(), Some(1));
        let log = second.wait_for_log("another program listens there");
        assert!(log.contains("127.0.0.1:8080"), "{log}");
    });
}
