//! The output of a server, and whether its connection stays open.

use blitz_proto::h1::{Event, Server};
use blitz_proto::{Blame, BodyLength, Fields, Limits, Name, RequestHead, ResponseHead, Status};

/// A server and its output so far.
struct Peer {
    server: Server,
    head: RequestHead,
    trailers: Fields,
    out: Vec<u8>,
}

impl Peer {
    fn new() -> Peer {
        Peer {
            server: Server::new(&Limits::default()),
            head: RequestHead::default(),
            trailers: Fields::new(),
            out: Vec::new(),
        }
    }

    /// A server that has received `raw`.
    fn after(raw: &str) -> Peer {
        let mut peer = Peer::new();
        peer.receive(raw);
        peer
    }

    /// Presents input until the server needs more or pauses; returns the remaining input.
    fn receive(&mut self, raw: &str) -> String {
        let mut rest = raw.as_bytes();
        loop {
            let step = self
                .server
                .handle_input(rest, &mut self.head, &mut self.trailers);
            let step = step.expect("valid input");
            rest = &rest[step.consumed..];
            if matches!(step.event, Event::NeedMore | Event::Paused) {
                return String::from_utf8_lossy(rest).into_owned();
            }
        }
    }

    fn send(&mut self, status: Status, length: BodyLength) {
        self.server
            .send_head(&ResponseHead::new(status), length, &mut self.out);
    }

    fn end(&mut self) {
        self.server
            .send_end(None, &mut self.out)
            .expect("the response is complete");
    }

    /// The output since the last call.
    fn written(&mut self) -> String {
        String::from_utf8(std::mem::take(&mut self.out)).expect("written text")
    }
}

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const HEAD: &str = "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n";
const GET_10: &str = "GET / HTTP/1.0\r\n\r\n";
const UPGRADE: &str =
    "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
const EXPECT: &str =
    "PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";

#[test]
fn framing_follows_request_status_and_length() {
    use BodyLength::{Empty, Known, Unknown};
    let ok = Status::OK;
    let rows = [
        (GET, ok, Empty, "Content-Length: 0\r\n", false),
        (GET, ok, Known(5), "Content-Length: 5\r\n", true),
        (GET, ok, Unknown, "Transfer-Encoding: chunked\r\n", true),
        (GET, Status::NO_CONTENT, Empty, "", false),
        (GET, Status::NO_CONTENT, Known(5), "", false),
        (GET, Status::NOT_MODIFIED, Empty, "", false),
        (
            GET,
            Status::NOT_MODIFIED,
            Known(5),
            "Content-Length: 5\r\n",
            false,
        ),
        (GET, Status::NOT_MODIFIED, Unknown, "", false),
        (HEAD, ok, Known(5), "Content-Length: 5\r\n", false),
        (HEAD, ok, Empty, "Content-Length: 0\r\n", false),
        (HEAD, ok, Unknown, "", false),
        (
            GET_10,
            ok,
            Known(5),
            "Content-Length: 5\r\nConnection: close\r\n",
            true,
        ),
        (GET_10, ok, Unknown, "Connection: close\r\n", true),
    ];
    for (request, status, length, framing, has_body) in rows {
        let mut peer = Peer::after(request);
        peer.send(status, length);
        let reason = status.reason();
        let expected = format!("HTTP/1.1 {status} {reason}\r\n{framing}\r\n");
        assert_eq!(peer.written(), expected, "{request:?} {status} {length:?}");
        assert_eq!(peer.server.sends_body(), has_body);
    }
}

#[test]
fn framing_fields_of_the_caller_are_replaced() {
    let mut peer = Peer::after(GET);
    let mut head = ResponseHead::new(Status::new(299).expect("a status"));
    head.fields.append(Name::ContentLength, "99");
    head.fields.append("x-Custom", "kept as it is");
    head.fields.append(Name::TransferEncoding, "gzip");
    head.fields.append("CONTENT-type", "text/plain");
    head.fields.append(Name::KeepAlive, "timeout=5");
    peer.server
        .send_head(&head, BodyLength::Known(2), &mut peer.out);
    let expected = "HTTP/1.1 299 \r\nx-Custom: kept as it is\r\nContent-Type: text/plain\r\n\
                    Content-Length: 2\r\n\r\n";
    assert_eq!(peer.written(), expected);
}

