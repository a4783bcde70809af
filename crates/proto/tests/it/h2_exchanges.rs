//! A client and a server of this crate: whole exchanges, and the shutdown of a connection.

use blitz_proto::h2::{Code, UpgradeSettings};
use blitz_proto::{
    BodyLength, Error, Fields, Limits, Method, Name, RequestHead, ResponseHead, Status,
};

use crate::h2_support::{End, pair, post, settle};

#[test]
fn a_request_is_answered() {
    let (mut client, mut server) = pair();
    let stream = client.get("/hello?a=b");
    settle(&mut client, &mut server);
    let seen = &server.messages[&stream];
    assert_eq!(seen.start, "GET /hello?a=b @example.org https");
    let answer = &client.messages[&stream];
    assert_eq!(
        (answer.start.as_str(), &answer.content[..]),
        ("200", &b"Hello, World!"[..])
    );
    let expected = [("content-type", "text/plain"), ("content-length", "13")];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(answer.fields, expected);
    assert!(answer.is_complete && client.connection.is_idle() && server.connection.is_idle());
}

#[test]
fn large_content_goes_both_ways_within_the_windows() {
    let (mut client, mut server) = pair();
    let content: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    let stream = client
        .request(&post("/echo"), content.clone(), None)
        .expect("a free stream");
    settle(&mut client, &mut server);
    assert!(
        client.messages[&stream].content == content,
        "the content differs"
    );
    assert_eq!((server.connection.held(), client.connection.held()), (0, 0));
}

#[test]
fn trailers_go_both_ways() {
    let (mut client, mut server) = pair();
    let mut trailers = Fields::new();
    trailers.append("grpc-status", "0");
    trailers.append(Name::ContentLength, "7");
    let stream = client
        .request(&post("/"), b"hi".to_vec(), Some(trailers.clone()))
        .expect("free");
    let bytes = client.take_out();
    server.receive(&bytes);
    client.send();
    server.receive(&client.take_out());
    assert_eq!(
        server.messages[&stream].trailers,
        [("grpc-status".to_owned(), "0".to_owned())]
    );
    server.complete.clear();
    server.respond(
        stream,
        &ResponseHead::default(),
        b"yes".to_vec(),
        Some(trailers),
    );
    server.send();
    client.receive(&server.take_out());
    let answer = &client.messages[&stream];
    assert_eq!(
        answer.trailers,
        [("grpc-status".to_owned(), "0".to_owned())]
    );
    assert!(answer.is_complete && client.connection.is_idle());
}

#[test]
fn informational_heads_come_before_the_final_one() {
    let (mut client, mut server) = pair();
    let mut head = post("/");
    head.fields.append(Name::Expect, "100-continue");
    let length = BodyLength::Known(2);
    let stream = client
        .connection
        .send_request(&head, length, &mut client.out)
        .expect("free");
    server.receive(&client.take_out());
    assert!(server.connection.expects_continue(stream));
    let go_on = ResponseHead::new(Status::CONTINUE);
    server
        .connection
        .send_informational(stream, &go_on, &mut server.out);
    assert!(!server.connection.expects_continue(stream));
    client.receive(&server.take_out());
    assert_eq!(client.messages[&stream].start, "100");
    assert!(!client.connection.response_started(stream));
    let sent = client
        .connection
        .send_data(stream, 2, true, &mut client.out);
    assert_eq!(sent, Ok(2));
    client.out.extend_from_slice(b"ok");
    settle(&mut client, &mut server);
    assert_eq!(client.messages[&stream].start, "100 200");
    assert_eq!(client.messages[&stream].content, b"ok");
}

#[test]
fn heads_larger_than_a_frame_are_continued() {
    let (mut client, mut server) = pair();
    let mut head = post("/");
    let value = |n: u8| vec![b'!' + n; 4000];
    for n in 0..7 {
        head.fields
            .append(format!("X-Large-{n}").as_str(), value(n));
    }
    let stream = client
        .request(&head, Vec::new(), None)
        .expect("a free stream");
    settle(&mut client, &mut server);
    let seen = &server.messages[&stream].fields;
    assert_eq!(seen.len(), 8, "and a length");
    for (n, (name, text)) in seen.iter().take(7).enumerate() {
        assert_eq!(
            (name.as_str(), text.as_bytes()),
            (format!("x-large-{n}").as_str(), &value(n as u8)[..])
        );
    }
}

