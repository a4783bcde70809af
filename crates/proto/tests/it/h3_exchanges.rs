//! Exchanges of our own ends over HTTP/3, and what commands refuse.

use blitz_proto::h3::StreamId;
use blitz_proto::{BodyLength, Fields, Limits, Method, RequestHead, ResponseHead, Status};

use crate::h3_support::*;

fn response(status: Status) -> ResponseHead {
    ResponseHead {
        status,
        ..ResponseHead::default()
    }
}

/// A client and a server that have each other's settings.
fn settled() -> (End, End) {
    let limits = Limits::default();
    let (mut client, mut server) = (End::client(&limits), End::server(&limits));
    let settings = std::mem::take(client.machine.control_output());
    server.arrive(&more(CLIENT_CONTROL, settings));
    let settings = std::mem::take(server.machine.control_output());
    client.arrive(&more(SERVER_CONTROL, settings));
    assert!(server.machine.settings_received() && client.machine.settings_received());
    (client, server)
}

/// The bytes that one end has written to a stream arrive at the other.
#[test]
fn our_ends_understand_each_other() {
    let (mut client, mut server) = settled();
    assert!(client.machine.accepts_connect_protocol() && client.machine.may_request());
    let mut head = RequestHead::new(Method::Post, "/up?x=1");
    head.set_authority("example.org");
    head.fields.append("x-test", "yes");
    assert!(client.machine.accepts_size(&head));
    let (stream, mut out) = (StreamId::new(0), Vec::new());
    assert!(
        !client
            .machine
            .send_request(stream, &head, BodyLength::Known(5), &mut out)
    );
    assert!(
        !client
            .machine
            .send_data(stream, 2, false, &mut out)
            .unwrap()
    );
    out.extend_from_slice(b"he");
    assert!(client.machine.send_data(stream, 3, true, &mut out).unwrap());
    out.extend_from_slice(b"llo");
    server.arrive(&last(0, out));
    assert_eq!(server.log, "0 POST /up?x=1 Known(5) | 0 \"hello\" end");
    assert_eq!(
        server.received.request.fields.get_str("x-test"),
        Some("yes")
    );

    let mut out = Vec::new();
    server
        .machine
        .send_informational(stream, &response(Status::new(103).unwrap()), &mut out);
    let mut trailers = Fields::new();
    trailers.append("checksum", "7");
    let is_over =
        server
            .machine
            .send_head(stream, &response(Status::OK), BodyLength::Unknown, &mut out);
    assert!(!is_over && server.machine.sends_body(stream));
    assert!(
        !server
            .machine
            .send_data(stream, 3, false, &mut out)
            .unwrap()
    );
    out.extend_from_slice(b"abc");
    assert!(
        server
            .machine
            .send_end(stream, Some(&trailers), &mut out)
            .unwrap()
    );
    assert_eq!(
        server.machine.stream_count(),
        0,
        "both directions have ended"
    );
    client.arrive(&last(0, out));
    assert_eq!(
        client.log,
        "0 103 Empty | 0 200 Unknown | 0 \"abc\" | 0 1 trailers"
    );
    assert_eq!(client.machine.stream_count(), 0);
}

/// Lines of the last request are kept in their encoded form.
#[test]
fn each_request_has_its_own_host_and_user_agent() {
    let (mut client, mut server) = settled();
    let (one, other) = ("one.example", "two.example");
    let requests = [(one, other), (one, other), (other, one), (one, one)];
    for (stream, (host, agent)) in (0..).step_by(4).zip(requests) {
        let mut head = RequestHead::new(Method::Get, "/");
        head.set_authority(host);
        head.fields.append("user-agent", agent);
        let (id, mut out) = (StreamId::new(stream), Vec::new());
        client
            .machine
            .send_request(id, &head, BodyLength::Empty, &mut out);
        server.arrive(&last(stream, out));
        let received = &server.received.request;
        assert_eq!(received.authority(), Some(host), "{stream}");
        assert_eq!(
            received.fields.get_str("user-agent"),
            Some(agent),
            "{stream}"
        );
    }
}

#[test]
fn wrong_content_of_ours_is_refused() {
    let mut end = End::server(&Limits::default());
    end.arrive(&last(REQUEST, headers(GET)));
    let (stream, mut out) = (StreamId::new(0), Vec::new());
    let machine = &mut end.machine;
    machine.send_head(
        stream,
        &response(Status::OK),
        BodyLength::Known(5),
        &mut out,
    );
    let rule = |result: Result<bool, blitz_proto::Error>| result.map_err(blitz_proto::Error::rule);
    assert_eq!(
        rule(machine.send_data(stream, 6, false, &mut out)),
        Err("body-too-long")
    );
    assert_eq!(
        rule(machine.send_data(stream, 4, true, &mut out)),
        Err("body-too-short")
    );
    assert_eq!(
        rule(machine.send_end(stream, None, &mut out)),
        Err("body-too-short")
    );
    assert_eq!(rule(machine.send_data(stream, 5, true, &mut out)), Ok(true));
}

