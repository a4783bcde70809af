//! Listeners that a reload opens and closes.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use blitz_testing::{Client, IO_TIMEOUT, Upstream};

use crate::https::{Folder, config, connect, get};
use crate::{blitz, stderr, stdout};

/// A gateway with one file, at first with one listener for clear text.
struct Gateway {
    folder: Folder,
    child: Child,
    upstream: Upstream,
    first: SocketAddr,
}

impl Gateway {
    fn start() -> Gateway {
        let upstream =
            Upstream::start(|_| b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhere".to_vec());
        let folder = Folder::new();
        write(&folder, &upstream, "listen = [\"127.0.0.1:0\"]");
        let mut child = Command::new(env!("CARGO_BIN_EXE_blitz"))
            .args(["run", "--cores", "2", "--config", &folder.file("")])
            .args([
                "--control",
                &folder.file("control.sock"),
                "--control-listen=off",
            ])
            .env("XDG_STATE_HOME", folder.file(""))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.find_map(|line| {
            let line = line.unwrap();
            let url = line.trim().strip_prefix("listening on")?.trim();
            url.strip_prefix("http://")?.parse().ok()
        });
        Gateway {
            folder,
            child,
            upstream,
            first: first.expect("the start message has the address"),
        }
    }

    /// A reload with these lines at the top of the file.
    fn reload(&self, listeners: &str) -> Output {
        write(&self.folder, &self.upstream, listeners);
        blitz(&["reload", "--control", &self.folder.file("control.sock")])
    }

    /// The same, which has to succeed; returns the addresses of the listeners that it opened and closed.
    fn reload_well(&self, listeners: &str) -> (Vec<String>, Vec<String>) {
        let output = self.reload(listeners);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let text = stdout(&output);
        let listed = |sign: &str| {
            let lines = text
                .lines()
                .filter_map(|line| line.trim().strip_prefix(sign));
            lines.map(str::to_owned).collect()
        };
        (listed("+ listener "), listed("- listener "))
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn write(folder: &Folder, upstream: &Upstream, listeners: &str) {
    let url = upstream.url();
    let text = format!("{listeners}\n[site.\"a.example\"]\nto = \"{url}\"\ntls = false\n");
    fs::write(folder.file("blitz.toml"), text).unwrap();
}

fn answers(address: SocketAddr) -> bool {
    let mut client = Client::connect(address);
    client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
    client.response().text() == "here"
}

fn eventually_refuses(address: SocketAddr) {
    let end = Instant::now() + IO_TIMEOUT;
    while TcpStream::connect_timeout(&address, Duration::from_millis(100)).is_ok() {
        assert!(Instant::now() < end, "{address} still accepts");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_reload_opens_and_closes_listeners() {
    let gateway = Gateway::start();
    let mut client = Client::connect(gateway.first);
    let mut still_answers = || {
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
        assert_eq!(client.response().text(), "here");
    };
    still_answers();
    let both = "listen = [\"127.0.0.1:0\", \"[::1]:0\"]";
    let (opened, closed) = gateway.reload_well(both);
    assert!(closed.is_empty(), "{closed:?}");
    let [opened] = &opened[..] else {
        panic!("{opened:?}")
    };
    let second: SocketAddr = opened.strip_prefix("http://").unwrap().parse().unwrap();
    assert!(second.is_ipv6() && answers(second));
    still_answers();
    assert_eq!(gateway.reload_well(both), (vec![], vec![]));
    still_answers();
    let (opened, closed) = gateway.reload_well("listen = [\"[::1]:0\"]");
    assert_eq!(
        (opened, closed),
        (vec![], vec![format!("http://{}", gateway.first)])
    );
    eventually_refuses(gateway.first);
    assert!(answers(second));
}

/// The site is known there only, and the others are known there, too.
#[test]
fn a_reload_opens_and_closes_the_own_listeners_of_a_site() {
    let gateway = Gateway::start();
    let free = || TcpListener::bind("127.0.0.1:0")?.local_addr();
    let own = free().unwrap();
    let status = |address: SocketAddr, host: &str| {
        let mut client = Client::connect(address);
        client.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        client.response().status
    };
    let site = format!("[site.\"own.example\"]\nrespond = 204\nlisten = [\"{own}\"]");
    let listen = "listen = [\"127.0.0.1:0\"]";
    let (opened, closed) = gateway.reload_well(&format!("{listen}\n{site}"));
    assert_eq!((opened, closed), (vec![format!("http://{own}")], vec![]));
    assert_eq!(status(own, "own.example"), 204);
    assert_eq!(status(gateway.first, "own.example"), 404);
    assert!(answers(own) && answers(gateway.first));
    let (opened, closed) = gateway.reload_well(listen);
    assert_eq!((opened, closed), (vec![], vec![format!("http://{own}")]));
    eventually_refuses(own);
}

/// A file whose listener cannot be opened is refused as a whole.
#[test]
fn an_address_in_use_changes_nothing() {
    let gateway = Gateway::start();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = other.local_addr().unwrap();
    let output = gateway.reload(&format!("listen = [\"[::1]:0\", \"{taken}\"]"));
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(
        text.contains(&format!("cannot listen on {taken}")),
        "{text}"
    );
    assert!(text.contains("such as listen = [\"127.0.0.1:"), "{text}");
    assert!(text.ends_with("the configuration in use stays\n"), "{text}");
    assert!(answers(gateway.first));
}

/// While an address is waited for, no client reaches a socket of a file that is going to be refused.
#[test]
fn a_refused_file_accepts_nothing() {
    let gateway = Gateway::start();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = other.local_addr().unwrap();
    let path = gateway.folder.file("new.sock");
    let is_refused = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let output = gateway.reload(&format!("listen = [\"unix:{path}\", \"{taken}\"]"));
            is_refused.store(true, Ordering::Release);
            assert_eq!(output.status.code(), Some(1));
        });
        while !is_refused.load(Ordering::Acquire) {
            assert!(UnixStream::connect(&path).is_err());
            thread::sleep(Duration::from_millis(1));
        }
    });
}

/// The first listener for TLS brings the first certificates.
#[test]
fn tls_comes_with_a_reload_and_goes_with_another() {
    let gateway = Gateway::start();
    gateway.folder.certificate("a.example");
    let plain = "listen = [\"127.0.0.1:0\"]";
    let (opened, _) = gateway.reload_well(&format!(
        "{plain}\nlisten_tls = [\"127.0.0.1:0\"]\ncertificates = [\"*.example.pem\"]"
    ));
    let [secure] = &opened[..] else {
        panic!("{opened:?}")
    };
    let secure: SocketAddr = secure.strip_prefix("https://").unwrap().parse().unwrap();
    let trusted = config(Path::new(&gateway.folder.file("ca.pem")), None);
    let mut client = connect(secure, "a.example", &trusted);
    assert!(
        get(&mut client, "a.example", "/")
            .unwrap()
            .ends_with("here")
    );
    let (_, closed) = gateway.reload_well(plain);
    assert_eq!(closed, [format!("https://{secure}")]);
    eventually_refuses(secure);
    assert!(answers(gateway.first));
}

/// The port may be that of a listener that has just gone, and whose connections have not ended.
#[test]
fn http3_comes_when_its_port_is_free() {
    let gateway = Gateway::start();
    gateway.folder.certificate("a.example");
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = tcp.local_addr().unwrap();
    let held = UdpSocket::bind(address).unwrap();
    drop(tcp);
    gateway.reload_well(&format!(
        "listen = [\"127.0.0.1:0\"]\nlisten_tls = [\"{address}\"]\ncertificates = [\"*.example.pem\"]"
    ));
    let trusted = config(Path::new(&gateway.folder.file("ca.pem")), None);
    let response = || {
        let mut client = connect(address, "a.example", &trusted);
        get(&mut client, "a.example", "/").unwrap().to_lowercase()
    };
    assert!(response().contains("alt-svc: clear"), "{}", response());
    drop(held);
    let end = Instant::now() + IO_TIMEOUT;
    while !response().contains(&format!("alt-svc: h3=\":{}\"", address.port())) {
        assert!(Instant::now() < end, "{}", response());
        thread::sleep(Duration::from_millis(50));
    }
    assert!(UdpSocket::bind(address).is_err());
    assert!(answers(gateway.first));
}
