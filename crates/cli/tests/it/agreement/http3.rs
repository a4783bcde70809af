//! A client of HTTP/3, frame by frame.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use blitz_testing::h3::kind::{DATA, HEADERS};
use blitz_testing::h3::{data, request, request_with, status};
use blitz_testing::quic::{Quic, RawClient, RawExchange, block_on, next_frame, pause};
use quinn::VarInt;
use rustls::ClientConfig;

use super::ledger::Ledger;

/// The code of a client that needs a response no more (RFC 9114, section 8.1).
const REQUEST_CANCELLED: u32 = 0x10c;

/// Longer than the gateway waits for content.
const PATIENCE: Duration = Duration::from_secs(30);

async fn connect(address: SocketAddr, trusted: &Arc<ClientConfig>) -> RawClient {
    let mut config = ClientConfig::clone(trusted);
    config.alpn_protocols = vec![b"h3".to_vec()];
    let config = Arc::new(config);
    let quic = Quic::connect(&config, Default::default(), address, "localhost").await;
    RawClient::begin(quic.unwrap()).await
}

async fn wait_arrived(ledger: &Ledger, path: &str) {
    for _ in 0..1_000 {
        if ledger.has_arrived(path) {
            return;
        }
        pause(5).await;
    }
    panic!("{path}: it does not come");
}

/// A request with a response.
async fn ask(ledger: &Ledger, client: &RawClient, kind: &str, request: impl Fn(&str) -> Vec<u8>) {
    let path = ledger.send(kind, "http3");
    let mut exchange = client.exchange(request(&path)).await;
    exchange.send.finish().unwrap();
    end(ledger, &path, &mut exchange).await;
}

async fn end(ledger: &Ledger, path: &str, exchange: &mut RawExchange) {
    let response = exchange.response().await;
    if let Some(status) = response.heads.first().copied().flatten() {
        ledger.got(path, status);
    }
}

/// Receives until content has come.
async fn content(ledger: &Ledger, path: &str, exchange: &mut RawExchange) {
    loop {
        match exchange.frame().await.unwrap() {
            (HEADERS, section) => ledger.got(path, status(&section).unwrap()),
            (DATA, _) => return,
            (kind, _) => panic!("frame of type {kind:#x}"),
        }
    }
}

fn reset(exchange: &mut RawExchange) {
    let code = VarInt::from_u32(REQUEST_CANCELLED);
    // The request may have been finished.
    let _ = exchange.send.reset(code);
    let _ = exchange.recv.stop(code);
}

/// Requests of all kinds.
pub(super) fn run(
    ledger: &Ledger,
    address: SocketAddr,
    trusted: &Arc<ClientConfig>,
    rounds: usize,
) {
    block_on(async {
        for _ in 0..rounds {
            let client = connect(address, trusted).await;
            for kind in [
                "ok", "missing", "fixed", "closed", "down", "slow", "reset", "cut", "ok",
            ] {
                ask(ledger, &client, kind, |path| request("GET", path)).await;
            }
            let upload = |path: &str| [request("POST", path), data("hello")].concat();
            ask(ledger, &client, "ok", upload).await;
            ask(ledger, &client, "ok", |path| request("HEAD", path)).await;
            // RFC 9114, section 4.2: field names are in lower case.
            let malformed = |path: &str| request_with("GET", path, &[("Bad", "x")]);
            ask(ledger, &client, "bad", malformed).await;
            reset_streams(ledger, &client).await;
            leave(ledger, client).await;
        }
    });
}

/// Streams that the client resets: within a request, before its response, and within it.
async fn reset_streams(ledger: &Ledger, client: &RawClient) {
    let path = ledger.send("upload", "http3");
    let bytes = [request("POST", &path), data("hello")].concat();
    let mut within_request = client.exchange(bytes).await;
    wait_arrived(ledger, &path).await;
    reset(&mut within_request);

    let path = ledger.send("slow", "http3");
    let mut before_response = client.exchange(request("GET", &path)).await;
    before_response.send.finish().unwrap();
    wait_arrived(ledger, &path).await;
    reset(&mut before_response);

    let path = ledger.send("stream", "http3");
    let mut within_response = client.exchange(request("GET", &path)).await;
    within_response.send.finish().unwrap();
    content(ledger, &path, &mut within_response).await;
    reset(&mut within_response);

    // The gateway may not see the request.
    let path = ledger.send("ok", "http3");
    let mut at_once = client.exchange(request("GET", &path)).await;
    reset(&mut at_once);
}

/// A connection that ends with open streams.
async fn leave(ledger: &Ledger, client: RawClient) {
    let paths = ["slow", "upload"].map(|kind| ledger.send(kind, "http3"));
    let mut slow = client.exchange(request("GET", &paths[0])).await;
    slow.send.finish().unwrap();
    let upload = [request("POST", &paths[1]), data("hello")].concat();
    let _upload = client.exchange(upload).await;
    for path in &paths {
        wait_arrived(ledger, path).await;
    }
    client.quic.connection.close(VarInt::from_u32(0x100), b"");
    // So that the close is sent.
    pause(20).await;
}

/// Content that comes too slowly.
pub(super) fn upload_slowly(ledger: &Ledger, address: SocketAddr, trusted: &Arc<ClientConfig>) {
    block_on(async {
        let client = connect(address, trusted).await;
        let path = ledger.send("slow-upload", "http3");
        let RawExchange {
            mut send, mut recv, ..
        } = client.exchange(request("POST", &path)).await;
        let writing = async {
            while send.write_all(&data("hello")).await.is_ok() {
                pause(100).await;
            }
            // The response ends this.
            tokio::time::sleep(PATIENCE).await;
        };
        let mut arrived = Vec::new();
        tokio::select! {
            () = writing => panic!("there is no response"),
            received = next_frame(&mut recv, &mut arrived) => match received {
                Ok((HEADERS, section)) => ledger.got(&path, status(&section).unwrap()),
                other => panic!("{other:?}"),
            },
        }
    });
}

/// Requests that end within the drain, and one that is cut off.
pub(super) fn be_drained(ledger: &Ledger, address: SocketAddr, trusted: &Arc<ClientConfig>) {
    block_on(async {
        let client = connect(address, trusted).await;
        let streamed = ledger.send("stream", "http3");
        let mut stream = client.exchange(request("GET", &streamed)).await;
        stream.send.finish().unwrap();
        content(ledger, &streamed, &mut stream).await;
        let held = ledger.send("hold", "http3");
        let mut hold = client.exchange(request("GET", &held)).await;
        hold.send.finish().unwrap();
        wait_arrived(ledger, &held).await;
        ledger.is_drainable();
        end(ledger, &held, &mut hold).await;
        while stream.frame().await.is_ok() {}
    });
}