#[test]
fn a_server_that_leaves_accepts_what_is_on_its_way() {
    let mut end = End::server(&Limits::default());
    end.machine.control_output().clear();
    end.arrive(&last(0, headers(GET)));
    end.machine.drain();
    let max = [&[0x7, 8][..], &(u64::MAX - 3).to_be_bytes()].concat();
    assert_eq!(*end.machine.control_output(), max);
    end.arrive(&last(4, headers(GET)));
    end.machine.control_output().clear();
    end.machine.drain_now();
    assert_eq!(*end.machine.control_output(), [0x7, 1, 8]);
    end.arrive(&last(8, headers(GET)));
    assert_eq!(
        end.log,
        "0 GET / Empty end | 4 GET / Empty end | 8 refused H3_REQUEST_REJECTED"
    );
    assert!(!end.machine.is_drained());
    for stream in [0, 4] {
        let stream = StreamId::new(stream);
        let mut out = Vec::new();
        assert!(
            end.machine
                .send_head(stream, &response(Status::OK), BodyLength::Empty, &mut out)
        );
    }
    assert!(end.machine.is_drained());
}

/// The state of a request that is refused is its own, and not that of one before.
#[test]
fn a_refused_request_has_its_own_method() {
    let mut end = End::server(&Limits::default());
    end.arrive(&last(
        0,
        headers(":method: HEAD\n:scheme: https\n:authority: a\n:path: /"),
    ));
    let long = "x".repeat(9_000);
    let lines = format!(":method: GET\n:scheme: https\n:authority: a\n:path: /{long}");
    end.arrive(&last(4, headers(&lines)));
    assert!(end.log.ends_with("4 refused 414"), "{}", end.log);
    let mut out = Vec::new();
    let stream = StreamId::new(4);
    let status = Status::new(414).unwrap();
    let is_over = end
        .machine
        .send_head(stream, &response(status), BodyLength::Known(3), &mut out);
    assert!(!is_over, "content follows, because it was not HEAD");
}

#[test]
fn a_client_whose_content_is_not_wanted_still_gets_the_response() {
    let (mut client, _) = settled();
    let mut head = RequestHead::new(Method::Post, "/");
    head.set_authority("a");
    let (stream, mut out) = (StreamId::new(0), Vec::new());
    client
        .machine
        .send_request(stream, &head, BodyLength::Known(5), &mut out);
    client.arrive(&Arrival::Stopped(0, 0x100));
    out.clear();
    let sent = client.machine.send_data(stream, 5, true, &mut out);
    assert_eq!((sent.ok(), out.len()), (Some(false), 0));
    client.arrive(&last(0, headers(":status: 200")));
    assert_eq!(client.log, "0 200 Empty end");
    assert_eq!(client.machine.stream_count(), 0);
}

#[test]
fn a_client_that_wants_no_pushes_still_gets_responses() {
    let mut end = End::server(&Limits::default());
    let go_away = [control(), frame(GOAWAY, [0])].concat();
    end.arrive(&more(CLIENT_CONTROL, go_away));
    assert!(!end.machine.is_drained());
    end.arrive(&last(0, headers(GET)));
    assert_eq!(end.log, "2 goes away from 0 | 0 GET / Empty end");
}

/// Only DATA is permitted then, and another frame would end the connection (RFC 9114, section 4.4).
#[test]
fn a_tunnel_ends_without_trailers() {
    let (mut client, mut server) = settled();
    let mut head = RequestHead::new(Method::Connect, "a:443");
    head.set_authority("a:443");
    let mut trailers = Fields::new();
    trailers.append("x-trailer", "1");
    let stream = StreamId::new(0);

    let mut out = Vec::new();
    let machine = &mut client.machine;
    assert!(!machine.send_request(stream, &head, BodyLength::Unknown, &mut out));
    assert!(machine.send_end(stream, Some(&trailers), &mut out).unwrap());
    server.arrive(&last(0, out));
    assert_eq!(server.log, "0 CONNECT  Empty end");

    let mut out = Vec::new();
    let machine = &mut server.machine;
    let ok = response(Status::OK);
    assert!(!machine.send_head(stream, &ok, BodyLength::Unknown, &mut out));
    assert!(machine.send_end(stream, Some(&trailers), &mut out).unwrap());
    client.arrive(&last(0, out));
    assert_eq!(client.log, "0 200 Unknown end");
}
