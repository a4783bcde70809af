use crate::support::{Server, on_each_driver};

const CONTINUE: &str = "HTTP/1.1 100 Continue\r\n\r\n";

#[test]
fn reading_the_body_sends_100_continue() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        for _ in 0..2 {
            client.send("POST /whole HTTP/1.1\r\nHost: a\r\n");
            client.send("Content-Length: 3\r\nExpect: 100-continue\r\n\r\n");
            client.expect(CONTINUE).send("abc");
            assert!(client.head().starts_with("HTTP/1.1 200 OK\r\n"));
            client.expect("abc");
        }
    });
}

#[test]
fn content_sent_without_waiting_needs_no_100_continue() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        client.send(
            "POST /whole HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\nabc",
        );
        assert!(client.head().starts_with("HTTP/1.1 200 OK\r\n"));
        client.expect("abc");
    });
}

#[test]
fn a_final_response_instead_of_100_continue_closes_the_connection() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        client.send("POST /hello HTTP/1.1\r\nHost: a\r\n");
        client.send("Content-Length: 3\r\nExpect: 100-continue\r\n\r\n");
        let head = client.head();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(
            head.to_lowercase().contains("\r\nconnection: close\r\n"),
            "{head}"
        );
        client.expect("hello").expect_end();
    });
}

#[test]
fn other_expectations_are_refused() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        client.send("POST /whole HTTP/1.1\r\nHost: a\r\nExpect: coffee\r\n\r\n");
        assert!(client.head().starts_with("HTTP/1.1 417 "));
    });
}

#[test]
fn interim_responses_come_before_the_final_one() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        client.send("GET /hints HTTP/1.1\r\nHost: a\r\n\r\n");
        let hints = client.head();
        assert!(hints.starts_with("HTTP/1.1 103 "), "{hints}");
        assert!(client.head().starts_with("HTTP/1.1 200 OK\r\n"));
        client.expect("hinted");
        // RFC 9110, section 15.2: no interim response to HTTP/1.0.
        let mut old = server.connect();
        old.send("GET /hints HTTP/1.0\r\n\r\n");
        assert!(old.head().starts_with("HTTP/1.1 200 OK\r\n"));
    });
}
