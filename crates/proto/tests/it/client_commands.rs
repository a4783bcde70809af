//! The output of a client, and whether its connection may be reused (rule 11 and rule 12).

use blitz_proto::h1::{Client, Event};
use blitz_proto::{BodyLength, Error, Fields, Limits, Method, Name, RequestHead, ResponseHead};

fn written(head: &RequestHead, length: BodyLength) -> String {
    let mut client = Client::new(&Limits::default());
    let mut out = Vec::new();
    client.send_request(head, length, &mut out);
    String::from_utf8(out).expect("written text")
}

/// Presents input until the client needs more, or returns an error.
fn receive(client: &mut Client, raw: &str) -> Result<(), &'static str> {
    let (mut head, mut trailers) = (ResponseHead::default(), Fields::new());
    let mut rest = raw.as_bytes();
    loop {
        let step = client.handle_input(rest, &mut head, &mut trailers);
        let step = step.map_err(Error::rule)?;
        rest = &rest[step.consumed..];
        if matches!(step.event, Event::NeedMore | Event::Paused) {
            return Ok(());
        }
    }
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

#[test]
fn requests_are_written_in_origin_form_with_one_host() {
    let mut head = RequestHead::parse("GET", "http://b:81/x/../y?z").expect("a good target");
    head.fields.append(Name::Host, "lie");
    head.fields.append(Name::Accept, "*/*");
    head.fields.append("x-y", "kept");
    head.fields.append(Name::Http2Settings, "AAMAAABkAAQAAP__");
    head.fields.append(Name::ProxyConnection, "keep-alive");
    head.fields.append(Name::Connection, "x-y");
    let expected = "GET /y?z HTTP/1.1\r\nHost: b:81\r\nAccept: */*\r\nx-y: kept\r\n\r\n";
    assert_eq!(written(&head, BodyLength::Empty), expected);
}

#[test]
fn framing_follows_method_and_length() {
    for (method, length, framing) in [
        (Method::Get, BodyLength::Empty, ""),
        (Method::Post, BodyLength::Empty, "Content-Length: 0\r\n"),
        (Method::Get, BodyLength::Known(0), "Content-Length: 0\r\n"),
        (Method::Get, BodyLength::Known(7), "Content-Length: 7\r\n"),
        (
            Method::Put,
            BodyLength::Unknown,
            "Transfer-Encoding: chunked\r\n",
        ),
    ] {
        let mut head = RequestHead::new(method, "/");
        head.set_authority("a");
        let expected = format!("{} / HTTP/1.1\r\nHost: a\r\n{framing}\r\n", method.as_str());
        assert_eq!(written(&head, length), expected);
    }
}

#[test]
fn special_targets_keep_their_form() {
    let mut head = RequestHead::parse("OPTIONS", "*").expect("a good target");
    head.set_authority("a");
    assert_eq!(
        written(&head, BodyLength::Empty),
        "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"
    );
    let head = RequestHead::new(Method::Connect, "a:443");
    assert_eq!(
        written(&head, BodyLength::Empty),
        "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n"
    );
    let head = RequestHead::parse("PURGE", "/x").expect("a good target");
    assert_eq!(
        written(&head, BodyLength::Empty),
        "PURGE /x HTTP/1.1\r\nHost: \r\n\r\n"
    );
}

#[test]
fn hop_by_hop_options_are_named() {
    let mut head = RequestHead::new(Method::Get, "/");
    head.set_authority("a");
    head.fields.append(Name::Te, "trailers");
    head.fields.append(Name::Upgrade, "websocket");
    let expected = "GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nUpgrade: websocket\r\n\
                    Connection: Upgrade, TE\r\n\r\n";
    assert_eq!(written(&head, BodyLength::Empty), expected);
}

#[test]
fn a_complete_exchange_leaves_the_connection_reusable() {
    let mut client = Client::new(&Limits::default());
    let head = RequestHead::new(Method::Get, "/");
    let mut out = Vec::new();
    for _ in 0..3 {
        assert!(client.reusable());
        client.send_request(&head, BodyLength::Empty, &mut out);
        assert!(!client.request_done() && !client.reusable());
        client.send_end(None, &mut out).expect("nothing is missing");
        assert!(client.request_done() && !client.response_done());
        assert_eq!(receive(&mut client, OK), Ok(()));
        assert!(client.response_done() && client.response_started());
    }
    assert!(client.reusable());
}

