//! The control interface: who may ask what, and its life from the start to the end of a process.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use blitz_testing::{Client, IO_TIMEOUT};

use crate::control_support::{Controlled, Place};
use crate::https::{Folder, Running};
use crate::{blitz, stderr};

const SITE: &str = "[site.\"a.example\"]\nrespond = 204\n";

#[test]
fn the_address_reads_and_the_socket_does_everything() {
    let control = Controlled::with_file(SITE);
    for place in control.places() {
        let index = place.get("/");
        assert_eq!(index.status, 200);
        assert!(index.content.contains("/readyz"), "{}", index.content);
        let page = place.ask("GET", "/", "Accept: text/html\r\n");
        assert!(page.content.contains("<a href=\"/upstreams\">"));
        assert_eq!(place.get("/livez").content, "live\n");
        for path in ["/readyz", "/healthz"] {
            let ready = place.get(path);
            assert_eq!((ready.status, ready.content.as_str()), (200, "ready\n"));
        }
        assert!([200, 503].contains(&place.get("/metrics").status));
        assert!(place.get("/config").content.contains("a.example"));
        assert_eq!(place.get("/config/diff").status, 200);
        let routes = place.get("/explain?routes=a.example");
        assert!(routes.content.contains("204"), "{}", routes.content);
        let head = place.ask("HEAD", "/livez", "");
        assert_eq!((head.status, head.content.as_str()), (200, ""));
        let missing = place.get("/nothing");
        assert_eq!(missing.status, 404);
        assert!(missing.content.contains("GET /"), "{}", missing.content);
    }
    for target in ["/reload", "/drain", "/log-level?level=debug"] {
        let refused = control.address.post(target);
        assert_eq!(refused.status, 403, "{target}");
        assert!(
            refused.content.contains("`control.socket`"),
            "{}",
            refused.content
        );
    }
    assert_eq!(control.socket.post("/reload").status, 200);
}

/// DNS rebinding has a browser connect to this machine under another name.
#[test]
fn pages_in_a_browser_reach_nothing() {
    let control = Controlled::with_file(SITE);
    let Place::Address(address) = control.address else {
        panic!("it is an address")
    };
    let port = address.port();
    for (host, expected) in [
        (format!("localhost:{port}"), 200),
        (format!("127.0.0.1:{port}"), 200),
        (format!("evil.example:{port}"), 421),
        (format!("localhost:{}", port ^ 1), 421),
        ("localhost".to_owned(), 421),
    ] {
        let answer = control.address.ask_host(&host, "GET", "/config", "");
        assert_eq!(answer.status, expected, "{host}: {}", answer.content);
    }
    for (lines, expected) in [
        (format!("Origin: http://{address}\r\n"), 200),
        ("Sec-Fetch-Site: none\r\n".to_owned(), 200),
        ("Origin: http://evil.example\r\n".to_owned(), 403),
        ("Origin: null\r\n".to_owned(), 403),
        ("Sec-Fetch-Site: cross-site\r\n".to_owned(), 403),
        ("Sec-Fetch-Site: same-site\r\n".to_owned(), 403),
        (
            "Sec-Fetch-Site: none\r\nSec-Fetch-Site: cross-site\r\n".to_owned(),
            403,
        ),
        (
            format!("Origin: http://{address}\r\nOrigin: http://evil.example\r\n"),
            403,
        ),
    ] {
        let answer = control.address.ask("GET", "/config", &lines);
        assert_eq!(answer.status, expected, "{lines}: {}", answer.content);
        for field in [
            "x-content-type-options: nosniff\r\n",
            "cross-origin-resource-policy: same-origin\r\n",
        ] {
            let found = answer.fields.matches(field).count();
            assert_eq!(found, 1, "{}", answer.fields);
        }
    }
    let page = control.address.ask("GET", "/", "Accept: text/html\r\n");
    let sniffing = page.fields.matches("x-content-type-options:").count();
    assert_eq!(sniffing, 1, "{}", page.fields);
}

#[test]
fn other_machines_get_health_and_metrics_only() {
    let folder = Folder::new();
    let flags = ["--control-listen", "0.0.0.0:0", "--listen", "127.0.0.1:0"];
    let running = Running::announcing(&folder, &flags, "http://");
    let port = running.control_address().unwrap().port();
    let place = Place::Address(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    for (target, is_public) in [
        ("/livez", true),
        ("/readyz", true),
        ("/healthz", true),
        ("/metrics", true),
        ("/", false),
        ("/config", false),
        ("/upstreams", false),
        ("/connections", false),
    ] {
        let answer = place.ask_host("blitz.internal", "GET", target, "");
        assert_eq!(
            answer.status != 403,
            is_public,
            "{target}: {}",
            answer.content
        );
    }
    assert_eq!(place.post("/drain").status, 403);
}

#[test]
fn a_port_in_use_is_a_warning() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let folder = Folder::new();
    let flags = ["--control-listen", &address, "--listen", "127.0.0.1:0"];
    let running = Running::announcing(&folder, &flags, "http://");
    assert_eq!(running.control_address(), None);
    let warning = format!("no control address: cannot listen on {address}");
    assert!(running.log().contains(&warning), "{}", running.log());
    let mut client = Client::connect(running.address("http://"));
    assert_eq!(client.get("/hello").status, 200);
}

