//! The log line of a refused request names the request as far as it is known, the cause and the client.

use blitz_gateway::Options;
use blitz_http::{BodyLength, Method, RequestHead, Status};

use crate::failure_log::{keep_lines, line_of};
use crate::h2::h2;
use crate::support::{Proxy, Upstream};

/// Whether a line at DEBUG names a request to `a.example/a`, its cause, and the client.
fn check_line(id: &str, method: &str, status: u16, cause: &str, is_told: bool) {
    let line = line_of("DEBUG", id);
    let client = match is_told {
        true => "client=203.0.113.9 ",
        false => "client=127.0.0.1:",
    };
    let cause = match cause {
        "" => String::new(),
        cause => format!("cause=\"{cause}\""),
    };
    for part in [
        client,
        &format!("method=\"{method}\""),
        "host=\"a.example\"",
        "path=/a",
        &format!("status={status}"),
        &cause,
    ] {
        assert!(line.contains(part), "no {part} in {line}");
    }
    assert!(!line.contains('?') && !line.contains("Error"), "{line}");
}

/// Whether the parser refuses the head, perhaps before all of it is received: what the client wrote may be in that part,
/// and what the trusted proxy has added after it in the rest.
fn is_of_the_parser(cause: &str) -> bool {
    let of_parser = [
        "head-too-large",
        "host-repeated",
        "content-length-malformed",
        "expectation-unknown",
    ];
    of_parser.contains(&cause)
}

scenarios! {
    fn lines_of_refused_requests_name_the_request_the_cause_and_the_client(io) {
        keep_lines();
        let upstream = Upstream::with_text("");
        for trusted in [false, true] {
            let proxies: &[&str] = if trusted { &["127.0.0.0/8"] } else { &[] };
            let options = Options {
                trusted_proxies: proxies.iter().map(|proxy| proxy.parse().unwrap()).collect(),
                body_bytes_max: Some(8),
                ..Options::default()
            };
            let proxy = Proxy::with(io, &[&upstream.url()], options);
            let told = "X-Forwarded-For: 203.0.113.9";
            let large = format!("X-Large: {}", "x".repeat(70_000));
            let cases = [
                (431, "head-too-large", "POST /a?b=c", &*large),
                (400, "host-repeated", "POST /a", "Host: b"),
                (400, "content-length-malformed", "POST /a", "Content-Length: x"),
                (413, "content-too-large", "POST /a?b", "Content-Length: 9"),
                (413, "content-too-large", "POST http://a.example/a?b", "Content-Length: 9"),
                (400, "chunk-size-malformed", "POST /a", "Transfer-Encoding: chunked\r\n\r\nz\r\n"),
                (417, "expectation-unknown", "POST /a", "Expect: a cookie"),
                (405, "method-not-forwarded", "TRACE /a", "X: 1"),
                (200, "", "POST /a", "Content-Length: 0"),
            ];
            for (number, (status, cause, line, rest)) in cases.into_iter().enumerate() {
                let id = format!("refused-{io:?}-{trusted}-{number}");
                let mut peer = proxy.peer();
                let fields = format!("X-Request-Id: {id}\r\n{told}\r\n{rest}");
                peer.send(format!("{line} HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n\r\n"));
                let head = peer.head().unwrap();
                assert!(head.line.contains(&format!(" {status} ")), "{cause}: {head:?}");
                check_line(&id, line.split(' ').next().unwrap(), status, cause, trusted && !is_of_the_parser(cause));
            }
            let mut client = h2(&proxy);
            for (status, cause, field, length) in [
                (431, "head-too-large", ("x-large", "x".repeat(50_000)), 0),
                (417, "expectation-unknown", ("expect", "a cookie".to_owned()), 0),
                (413, "content-too-large", ("x-small", String::new()), 9),
            ] {
                let mut head = RequestHead::new(Method::Put, "/a?b");
                head.set_authority("a.example");
                head.fields.append("x-forwarded-for", "203.0.113.9");
                head.fields.append(field.0, field.1);
                let stream = client.send_head(&head, BodyLength::Known(length));
                let answer = client.answer(stream);
                assert_eq!(answer.status.map(Status::code), Some(status), "{answer:?}");
                let id = answer.fields.get_str("x-request-id").unwrap();
                check_line(id, "PUT", status, cause, trusted && !is_of_the_parser(cause));
            }
        }
    }
}
