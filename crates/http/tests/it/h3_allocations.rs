//! The allocations of a request over HTTP/3 on a warm connection, with the QUIC library. Only the server is counted, so
//! the client is another process.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

use bytes::Bytes;
use quinn::TransportConfig;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::allocations::allocations;
use crate::h3_support::{Client, Quic, QuicServer, block_on, get, post, receive};
use crate::support::{on_each_driver, options};
use crate::tls_support::Outside;

/// Requests per round.
const REQUESTS: usize = 500;

/// Allocations that a request may cause, by the client's way of asking. Measured were 7.2 for a request without
/// content, and 10.2 with some.
const BOUNDS: [(&str, usize); 3] = [("same", 9), ("varied", 9), ("content", 12)];

/// Where the client's process finds the server, and the authority that it trusts.
const SERVER: &str = "BLITZ_TEST_H3_SERVER";
const AUTHORITY: &str = "BLITZ_TEST_H3_AUTHORITY";

#[test]
fn requests_on_a_warm_connection_allocate_little() {
    if !blitz_testing::is_alone() {
        return;
    }
    on_each_driver(|io| {
        let server = QuicServer::start(io, 1, options);
        let mut client = Process::start(&server);
        for (kind, bound) in BOUNDS {
            client.round(kind);
            let rounds = [(); 3].map(|()| {
                let before = allocations();
                client.round(kind);
                allocations() - before
            });
            let least = rounds.iter().min().unwrap().div_ceil(REQUESTS);
            assert!(least <= bound, "{kind}: {rounds:?} for {REQUESTS} requests");
        }
    });
}

/// A client that does as it is told.
struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    line: String,
}

impl Process {
    fn start(server: &QuicServer) -> Process {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["h3_allocations::client_of_another_process", "--exact"])
            .args(["--ignored", "--nocapture", "--test-threads=1"])
            .env(SERVER, server.address.to_string())
            .env(AUTHORITY, &server.authority.pem)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Process {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
            line: String::new(),
        }
    }

    /// Has all requests of a round sent, and their responses received.
    fn round(&mut self, kind: &str) {
        writeln!(self.input, "{kind}").unwrap();
        loop {
            self.line.clear();
            let read = self.output.read_line(&mut self.line).unwrap();
            assert!(read > 0, "the client has ended");
            if self.line.trim_end().ends_with("done") {
                return;
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "it is the client of another test"]
fn client_of_another_process() {
    let address: SocketAddr = env::var(SERVER).unwrap().parse().unwrap();
    let mut roots = RootCertStore::empty();
    let authority = env::var(AUTHORITY).unwrap();
    let authority = CertificateDer::from_pem_slice(authority.as_bytes()).unwrap();
    roots.add(authority).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let config = Arc::new(config);
    let outside = Outside { config }.of_h3();
    block_on(async {
        let transport = TransportConfig::default();
        let quic = Quic::connect(&outside.config, transport, address, "localhost").await;
        let client = Client::over(quic.unwrap()).await;
        let mut number = 0;
        for kind in std::io::stdin().lines() {
            let kind = kind.unwrap();
            for _ in 0..REQUESTS {
                number += 1;
                exchange(&client, &kind, number).await;
            }
            println!("done");
        }
    });
}

async fn exchange(client: &Client, kind: &str, number: usize) {
    let content = Bytes::from_static(b"content");
    let request = match kind {
        "same" => get("/hello"),
        "varied" => get("/hello").header("x-number", number),
        _ => post("/echo"),
    };
    let mut stream = client.send(request).await;
    if kind == "content" {
        stream.send_data(content.clone()).await.unwrap();
    }
    stream.finish().await.unwrap();
    let answer = receive(&mut stream).await.unwrap();
    let wanted = if kind == "content" {
        &content[..]
    } else {
        b"hello"
    };
    assert_eq!(answer.content, wanted);
}
