//! Requests whose exact bytes matter.

use std::time::Duration;

use blitz_http::{Counters, ServeOptions};
use blitz_testing::field_compression::{prefixed_integer, string_literal};
use blitz_testing::h3::kind::{GOAWAY, HEADERS, SETTINGS};
use blitz_testing::h3::stream::{CONTROL, DECODER, ENCODER};
use blitz_testing::h3::{data, frame, headers, integer, request, request_with, section};
use blitz_testing::quic::{RawClient, ResponseEnd};

use crate::deadlines::limits;
use crate::h3_support::{pause, soon, with_options, with_server};

#[test]
fn requests_arrive_in_pieces_of_any_size() {
    with_server(async |server| {
        let client = server.raw_client().await;
        let bytes = [request("POST", "/echo"), data("abc"), data("defg")].concat();
        for cut in 1..bytes.len() {
            let mut exchange = client.exchange(&bytes[..cut]).await;
            pause(1).await;
            exchange.write(&bytes[cut..]).await;
            exchange.send.finish().unwrap();
            exchange.response().await.expect(200, "abcdefg");
        }
        let mut exchange = client.exchange(&[]).await;
        for byte in &bytes {
            exchange.write_alone([*byte]).await;
        }
        // FIN has a packet of its own.
        exchange.send.finish().unwrap();
        exchange.response().await.expect(200, "abcdefg");
        for path in ["/hello", "/whole"] {
            let mut exchange = client.exchange(request("GET", path)).await;
            pause(20).await;
            exchange.send.finish().unwrap();
            let content = if path == "/hello" { "hello" } else { "" };
            exchange.response().await.expect(200, content);
        }
        assert_eq!(server.counters().cancelled, 0);
    });
}

/// A service that does not wait for the end of the request responds before it.
#[test]
fn a_response_does_not_wait_for_the_end_of_the_request() {
    with_server(async |server| {
        let client = server.raw_client().await;
        let mut exchange = client.exchange(request("GET", "/hello")).await;
        exchange.response().await.expect(200, "hello");
        exchange.send.finish().unwrap();
        assert_eq!(exchange.stop_code().await, None);
        client.hello().await;
    });
}

#[test]
fn content_of_another_length_than_declared_is_malformed() {
    with_server(async |server| {
        let client = server.raw_client().await;
        let head = |path| request_with("POST", path, &[("content-length", "4")]);
        for path in ["/whole", "/echo"] {
            // Too much, in one frame, two, and behind the whole.
            for content in [data("12345"), [data("12"), data("345")].concat()] {
                let mut exchange = client.exchange(head(path)).await;
                exchange.write(content).await;
                assert_eq!(exchange.reset_code().await, 0x10e, "{path}");
                assert_eq!(exchange.stop_code().await, Some(0x10e));
            }
            let mut exchange = client.exchange([head(path), data("123")].concat()).await;
            exchange.send.finish().unwrap();
            assert_eq!(exchange.reset_code().await, 0x10e, "{path}");
            let trailers = headers(&[("x-sum", "3")]);
            let all = [head(path), data("123"), trailers].concat();
            let mut exchange = client.exchange(all).await;
            exchange.send.finish().unwrap();
            assert_eq!(exchange.reset_code().await, 0x10e, "{path}");
        }
        let response = client.ask(head("/whole")).await;
        assert_eq!(response.end, ResponseEnd::Reset(0x10e));
        client.hello().await;
        assert_eq!(server.counters().refused_for("content-length-mismatch"), 9);
        server
            .when("cancelled", |counters| counters.cancelled == 8)
            .await;
    });
}

/// Bytes that arrive behind the response are no longer wanted, and their length is wrong all the same.
#[test]
fn content_that_is_discarded_has_the_declared_length_as_well() {
    with_server(async |server| {
        let client = server.raw_client().await;
        let head = || request_with("POST", "/hello", &[("content-length", "4")]);
        let mut together = client.exchange([head(), data("12345")].concat()).await;
        assert_eq!(together.reset_code().await, 0x10e);
        assert_eq!(together.stop_code().await, Some(0x10e));
        let mut behind = client.exchange(head()).await;
        behind.response().await.expect(200, "hello");
        behind.write(data("12345")).await;
        assert_eq!(behind.stop_code().await, Some(0x10e));
        client.hello().await;
    });
}

