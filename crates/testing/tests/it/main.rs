//! The peers talk to each other, so that a broken peer is not mistaken for a broken Blitz.

use std::panic::catch_unwind;

use blitz_testing::{Client, Upstream, is_alone};

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
