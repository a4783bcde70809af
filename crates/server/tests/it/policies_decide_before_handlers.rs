use std::time::Duration;

use blitz::policy::{compress, concurrency, cors, early_hints, jwt, rate_limit, request_id};
use blitz::{App, Next, Request, Response, Status};
use blitz_testing::Client;

use crate::server::on_both_drivers;

/// Sends a request line with fields.
fn ask(client: &mut Client, line: &str, fields: &str) -> blitz_testing::Response {
    client.send(format!("{line} HTTP/1.1\r\nHost: test\r\n{fields}\r\n"));
    client.response()
}

const ORIGIN: &str = "Origin: https://app.example\r\n";

fn allowed(response: &blitz_testing::Response) -> Option<&str> {
    response.field("access-control-allow-origin")
}

#[test]
fn cors_is_in_all_responses_and_answers_preflights() {
    let app = || {
        App::new()
            .policy(cors().allow_origin("https://app.example"))
            .wrap(|request: Request, next: Next| {
                let is_marked = request.fields().contains("x-refused");
                match is_marked {
                    true => blitz::Outcome::Ready(Response::new(Status::FORBIDDEN)),
                    false => next.run(request),
                }
            })
            .put("/a", || "put")
            .get("/panics", || -> &'static str {
                panic!("a handler of a test")
            })
            .get("/own", || {
                Response::text("own").header("access-control-allow-origin", "*")
            })
    };
    on_both_drivers(app, |address| {
        let mut client = Client::connect(address);
        for (line, fields, status) in [
            ("PUT /a", "Content-Length: 0\r\n", 200),
            ("GET /a", "", 405),
            ("OPTIONS /a", "", 204),
            ("GET /none", "", 404),
            ("GET /panics", "", 500),
            ("GET /own", "", 200),
            ("GET /own", "X-Refused: 1\r\n", 403),
        ] {
            let response = ask(&mut client, line, &format!("{ORIGIN}{fields}"));
            assert_eq!(response.status, status, "{line}");
            assert_eq!(allowed(&response), Some("https://app.example"), "{line}");
            assert_eq!(response.field("vary"), Some("Origin"), "{line}");
            let response = ask(
                &mut client,
                line,
                &format!("Origin: https://b.example\r\n{fields}"),
            );
            assert_eq!(
                (response.status, allowed(&response)),
                (status, None),
                "{line}"
            );
        }
        let asked = format!("{ORIGIN}Access-Control-Request-Method: PUT\r\n");
        let preflight = ask(&mut client, "OPTIONS /a", &asked);
        assert_eq!((preflight.status, preflight.text()), (204, ""));
        assert_eq!(preflight.field("access-control-allow-methods"), Some("PUT"));
        assert_eq!(preflight.field("access-control-max-age"), Some("3600"));
        assert_eq!(preflight.field("allow"), None);
    });
}

#[test]
fn a_limit_counts_the_requests_of_a_client() {
    let app = || {
        App::new()
            .policy(rate_limit("2/h"))
            .nest(
                "/free",
                App::new().policy(rate_limit("1000/s")).get("/", || "free"),
            )
            .get("/", || "in")
    };
    on_both_drivers(app, |address| {
        let mut client = Client::connect(address);
        assert_eq!(client.get("/").status, 200);
        assert_eq!(client.get("/none").status, 404);
        let refused = client.get("/");
        assert_eq!(refused.status, 429);
        assert!(refused.field("retry-after").is_some());
        assert!(refused.text().contains("too many requests"));
        assert_eq!(client.get("/none").status, 429);
        // The policy of a nested app takes the place of that of the outer one.
        assert_eq!(client.get("/free/").status, 200);
    });
}

