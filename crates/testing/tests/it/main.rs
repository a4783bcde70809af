//! The peers talk to each other, so that a broken peer is not mistaken for a broken Blitz.

use std::net::{TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use blitz_testing::field_compression::prefixed_integer;
use blitz_testing::{Client, H1Peer, Raw, Upstream, h2, h3, is_alone};

#[test]
fn the_client_reads_what_the_upstream_writes() {
    let upstream = Upstream::start(|request| {
        let body = format!("{} {:?}", request.line, request.body);
        format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    });
    let mut client = Client::connect(upstream.address());
    let answer = client.get("/x");
    assert_eq!((answer.status, answer.text()), (200, "GET /x HTTP/1.1 []"));

    client.send("POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nab");
    assert_eq!(client.response().text(), "POST / HTTP/1.1 [97, 98]");
    client.finish();
    assert_eq!(client.rest(), b"");
}

#[test]
fn chunks_are_put_together() {
    let chunked =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n";
    let upstream = Upstream::start(|_| chunked.into());
    assert_eq!(Client::connect(upstream.address()).get("/").body, b"abc");
}

#[test]
fn a_test_that_has_its_process_for_itself_can_fail() {
    // In the other process this panics with the words below, here with what that process said.
    let panic = catch_unwind(|| assert!(!is_alone(), "it has failed")).expect_err("it fails");
    let said = panic.downcast_ref::<String>().map_or("", String::as_str);
    assert!(
        said.contains("it has failed") && said.contains("1 failed"),
        "{said}"
    );
}

#[test]
fn frames_are_the_bytes_of_the_rfcs() {
    let bytes = h2::frame(h2::kind::DATA, 1, 0x0102_0304, vec![7; 0x0001_0203]);
    assert_eq!(bytes[..9], [1, 2, 3, 0, 1, 1, 2, 3, 4]);
    let frame = h2::read_frame(&mut &bytes[..]).expect("a whole frame");
    assert_eq!((frame.kind, frame.flags, frame.stream), (0, 1, 0x0102_0304));
    assert_eq!(frame.payload, vec![7; 0x0001_0203]);
    assert!(h2::read_frame(&mut &bytes[1..]).is_err(), "it is cut");

    // RFC 9000, appendix A.1.
    assert_eq!(h3::integer(37), [0x25]);
    assert_eq!(h3::integer(15_293), [0x7b, 0xbd]);
    assert_eq!(h3::integer(494_878_333), [0x9d, 0x7f, 0x3e, 0x7d]);
    let longest = [0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c];
    assert_eq!(h3::integer(151_288_809_941_952_652), longest);
    let frame = h3::frame(h3::kind::HEADERS, [9; 64]);
    assert_eq!(frame[..4], [1, 0x40, 64, 9]);
}

#[test]
fn received_frames_are_taken_one_by_one() {
    let padded = [2, b'a', 0, 0];
    let flags = h2::flag::PADDED | h2::flag::END_STREAM;
    let settings = [(3, 100), (4, 65_535)];
    let bytes = [
        h2::frame(h2::kind::DATA, flags, 1, padded),
        h2::settings(&settings),
    ]
    .concat();
    let mut received = &bytes[..];
    let data = h2::Frame::take(&mut received).expect("a whole frame");
    assert!(data.has(h2::flag::END_STREAM) && !data.has(h2::flag::END_HEADERS));
    assert_eq!(data.content(), Some(&b"a"[..]));
    let mut cut = &received[..received.len() - 1];
    assert_eq!(h2::Frame::take(&mut cut), None);
    let taken = h2::Frame::take(&mut received).expect("a whole frame");
    assert_eq!(taken.settings().collect::<Vec<_>>(), settings);
    assert_eq!((taken.number(), received), (Some(0x0003_0000), &[][..]));
    let too_much = h2::frame(h2::kind::DATA, h2::flag::PADDED, 1, [2, b'a']);
    let too_much = h2::Frame::take(&mut &too_much[..]).expect("a whole frame");
    assert_eq!(too_much.content(), None);

    let bytes = h3::data("abc");
    assert_eq!(h3::read_frame(&bytes), Some((0, &b"abc"[..], 5)));
    assert_eq!(h3::read_frame(&bytes[..4]), None);
    assert_eq!(h3::read_integer(&[0x7b, 0xbd, 1]), Some((15_293, 2)));
}

#[test]
fn fields_are_the_bytes_of_the_rfcs() {
    // RFC 7541, appendix C.1.
    for (bits, value, bytes) in [
        (5, 10, &[0x0a][..]),
        (5, 1337, &[0x1f, 0x9a, 0x0a]),
        (8, 42, &[0x2a]),
    ] {
        let mut out = Vec::new();
        prefixed_integer(0, bits, value, &mut out);
        assert_eq!(out, bytes);
    }
    assert_eq!(h2::literals([("a", "bc")]), b"\0\x01a\x02bc");
    assert_eq!(h3::section(&[("a", "bc")]), b"\0\0\x21a\x02bc");
    // An index of the static table, a literal with a name of it, and the same in Huffman code.
    for section in [
        &[0, 0, 0xd9][..],
        &[0, 0, 0x5f, 9, 3, b'2', b'0', b'0'],
        &[0, 0, 0x5f, 9, 0x82, 0x10, 0x01],
    ] {
        assert_eq!(h3::status(section), Some(200), "{section:x?}");
    }
    assert_eq!(h3::status(&h3::section(&[("x-sum", "1")])), None);
}

/// Both ends of a connection, and what `server` has returned.
fn connected<T: Send + 'static>(
    client: impl FnOnce(TcpStream),
    server: impl FnOnce(TcpStream) -> T + Send + 'static,
) -> T {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let thread = thread::spawn(move || server(listener.accept().expect("it comes").0));
    client(TcpStream::connect(address).expect("a server listens"));
    thread.join().expect("no panic")
}

#[test]
fn a_peer_reads_requests_with_both_framings() {
    let requests = connected(
        |client| {
            let mut client = Raw::over(client);
            client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab");
            client.send("PUT /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");
            client.send("1\r\na\r\n0\r\nSum: 1\r\n\r\n").fin();
            client.expect("done").expect_end();
        },
        |server| {
            let mut peer = H1Peer::new(server);
            let requests: Vec<_> = std::iter::from_fn(|| peer.request()).collect();
            assert!(peer.send("done"));
            requests
        },
    );
    let lines: Vec<_> = requests.iter().map(|(head, _)| &head.line[..]).collect();
    assert_eq!(lines, ["POST / HTTP/1.1", "PUT /x HTTP/1.1"]);
    assert_eq!(requests[0].0.field("host"), Some("a"));
    assert_eq!(
        (&requests[0].1[..], &requests[1].1[..]),
        (&b"ab"[..], &b"a"[..])
    );
}

#[test]
fn exact_bytes_are_expected_and_others_are_a_panic() {
    let is_other = connected(
        |client| {
            let mut client = Raw::over(client);
            client.send("HTTP/1.1 200 OK\r\n\r\nab");
        },
        |server| {
            let mut raw = Raw::over(server);
            assert_eq!(raw.head(), "HTTP/1.1 200 OK\r\n\r\n");
            catch_unwind(AssertUnwindSafe(|| {
                raw.expect("ax");
            }))
            .is_err()
        },
    );
    assert!(is_other);
    connected(
        |client| H1Peer::new(client).reset(),
        |server| Raw::over(server).expect_reset(),
    );
}
