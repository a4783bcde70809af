//! Requests whose HTTP/2 header block is too long to be decoded get 431, then the connection ends.

use blitz_http::{BodyLength, Method, RequestHead, Status};
use blitz_proto::h2::Code;

use crate::h2_client::Client;
use crate::support::{Server, on_each_driver};

fn long_head(method: Method) -> RequestHead {
    let mut head = RequestHead::new(method, "/hello");
    head.set_authority("a");
    // Bytes that Huffman coding does not shorten.
    head.fields.append("x-long", "~".repeat(70 << 10));
    head
}

#[test]
fn a_header_block_that_is_too_long_gets_431_before_the_connection_ends() {
    on_each_driver(|io| {
        for (method, length) in [
            (Method::Get, BodyLength::Empty),
            (Method::Head, BodyLength::Empty),
            (Method::Post, BodyLength::Known(100_000)),
        ] {
            let server = Server::start(io);
            let mut client = Client::connect(server.address);
            let running = client.request(Method::Get, "/slow", BodyLength::Empty);
            let stream = client.send_head(&long_head(method), length);
            let answer = client.answer(stream);
            assert_eq!(answer.status, Some(Status::REQUEST_HEADER_FIELDS_TOO_LARGE));
            assert!(answer.content.is_empty());
            assert_eq!(client.answer(running).content, b"slow");
            client.expect_end();
            assert_eq!(client.go_away, Some(Code::NO_ERROR));
            let counters = server.counters();
            assert_eq!(counters.refused_for("head-too-large"), 1);
        }
    });
}
