//! hyper accepts every request that Blitz accepts, and parses it in the same way: request smuggling
//! needs a request that two servers parse differently.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use blitz_proto::h1::{Event, Server};
use blitz_proto::{BodyLength, Fields, Limits, RequestHead, ResponseHead};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The properties of one request that both sides report.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    method: String,
    target: String,
    fields: Vec<(String, Vec<u8>)>,
    content: Vec<u8>,
}

/// The requests in `raw` according to Blitz; `None` if one is refused or incomplete.
fn ours(raw: &[u8]) -> Option<Vec<Seen>> {
    let mut server = Server::new(&Limits::default());
    let (mut head, mut trailers) = (RequestHead::default(), Fields::new());
    let mut all: Vec<Seen> = Vec::new();
    let mut rest = raw;
    loop {
        let step = server.handle_input(rest, &mut head, &mut trailers).ok()?;
        match step.event {
            Event::NeedMore if server.is_idle() => return Some(all),
            Event::NeedMore | Event::Paused => return None,
            Event::Head(_) => all.push(seen(&head)),
            Event::Data(range) => all.last_mut()?.content.extend_from_slice(&rest[range]),
            Event::Trailers => {}
            Event::End => {
                let mut out = Vec::new();
                server.send_head(&ResponseHead::default(), BodyLength::Empty, &mut out);
                server
                    .send_end(None, &mut out)
                    .expect("an empty response is complete");
                if !server.keep_alive() {
                    return Some(all);
                }
            }
        }
        rest = &rest[step.consumed..];
    }
}

fn seen(head: &RequestHead) -> Seen {
    let query = head
        .query()
        .map(|query| format!("?{query}"))
        .unwrap_or_default();
    // Blitz reports the normal form; the comparison needs the received path.
    let target = format!("{}{query}", head.raw_path());
    let field = |(name, value): (blitz_proto::FieldName<'_>, &[u8])| {
        (name.as_str().to_ascii_lowercase(), value.to_vec())
    };
    let mut fields: Vec<_> = head.fields.iter().map(field).collect();
    // In Blitz, an absolute target replaces the Host field; in hyper it does not.
    if head.scheme().is_some() {
        fields.retain(|(name, _)| name != "host");
    }
    fields.sort();
    Seen {
        method: head.method_str().to_owned(),
        target,
        fields,
        content: Vec::new(),
    }
}

/// The requests in `raw` according to hyper, whose content it could read completely.
fn theirs(raw: &[u8]) -> Vec<Seen> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    runtime.expect("a runtime").block_on(async {
        let (mut client, server) = tokio::io::duplex(1 << 20);
        let all = Arc::new(Mutex::new(Vec::new()));
        let log = all.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let log = log.clone();
            async move {
                if let Some(seen) = collect(request).await {
                    log.lock().expect("no panic").push(seen);
                }
                Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
            }
        });
        let serving = hyper::server::conn::http1::Builder::new()
            .half_close(true)
            .serve_connection(TokioIo::new(server), service);
        let feeding = async move {
            client.write_all(raw).await.expect("room for the request");
            client.shutdown().await.expect("a half-close");
            let mut answer = Vec::new();
            let _ = client.read_to_end(&mut answer).await;
        };
        let both = async { tokio::join!(serving, feeding) };
        let _ = tokio::time::timeout(Duration::from_secs(10), both)
            .await
            .expect("no hang");
        Arc::into_inner(all)
            .expect("hyper is done")
            .into_inner()
            .expect("no panic")
    })
}

async fn collect(request: Request<Incoming>) -> Option<Seen> {
    let (parts, body) = request.into_parts();
    let content = body.collect().await.ok()?.to_bytes().to_vec();
    // As it would be forwarded, with an empty path as `/`.
    let target = parts
        .uri
        .path_and_query()
        .map(ToString::to_string)
        .unwrap_or_default();
    let field = |(name, value): (&hyper::header::HeaderName, &hyper::header::HeaderValue)| {
        (name.as_str().to_owned(), value.as_bytes().to_vec())
    };
    let mut fields: Vec<_> = parts.headers.iter().map(field).collect();
    if parts.uri.scheme().is_some() {
        fields.retain(|(name, _)| name != "host");
    }
    fields.sort();
    Some(Seen {
        method: parts.method.as_str().to_owned(),
        target,
        fields,
        content,
    })
}

fn assert_same(raw: &[u8]) {
    if let Some(ours) = ours(raw) {
        let theirs = theirs(&with_encoded_targets(raw));
        assert_eq!(ours, theirs, "{:?}", String::from_utf8_lossy(raw));
    }
}