#[test]
fn a_connection_close_field_in_the_response_closes_the_connection() {
    let mut peer = Peer::after(GET);
    let mut head = ResponseHead::default();
    head.fields.append(Name::Connection, "Close");
    peer.server
        .send_head(&head, BodyLength::Empty, &mut peer.out);
    assert!(peer.written().ends_with("\r\nConnection: close\r\n\r\n"));
    assert!(!peer.server.keep_alive());
}

#[test]
fn http10_connections_stay_open_only_if_requested_and_possible() {
    let request = "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
    let mut peer = Peer::after(request);
    peer.send(Status::OK, BodyLength::Known(0));
    assert!(peer.written().contains("\r\nConnection: keep-alive\r\n"));
    assert!(peer.server.keep_alive());
    let mut peer = Peer::after(request);
    peer.send(Status::OK, BodyLength::Unknown);
    assert!(peer.written().contains("\r\nConnection: close\r\n"));
    assert!(!peer.server.keep_alive());
}

#[test]
fn content_must_have_its_declared_length() {
    let mut peer = Peer::after(GET);
    peer.send(Status::OK, BodyLength::Known(3));
    assert!(peer.server.send_data_prefix(2, &mut peer.out).is_ok());
    let short = peer
        .server
        .send_end(None, &mut peer.out)
        .expect_err("one byte is missing");
    assert_eq!(
        (short.rule(), short.blame()),
        ("body-too-short", Blame::Caller)
    );
    assert_eq!(short.status(), Status::INTERNAL_SERVER_ERROR);
    let long = peer
        .server
        .send_data_prefix(2, &mut peer.out)
        .expect_err("one byte too many");
    assert_eq!(long.rule(), "body-too-long");
    assert!(!peer.server.keep_alive());

    let mut peer = Peer::after(HEAD);
    peer.send(Status::OK, BodyLength::Known(3));
    let none = peer
        .server
        .send_data_prefix(3, &mut peer.out)
        .expect_err("HEAD has no content");
    assert_eq!(none.rule(), "body-forbidden");
}

#[test]
fn chunks_and_trailers_are_encoded() {
    let mut peer = Peer::after(GET);
    peer.send(Status::OK, BodyLength::Unknown);
    peer.written();
    for data in ["hello", "", "0123456789abcdef!"] {
        peer.server
            .send_data_prefix(data.len(), &mut peer.out)
            .expect("chunks have no end");
        peer.out.extend_from_slice(data.as_bytes());
        peer.server.send_data_suffix(&mut peer.out);
    }
    let mut trailers = Fields::new();
    trailers.append("X-Sum", "1");
    trailers.append(Name::ContentLength, "5");
    peer.server
        .send_end(Some(&trailers), &mut peer.out)
        .expect("chunks may end");
    let expected = "5\r\nhello\r\n11\r\n0123456789abcdef!\r\n0\r\nX-Sum: 1\r\n\r\n";
    assert_eq!(peer.written(), expected);
    assert!(peer.server.response_done() && peer.server.is_idle());
}

#[test]
fn pipelined_requests_are_handled_one_at_a_time() {
    let mut peer = Peer::new();
    assert!(peer.server.is_idle());
    let two = format!("{GET}{HEAD}");
    let left = peer.receive(&two);
    assert_eq!(left, HEAD);
    assert!(peer.server.request_done() && !peer.server.response_started());
    assert!(!peer.server.is_idle());
    peer.send(Status::OK, BodyLength::Known(0));
    assert_eq!(peer.receive(&left), HEAD, "the response is not complete");
    peer.end();
    assert!(peer.server.is_idle());
    assert_eq!(peer.receive(&left), "");
    assert!(!peer.server.response_started() && !peer.server.is_idle());
}

#[test]
fn draining_sends_close_and_discards_input() {
    let mut peer = Peer::after(GET);
    peer.server.drain();
    peer.send(Status::OK, BodyLength::Empty);
    peer.end();
    assert!(peer.written().contains("\r\nConnection: close\r\n"));
    assert!(!peer.server.keep_alive() && !peer.server.is_idle());
    assert_eq!(peer.receive(GET), "", "input is discarded");
}