#[test]
fn a_head_beyond_a_limit_is_answered_with_431_and_the_connection_stays_open() {
    let (mut client, mut server) = pair();
    let mut many = post("/");
    (0..200).for_each(|n| many.fields.append(format!("x-{n}").as_str(), "1"));
    let mut large = post("/");
    for n in 0..11 {
        let name = format!("x-{n}");
        large.fields.append(name.as_str(), "!".repeat(4000));
    }
    let mut crumbs = post("/");
    (0..1_001).for_each(|n| crumbs.fields.append(Name::Cookie, format!("c{n}=1")));
    let mut long = post("/");
    long.set_path(&format!("/{}", "a".repeat(9000)));
    for (head, status) in [
        (many, "431"),
        (large, "431"),
        (crumbs, "431"),
        (long, "414"),
    ] {
        let stream = client
            .request(&head, b"ignored".to_vec(), None)
            .expect("a free stream");
        settle(&mut client, &mut server);
        assert_eq!(client.messages[&stream].start, status);
    }
    let stream = client.get("/");
    settle(&mut client, &mut server);
    assert_eq!(client.messages[&stream].start, "200");
    assert_eq!(server.connection.held(), 0);
}

#[test]
fn cookies_are_joined_and_secrets_are_never_indexed() {
    let (mut client, mut server) = pair();
    let mut head = post("/");
    head.fields.append(Name::Cookie, "a=1");
    head.fields.append(Name::Authorization, "Basic eDp5");
    head.fields.append(Name::Cookie, "b=2");
    for _ in 0..3 {
        let before = client.out.len();
        let stream = client
            .request(&head, Vec::new(), None)
            .expect("a free stream");
        assert!(
            client.out.len() - before > 24,
            "secrets are written out each time"
        );
        settle(&mut client, &mut server);
        let expected = [
            ("cookie", "a=1; b=2"),
            ("authorization", "Basic eDp5"),
            ("content-length", "0"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(server.messages[&stream].fields, expected);
    }
}

#[test]
fn fields_of_http1_are_left_out_and_names_are_in_lower_case() {
    let (mut client, mut server) = pair();
    let mut head = RequestHead::new(Method::Get, "/");
    head.set_authority("example.org");
    for (name, value) in [
        ("Connection", "close, X-Own"),
        ("Keep-Alive", "timeout=5"),
        ("Proxy-Connection", "close"),
        ("Transfer-Encoding", "chunked"),
        ("Upgrade", "websocket"),
        ("HTTP2-Settings", "AAMAAABk"),
        ("Host", "other.example"),
        ("TE", "gzip, Trailers"),
        ("X-Own", "1"),
    ] {
        head.fields.append(name, value);
    }
    let stream = client
        .request(&head, Vec::new(), None)
        .expect("a free stream");
    settle(&mut client, &mut server);
    let expected = [("te", "trailers"), ("x-own", "1")];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(server.messages[&stream].fields, expected);
}

#[test]
fn connect_opens_tunnels_plain_and_extended() {
    let (mut client, mut server) = pair();
    assert!(client.connection.allows_extended_connect());
    let plain = RequestHead::new(Method::Connect, "example.org:443");
    let mut extended = RequestHead::new(Method::Get, "/chat");
    extended.set_authority("example.org");
    extended.set_protocol(Some("websocket"));
    for (head, start) in [
        (plain, "CONNECT  @example.org:443 -"),
        (extended, "CONNECT /chat @example.org https :websocket"),
    ] {
        let length = BodyLength::Unknown;
        let stream = client
            .connection
            .send_request(&head, length, &mut client.out)
            .expect("free");
        settle(&mut client, &mut server);
        assert_eq!(server.messages[&stream].start, start);
        let yes = ResponseHead::default();
        server
            .connection
            .send_head(stream, &yes, BodyLength::Empty, &mut server.out);
        assert!(server.connection.sends_body(stream), "a tunnel stays open");
        let sent = client
            .connection
            .send_data(stream, 4, false, &mut client.out);
        assert_eq!(sent, Ok(4));
        client.out.extend_from_slice(b"ping");
        server.receive(&client.take_out());
        assert_eq!(server.messages[&stream].content, b"ping");
        assert_eq!(
            server
                .connection
                .send_data(stream, 4, true, &mut server.out),
            Ok(4)
        );
        server.out.extend_from_slice(b"pong");
        client.receive(&server.take_out());
        assert_eq!(client.messages[&stream].content, b"pong");
        // A tunnel has no trailers.
        let mut trailers = Fields::new();
        trailers.append("x-trailer", "1");
        assert_eq!(
            client
                .connection
                .send_end(stream, Some(&trailers), &mut client.out),
            Ok(())
        );
        server.receive(&client.take_out());
        assert!(server.messages[&stream].is_complete);
        assert_eq!(server.messages[&stream].trailers, []);
        server.complete.clear();
    }
    assert!(client.connection.is_idle() && server.connection.is_idle());
}

#[test]
fn responses_without_content_end_with_their_head() {
    let (mut client, mut server) = pair();
    for (method, status, length, declared) in [
        (Method::Head, 200, BodyLength::Known(5), Some("5")),
        (Method::Head, 200, BodyLength::Unknown, None),
        (Method::Get, 304, BodyLength::Known(5), Some("5")),
        (Method::Head, 200, BodyLength::NothingButTrailers, Some("0")),
        (Method::Get, 204, BodyLength::Known(0), None),
        (Method::Get, 204, BodyLength::NothingButTrailers, None),
        (Method::Get, 200, BodyLength::Known(0), Some("0")),
        (Method::Get, 200, BodyLength::Empty, None),
    ] {
        let mut head = RequestHead::new(method, "/");
        head.set_authority("a");
        let stream = client
            .request(&head, Vec::new(), None)
            .expect("a free stream");
        server.receive(&client.take_out());
        server.complete.clear();
        let response = ResponseHead::new(Status::new(status).expect("a status"));
        server
            .connection
            .send_head(stream, &response, length, &mut server.out);
        assert!(!server.connection.sends_body(stream));
        client.receive(&server.take_out());
        let answer = &client.messages[&stream];
        assert!(
            answer.is_complete && answer.reset.is_none(),
            "{method:?} {status}: {answer:?}"
        );
        let seen = answer
            .fields
            .iter()
            .find(|(name, _)| name == "content-length");
        assert_eq!(seen.map(|(_, value)| value.as_str()), declared);
    }
}

#[test]
fn sending_content_of_a_wrong_length_is_an_error() {
    let (mut client, mut server) = pair();
    let stream = client.get("/");
    server.receive(&client.take_out());
    let early = server
        .connection
        .send_data(stream, 1, false, &mut Vec::new());
    assert_eq!(early.map_err(Error::rule), Err("body-forbidden"));
    let length = BodyLength::Known(4);
    server
        .connection
        .send_head(stream, &ResponseHead::default(), length, &mut server.out);
    let mut send = |len, end| {
        let sent = server
            .connection
            .send_data(stream, len, end, &mut server.out);
        sent.map_err(Error::rule)
    };
    assert_eq!(send(5, false), Err("body-too-long"));
    assert_eq!(send(3, true), Err("body-too-short"));
    assert_eq!(send(3, false), Ok(3));
    let ended = server.connection.send_end(stream, None, &mut server.out);
    assert_eq!(ended.map_err(Error::rule), Err("body-too-short"));
    server
        .connection
        .reset(stream, Code::INTERNAL_ERROR, &mut server.out);
    assert!(server.connection.is_idle());
}

#[test]
fn a_server_drains_in_two_steps_and_late_requests_are_safe_to_retry() {
    let (mut client, mut server) = pair();
    let first = client.get("/first");
    server.receive(&client.take_out());
    server.connection.drain(&mut server.out);
    // This one crosses the first GOAWAY and is still accepted.
    let second = client.get("/second");
    client.receive(&server.take_out());
    assert_eq!(
        (client.go_away, client.connection.requests_available()),
        (Some(Code::NO_ERROR), 0)
    );
    server.receive(&client.take_out());
    assert_eq!(server.complete, [first, second]);
    settle(&mut client, &mut server);
    assert!(
        [first, second]
            .iter()
            .all(|stream| client.messages[stream].is_complete)
    );
    assert!(server.connection.is_drained() && client.connection.is_drained());

    let (mut client, mut server) = pair();
    let first = client.get("/first");
    server.receive(&client.take_out());
    server.connection.drain_now(&mut server.out);
    let late = client.get("/late");
    server.receive(&client.take_out());
    client.receive(&server.take_out());
    assert_eq!(client.messages[&late].reset, Some("refused-by-peer"));
    server.answer();
    settle(&mut client, &mut server);
    assert!(client.messages[&first].is_complete && client.messages[&first].reset.is_none());
}

#[test]
fn a_client_opens_no_streams_beyond_the_limit_and_a_server_refuses_them() {
    let limits = Limits {
        concurrent_streams_max: 2,
        ..Limits::default()
    };
    let (mut client, mut server) = (End::client(&limits), End::server(&limits));
    let eager: Vec<_> = (0..4).map(|_| client.get("/")).collect();
    server.receive(&client.take_out());
    client.receive(&server.take_out());
    let resets: Vec<_> = eager
        .iter()
        .map(|s| client.messages.get(s).and_then(|m| m.reset))
        .collect();
    assert_eq!(
        resets,
        [None, None, Some("refused-by-peer"), Some("refused-by-peer")]
    );
    assert_eq!(client.connection.requests_available(), 0);
    server.answer();
    settle(&mut client, &mut server);
    assert_eq!(client.connection.requests_available(), 2);
}

#[test]
fn a_stream_reset_by_the_client_counts_until_it_is_forgotten() {
    let limits = Limits {
        concurrent_streams_max: 1,
        ..Limits::default()
    };
    let (mut client, mut server) = (End::client(&limits), End::server(&limits));
    settle(&mut client, &mut server);
    let stream = client.get("/");
    client
        .connection
        .reset(stream, Code::CANCEL, &mut client.out);
    let mut received = blitz_proto::h2::Received::default();
    let bytes = client.take_out();
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let step = server
            .connection
            .handle_input(rest, server.now, &mut received, &mut server.out);
        rest = &rest[step.expect("a good client").consumed..];
    }
    let second = client.get("/");
    server.receive(&client.take_out());
    assert_eq!(server.messages[&second].reset, Some("stream-limit"));
    server.connection.forget(stream);
    client.receive(&server.take_out());
    let third = client.get("/");
    settle(&mut client, &mut server);
    assert!(client.messages[&third].is_complete);
}

#[test]
fn a_cached_head_is_used_only_for_an_equal_block() {
    let (mut client, mut server) = pair();
    let mut head = post("/");
    let mut response = ResponseHead::default();
    for round in 0..60 {
        // Equal for some rounds, so that the cached head is used; then one part changes.
        let value = ["one", "two", "one"][round / 7 % 3];
        head.fields.set("x-value", value);
        head.set_path(["/", "/other"][round / 11 % 2]);
        response
            .fields
            .set(Name::Server, ["blitz", "other"][round / 9 % 2]);
        response.status = [Status::OK, Status::NOT_FOUND][round / 13 % 2];
        let content = vec![b'x'; 1 + round / 5 % 2];
        let stream = client
            .request(&head, Vec::new(), None)
            .expect("a free stream");
        server.receive(&client.take_out());
        server.complete.clear();
        server.respond(stream, &response, content.clone(), None);
        settle(&mut client, &mut server);
        let (seen, answer) = (&server.messages[&stream], &client.messages[&stream]);
        assert_eq!(
            seen.start,
            format!("POST {} @example.org https", head.path())
        );
        assert_eq!(seen.fields[0], ("x-value".to_owned(), value.to_owned()));
        assert_eq!(answer.start, response.status.to_string());
        let name = String::from_utf8_lossy(response.fields.get(Name::Server).unwrap_or(b""));
        assert_eq!(answer.fields[0], ("server".to_owned(), name.into_owned()));
        let length = ("content-length".to_owned(), content.len().to_string());
        assert_eq!(
            (answer.fields.last(), &answer.content),
            (Some(&length), &content)
        );
    }
}

#[test]
fn pings_are_answered() {
    let (mut client, mut server) = pair();
    client.connection.ping(&mut client.out);
    settle(&mut client, &mut server);
    assert_eq!((client.pongs, server.pongs), (1, 0));
}

#[test]
fn an_upgraded_http1_request_becomes_stream_1() {
    let (mut client, mut server) = (
        End::client(&Limits::default()),
        End::server(&Limits::default()),
    );
    let mut head = RequestHead::new(Method::Get, "/");
    assert!(UpgradeSettings::of(&head).is_none(), "without settings");
    head.fields.append(Name::Http2Settings, "AAMAAABkAAQAAAAE");
    let settings = UpgradeSettings::of(&head).expect("good settings");
    let stream = server.connection.upgrade(&head, &settings);
    assert_eq!(server.connection.send_window(stream), 4);
    server.respond(stream, &ResponseHead::default(), b"Hello".to_vec(), None);
    // The client of this test has no stream 1, so the test reads the frames itself.
    server.take_out();
    server.send();
    let out = server.take_out();
    assert_eq!(out, b"\0\0\x04\0\0\0\0\0\x01Hell");
    client.take_out();
}

#[test]
fn a_response_overrides_the_priority_of_its_request() {
    let (mut client, mut server) = pair();
    let mut streams = Vec::new();
    for (wish, answer) in [
        ("u=2", None),
        ("u=5", Some("u=1")),
        ("u=1, i", Some("i=?0, x")),
        ("", Some("u=7")),
    ] {
        let mut head = RequestHead::new(Method::Get, "/");
        head.set_authority("example.org");
        head.fields.append(Name::Priority, wish);
        let stream = client.request(&head, Vec::new(), None);
        server.receive(&client.take_out());
        let mut response = ResponseHead::default();
        if let Some(value) = answer {
            response.fields.append(Name::Priority, value);
        }
        let stream = stream.expect("a free stream");
        let (connection, out) = (&mut server.connection, &mut server.out);
        connection.send_head(stream, &response, BodyLength::Unknown, out);
        connection.mark_ready(stream);
        streams.push(stream);
    }
    client.receive(&server.take_out());
    let passed_on = &client.messages[&streams[1]].fields;
    assert_eq!(passed_on, &[("priority".to_owned(), "u=1".to_owned())]);
    let turns = (0..4).map_while(|_| server.connection.next_to_send());
    let order: Vec<_> = turns.collect();
    assert_eq!(order, [streams[1], streams[2], streams[0], streams[3]]);
    // A later PRIORITY_UPDATE of the client replaces only the client's parameters.
    let mut update = vec![0, 0, 7, 16, 0, 0, 0, 0, 0];
    update.extend_from_slice(&streams[1].get().to_be_bytes());
    update.extend_from_slice(b"u=0");
    server.receive(&update);
    for stream in &streams {
        server.connection.mark_ready(*stream);
    }
    assert_eq!(server.connection.next_to_send(), Some(streams[1]));
    assert_eq!(server.connection.next_to_send(), Some(streams[2]));
}

/// The head that a request is decoded into has held others before.
#[test]
fn a_refused_request_is_not_answered_as_the_one_before() {
    let (mut client, mut server) = pair();
    let mut head = RequestHead::new(Method::Head, "/");
    head.set_authority("example.org");
    client.request(&head, Vec::new(), None).expect("free");
    settle(&mut client, &mut server);
    let stream = client.get(&format!("/{}", "x".repeat(9_000)));
    server.receive(&client.take_out());
    let status = Status::new(414).expect("a status");
    assert_eq!(server.refused, [(stream, status)]);
    let response = ResponseHead {
        status,
        ..ResponseHead::default()
    };
    let connection = &mut server.connection;
    connection.send_head(stream, &response, BodyLength::Known(3), &mut server.out);
    assert!(connection.sends_body(stream), "it was not HEAD");
}
