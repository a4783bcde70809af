//! Keys of programs: which requests pass, and what the upstream learns of them.

use blitz_gateway::Rejection;
use blitz_testing::Head;

use crate::basic_auth::basic;
use crate::h2::result_of;
use crate::site_rules::{HOST, ask, gateway};
use crate::support::{Upstream, ok};

const KEY: &str = "blitz_test_key_of_billing";
const OLD: &str = "blitz_test_key_of_old";

fn all<'h>(head: &'h Head, name: &str) -> Vec<&'h str> {
    let fields = head.fields.iter();
    let named = fields.filter(|(other, _)| other.eq_ignore_ascii_case(name));
    named.map(|(_, value)| value.as_str()).collect()
}

scenarios! {
    fn a_route_demands_a_key(io) {
        let upstream = Upstream::with_text("in");
        let url = upstream.url();
        let proxy = gateway(io, &format!(r#"
            [site."a.example"]
            to = "{url}"
            api_keys = {{ file = "api-keys", forward = ["X-Client", "x-key-name"] }}
            "=/health".api_keys = false
            "/more".api_keys = {{ file = "api-keys", from = ["query:key", "cookie:key", "header:Authorization"] }}
        "#));
        let mut client = proxy.client();
        let spoofed = "X-Client: root\r\nx_client: root\r\nX.Key.Name: root\r\nConnection: keep-alive, X-Client\r\n";
        let response = ask(&mut client, "GET /x", &format!("{HOST}{spoofed}X-Api-Key: {KEY}\r\n"));
        assert_eq!((response.status, response.text()), (200, "in"));
        let head = upstream.heads().pop().unwrap();
        assert_eq!((all(&head, "x-client"), all(&head, "x-key-name")), (vec!["billing"], vec!["billing"]));
        assert!(all(&head, "x_client").is_empty() && all(&head, "x.key.name").is_empty());
        assert_eq!(ask(&mut client, "GET /health", HOST).status, 200);
        for (path, fields) in [
            (format!("/more?a=b&key={KEY}"), String::new()),
            ("/more".to_owned(), format!("Cookie: a=b; key={KEY}\r\n")),
            ("/more".to_owned(), format!("Authorization: bearer {KEY}\r\n")),
        ] {
            let response = ask(&mut client, &format!("GET {path}"), &format!("{HOST}{fields}"));
            assert_eq!(response.status, 200, "{path} {fields}");
        }
        let accepted = upstream.heads().len();
        for (path, fields, status) in [
            ("/x", String::new(), 401),
            ("/x", "X-Api-Key: \r\n".to_owned(), 401),
            ("/x", "X-Api-Key: wrong\r\n".to_owned(), 401),
            ("/x", format!("X-Api-Key: {KEY}x\r\n"), 401),
            ("/x", format!("X-Api-Key: {}\r\n", "x".repeat(5000)), 401),
            // The hash is no key.
            ("/x", "X-Api-Key: bf95bd465f7b0c114bfe309a4c115246cf041de451817caed7a0b8544b15dd84\r\n".to_owned(), 401),
            ("/x", format!("X-Api-Key: {OLD}\r\n"), 401),
            ("/x", format!("X-Api-Key: {KEY}\r\nX-Api-Key: {KEY}\r\n"), 400),
            // Only where the route says, and under its name: another spelling would not be checked.
            ("/x", format!("X_Api_Key: {KEY}\r\n"), 400),
            ("/x", format!("X-Api-Key: {KEY}\r\nX.API_key: other\r\n"), 400),
            ("/x", format!("Authorization: Bearer {KEY}\r\n"), 401),
            ("/more", format!("X-Api-Key: {KEY}\r\n"), 401),
            ("/more?key=x", format!("Cookie: key={KEY}\r\n"), 400),
            ("/more", format!("Authorization: Bearer {KEY}, Basic eDp5\r\n"), 400),
            ("/more", format!("Authorization: Basic eDp5, Bearer {KEY}\r\n"), 400),
        ] {
            let response = ask(&mut client, &format!("GET {path}"), &format!("{HOST}{fields}"));
            let challenge = response.field("www-authenticate");
            assert_eq!((response.status, challenge), (status, Some("ApiKey realm=\"site\"")), "{path} {fields}");
        }
        assert_eq!(upstream.heads().len(), accepted);
        let counters = proxy.counters();
        assert_eq!(counters.rejected(Rejection::NoApiKey), 3);
        assert_eq!(counters.rejected(Rejection::InvalidApiKey), 5);
        assert_eq!(counters.rejected(Rejection::ApiKeyExpired), 1);
        assert_eq!(counters.rejected(Rejection::SeveralCredentials), 6);
    }

    fn a_limit_counts_by_the_user(io) {
        let proxy = gateway(io, r#"
            [site."a.example"]
            respond = "200 in"
            rate_limit = { rate = "1/h", burst = 1, by = "user" }
            satisfy = "any"
            basic_auth = "users.htpasswd"
            api_keys = { file = "api-keys" }
        "#);
        let mut client = proxy.client();
        let anna = format!("{HOST}{}", basic("anna:secrets"));
        let bert = format!("{HOST}{}", basic("bert:ünd:er"));
        let wrong = format!("{HOST}{}", basic("bert:wrong"));
        let key = format!("{HOST}X-Api-Key: {KEY}\r\n");
        for (fields, status) in [
            (&anna, 200), (&wrong, 401), (&wrong, 401), (&key, 200), (&bert, 200), (&anna, 429), (&key, 429), (&bert, 429),
        ] {
            assert_eq!(ask(&mut client, "GET /", fields).status, status, "{fields}");
        }
    }

    fn a_trailer_is_no_key(io) {
        let (sender, messages) = std::sync::mpsc::channel();
        let upstream = Upstream::scripted(move |_, peer| {
            while peer.head().is_some() {
                // Chunks and trailers.
                let lines = std::iter::from_fn(|| peer.line().filter(|line| !line.is_empty()));
                sender.send(lines.collect::<Vec<_>>()).unwrap();
                peer.send(ok("in"));
            }
        });
        let url = upstream.url();
        let proxy = gateway(io, &format!(r#"
            [site."a.example"]
            to = "{url}"
            request_trailers = true
            "/key".api_keys = {{ file = "api-keys" }}
            "/query".api_keys = {{ file = "api-keys", from = "query:key" }}
            "/any" = {{ satisfy = "any", allow = ["127.0.0.1"], api_keys = {{ file = "api-keys" }} }}
        "#));
        let key = format!("X-Api-Key: {KEY}");
        let send = |path: &str, field: &str| {
            let mut client = proxy.client();
            client.send(format!(
                "POST {path} HTTP/1.1\r\n{HOST}{field}Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n{key}\r\n\r\n"
            ));
            client.response().status
        };
        assert_eq!(send("/key", ""), 401);
        for (path, field, trailers) in [
            ("/key".to_owned(), format!("X-Api-Key: {KEY}\r\n"), &[][..]),
            ("/any".to_owned(), String::new(), &[]),
            // Here it is a field like others.
            (format!("/query?key={KEY}"), String::new(), &[key.as_str()]),
            ("/".to_owned(), String::new(), &[key.as_str()]),
        ] {
            assert_eq!(send(&path, &field), 200, "{path}");
            assert_eq!(result_of(&messages), [&["1", "x", "0"][..], trailers].concat(), "{path}");
        }
    }
}