#[test]
fn malformed_pseudo_header_fields_are_stream_errors() {
    with_server(async |server| {
        let client = server.raw_client().await;
        let (get, https) = ((":method", "GET"), (":scheme", "https"));
        let (host, path) = ((":authority", "localhost"), (":path", "/hello"));
        let malformed: [(&[(&str, &str)], &str); 13] = [
            (&[https, host, path], "pseudo-header-missing"),
            (&[get, host, path], "pseudo-header-missing"),
            (&[get, https, host], "pseudo-header-missing"),
            (&[get, https, path], "host-missing"),
            (&[get, get, https, host, path], "pseudo-header-repeated"),
            (&[get, https, host, path, path], "pseudo-header-repeated"),
            (
                &[get, https, host, ("a", "b"), path],
                "pseudo-header-after-field",
            ),
            (
                &[get, https, host, path, (":status", "200")],
                "pseudo-header-unknown",
            ),
            (
                &[get, https, host, path, (":x", "y")],
                "pseudo-header-unknown",
            ),
            (
                &[get, https, host, path, ("Upper", "x")],
                "field-name-uppercase",
            ),
            (
                &[get, https, host, path, ("connection", "x")],
                "connection-specific-field",
            ),
            (&[get, https, host, path, ("te", "gzip")], "te-not-trailers"),
            (
                &[get, https, host, path, ("host", "other")],
                "host-mismatch",
            ),
        ];
        for (fields, rule) in malformed {
            let before = server.counters().refused_for(rule);
            let response = client.ask(headers(fields)).await;
            let is_reset = response.end == ResponseEnd::Reset(0x10e);
            let is_refused = response.end == ResponseEnd::Fin && response.heads == [Some(400)];
            assert!(is_reset || is_refused, "{fields:?}: {response:?}");
            assert_eq!(
                server.counters().refused_for(rule),
                before + 1,
                "{fields:?}"
            );
            client.hello().await;
        }
        // Trailers have no pseudo-header fields.
        let bytes = [request("POST", "/whole"), headers(&[(":path", "/")])].concat();
        assert_eq!(client.ask(bytes).await.end, ResponseEnd::Reset(0x10e));
        client.hello().await;
    });
}

#[test]
fn requests_beyond_limits_are_refused() {
    with_server(async |server| {
        let client = server.raw_client().await;
        let long = |bytes| "x".repeat(bytes);
        let many = vec![("x", "y"); 101];
        for (bytes, status) in [
            (request_with("GET", "/hello", &[("x", &long(42_000))]), 431),
            // It is not even gathered.
            (request_with("GET", "/hello", &[("x", &long(70_000))]), 431),
            (request_with("GET", "/hello", &many), 431),
            (request("GET", &format!("/{}", long(9_000))), 414),
            (request("GET", "/%zz"), 400),
            (request("GET", "/../.."), 400),
            (request("GET", "/%00"), 400),
        ] {
            let response = client.ask(&bytes).await;
            assert_eq!(response.heads, [Some(status)], "{:?}", response.end);
            assert_eq!(response.end, ResponseEnd::Fin);
            // Content that follows is discarded.
            let response = client.ask([bytes, data("content")].concat()).await;
            assert_eq!(response.heads, [Some(status)], "{:?}", response.end);
            client.hello().await;
        }
        let trailers = headers(&[("x", &long(9_000))]);
        let bytes = [request("POST", "/whole"), trailers].concat();
        let response = client.ask(bytes).await;
        let is_refused = response.heads == [Some(431)] || response.end == ResponseEnd::Reset(0x10e);
        assert!(is_refused, "{response:?}");
        client.hello().await;
    });
}

