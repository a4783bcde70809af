//! Failures of upstreams have different statuses and values of `Proxy-Status`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use blitz_gateway::{Failure, Options};
use blitz_http::{BodyLength, Limits, ResponseHead, Status};
use blitz_testing::refusing_address;

use crate::h2::H2Upstream;
use crate::h2_client::Client;
use crate::h2_peer::H2Peer;
use crate::support::{Proxy, Upstream, eventually};

/// Responds to each request with `Content-Length` and so many other fields.
fn many_fields(peer: &mut H2Peer, count: usize) {
    while let Some((stream, _)) = peer.request() {
        let mut head = ResponseHead::new(Status::OK);
        for _ in 0..count {
            head.fields.append("a", "b");
        }
        peer.start(stream, &head, BodyLength::Empty);
        peer.flush();
    }
}

/// Status and `Proxy-Status` if the upstream responds with these bytes and closes.
fn result_for(io: blitz_http::IoChoice, bytes: &'static str) -> (u16, Option<String>) {
    let upstream = Upstream::scripted(move |_, peer| {
        peer.request();
        peer.send(bytes);
    });
    let proxy = Proxy::to(io, &[&upstream.url()]);
    let mut client = proxy.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
    let answer = client.response();
    (
        answer.status,
        answer.field("proxy-status").map(str::to_owned),
    )
}

fn error(status: u16, token: &str) -> (u16, Option<String>) {
    (status, Some(format!("blitz; error={token}")))
}