#[test]
fn half_close_after_a_request_does_not_abort_the_response() {
    let mut peer = Peer::after(GET);
    assert!(peer.server.handle_eof().is_ok());
    peer.send(Status::OK, BodyLength::Known(2));
    assert!(peer.written().contains("\r\nConnection: close\r\n"));
    assert!(peer.server.send_data_prefix(2, &mut peer.out).is_ok());
    peer.end();
    assert!(!peer.server.keep_alive());
}

#[test]
fn continue_is_expected_until_it_is_sent_or_content_arrives() {
    let mut peer = Peer::after(EXPECT);
    assert!(peer.server.expects_continue());
    let head = ResponseHead::new(Status::CONTINUE);
    peer.server.send_informational(&head, &mut peer.out);
    assert_eq!(peer.written(), "HTTP/1.1 100 Continue\r\n\r\n");
    assert!(!peer.server.expects_continue());

    let mut peer = Peer::after(EXPECT);
    peer.receive("h");
    assert!(!peer.server.expects_continue());
    peer.receive("i");
    peer.send(Status::OK, BodyLength::Empty);
    peer.end();
    assert!(peer.server.keep_alive());
}

#[test]
fn a_final_response_instead_of_continue_closes_the_connection() {
    let mut peer = Peer::after(EXPECT);
    peer.send(Status::CONTENT_TOO_LARGE, BodyLength::Empty);
    assert!(peer.written().contains("\r\nConnection: close\r\n"));
    assert!(!peer.server.keep_alive() && !peer.server.expects_continue());
}

#[test]
fn informational_heads_are_not_sent_to_http10_clients() {
    let mut peer = Peer::after(GET_10);
    peer.server
        .send_informational(&ResponseHead::new(Status::EARLY_HINTS), &mut peer.out);
    assert_eq!(peer.written(), "");
}

#[test]
fn an_accepted_upgrade_opens_a_tunnel_in_both_directions() {
    let mut peer = Peer::new();
    let left = peer.receive(&format!("{UPGRADE}frame"));
    assert_eq!(left, "frame");
    assert!(peer.server.upgrade_requested());
    let mut head = ResponseHead::new(Status::SWITCHING_PROTOCOLS);
    head.fields.append(Name::Upgrade, "websocket");
    peer.server
        .send_head(&head, BodyLength::Empty, &mut peer.out);
    let expected = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
                    Connection: Upgrade\r\n\r\n";
    assert_eq!(peer.written(), expected);
    assert!(peer.server.is_tunnel() && peer.server.sends_body());
    let step = peer
        .server
        .handle_input(b"frame", &mut peer.head, &mut peer.trailers);
    assert_eq!(step.map(|step| step.event), Ok(Event::Data(0..5)));
    peer.server
        .send_data_prefix(3, &mut peer.out)
        .expect("a tunnel takes everything");
    peer.server.send_data_suffix(&mut peer.out);
    assert_eq!(peer.written(), "");
    assert!(peer.server.handle_eof().is_ok());
}

#[test]
fn a_refused_upgrade_closes_only_if_bytes_were_held() {
    for (after, keeps) in [("", true), ("frame", false)] {
        let mut peer = Peer::new();
        peer.receive(&format!("{UPGRADE}{after}"));
        peer.send(Status::FORBIDDEN, BodyLength::Empty);
        peer.end();
        assert_eq!(peer.server.keep_alive(), keeps, "{after:?}");
        assert_eq!(peer.written().contains("Connection: close"), !keeps);
        assert!(!peer.server.upgrade_requested());
    }
}

#[test]
fn a_refused_connect_always_closes() {
    let mut peer = Peer::after("CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n");
    peer.send(Status::METHOD_NOT_ALLOWED, BodyLength::Empty);
    assert!(peer.written().contains("\r\nConnection: close\r\n"));
    assert!(!peer.server.keep_alive());
}

#[test]
fn a_reused_head_holds_no_part_of_the_previous_request() {
    let mut peer = Peer::after("PURGE /x?y HTTP/1.1\r\nHost: b\r\nX: y\r\n\r\n");
    peer.send(Status::OK, BodyLength::Empty);
    peer.end();
    peer.receive("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!(peer.head.method_str(), "GET");
    assert_eq!((peer.head.query(), peer.head.authority()), (None, None));
    assert_eq!(peer.head.fields.len(), 1);
}
