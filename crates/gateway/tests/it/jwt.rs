//! Tokens: what a route demands of them, the fields that its action gets, and the responses to requests without.

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use blitz_gateway::{Gateway, Rejection};
use blitz_http::{BodyLength, Method, RequestHead, Status};
use blitz_testing::Head;
use blitz_testing::h3::headers;

use crate::h2::h2;
use crate::h3_support::{QuicServer, block_on};
use crate::site_rules::{HOST, ask, gateway, sites_of};
use crate::support::{Proxy, Upstream};

pub(crate) const SECRET: &str = "a secret of exactly 32 bytes ...";

/// In the year 2100.
const LATER: u64 = 4_102_444_800;

fn token_with(secret: &str, claims: &str) -> String {
    let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let message = format!(
        "{}.{}",
        encode(b"{\"alg\":\"HS256\"}"),
        encode(claims.as_bytes())
    );
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let signature = hmac::sign(&key, message.as_bytes());
    format!("{message}.{}", encode(signature.as_ref()))
}

/// A token that does not expire, with these claims.
pub(crate) fn token(claims: &str) -> String {
    token_with(SECRET, &format!("{{\"exp\":{LATER}{claims}}}"))
}

fn all<'h>(head: &'h Head, name: &str) -> Vec<&'h str> {
    let fields = head.fields.iter();
    let named = fields.filter(|(other, _)| other.eq_ignore_ascii_case(name));
    named.map(|(_, value)| value.as_str()).collect()
}

pub(crate) fn bearer(token: &str) -> String {
    format!("{HOST}Authorization: Bearer {token}\r\n")
}