/// The same requests with the bytes encoded that only Blitz accepts in targets.
fn with_encoded_targets(raw: &[u8]) -> Vec<u8> {
    let mut encoded = Vec::new();
    for line in raw.split_inclusive(|&byte| byte == b'\n') {
        let is_request_line = line.ends_with(b" HTTP/1.1\r\n") || line.ends_with(b" HTTP/1.0\r\n");
        let position = |wanted| line.iter().position(|&byte| byte == wanted);
        let method_end = position(b' ').unwrap_or(line.len());
        // A changed line of a field may end like one of a request.
        let is_request_line = is_request_line && !line[..method_end].contains(&b':');
        let query_start = position(b'?').unwrap_or(line.len());
        for (at, &byte) in line.iter().enumerate() {
            let is_raw = b"\"<>^`{|}".contains(&byte)
                || !byte.is_ascii()
                || (byte == b'\\' && at > query_start);
            if is_request_line && is_raw && at > method_end {
                encoded.extend(format!("%{byte:02X}").bytes());
            } else {
                encoded.push(byte);
            }
        }
    }
    encoded
}

/// Requests that Blitz accepts, of every kind except upgrades and CONNECT.
const GOOD: &[&str] = &[
    "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "\r\nGET /a//b/../c?d=e&f HTTP/1.1\r\nHost: a:80\r\nX-One: \t two  words \t\r\nEmpty:\r\n\r\n",
    "PURGE /%7e%2F?%zz HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    "HEAD http://b.example/x?y HTTP/1.1\r\nHost: b.example\r\n\r\n",
    "OPTIONS * HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhelloGET /2 HTTP/1.1\r\nHost: a\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=\"y\"\r\n world\r\n0\r\n\r\n",
    "PUT / HTTP/1.1\r\nHost: a\r\ntransfer-encoding: Chunked\r\n\r\n0A\r\n0123456789\r\n0\r\nX-T: 1\r\n\r\n",
    "GET /a\u{e9}<b>?{c}|\\ HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /1 HTTP/1.1\r\nHost: a\r\nConnection: close, x\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n",
    "PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi",
    "GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: b\r\n\r\nPOST /3 HTTP/1.1\r\nHost: c\r\nContent-Length: 0\r\n\r\n",
];

#[test]
fn valid_requests_are_parsed_alike() {
    for raw in GOOD {
        assert!(ours(raw.as_bytes()).is_some(), "{raw:?} is good");
        assert_same(raw.as_bytes());
    }
}

/// One change to a request.
#[derive(Debug, Clone)]
enum Change {
    Replace(prop::sample::Index, u8),
    Insert(prop::sample::Index, u8),
    Remove(prop::sample::Index),
    Repeat(prop::sample::Index, prop::sample::Index),
}

fn change() -> impl Strategy<Value = Change> {
    let place = any::<prop::sample::Index>;
    // Bytes with a meaning in HTTP are chosen more often than others.
    let byte = || {
        prop_oneof![
            prop::sample::select(&b"\r\n\t\0 :;,=/?#%.0159aFgx\"<|\\\x7f\xff"[..]),
            any::<u8>()
        ]
    };
    prop_oneof![
        (place(), byte()).prop_map(|(at, byte)| Change::Replace(at, byte)),
        (place(), byte()).prop_map(|(at, byte)| Change::Insert(at, byte)),
        place().prop_map(Change::Remove),
        (place(), place()).prop_map(|(from, to)| Change::Repeat(from, to)),
    ]
}

fn apply(raw: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Replace(at, byte) => {
            let at = at.index(raw.len());
            raw[at] = *byte;
        }
        Change::Insert(at, byte) => raw.insert(at.index(raw.len() + 1), *byte),
        Change::Remove(at) => {
            raw.remove(at.index(raw.len()));
        }
        Change::Repeat(from, to) => {
            let (from, to) = (from.index(raw.len()), to.index(raw.len()));
            let part = raw[from.min(to)..from.max(to)].to_vec();
            raw.splice(from.max(to)..from.max(to), part);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn changed_requests_are_refused_or_parsed_alike(
        raw in prop::sample::select(GOOD),
        changes in prop::collection::vec(change(), 1..4),
    ) {
        let mut raw = raw.as_bytes().to_vec();
        for change in &changes {
            apply(&mut raw, change);
        }
        assert_same(&raw);
    }
}