/// A new folder for unix sockets.
fn folder(io: blitz_http::IoChoice, name: &str) -> PathBuf {
    let name = format!("blitz-{name}-{io:?}-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Status, token and a part of the detail of the response if the upstream is this path.
fn unix_failure(io: blitz_http::IoChoice, path: &Path) -> (u16, String, String) {
    const DETAILS: [&str; 3] = [
        "does not exist",
        "is not a unix socket",
        "no program listens on",
    ];
    let proxy = Proxy::to(io, &[&format!("unix:{}", path.display())]);
    let answer = proxy.client().get("/");
    let token = answer.field("proxy-status").unwrap_or_default();
    let token = token.trim_start_matches("blitz; error=").to_owned();
    let text = answer.text();
    let detail = DETAILS.iter().find(|detail| text.contains(**detail));
    (answer.status, token, (*detail.unwrap_or(&text)).to_owned())
}

scenarios! {
    fn browsers_get_a_page_and_other_clients_get_json(io) {
        let proxy = Proxy::to(io, &[&format!("http://{}", refusing_address())]);
        let mut client = proxy.client();
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
        for (accept, content_type) in [
            (browser, "text/html; charset=utf-8"),
            ("*/*", "application/problem+json"),
            ("application/json, text/html", "application/problem+json"),
            ("text/plain", "text/plain; charset=utf-8"),
        ] {
            client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nAccept: {accept}\r\n\r\n"));
            let answer = client.response();
            assert_eq!((answer.status, answer.field("content-type")), (502, Some(content_type)));
            let is_page = answer.text().contains("<h1>502 Bad Gateway</h1>");
            assert_eq!(is_page, content_type.starts_with("text/html"), "{}", answer.text());
            if is_page {
                assert!(answer.text().contains(answer.field("x-request-id").unwrap()));
                assert!(answer.text().contains("refused the connection"), "{}", answer.text());
            }
        }
        // Also what is refused before it is a request.
        client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nAccept: {browser}\r\nHost: b\r\n\r\n"));
        let answer = client.response();
        assert_eq!((answer.status, answer.field("content-type")), (400, Some("text/html; charset=utf-8")));
        assert!(answer.text().contains("<p>host-repeated</p>"), "{}", answer.text());
    }

    fn a_refused_connection_is_a_bad_gateway(io) {
        let proxy = Proxy::to(io, &[&format!("http://{}", refusing_address())]);
        let mut client = proxy.client();
        for _ in 0..2 {
            let answer = client.get("/");
            assert_eq!(answer.status, 502);
            assert_eq!(answer.field("proxy-status"), Some("blitz; error=connection_refused"));
            assert_eq!(answer.field("content-type"), Some("application/problem+json"));
            assert!(answer.text().contains("\"status\":502"), "{}", answer.text());
        }
        assert_eq!(proxy.counters().failed(Failure::ConnectionRefused), 2);
    }

    fn plain_text_is_sent_if_accept_prefers_it(io) {
        let proxy = Proxy::to(io, &[&format!("http://{}", refusing_address())]);
        let mut client = proxy.client();
        client.send("GET / HTTP/1.1\r\nHost: a\r\nAccept: text/plain\r\n\r\n");
        let answer = client.response();
        assert_eq!(answer.field("content-type"), Some("text/plain; charset=utf-8"));
        assert!(answer.text().starts_with("502 Bad Gateway"), "{}", answer.text());
    }

    fn a_missing_unix_socket_is_called_missing(io) {
        let folder = folder(io, "missing");
        let file = folder.join("file");
        std::fs::write(&file, "not a socket").unwrap();
        for path in [folder.join("app.sock"), folder.join("no/app.sock"), file.join("app.sock")] {
            let answer = unix_failure(io, &path);
            assert_eq!(answer, (502, "connection_refused".into(), "does not exist".into()), "{path:?}");
        }
        let answer = unix_failure(io, &file);
        assert_eq!(answer, (502, "connection_refused".into(), "is not a unix socket".into()));
        let answer = unix_failure(io, &folder);
        assert_eq!(answer, (502, "connection_refused".into(), "is not a unix socket".into()));
        std::fs::remove_dir_all(folder).unwrap();
    }

    fn a_unix_socket_that_nothing_listens_on_refuses(io) {
        let folder = folder(io, "stale");
        let path = folder.join("app.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let answer = unix_failure(io, &path);
        assert_eq!(answer, (502, "connection_refused".into(), "no program listens on".into()));
        std::fs::remove_dir_all(folder).unwrap();
    }

    fn a_datagram_socket_is_unavailable(io) {
        let name = format!("blitz-datagram-{io:?}-{}.sock", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_file(&path);
        let _datagrams = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
        let proxy = Proxy::to(io, &[&format!("unix:{}", path.display())]);
        let answer = proxy.client().get("/");
        assert_eq!(answer.status, 503);
        assert_eq!(answer.field("proxy-status"), Some("blitz; error=destination_unavailable"));
        assert_eq!(answer.field("retry-after"), Some("1"));
        std::fs::remove_file(path).unwrap();
    }

    fn the_upstream_closes_without_a_response(io) {
        assert_eq!(result_for(io, ""), error(502, "connection_terminated"));
    }

    fn the_response_is_not_http(io) {
        for (bytes, rule) in [
            ("SSH-2.0-OpenSSH_9.6\r\n\r\n", "status-line-malformed"),
            ("HTTP/1.1 200 OK\nContent-Length: 0\n\n", "bare-lf"),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
                "content-length-repeated",
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
                "content-length-with-transfer-encoding",
            ),
            ("HTTP/1.1 20 OK\r\n\r\n", "status-line-malformed"),
            ("HTTP/1.1 200 OK\r\nBad Name: 1\r\n\r\n", "field-name-malformed"),
        ] {
            let expected = format!("http_protocol_error; details=\"{rule}\"");
            assert_eq!(result_for(io, bytes), error(502, &expected), "{bytes:?}");
        }
    }

    fn the_response_head_is_incomplete(io) {
        assert_eq!(result_for(io, "HTTP/1.1 200 OK\r\nA: b"), error(502, "http_response_incomplete"));
    }

    fn the_response_has_too_many_fields(io) {
        const TOO_MANY: &str = "http_response_header_section_size; details=\"too-many-fields\"";
        let fields = "A: b\r\n".repeat(201);
        let head = format!("HTTP/1.1 200 OK\r\n{fields}\r\n").leak();
        assert_eq!(result_for(io, head), error(502, TOO_MANY));
        let upstream = H2Upstream::scripted(|_, mut peer| many_fields(&mut peer, 201));
        let proxy = Proxy::to(io, &[&upstream.url]);
        let answer = proxy.client().get("/");
        assert_eq!(answer.status, 502);
        let expected = format!("blitz; error={TOO_MANY}");
        assert_eq!(answer.field("proxy-status"), Some(expected.as_str()));
    }

    fn a_response_may_have_more_fields_than_a_request(io) {
        let fields = "A: b\r\n".repeat(199);
        let head = format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 0\r\n\r\n");
        let h1 = Upstream::with_response(head);
        let h2 = H2Upstream::scripted(|_, mut peer| many_fields(&mut peer, 200));
        for (url, count) in [(h1.url(), 199), (h2.url.clone(), 200)] {
            let proxy = Proxy::to(io, &[&url]);
            let answer = proxy.client().get("/");
            assert_eq!(answer.status, 200, "{answer:?}");
            // Blitz adds Via.
            let limits = Limits {
                response_fields_max: 300,
                ..Limits::default()
            };
            let mut client = Client::connect_with(proxy.address, &limits);
            let answer = client.get("/");
            assert_eq!(answer.status, Some(Status::OK), "{url}");
            let received = answer.fields.iter().filter(|(name, _)| name.is("a")).count();
            assert_eq!(received, count, "{url}");
        }
        // Requests keep their limit.
        let proxy = Proxy::to(io, &[&h1.url()]);
        let mut client = proxy.client();
        client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "A: b\r\n".repeat(100)));
        assert_eq!(client.response().status, 431);
    }

    fn an_unrequested_switch_of_protocols_is_a_bad_gateway(io) {
        let switch = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n";
        let expected = "http_upgrade_failed; details=\"switching-unrequested\"";
        assert_eq!(result_for(io, switch), error(502, expected));
    }

    fn the_response_does_not_arrive_in_time(io) {
        let upstream = Upstream::scripted(|_, peer| {
            peer.request();
            assert!(peer.is_closed_by_peer(), "the gateway gives up");
        });
        let mut options = Options::default();
        options.client.response_timeout = Duration::from_millis(100);
        let proxy = Proxy::with(io, &[&upstream.url()], options);
        let mut client = proxy.client();
        let answer = client.get("/");
        assert_eq!(answer.status, 504);
        assert_eq!(answer.field("proxy-status"), Some("blitz; error=http_response_timeout"));
        assert_eq!(proxy.counters().retries, 0, "it had its time");
        assert_eq!(upstream.accepted(), 1);
    }

    fn failures_are_counted_by_their_kind(io) {
        let upstream = Upstream::with_response("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n");
        let targets = [upstream.url(), format!("/dead=http://{}", refusing_address())];
        let proxy = Proxy::to(io, &targets.each_ref().map(String::as_str));
        let mut client = proxy.client();
        let answer = client.get("/");
        assert_eq!((answer.status, answer.field("proxy-status")), (503, None));
        assert_eq!(client.get("/dead").status, 502);
        eventually("both are counted", || {
            let counters = proxy.counters();
            counters.responses == [0, 0, 0, 0, 1] && counters.failures.iter().sum::<u64>() == 1
        });
    }
}
