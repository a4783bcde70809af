use blitz_http::{Chunk, Name, ServeOptions};
use std::rc::Rc;

use crate::support::{Server, on_each_driver, options};

#[test]
fn a_malformed_head_is_answered_named_and_closed() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        client
            .send("GET /hello HTTP/1.1\r\nHost : a\r\n\r\nGET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
        let head = client.head();
        assert!(head.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{head}");
        assert!(
            head.to_lowercase().contains("\r\nconnection: close\r\n"),
            "{head}"
        );
        client
            .expect("400 Bad Request: space-before-colon\n")
            .expect_end();
        assert_eq!(server.counters().refused_for("space-before-colon"), 1);
        assert_eq!(server.counters().requests, 0);
    });
}

#[test]
fn a_malformed_body_is_answered_if_the_service_does_not() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        client.send("POST /whole HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n");
        assert!(client.head().starts_with("HTTP/1.1 400 Bad Request\r\n"));
        client
            .expect("400 Bad Request: chunk-size-malformed\n")
            .expect_end();
        assert_eq!(server.counters().refused_for("chunk-size-malformed"), 1);
    });
}

#[test]
fn a_refusal_after_good_requests_comes_after_their_answers() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        client.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\nBAD\r\n\r\n");
        assert!(client.head().starts_with("HTTP/1.1 200 OK\r\n"));
        client.expect("slow");
        assert!(client.head().starts_with("HTTP/1.1 400 Bad Request\r\n"));
    });
}

#[test]
fn the_content_of_refusals_can_be_chosen() {
    on_each_driver(|io| {
        let server = Server::with(io, || ServeOptions {
            refusal: Some(Rc::new(|refusal, _, head| {
                head.fields
                    .append(Name::ContentType, "application/problem+json");
                let content = format!("{{\"status\":{}}}", refusal.status.code());
                Some(Chunk::from(content))
            })),
            ..options()
        });
        let mut client = server.connect();
        client.send("GET /hello HTTP/1.1\r\n\r\n");
        assert!(client.head().contains("application/problem+json"));
        client.expect("{\"status\":400}").expect_end();
    });
}

#[test]
fn an_answer_survives_input_that_is_still_coming() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        client.send("GET /hello HTTP/2.7\r\nHost: a\r\n\r\n");
        client.send(vec![b'x'; 20_000]);
        assert!(client.head().starts_with("HTTP/1.1 505 "));
    });
}
