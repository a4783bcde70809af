use std::time::{Duration, Instant};

use blitz::builtin;
use blitz_testing::Client;

use crate::server::on_both_drivers;

#[test]
fn fixed_endpoints_have_fixed_content() {
    on_both_drivers(builtin::app, |address| {
        let mut client = Client::connect(address);
        assert_eq!(client.get("/hello").text(), "Hello, World!");
        assert_eq!(client.get("/ping").text(), "pong");
        assert_eq!(client.get("/health").text(), r#"{"status":"ok"}"#);
        for path in ["/livez", "/readyz", "/healthz"] {
            assert_eq!(client.get(path).text(), "ok\n", "{path}");
        }
        let json: serde_json::Value =
            serde_json::from_slice(&client.get("/json").body).expect("JSON");
        assert!(
            json["timestamp"]
                .as_f64()
                .is_some_and(|seconds| seconds > 1.7e9),
            "{json}"
        );
    });
}

#[test]
fn the_welcome_page_has_the_accepted_type() {
    on_both_drivers(builtin::app, |address| {
        let mut client = Client::connect(address);
        assert!(client.get("/").text().starts_with("Blitz is running"));
        let port = address.port();
        for (host, origin) in [
            ("a.example:81", "http://a.example:81".to_owned()),
            ("[::1]:81", "http://[::1]:81".to_owned()),
            // Not for a shell.
            ("a&b", format!("http://127.0.0.1:{port}")),
            ("", format!("http://127.0.0.1:{port}")),
        ] {
            client.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            let response = client.response();
            let command = format!("\n  curl {origin}/hello\n");
            assert!(
                response.text().contains(&command),
                "{host}: {}",
                response.text()
            );
            assert!(!response.text().contains("8080") && !response.text().contains('{'));
        }
        client.send("GET / HTTP/1.1\r\nHost: test\r\nAccept: text/html,*/*;q=0.8\r\n\r\n");
        let page = client.response();
        assert_eq!(page.field("content-type"), Some("text/html; charset=utf-8"));
        assert!(page.text().contains("<h1>Blitz is running</h1>"));
    });
}

#[test]
fn echo_returns_paths_and_content() {
    on_both_drivers(builtin::app, |address| {
        let mut client = Client::connect(address);
        assert_eq!(client.get("/echo/a/%7Eb?c=d").text(), "/echo/a/~b\n");
        assert_eq!(client.get("/echo/\u{e9}|").text(), "/echo/%C3%A9%7C\n");
        client.send(
            "POST /echo HTTP/1.1\r\nHost: test\r\nContent-Type: text/x\r\nContent-Length: 5\r\n\r\n",
        );
        client.send("hello");
        let answer = client.response();
        assert_eq!(
            (answer.text(), answer.field("content-type")),
            ("hello", Some("text/x"))
        );
        client.send("PUT /echo/x HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n");
        client.send("3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n");
        assert_eq!(client.response().text(), "abcd");
        client.send("DELETE /echo/y HTTP/1.1\r\nHost: test\r\n\r\n");
        assert_eq!(client.response().text(), "/echo/y\n");
    });
}

#[test]
fn echo_sends_100_continue() {
    on_both_drivers(builtin::app, |address| {
        let mut client = Client::connect(address);
        for framing in ["Content-Length: 5", "Transfer-Encoding: chunked"] {
            client.send("POST /echo HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\n");
            client.send(format!("{framing}\r\n\r\n"));
            assert_eq!(client.response().status, 100);
            client.send(match framing.contains("chunked") {
                true => "5\r\nhello\r\n0\r\n\r\n",
                false => "hello",
            });
            let answer = client.response();
            assert_eq!((answer.status, answer.text()), (200, "hello"));
        }
    });
}

#[test]
fn data_has_exactly_the_requested_size() {
    on_both_drivers(builtin::app, |address| {
        let mut client = Client::connect(address);
        for size in [0, 1, 32 * 1024, 32 * 1024 + 1, 3_000_000] {
            let answer = client.get(&format!("/data?size={size}"));
            assert_eq!((answer.status, answer.body.len()), (200, size));
        }
        for bad in [
            "/data",
            "/data?size=x",
            "/data?size=99999999999999",
            "/delay?ms=60001",
        ] {
            assert_eq!(client.get(bad).status, 400, "{bad}");
        }
    });
}

#[test]
fn delay_responds_after_the_requested_time() {
    on_both_drivers(builtin::app, |address| {
        let start = Instant::now();
        assert_eq!(
            Client::connect(address).get("/delay?ms=120").text(),
            "waited 120 ms\n"
        );
        assert!(start.elapsed() >= Duration::from_millis(120));
    });
}
