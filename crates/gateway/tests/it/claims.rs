//! Claims of verified tokens: limits that count by them, and their placeholders.

use blitz_gateway::{Gateway, Rejection};
use blitz_http::{BodyLength, Method, RequestHead, Status};
use blitz_testing::h3::headers;

use crate::h2::h2;
use crate::h3_support::{QuicServer, block_on};
use crate::jwt::{SECRET, bearer, token};
use crate::site_rules::{HOST, ask, gateway, sites_of};
use crate::support::{Proxy, Upstream};

/// A token of this subject.
fn of(subject: &str) -> String {
    bearer(&token(&format!(r#","sub":"{subject}""#)))
}

scenarios! {
    fn a_limit_counts_by_a_claim_of_the_verified_token(io) {
        let proxy = gateway(io, &format!(r#"
            [site."a.example"]
            respond = 204
            jwt = {{ secret = "{SECRET}" }}
            rate_limit = {{ rate = "6/h", burst = 2, by = "jwt:sub" }}
            "/role".rate_limit = {{ rate = "6/h", burst = 1, by = ["jwt:/realm/role", "header:x-k"] }}
            [site."a.example"."/some"]
            jwt = {{ secret = "{SECRET}", optional = true }}
            rate_limit = {{ rate = "6/h", burst = 1, by = "jwt:sub" }}
        "#));
        let mut client = proxy.client();
        let mut status = |path: &str, fields: &str| ask(&mut client, path, fields).status;
        // Refused tokens do not count for the subject that they claim.
        let forged = of("a").replace("Bearer ey", "Bearer eY");
        for _ in 0..5 {
            assert_eq!(status("GET /", HOST), 401);
            assert_eq!(status("GET /", &forged), 401);
        }
        // Each subject on its own, whichever of its tokens it sends.
        let other = bearer(&token(r#","sub":"a","jti":"2""#));
        assert_eq!(status("GET /", &of("a")), 204);
        assert_eq!(status("GET /", &other), 204);
        assert_eq!([status("GET /", &of("a")), status("GET /", &other)], [429, 429]);
        assert_eq!([status("GET /", &of("b")), status("GET /", &of("b"))], [204, 204]);
        // A field that says so is no claim.
        assert_eq!(status("GET /", &format!("{}Sub: c\r\nX-Sub: c\r\n", of("b"))), 429);
        // Tokens without the claim, and with one that no field can have, count together.
        let without = bearer(&token(""));
        let odd = bearer(&token(r#","sub":"a\nb""#));
        assert_eq!([status("GET /", &without), status("GET /", &odd)], [204, 204]);
        assert_eq!([status("GET /", &without), status("GET /", &odd)], [429, 429]);
        // Each combination.
        let role = |role: &str, key: &str| {
            let token = token(&format!(r#","sub":"z","realm":{{"role":"{role}"}}"#));
            format!("{}X-K: {key}\r\n", bearer(&token))
        };
        for (fields, expected) in [
            (role("r", "1"), 204),
            (role("r", "1"), 429),
            (role("r", "2"), 204),
            (role("s", "1"), 204),
        ] {
            assert_eq!(status("GET /role", &fields), expected, "{fields}");
        }
        // Requests without a token count together where it is optional.
        assert_eq!([status("GET /some", HOST), status("GET /some", HOST)], [204, 429]);
        assert_eq!([status("GET /some", &of("a")), status("GET /some", &of("b"))], [204, 204]);
        assert_eq!(proxy.counters().rejected(Rejection::RateLimited), 7);
    }

    fn claims_stand_in_fields_paths_and_texts(io) {
        let upstream = Upstream::with_text("in");
        let url = upstream.url();
        let proxy = gateway(io, &format!(r#"
            [site."a.example"]
            to = "{url}"
            path = "/u/{{jwt.sub}}{{path}}"
            jwt = {{ secret = "{SECRET}" }}
            request_headers = {{ X-User = "{{jwt.sub}} of {{jwt./org/name}}", X-None = "{{jwt.none}}" }}
            headers.X-For = "{{jwt.sub}}"
            "/text".respond = "200 you are {{jwt.sub}}"
            "/to".redirect = "302 /of/{{jwt.sub}}"
            "/open" = {{ jwt = false, respond = 204 }}
        "#));
        let mut client = proxy.client();
        let fields = bearer(&token(r#","sub":"a/b","org":{"name":"ä"}"#));
        let spoofed = format!("{fields}X-User: eve\r\nX_User: eve\r\nX-None: eve\r\n");
        let response = ask(&mut client, "GET /x?q", &spoofed);
        assert_eq!((response.status, response.field("x-for")), (200, Some("a/b")));
        let head = upstream.heads().pop().unwrap();
        assert_eq!(head.line, "GET /u/a%2Fb/x?q HTTP/1.1");
        let of_user = head.fields.iter().filter(|(name, _)| name.replace('_', "-").eq_ignore_ascii_case("x-user"));
        let of_user: Vec<_> = of_user.map(|(_, value)| value.as_str()).collect();
        assert_eq!(of_user, ["a/b of ä"]);
        assert_eq!(head.field("x-none"), None);
        assert_eq!(ask(&mut client, "GET /text", &fields).text(), "you are a/b");
        assert_eq!(ask(&mut client, "GET /to", &fields).field("location"), Some("/of/a%2Fb"));
        // Without a token nobody is named, whatever the client sends.
        let refused = ask(&mut client, "GET /x", &format!("{HOST}X-For: eve\r\n"));
        assert_eq!((refused.status, refused.field("x-for")), (401, None));
        let open = ask(&mut client, "GET /open", &fields);
        assert_eq!((open.status, open.field("x-for")), (204, None));
        // Without a subject a path would be that of another one, and a dot segment leads nowhere.
        assert_eq!(ask(&mut client, "GET /b/x", &bearer(&token(""))).status, 400);
        for subject in ["..", "."] {
            assert_eq!(ask(&mut client, "GET /x", &of(subject)).status, 400, "{subject}");
        }
    }

    fn a_claim_chooses_the_server(io) {
        let upstreams = ["a", "b", "c"].map(Upstream::with_text);
        let list = |order: &[usize]| {
            let urls: Vec<String> = order.iter().map(|at| format!("\"{}\"", upstreams[*at].url())).collect();
            urls.join(", ")
        };
        for keys in ["balance = \"hash\"\nhash = \"jwt:sub\"", "sticky = \"jwt:sub\""] {
            let proxy = |order: &[usize]| gateway(io, &format!(
                "[site.\"a.example\"]\nto = \"app\"\njwt = {{ secret = \"{SECRET}\" }}\n\
                 \"/open\".jwt = false\n\"/some\".jwt = {{ secret = \"{SECRET}\", optional = true }}\n\
                 [upstream.app]\nservers = [{}]\n{keys}\n",
                list(order)
            ));
            let texts = |proxy: &Proxy| -> Vec<String> {
                let mut client = proxy.client();
                let texts = (0..40).map(|user| {
                    let mut text = || ask(&mut client, "GET /", &of(&format!("user-{user}"))).text().to_owned();
                    let first = text();
                    assert_eq!(first, text(), "{keys}");
                    first
                });
                texts.collect()
            };
            let all = proxy(&[0, 1, 2]);
            let before = texts(&all);
            for name in ["a", "b", "c"] {
                assert!(before.iter().any(|text| text == name), "{keys}: {before:?}");
            }
            // The claim counts, not the rest of the token or a field.
            let mut client = all.client();
            for (user, text) in before.iter().enumerate().take(8) {
                let other = bearer(&token(&format!(r#","jti":"{user}","sub":"user-{user}""#)));
                let spoofed = format!("{other}Sub: user-0\r\nX-Sub: user-0\r\n");
                assert_eq!(ask(&mut client, "GET /some", &spoofed).text(), text, "{keys}");
            }
            // Only the users of the server that is gone move.
            let after = texts(&proxy(&[2, 0]));
            for (before, after) in before.iter().zip(&after) {
                assert!(before == after || before == "b", "{keys}");
            }
            // Without the claim, or without a token, requests are distributed.
            for (path, fields) in [("GET /", bearer(&token(""))), ("GET /open", of("user-0")), ("GET /some", HOST.to_owned())] {
                let mut counts = [0; 3];
                for _ in 0..30 {
                    let response = ask(&mut client, path, &fields);
                    counts[["a", "b", "c"].iter().position(|name| *name == response.text()).unwrap()] += 1;
                }
                assert_eq!(counts, [10; 3], "{keys} {path}");
            }
            // A token that is refused chooses nothing.
            assert_eq!(ask(&mut client, "GET /", &of("user-0").replace("Bearer ey", "Bearer eY")).status, 401);
        }
    }

    fn no_claim_ends_a_field(io) {
        let upstream = Upstream::with_text("in");
        let url = upstream.url();
        let proxy = gateway(io, &format!(r#"
            [site."a.example"]
            to = "{url}"
            jwt = {{ secret = "{SECRET}" }}
            request_trailers = true
            request_headers.X-User = "<{{jwt.sub}}>"
            headers.X-For = "<{{jwt.sub}}>"
            "/to".redirect = "302 /of/{{jwt.sub}}"
        "#));
        let mut client = proxy.client();
        // In JSON: what is no text of a field has no value, and all else stays as it is.
        for (json, expected) in [
            (r"a\r\nX-Admin: 1", None),
            (r"a\nb", None),
            (r"a\rb", None),
            (r"a\u0000b", None),
            (r"a\u000db", None),
            (r"a\u0085b", None),
            (r"a\u007fb", None),
            (r" a", None),
            (r"", None),
            // Encodings and look-alikes: the low bytes of these are those of CR and LF.
            (r"a%0d%0aX-Admin: 1", Some("a%0d%0aX-Admin: 1")),
            (r"a\\r\\nX-Admin: 1", Some(r"a\r\nX-Admin: 1")),
            (r"\u560d\u560a", Some("\u{560d}\u{560a}")),
            (r"\u010d\u010a", Some("\u{10d}\u{10a}")),
            (r"a\u2028b", Some("a\u{2028}b")),
        ] {
            let fields = of(json);
            let response = ask(&mut client, "GET /x", &fields);
            assert_eq!(response.status, 200, "{json}");
            let expected = expected.map(|text| format!("<{text}>"));
            let head = upstream.heads().pop().unwrap();
            assert_eq!(head.field("x-user"), expected.as_deref(), "{json}");
            assert_eq!(response.field("x-for"), expected.as_deref(), "{json}");
            assert!(head.field("x-admin").is_none() && response.field("x-admin").is_none());
            let target = ask(&mut client, "GET /to", &fields);
            let location = target.field("location").unwrap();
            assert!(location.bytes().all(|byte| byte.is_ascii_graphic()), "{location}");
            assert!(location.starts_with("/of/"), "{location}");
        }
    }

    fn no_trailer_stands_in_for_a_claim(io) {
        let (sender, messages) = std::sync::mpsc::channel();
        let upstream = Upstream::scripted(move |_, peer| {
            while peer.head().is_some() {
                // Chunks and trailers.
                let lines = std::iter::from_fn(|| peer.line().filter(|line| !line.is_empty()));
                sender.send(lines.collect::<Vec<_>>()).unwrap();
                peer.send(crate::support::ok("in"));
            }
        });
        let url = upstream.url();
        let proxy = gateway(io, &format!(r#"
            [site."a.example"]
            to = "{url}"
            jwt = {{ secret = "{SECRET}", optional = true }}
            request_trailers = true
            request_headers.X-User = "{{jwt.sub}}"
            "/open".jwt = false
            [site."b.example"]
            to = "{url}"
            request_trailers = true
        "#));
        let mut client = proxy.client();
        for (host, path, trailers) in [
            ("b.example", "/", &["X-User: root"][..]),
            ("a.example", "/", &[]),
            ("a.example", "/open", &[]),
        ] {
            client.send(format!(
                "POST {path} HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n\
                 1\r\nx\r\n0\r\nX-User: root\r\n\r\n"
            ));
            assert_eq!(client.response().status, 200);
            assert_eq!(crate::h2::result_of(&messages), [&["1", "x", "0"][..], trailers].concat(), "{host}{path}");
        }
    }

    fn claims_count_in_all_versions(io) {
        let text = format!(
            "[site.\"localhost\"]\nrespond = \"200 {{jwt.sub}}\"\njwt = {{ secret = \"{SECRET}\" }}\n\
             rate_limit = {{ rate = \"6/h\", burst = 2, by = \"jwt:sub\" }}\n"
        );
        let site = |gateway: Gateway| Proxy::start(sites_of(&text).into_iter().fold(gateway, Gateway::site), &[]);
        let value = format!("Bearer {}", token(r#","sub":"a""#));
        let proxy = site(Proxy::gateway(io));
        let mut client = h2(&proxy);
        let mut statuses = Vec::new();
        for _ in 0..2 {
            let mut head = RequestHead::new(Method::Get, "/");
            head.set_authority("localhost");
            head.fields.append("authorization", value.as_str());
            let stream = client.send_head(&head, BodyLength::Empty);
            statuses.push(client.answer(stream).status.map(Status::code));
        }
        // The same bucket in another version.
        let response = ask(&mut proxy.client(), "GET /", &format!("Host: localhost\r\nAuthorization: {value}\r\n"));
        statuses.push(Some(response.status));
        assert_eq!(statuses, [Some(200), Some(200), Some(429)]);
        let server = QuicServer::with(|tls| site(Proxy::gateway_over_tls(io, tls)));
        block_on(async {
            let client = server.raw_client().await;
            for expected in [200, 200, 429] {
                let fields = [
                    (":method", "GET"),
                    (":scheme", "https"),
                    (":authority", "localhost"),
                    (":path", "/"),
                    ("authorization", value.as_str()),
                ];
                let response = client.ask(headers(&fields)).await;
                assert_eq!(response.heads.first().copied().flatten(), Some(expected));
            }
        });
    }
}