scenarios! {
    fn a_route_demands_a_token(io) {
        let upstream = Upstream::with_text("in");
        let url = upstream.url();
        let proxy = gateway(io, &format!(r#"
            [site."a.example"]
            to = "{url}"
            jwt = {{ secret = "{SECRET}", issuer = "i", scopes = ["read"] }}
            cors = ["https://app.example"]
            "=/health".jwt = false
            "/cookie".jwt = {{ secret = "{SECRET}", from = ["cookie:t", "query:t"] }}
            "/admin".jwt = {{ secret = "{SECRET}", require = {{ role = "admin" }} }}
        "#));
        let mut client = proxy.client();
        let good = token(r#","iss":"i","scope":"read write""#);
        // The second time the token is known.
        for _ in 0..2 {
            let response = ask(&mut client, "GET /x", &bearer(&good));
            assert_eq!((response.status, response.text()), (200, "in"));
        }
        assert_eq!(ask(&mut client, "GET /health", HOST).status, 200);
        let accepted = upstream.heads().len();
        let expired = token_with(SECRET, r#"{"exp":1000000000,"iss":"i","scope":"read"}"#);
        let forged = token_with("another secret of about 32 bytes", r#"{"exp":4102444800,"iss":"i","scope":"read"}"#);
        let challenge = |rest: &str| format!("Bearer realm=\"site\"{rest}");
        let invalid = challenge(", error=\"invalid_token\"");
        let several = challenge(", error=\"invalid_request\"");
        let no_scope = challenge(", error=\"insufficient_scope\", scope=\"read\"");
        let late = format!("{invalid}, error_description=\"the token has expired\"");
        let twice = format!("{}Authorization: Bearer {good}\r\n", bearer(&good));
        let origin = format!("{HOST}Origin: https://app.example\r\n");
        for (path, fields, status, expected) in [
            ("/x", HOST.to_owned(), 401, challenge("")),
            ("/x", origin, 401, challenge("")),
            ("/x", format!("{HOST}Authorization: Basic YTpi\r\n"), 401, challenge("")),
            ("/x", bearer(""), 401, invalid.clone()),
            ("/x", bearer("x"), 401, invalid.clone()),
            ("/x", bearer(&forged), 401, invalid.clone()),
            ("/x", bearer(&token(r#","iss":"other","scope":"read""#)), 401, invalid.clone()),
            ("/x", bearer(&expired), 401, late),
            ("/x", bearer(&token(r#","iss":"i""#)), 403, no_scope),
            ("/x", twice, 400, several.clone()),
            // Only where the route says.
            ("/cookie", bearer(&good), 401, challenge("")),
            ("/cookie?t=x", format!("{HOST}Cookie: t={good}\r\n"), 400, several),
            ("/cookie", format!("{HOST}Cookie: t={forged}\r\n"), 401, invalid),
            ("/admin", bearer(&good), 403, challenge(", error=\"insufficient_scope\"")),
        ] {
            let response = ask(&mut client, &format!("GET {path}"), &fields);
            assert_eq!((response.status, response.field("www-authenticate")), (status, Some(&*expected)), "{path} {fields}");
        }
        let response = ask(&mut client, "GET /x", &format!("{HOST}Origin: https://app.example\r\n"));
        assert_eq!(response.field("access-control-allow-origin"), Some("https://app.example"));
        assert_eq!(upstream.heads().len(), accepted);
        let counters = proxy.counters();
        assert_eq!(counters.rejected(Rejection::NoToken), 5);
        assert_eq!(counters.rejected(Rejection::InvalidToken), 5);
        assert_eq!(counters.rejected(Rejection::TokenExpired), 1);
        assert_eq!(counters.rejected(Rejection::InsufficientScope), 2);
        assert_eq!(counters.rejected(Rejection::SeveralTokens), 2);
        for (path, fields) in [
            ("/cookie".to_owned(), format!("{HOST}Cookie: a=b; t={good}\r\n")),
            (format!("/cookie?a&t={good}"), HOST.to_owned()),
            ("/admin".to_owned(), bearer(&token(r#","role":["x","admin"]"#))),
        ] {
            assert_eq!(ask(&mut client, &format!("GET {path}"), &fields).status, 200, "{path}");
        }
        // A preflight has no token, and is answered before.
        let preflight = format!("{HOST}Origin: https://app.example\r\nAccess-Control-Request-Method: PUT\r\n");
        assert_eq!(ask(&mut client, "OPTIONS /x", &preflight).status, 204);
    }

    fn only_the_gateway_names_the_client(io) {
        let upstream = Upstream::with_text("in");
        let url = upstream.url();
        let proxy = gateway(io, &format!(r#"
            [site."a.example"]
            to = "{url}"
            request_trailers = true
            jwt = {{ secret = "{SECRET}", optional = true, forward = {{ X-User = "sub", X-Roles = "/r/roles" }} }}
        "#));
        let mut client = proxy.client();
        let spoofed = "X-User: root\r\nx_user: root\r\nX.User: root\r\nX_USER: root\r\nX-USER: root\r\nx-roles: admin\r\n\
                       X-Users: kept\r\nConnection: keep-alive, X-User, X-Roles\r\n";
        let roles = token(r#","sub":"alice","r":{"roles":["a","b"]}"#);
        let bad = token(r#","sub":"alice\r\nX-Admin: 1""#);
        for (fields, user, list) in [
            (format!("{HOST}{spoofed}"), None, None),
            (format!("{}{spoofed}", bearer(&roles)), Some("alice"), Some("a,b")),
            // The fields of a token that is known.
            (format!("{}{spoofed}", bearer(&roles)), Some("alice"), Some("a,b")),
            (format!("{}{spoofed}", bearer(&bad)), None, None),
        ] {
            let fields = format!("{fields}Trailer: X-User\r\nTransfer-Encoding: chunked\r\n");
            client.send(format!("POST / HTTP/1.1\r\n{fields}\r\n1\r\na\r\n0\r\nX-User: root\r\nx_roles: admin\r\n\r\n"));
            assert_eq!(client.response().status, 200);
            let head = upstream.heads().pop().unwrap();
            assert_eq!(all(&head, "x-user"), user.into_iter().collect::<Vec<_>>());
            assert_eq!(all(&head, "x-roles"), list.into_iter().collect::<Vec<_>>());
            assert_eq!(all(&head, "x-users"), ["kept"]);
            for other in ["x_user", "x.user", "x_roles", "trailer", "x-admin"] {
                assert!(all(&head, other).is_empty(), "{other}");
            }
        }
        // A token that is there is checked.
        assert_eq!(ask(&mut client, "GET /", &bearer("x")).status, 401);
    }

    fn a_block_demands_a_token_in_addition(io) {
        let proxy = gateway(io, &format!(r#"
            [site."a.example"]
            respond = "200 in"
            jwt = {{ secret = "{SECRET}", issuer = "i" }}
            [[site."a.example".when]]
            header.X-Admin = true
            jwt = {{ secret = "{SECRET}", require = {{ role = "admin" }} }}
            [[site."a.example"."/office".when]]
            client = "127.0.0.0/8"
            jwt = false
        "#));
        let mut client = proxy.client();
        let user = bearer(&token(r#","iss":"i""#));
        let admin = bearer(&token(r#","iss":"i","role":"admin""#));
        let of_others = bearer(&token(r#","iss":"x","role":"admin""#));
        for (path, fields, status) in [
            ("/", user.clone(), 200),
            ("/", format!("{user}X-Admin: 1\r\n"), 403),
            ("/", format!("{admin}X-Admin: 1\r\n"), 200),
            ("/", format!("{of_others}X-Admin: 1\r\n"), 401),
            ("/office", HOST.to_owned(), 200),
        ] {
            assert_eq!(ask(&mut client, &format!("GET {path}"), &fields).status, status, "{path} {fields}");
        }
    }

    fn tokens_have_the_same_verdict_in_all_versions(io) {
        let text = format!(
            "[site.\"localhost\"]\nrespond = \"200 in\"\njwt = {{ secret = \"{SECRET}\", issuer = \"i\" }}\n"
        );
        let site = |gateway: Gateway| Proxy::start(sites_of(&text).into_iter().fold(gateway, Gateway::site), &[]);
        let cases = [
            (vec![], 401),
            (vec![token(r#","iss":"i""#)], 200),
            (vec![token(r#","iss":"i""#), token(r#","iss":"i""#)], 400),
            (vec![token(r#","iss":"x""#)], 401),
            (vec!["a.b.c".to_owned()], 401),
            (vec![format!("{},", token(r#","iss":"i""#))], 401),
        ];
        let proxy = site(Proxy::gateway(io));
        let mut client = h2(&proxy);
        for (tokens, expected) in &cases {
            let mut head = RequestHead::new(Method::Get, "/");
            head.set_authority("localhost");
            for token in tokens {
                head.fields.append("authorization", format!("Bearer {token}"));
            }
            let stream = client.send_head(&head, BodyLength::Empty);
            assert_eq!(client.answer(stream).status.map(Status::code), Some(*expected), "{tokens:?}");
        }
        let mut client = proxy.client();
        for (tokens, expected) in &cases {
            let lines: String = tokens.iter().map(|token| format!("Authorization: Bearer {token}\r\n")).collect();
            let response = ask(&mut client, "GET /", &format!("Host: localhost\r\n{lines}"));
            assert_eq!(response.status, *expected, "{tokens:?}");
        }
        let server = QuicServer::with(|tls| site(Proxy::gateway_over_tls(io, tls)));
        block_on(async {
            let client = server.raw_client().await;
            for (tokens, expected) in &cases {
                let values: Vec<String> = tokens.iter().map(|token| format!("Bearer {token}")).collect();
                let mut fields = vec![
                    (":method", "GET"),
                    (":scheme", "https"),
                    (":authority", "localhost"),
                    (":path", "/"),
                ];
                fields.extend(values.iter().map(|value| ("authorization", value.as_str())));
                let response = client.ask(headers(&fields)).await;
                assert_eq!(response.heads.first().copied().flatten(), Some(*expected), "{tokens:?}");
            }
        });
    }
}