#[test]
fn a_response_before_the_request_is_complete_prevents_reuse() {
    let mut client = Client::new(&Limits::default());
    let mut out = Vec::new();
    client.send_request(
        &RequestHead::new(Method::Put, "/"),
        BodyLength::Known(3),
        &mut out,
    );
    assert_eq!(receive(&mut client, OK), Ok(()));
    client.send_data_prefix(3, &mut out).expect("declared");
    client.send_end(None, &mut out).expect("nothing is missing");
    assert!(client.request_done() && client.response_done());
    assert!(!client.reusable());
}

#[test]
fn a_refused_upgrade_prevents_reuse() {
    for status in ["200 OK", "403 Forbidden", "426 Upgrade Required"] {
        let mut client = Client::new(&Limits::default());
        let mut head = RequestHead::new(Method::Get, "/");
        head.fields.append(Name::Upgrade, "websocket");
        let mut out = Vec::new();
        client.send_request(&head, BodyLength::Empty, &mut out);
        client.send_end(None, &mut out).expect("nothing is missing");
        let response = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(receive(&mut client, &response), Ok(()));
        assert!(client.response_done() && !client.reusable(), "{status}");
    }
}

#[test]
fn informational_heads_may_arrive_before_the_request_is_complete() {
    let mut client = Client::new(&Limits::default());
    let mut out = Vec::new();
    client.send_request(
        &RequestHead::new(Method::Put, "/"),
        BodyLength::Unknown,
        &mut out,
    );
    assert_eq!(
        receive(&mut client, "HTTP/1.1 100 Continue\r\n\r\n"),
        Ok(())
    );
    assert!(!client.response_started());
    out.clear();
    client
        .send_data_prefix(2, &mut out)
        .expect("chunks have no end");
    out.extend_from_slice(b"hi");
    client.send_data_suffix(&mut out);
    client.send_end(None, &mut out).expect("chunks may end");
    assert_eq!(out, b"2\r\nhi\r\n0\r\n\r\n");
    assert_eq!(receive(&mut client, OK), Ok(()));
    assert!(client.reusable());
}

#[test]
fn surplus_bytes_before_or_after_a_response_prevent_reuse() {
    let mut client = Client::new(&Limits::default());
    assert_eq!(receive(&mut client, "x"), Err("unexpected-bytes"));
    assert!(!client.reusable());

    let mut client = Client::new(&Limits::default());
    let mut out = Vec::new();
    client.send_request(
        &RequestHead::new(Method::Get, "/"),
        BodyLength::Empty,
        &mut out,
    );
    client.send_end(None, &mut out).expect("nothing is missing");
    assert_eq!(receive(&mut client, OK), Ok(()));
    assert!(client.reusable());
    assert_eq!(
        receive(&mut client, "HTTP/1.1 200 OK\r\n\r\n"),
        Err("unexpected-bytes")
    );
    assert!(!client.reusable());
}

#[test]
fn the_end_of_an_idle_connection_is_no_error() {
    let mut client = Client::new(&Limits::default());
    assert_eq!(client.handle_eof(), Ok(Event::NeedMore));
    assert!(!client.reusable());
}

#[test]
fn a_connection_that_ended_without_a_byte_has_an_error_of_its_own() {
    for (raw, rule) in [
        ("", "closed-before-response"),
        ("H", "truncated-head"),
        ("HTTP/1.1 100 Continue\r\n\r\n", "truncated-head"),
    ] {
        let mut client = Client::new(&Limits::default());
        client.send_request(
            &RequestHead::new(Method::Get, "/"),
            BodyLength::Empty,
            &mut Vec::new(),
        );
        assert_eq!(receive(&mut client, raw), Ok(()));
        let error = client.handle_eof().expect_err("a response is due");
        assert_eq!(error.rule(), rule);
    }
}

#[test]
fn draining_sends_close() {
    let mut client = Client::new(&Limits::default());
    client.drain();
    let mut out = Vec::new();
    client.send_request(
        &RequestHead::new(Method::Get, "/"),
        BodyLength::Empty,
        &mut out,
    );
    client.send_end(None, &mut out).expect("nothing is missing");
    assert!(String::from_utf8_lossy(&out).contains("\r\nConnection: close\r\n"));
    assert_eq!(receive(&mut client, OK), Ok(()));
    assert!(!client.reusable());
}