#[test]
fn requests_at_a_time_are_limited_until_their_content_is_sent() {
    let app = || {
        App::new().policy(concurrency(1)).get("/", || {
            Response::stream(async |writer| {
                writer.send("begun").await?;
                blitz::sleep(Duration::from_secs(60)).await;
                Ok(())
            })
        })
    };
    on_both_drivers(app, |address| {
        let mut first = blitz_testing::H1Peer::new(std::net::TcpStream::connect(address).unwrap());
        first.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(first.head().unwrap().line.contains(" 200 "));
        assert_eq!(Client::connect(address).get("/").status, 503);
        drop(first);
        // The end of the first is seen a little later.
        for _ in 0..1000 {
            let mut peer =
                blitz_testing::H1Peer::new(std::net::TcpStream::connect(address).unwrap());
            peer.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            if peer.head().unwrap().line.contains(" 200 ") {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("the place is not given back");
    });
}

const SECRET: &str = "a secret of 32 bytes for the tests";

/// A token with these claims.
fn token(claims: &str) -> String {
    use aws_lc_rs::hmac;
    use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};
    let text = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
    let signed = format!(
        "{}.{}",
        text(br#"{"alg":"HS256"}"#),
        text(claims.as_bytes())
    );
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    let tag = hmac::sign(&key, signed.as_bytes());
    format!("{signed}.{}", text(tag.as_ref()))
}

#[test]
fn tokens_are_demanded_and_their_claims_reach_handlers() {
    let app = || {
        let policy = jwt()
            .secret(SECRET)
            .audience("api")
            .forward("X-User", "sub");
        let user = |request: Request| {
            request
                .fields()
                .get_str("x-user")
                .unwrap_or("none")
                .to_owned()
        };
        App::new()
            .policy(policy)
            .policy(cors().allow_origin("*"))
            .get("/", user)
    };
    on_both_drivers(app, |address| {
        let mut client = Client::connect(address);
        let missing = ask(
            &mut client,
            "GET /",
            "X-User: eve\r\nOrigin: https://a.example\r\n",
        );
        assert_eq!(missing.status, 401);
        assert_eq!(
            missing.field("www-authenticate"),
            Some("Bearer realm=\"site\"")
        );
        assert_eq!(allowed(&missing), Some("*"));
        assert_eq!(client.get("/none").status, 401);
        let valid = token(r#"{"sub":"ann","aud":"api","exp":9999999999}"#);
        let fields = format!("Authorization: Bearer {valid}\r\nX-User: eve\r\nX_User: eve\r\n");
        for _ in 0..2 {
            let response = ask(&mut client, "GET /", &fields);
            assert_eq!((response.status, response.text()), (200, "ann"));
        }
        let other = token(r#"{"sub":"ann","aud":"other","exp":9999999999}"#);
        let fields = format!("Authorization: Bearer {other}\r\n");
        assert_eq!(ask(&mut client, "GET /", &fields).status, 401);
    });
}

#[test]
fn ids_and_early_hints_are_sent() {
    let app = || {
        let show = |request: Request| request.fields().get_str("x-request-id").map(str::to_owned);
        App::new()
            .policy(request_id())
            .policy(early_hints(["</a.css>; rel=preload; as=style"]))
            .get("/", show)
    };
    on_both_drivers(app, |address| {
        let mut client = Client::connect(address);
        let response = client.get("/");
        assert_eq!(response.field("x-request-id"), Some(response.text()));
        let missing = client.get("/none");
        assert_eq!(missing.field("x-request-id").map(str::len), Some(32));
        let mut peer = blitz_testing::H1Peer::new(std::net::TcpStream::connect(address).unwrap());
        peer.send("GET / HTTP/1.1\r\nHost: a\r\nSec-Fetch-Mode: navigate\r\n\r\n");
        let hints = peer.head().unwrap();
        assert!(hints.line.contains(" 103 "), "{}", hints.line);
        assert_eq!(hints.field("link"), Some("</a.css>; rel=preload; as=style"));
        assert!(peer.head().unwrap().line.contains(" 200 "));
    });
}

#[test]
fn responses_are_compressed_as_a_whole_in_steps_and_in_pieces() {
    let app = || {
        App::new()
            .policy(compress().algorithms(["gzip"]))
            .get("/small", || "x".repeat(1000))
            .get("/whole", || "text ".repeat(1000))
            .get("/long", || "text ".repeat(100_000))
            .get("/event", || {
                let mut response = Response::stream(async |writer| {
                    writer.send("first").await?;
                    blitz::sleep(Duration::from_secs(60)).await;
                    Ok(())
                });
                response.fields_mut().set("content-type", "text/plain");
                response.fields_mut().set("etag", "\"a\"");
                response
            })
    };
    on_both_drivers(app, |address| {
        let mut client = Client::connect(address);
        let gzip = "Accept-Encoding: gzip\r\n";
        for (path, length) in [("/whole", 5_000), ("/long", 500_000)] {
            let response = ask(&mut client, &format!("GET {path}"), gzip);
            assert_eq!(response.field("content-encoding"), Some("gzip"), "{path}");
            assert_eq!(response.field("vary"), Some("Accept-Encoding"), "{path}");
            assert!(response.body.len() < length / 4, "{path}");
            // RFC 1952: the length stands in the last four bytes.
            let end = response.body.last_chunk().unwrap();
            assert_eq!(u32::from_le_bytes(*end), length as u32, "{path}");
            let plain = client.get(path);
            assert_eq!(
                (plain.body.len(), plain.field("content-encoding")),
                (length, None)
            );
            let head = format!("HEAD {path} HTTP/1.1\r\nHost: a\r\n{gzip}\r\n");
            let mut peer =
                blitz_testing::H1Peer::new(std::net::TcpStream::connect(address).unwrap());
            peer.send(head.repeat(2));
            for _ in 0..2 {
                assert_eq!(peer.head().unwrap().field("content-encoding"), Some("gzip"));
            }
        }
        assert_eq!(
            ask(&mut client, "GET /small", gzip).field("content-encoding"),
            None
        );
        // A piece can be read before the next one exists.
        let mut peer = blitz_testing::H1Peer::new(std::net::TcpStream::connect(address).unwrap());
        peer.send(format!("GET /event HTTP/1.1\r\nHost: a\r\n{gzip}\r\n"));
        let head = peer.head().unwrap();
        assert_eq!(head.field("content-encoding"), Some("gzip"));
        assert_eq!(head.field("etag"), Some("W/\"a\""));
        let mut received = Vec::new();
        // A stored or fixed block with this text, and the empty block of a flush behind it.
        while !received.windows(4).any(|four| four == [0, 0, 0xff, 0xff]) {
            received.extend(peer.some().expect("the response goes on"));
        }
    });
}

#[test]
fn mistakes_are_found_when_the_app_is_built() {
    let error_of = |app: App| app.build().err().map(|error| error.to_string());
    for (app, expected) in [
        (
            App::new().policy(rate_limit("100rps")),
            "`100rps` is no rate",
        ),
        (App::new().policy(rate_limit("0/s")), "`0/s` is no rate"),
        (
            App::new().policy(rate_limit("1/s").burst(0)),
            "a burst is from 1",
        ),
        (
            App::new().policy(rate_limit("1/d").burst(8)),
            "a burst of this size",
        ),
        (App::new().policy(concurrency(0)), "a concurrency is from 1"),
        (
            App::new().policy(cors().allow_origin("app.example")),
            "`app.example` is no origin",
        ),
        (
            App::new().policy(cors().allow_origin("*").allow_credentials(true)),
            "any site could use the credentials",
        ),
        (
            App::new().policy(cors().allow_methods(["GET, PUT"])),
            "`GET, PUT` is no name",
        ),
        (
            App::new().policy(jwt()),
            "the keys of the tokens are missing",
        ),
        (App::new().policy(jwt().secret("short")), "the secret"),
        (
            App::new().policy(jwt().secret(SECRET).algorithms(["none"])),
            "`none` is no algorithm",
        ),
        (
            App::new().policy(jwt().secret(SECRET).forward("a b", "sub")),
            "`a b` is no field",
        ),
        (
            App::new().policy(compress().types(["*/*"])),
            "`*/*` is not a media type",
        ),
        (
            App::new().policy(compress().algorithms(["deflate"])),
            "`deflate` is no algorithm",
        ),
        (
            App::new().policy(early_hints(["/a.css"])),
            "`/a.css` is no value",
        ),
        (
            App::new().nest("/n", App::new().policy(rate_limit("x"))),
            "`x` is no rate",
        ),
    ] {
        let error = error_of(app).unwrap_or_default();
        assert!(error.starts_with(expected), "{expected}: {error}");
    }
    assert_eq!(
        error_of(App::new().policy(rate_limit("1/d").burst(7))),
        None
    );
}