#[test]
fn trailers_come_back_behind_the_content() {
    with_server(async |server| {
        let client = server.raw_client().await;
        let trailers = headers(&[("x-sum", "6")]);
        let mut exchange = client.exchange(request("POST", "/echo")).await;
        exchange.write_alone(data("abcdef")).await;
        exchange.write_alone(&trailers[..5]).await;
        exchange.write_alone(&trailers[5..]).await;
        let response = async {
            exchange.send.finish().unwrap();
            exchange.response().await
        };
        let response = response.await;
        response.expect(200, "abcdef");
        assert_eq!(response.heads, [Some(200), None]);
        // Nothing but frames of unknown types may follow.
        let grease = frame(0x21, "anything");
        let bytes = [request("POST", "/echo"), trailers.clone(), grease].concat();
        client.ask(bytes).await.expect(200, "");
        let bytes = [request("POST", "/echo"), trailers.clone(), data("x")].concat();
        assert_eq!(client.ask(bytes).await.end, ResponseEnd::Closed(0x105));
    });
}

#[test]
fn reserved_frames_streams_and_settings_are_ignored() {
    with_server(async |server| {
        let quic = server.quic().await;
        let mut control = quic.stream(CONTROL).await;
        let settings = [integer(0x21), integer(7), integer(0x3f3f), integer(1 << 40)];
        let settings = frame(SETTINGS, settings.concat());
        let grease = frame(0x1f * 5 + 0x21, vec![b'?'; 3_000]);
        let all = [settings, grease.clone(), frame(0xd, integer(9))].concat();
        control.write_all(&all).await.unwrap();
        let mut reserved = quic.stream(0x1f * 9 + 0x21).await;
        reserved.write_all(b"anything").await.unwrap();
        let stopped = soon(reserved.stopped()).await.unwrap();
        assert_eq!(stopped.map(quinn::VarInt::into_inner), Some(0x103));
        // A stream may end before its type has arrived.
        let mut empty = soon(quic.connection.open_uni()).await.unwrap();
        empty.finish().unwrap();
        let client = RawClient::over(quic, control);
        let parts = [
            grease.clone(),
            request("POST", "/echo"),
            grease.clone(),
            data("abc"),
            frame(0x21, ""),
            data("def"),
            grease,
        ];
        client.ask(parts.concat()).await.expect(200, "abcdef");
        client.hello().await;
        assert_eq!(server.counters().refused, []);
    });
}

#[test]
fn requests_need_no_settings_and_no_streams_beside_them() {
    with_server(async |server| {
        let quic = server.quic().await;
        let mut exchange = quic.exchange(request("GET", "/hello")).await;
        exchange.send.finish().unwrap();
        exchange.response().await.expect(200, "hello");
    });
}

/// The server's SETTINGS come at once, and its streams only once.
#[test]
fn the_server_opens_its_control_stream_with_settings() {
    with_server(async |server| {
        let client = server.raw_client().await;
        let mut control = client.quic.accept(CONTROL).await;
        let mut arrived = Vec::new();
        let settings = blitz_testing::quic::next_frame(&mut control, &mut arrived);
        let (kind, payload) = settings.await.unwrap();
        assert_eq!(kind, SETTINGS);
        let mut rest = &payload[..];
        let mut settings = Vec::new();
        while let Some((value, len)) = blitz_testing::h3::read_integer(rest) {
            settings.push(value);
            rest = &rest[len..];
        }
        let pairs: Vec<_> = settings.chunks(2).collect();
        assert!(pairs.contains(&&[0x1, 4096][..]), "{pairs:?}");
        assert!(
            pairs.contains(&&[0x8, 1][..]),
            "extended CONNECT: {pairs:?}"
        );
    });
}

