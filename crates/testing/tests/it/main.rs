//! The peers talk to each other, so that a broken peer is not mistaken for a broken Blitz.

use std::panic::catch_unwind;

use blitz_testing::{Client, Upstream, h2, h3, is_alone};

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