#[test]
fn a_listener_at_the_control_address_is_an_error() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let output = blitz(&["run", "--listen", &address, "--control-listen", &address]);
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(text.contains("is a part of the listener"), "{text}");
    let output = blitz(&["run", "--control-listen", "unix:/tmp/x.sock"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--control"), "{}", stderr(&output));
}

#[test]
fn false_turns_both_off() {
    let folder = Folder::new();
    let text = format!("listen = [\"127.0.0.1:0\"]\ncontrol = false\n{SITE}");
    fs::write(folder.file("blitz.toml"), text).unwrap();
    let child = std::process::Command::new(env!("CARGO_BIN_EXE_blitz"))
        .args(["run", "--cores=1", "--config", &folder.file("")])
        .env("XDG_RUNTIME_DIR", folder.file(""))
        .stdout(std::process::Stdio::piped())
        .spawn();
    let mut child = child.unwrap();
    let lines = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut announced = String::new();
    for line in std::io::BufRead::lines(lines) {
        let line = line.unwrap();
        announced += &line;
        if line.trim().starts_with("try") {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!announced.contains("control at"), "{announced}");
    assert!(!Path::new(&folder.file("blitz/control.sock")).exists());
}

/// Flags alone have no file to show, and a socket only if it is asked for.
#[test]
fn a_process_without_a_file_has_health_and_state() {
    let control = Controlled::start(Folder::new(), &["--listen", "127.0.0.1:0"]);
    for place in control.places() {
        assert_eq!(place.get("/readyz").status, 200);
        assert_eq!(
            place.get("/upstreams").json()["upstreams"],
            serde_json::json!([])
        );
        for target in ["/config", "/config/diff", "/explain?routes=a"] {
            let answer = place.get(target);
            assert_eq!(answer.status, 404);
            assert!(
                answer.content.contains("--show-config"),
                "{}",
                answer.content
            );
        }
    }
    let reloaded = control.socket.post("/reload");
    assert_eq!(reloaded.status, 200, "{}", reloaded.content);
}

#[test]
fn readiness_ends_before_connections_are_refused() {
    let flags = ["--listen", "127.0.0.1:0", "--drain-delay", "2s"];
    let mut control = Controlled::start(Folder::new(), &flags);
    let site = control.running.address("http://");
    let metrics = control.address.get("/metrics");
    assert!(metrics.content.contains("\nblitz_ready 1\n"));
    // It keeps the process from its end.
    let mut long = Client::connect(site);
    long.send("GET /delay?ms=5000 HTTP/1.1\r\nHost: a.example\r\n\r\n");
    thread::sleep(Duration::from_millis(100));
    control.running.signal("TERM");
    let end = Instant::now() + IO_TIMEOUT;
    while control.address.get("/readyz").status == 200 {
        assert!(Instant::now() < end, "{}", control.running.log());
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(Client::connect(site).get("/hello").status, 200);
    for place in control.places() {
        let answer = place.get("/readyz");
        assert_eq!(
            (answer.status, answer.content.as_str()),
            (503, "not ready: draining\n")
        );
        assert_eq!(place.get("/livez").status, 200);
    }
    let metrics = control.address.get("/metrics");
    assert!(metrics.content.contains("\nblitz_ready 0\n"));
    let refused = control.socket.post("/reload");
    assert_eq!(refused.status, 422, "{}", refused.content);
    while TcpStream::connect_timeout(&site, Duration::from_millis(100)).is_ok() {
        assert!(Instant::now() < end, "{site} still accepts");
        thread::sleep(Duration::from_millis(5));
    }
    // The next process may have the socket; those that ask this one still learn that it is not ready.
    assert_eq!(control.address.get("/readyz").status, 503);
    let Place::Socket(path) = &control.socket else {
        panic!("it is a socket")
    };
    while std::os::unix::net::UnixStream::connect(path).is_ok() {
        assert!(Instant::now() < end, "{path} still accepts");
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(long.response().status, 200);
    assert_eq!(control.running.wait(), Some(0));
}

#[test]
fn drain_ends_the_process() {
    let mut control = Controlled::with_file(SITE);
    let answer = control.socket.post("/drain");
    assert_eq!(answer.status, 202, "{}", answer.content);
    assert_eq!(control.running.wait(), Some(0));
}

#[test]
fn the_log_level_changes_while_the_process_runs() {
    let control = Controlled::with_file(SITE);
    let (is_debug, is_info) = (
        "a core has taken the new sites",
        "the configuration was read again",
    );
    for place in control.places() {
        assert_eq!(place.get("/log-level").content, "info\n");
    }
    let log_of_reload = |host: &str| {
        let before = control.running.log().len();
        control.write(&SITE.replace("a.example", host));
        assert_eq!(control.socket.post("/reload").status, 200);
        // The outcome is logged first; another thread writes the log.
        thread::sleep(Duration::from_millis(200));
        control.running.log()[before..].to_owned()
    };
    let log = log_of_reload("b.example");
    assert!(log.contains(is_info) && !log.contains(is_debug), "{log}");
    let answer = control.socket.post("/log-level?level=debug");
    assert_eq!((answer.status, answer.content.as_str()), (200, "debug\n"));
    assert_eq!(control.address.get("/log-level").content, "debug\n");
    let log = log_of_reload("c.example");
    assert!(log.contains(is_info) && log.contains(is_debug), "{log}");
    assert_eq!(control.socket.post("/log-level?level=warn").status, 200);
    let log = log_of_reload("d.example");
    assert!(!log.contains(is_info), "{log}");
    let wrong = control.socket.post("/log-level?level=verbose");
    assert_eq!(wrong.status, 400);
    assert!(
        wrong.content.contains("off, error, warn"),
        "{}",
        wrong.content
    );
}