/// The bytes of a client on a new control stream, and the code that the connection is closed with.
fn violations_of_control_streams() -> [(&'static str, Vec<u8>, u64); 15] {
    let behind = |frames: &[Vec<u8>]| [frame(SETTINGS, []), frames.concat()].concat();
    [
        ("GOAWAY first", frame(GOAWAY, [0]), 0x10a),
        ("a reserved frame first", frame(0x21, ""), 0x10a),
        ("a setting of HTTP/2", frame(SETTINGS, [0x4, 1]), 0x109),
        ("a setting twice", frame(SETTINGS, [0x6, 1, 0x6, 1]), 0x109),
        ("a setting without value", frame(SETTINGS, [0x6]), 0x106),
        ("SETTINGS twice", behind(&[frame(SETTINGS, [])]), 0x105),
        ("DATA", behind(&[data("x")]), 0x105),
        ("HEADERS", behind(&[request("GET", "/")]), 0x105),
        ("PING of HTTP/2", behind(&[frame(0x6, [0; 8])]), 0x105),
        ("a long GOAWAY", behind(&[frame(GOAWAY, [0, 0])]), 0x106),
        (
            "a growing GOAWAY",
            behind(&[frame(GOAWAY, [4]), frame(GOAWAY, [8])]),
            0x108,
        ),
        ("CANCEL_PUSH", behind(&[frame(0x3, [0])]), 0x108),
        (
            "a shrinking MAX_PUSH_ID",
            behind(&[frame(0xd, [8]), frame(0xd, [4])]),
            0x108,
        ),
        (
            "a priority of a control stream",
            behind(&[frame(0xf0700, [0x02])]),
            0x108,
        ),
        (
            "a priority of a push",
            behind(&[frame(0xf0701, [0])]),
            0x108,
        ),
    ]
}

#[test]
fn violations_beside_requests_close_the_connection_with_their_code() {
    let of_control = violations_of_control_streams();
    let of_control = of_control.map(|(name, bytes, code)| (name, CONTROL, bytes, code));
    let of_others = [
        ("a push stream", 0x1, vec![0], 0x103),
        (
            "a large capacity",
            ENCODER,
            vec![0x3f, 0xff, 0xff, 0x7f],
            0x201,
        ),
        ("a missing entry", ENCODER, vec![0x05], 0x201),
        ("an acknowledgement of nothing", DECODER, vec![0x80], 0x202),
        ("insertions that were not made", DECODER, vec![0x01], 0x202),
    ];
    let violations = [&of_control[..], &of_others].concat();
    with_server(async |server| {
        for (name, kind, bytes, code) in &violations {
            let quic = server.quic().await;
            let mut stream = quic.stream(*kind).await;
            stream.write_all(bytes).await.unwrap();
            assert_eq!(quic.close_code().await, *code, "{name}");
        }
        server
            .when("closed", |counters| counters.connections == 0)
            .await;
    });
}

#[test]
fn violations_of_requests_close_the_connection_with_their_code() {
    let violations = [
        ("DATA before HEADERS", data("x"), 0x105),
        ("SETTINGS", frame(SETTINGS, []), 0x105),
        ("PUSH_PROMISE of a client", frame(0x5, [0, 0, 0]), 0x105),
        ("a frame of HTTP/2", frame(0x9, ""), 0x105),
        ("a section without prefix", frame(HEADERS, ""), 0x200),
        (
            "a reference to nothing",
            frame(HEADERS, [0, 0, 0x80]),
            0x200,
        ),
        (
            "a reference beyond the static table",
            frame(HEADERS, [0, 0, 0xff, 99]),
            0x200,
        ),
        ("an end within a frame", vec![0x01, 0x20, b'x'], 0x106),
        ("an end within a header", vec![0x01], 0x106),
    ];
    with_server(async |server| {
        for (name, bytes, code) in &violations {
            let client = server.raw_client().await;
            let mut exchange = client.exchange(bytes).await;
            exchange.send.finish().unwrap();
            assert_eq!(client.quic.close_code().await, *code, "{name}");
        }
        server
            .when("closed", |counters| counters.connections == 0)
            .await;
    });
}

#[test]
fn critical_streams_exist_once_and_never_end() {
    with_server(async |server| {
        for kind in [CONTROL, ENCODER, DECODER] {
            let client = server.raw_client().await;
            let _first = match kind {
                CONTROL => None,
                _ => Some(client.quic.stream(kind).await),
            };
            let _second = client.quic.stream(kind).await;
            assert_eq!(client.quic.close_code().await, 0x103, "twice {kind:#x}");
            for is_reset in [false, true] {
                let quic = server.quic().await;
                let mut stream = quic.stream(kind).await;
                if kind == CONTROL {
                    stream.write_all(&frame(SETTINGS, [])).await.unwrap();
                }
                // The type has arrived by then, also on a busy machine.
                pause(50).await;
                match is_reset {
                    true => stream.reset(0_u32.into()).unwrap(),
                    false => stream.finish().unwrap(),
                }
                assert_eq!(quic.close_code().await, 0x104, "{kind:#x} {is_reset}");
            }
        }
        for kind in [CONTROL, DECODER] {
            let client = server.raw_client().await;
            let mut stream = client.quic.accept(kind).await;
            stream.stop(0_u32.into()).unwrap();
            assert_eq!(client.quic.close_code().await, 0x104, "stopped {kind:#x}");
        }
    });
}

#[test]
fn a_stream_without_a_request_is_incomplete() {
    with_server(async |server| {
        let client = server.raw_client().await;
        assert_eq!(client.ask([]).await.end, ResponseEnd::Reset(0x10d));
        assert_eq!(
            client.ask(frame(0x21, "x")).await.end,
            ResponseEnd::Reset(0x10d)
        );
        let mut exchange = client.exchange(&request("GET", "/hello")[..9]).await;
        pause(5).await;
        exchange.send.reset(0x10c_u32.into()).unwrap();
        exchange.reset_code().await;
        client.hello().await;
        assert_eq!(server.counters().cancelled, 0);
    });
}

/// Instructions that make room for entries and insert one.
fn insertion(name: &str, value: &str) -> Vec<u8> {
    let mut instructions = Vec::new();
    prefixed_integer(0x20, 5, 4096, &mut instructions);
    string_literal(0x40, 5, name, &mut instructions);
    string_literal(0, 7, value, &mut instructions);
    instructions
}

/// A section that refers to the first entry of the dynamic table, behind literals.
fn referring(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut section = section(fields);
    // One insertion is required: encoded as 2. It has the base's index 0.
    section[0] = 2;
    section.push(0x80);
    frame(HEADERS, section)
}

const POST: [(&str, &str); 4] = [
    (":method", "POST"),
    (":scheme", "https"),
    (":authority", "localhost"),
    (":path", "/echo"),
];

#[test]
fn a_head_waits_for_the_instructions_that_it_needs() {
    with_server(async |server| {
        let client = server.raw_client().await;
        // The entry completes the request.
        let bytes = [referring(&POST[..3]), data("abc")].concat();
        let mut exchange = client.exchange(&bytes[..]).await;
        exchange.send.finish().unwrap();
        let mut other = client.exchange(&bytes[..]).await;
        pause(30).await;
        client.hello().await;
        assert_eq!(server.counters().requests, 1);
        let mut encoder = client.quic.stream(ENCODER).await;
        let instructions = insertion(":path", "/echo");
        for byte in &instructions {
            encoder.write_all(&[*byte]).await.unwrap();
            pause(1).await;
        }
        exchange.response().await.expect(200, "abc");
        other.write(data("def")).await;
        other.send.finish().unwrap();
        other.response().await.expect(200, "abcdef");
        // Both sections and the insertion are acknowledged.
        let mut decoder = client.quic.accept(DECODER).await;
        let mut reports = vec![0; 3];
        soon(decoder.read_exact(&mut reports)).await.unwrap();
        reports.sort_unstable();
        assert_eq!(reports, [0x01, 0x80, 0x84]);
    });
}

#[test]
fn trailers_wait_for_the_instructions_that_they_need() {
    with_server(async |server| {
        let client = server.raw_client().await;
        let bytes = [headers(&POST), data("abc"), referring(&[])].concat();
        // One ends before the instructions arrive, one behind them.
        let mut early = client.exchange(&bytes).await;
        early.send.finish().unwrap();
        let mut late = client.exchange(&bytes).await;
        for exchange in [&mut early, &mut late] {
            assert_eq!(exchange.frame().await.unwrap().0, HEADERS);
            assert_eq!(exchange.content().await, b"abc");
        }
        pause(30).await;
        let mut encoder = client.quic.stream(ENCODER).await;
        let instructions = insertion("x-sum", "6");
        encoder.write_all(&instructions).await.unwrap();
        let response = early.response().await;
        assert_eq!(
            (response.heads, response.end),
            (vec![None], ResponseEnd::Fin)
        );
        late.send.finish().unwrap();
        let response = late.response().await;
        assert_eq!(
            (response.heads, response.end),
            (vec![None], ResponseEnd::Fin)
        );
        client.hello().await;
    });
}

#[test]
fn a_stream_that_waits_for_instructions_can_be_reset() {
    with_server(async |server| {
        let client = server.raw_client().await;
        for _ in 0..20 {
            let mut exchange = client.exchange(referring(&POST[..3])).await;
            pause(2).await;
            exchange.send.reset(0x10c_u32.into()).unwrap();
            exchange.reset_code().await;
        }
        client.hello().await;
        // As many as were announced may wait, and no more.
        let mut waiting = Vec::new();
        for _ in 0..16 {
            waiting.push(client.exchange(referring(&POST[..3])).await);
        }
        pause(20).await;
        client.hello().await;
        waiting.push(client.exchange(referring(&POST[..3])).await);
        assert_eq!(client.quic.close_code().await, 0x200);
    });
}

/// The server waits only a moment for the rest of a request behind its response.
fn discards_shortly() -> ServeOptions {
    limits(|limits| limits.quic.discard_timeout = Duration::from_millis(100))
}

#[test]
fn plain_connect_is_answered_by_the_service() {
    with_options(discards_shortly, async |server| {
        let client = server.raw_client().await;
        let head = headers(&[(":method", "CONNECT"), (":authority", "a.example:443")]);
        let mut exchange = client.exchange(&head).await;
        exchange.response().await.expect(404, "nothing here");
        // Later bytes of the client would belong to a tunnel that does not exist.
        assert_eq!(exchange.stop_code().await, Some(0x100));
        client.hello().await;
    });
}

/// RFC 9220: extended CONNECT with a protocol that the library `h3` does not know.
#[test]
fn websockets_open_a_tunnel() {
    with_server(async |server| {
        let client = server.raw_client().await;
        let head = request_with("CONNECT", "/upgrade", &[(":protocol", "websocket")]);
        let mut exchange = client.exchange(&head).await;
        assert_eq!(exchange.frame().await.unwrap().0, HEADERS);
        for part in ["one", "two"] {
            exchange.write(data(part)).await;
            assert_eq!(exchange.content().await, part.as_bytes());
        }
        exchange.send.finish().unwrap();
        let response = exchange.response().await;
        assert_eq!(
            (&response.content[..], response.end),
            (&b"bye"[..], ResponseEnd::Fin)
        );
        // Trailers have no meaning in a tunnel.
        let mut exchange = client.exchange(&head).await;
        assert_eq!(exchange.frame().await.unwrap().0, HEADERS);
        exchange.write(headers(&[("x", "y")])).await;
        assert_eq!(client.quic.close_code().await, 0x105);
    });
}

/// A service that refuses the tunnel does so with its response.
#[test]
fn a_refused_extended_connect_ends_with_its_response() {
    with_options(discards_shortly, async |server| {
        let client = server.raw_client().await;
        let head = request_with("CONNECT", "/nowhere", &[(":protocol", "websocket")]);
        let mut exchange = client.exchange(&head).await;
        exchange.response().await.expect(404, "nothing here");
        assert_eq!(exchange.stop_code().await, Some(0x100));
        client.hello().await;
    });
}

#[test]
fn a_rapid_reset_closes_the_connection() {
    with_server(async |server| {
        let client = server.raw_client().await;
        for number in 1..300 {
            let Ok(opened) = soon(client.quic.connection.open_bi()).await else {
                break;
            };
            let (mut send, _recv) = opened;
            let _ = send.write_all(&request("GET", "/never")).await;
            // One after the other, so that no request comes together with the reset of another.
            let is_closed = || client.quic.connection.close_reason().is_some();
            let begun = |counters: &Counters| counters.requests >= number || is_closed();
            server.when("begun", begun).await;
            let _ = send.reset(0x10c_u32.into());
            let reset = |counters: &Counters| counters.cancelled >= number || is_closed();
            server.when("reset", reset).await;
        }
        assert_eq!(client.quic.close_code().await, 0x107);
        server
            .when("closed", |counters| counters.connections == 0)
            .await;
        assert!(server.counters().requests <= 201);
    });
}
