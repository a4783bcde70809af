//! Variants of routes: which requests meet the conditions of a block `when`.

use blitz_http::{BodyLength, Method, RequestHead};

use crate::h2::h2;
use crate::site_rules::{HOST, ask, gateway};

scenarios! {
    fn conditions_choose_the_variant(io) {
        let proxy = gateway(io, r#"
            [site."a.example"]
            respond = "200 plain"
            "/present" = { when = [{ header.X-Canary = true, respond = "200 new" }] }
            "/absent" = { when = [{ header.X-Canary = false, respond = "200 new" }] }
            "/exact" = { when = [{ header.X-Canary = "Yes", respond = "200 new" }] }
            "/prefix" = { when = [{ header.X-Canary = "y*", respond = "200 new" }] }
            "/regex" = { when = [{ header.X-Canary = "~(?i)^Y.*s$", respond = "200 new" }] }
            "/not" = { when = [{ header.X-Canary = "!~^y.*s$", respond = "200 new" }] }
            "/query" = { when = [{ query.beta = "a b", respond = "200 new" }] }
            "/cookie" = { when = [{ cookie.beta = "1", respond = "200 new" }] }
            "/method" = { when = [{ method = ["POST", "GET"], respond = "200 new" }] }
            "/client" = { when = [{ client = ["127.0.0.0/8", "!127.0.0.2"], respond = "200 new" }] }
            "/others" = { when = [{ client = "!127.0.0.0/8", respond = "200 new" }] }
            "/both" = { when = [{ client = "127.0.0.1", query.a = true, respond = "200 new" }] }
            "/first" = { when = [{ query.a = true, respond = "200 a" }, { query.b = true, respond = "200 b" }] }
            "/websocket" = { when = [{ websocket = true, respond = "200 new" }] }
        "#);
        let mut client = proxy.client();
        for (line, field, text) in [
            ("GET /present", "X-Canary: ", "new"),
            ("GET /present", "x-canary: 1", "new"),
            ("GET /present", "X-Canaries: 1", "plain"),
            ("GET /absent", "X-A: 1", "new"),
            ("GET /absent", "X-Canary: 1", "plain"),
            ("GET /exact", "X-Canary: Yes", "new"),
            ("GET /exact", "X-Canary: no\r\nX-Canary: Yes", "new"),
            ("GET /exact", "X-Canary: yes", "plain"),
            ("GET /prefix", "X-Canary: yes", "new"),
            ("GET /prefix", "X-Canary: \u{e9}yes", "plain"),
            ("GET /regex", "X-Canary: yes", "new"),
            ("GET /regex", "X-Canary: y\u{e9}s", "new"),
            ("GET /regex", "X-Canary: no", "plain"),
            ("GET /not", "X-Canary: no", "new"),
            ("GET /not", "X-A: 1", "new"),
            ("GET /not", "X-Canary: yes", "plain"),
            ("GET /query?x&beta=a+b", "X-A: 1", "new"),
            ("GET /query?%62eta=a%20b", "X-A: 1", "new"),
            ("GET /query?beta=a", "X-A: 1", "plain"),
            ("GET /query", "X-A: 1", "plain"),
            ("GET /cookie", "Cookie: a=2; beta=1", "new"),
            ("GET /cookie", "Cookie: beta=10", "plain"),
            ("GET /method", "X-A: 1", "new"),
            ("PUT /method", "Content-Length: 0", "plain"),
            ("get /method", "X-A: 1", "plain"),
            ("GET /client", "X-A: 1", "new"),
            ("GET /others", "X-A: 1", "plain"),
            ("GET /both", "X-A: 1", "plain"),
            ("GET /both?a", "X-A: 1", "new"),
            ("GET /first?b&a", "X-A: 1", "a"),
            ("GET /first?b", "X-A: 1", "b"),
            ("GET /websocket", "Upgrade: h2c\r\nConnection: upgrade", "plain"),
            ("GET /websocket", "Upgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "new"),
        ] {
            let response = ask(&mut client, line, &format!("{HOST}{field}\r\n"));
            assert_eq!((response.status, response.text()), (200, text), "{line} {field}");
        }
    }

    fn a_block_of_the_site_closes_it_for_all_but_some(io) {
        let text = |office: &str| format!(r#"
            [site."a.example"]
            respond = "200 open"
            "/api" = {{ respond = "200 api", headers.X-From = "api" }}
            "/admin".allow = ["192.0.2.0/24"]
            [[site."a.example".when]]
            client = "!{office}"
            respond = {{ status = 503, file = "closed.txt", headers.Retry-After = "600" }}
        "#);
        let closed = gateway(io, &text("192.0.2.0/24"));
        let mut client = closed.client();
        for (path, status) in [("/", 503), ("/api", 503), ("/admin", 403), ("//admin", 400)] {
            let response = ask(&mut client, &format!("GET {path}"), HOST);
            assert_eq!(response.status, status, "{path}");
            if status == 503 {
                assert_eq!((response.text(), response.field("retry-after")), ("closed\n", Some("600")));
                assert_eq!(response.field("x-from"), (path == "/api").then_some("api"));
            }
        }
        let open = gateway(io, &text("127.0.0.0/8"));
        let response = ask(&mut open.client(), "GET /api", HOST);
        assert_eq!((response.status, response.text()), (200, "api"));
    }

    fn no_spelling_leaves_the_access_rules_of_a_block(io) {
        let proxy = gateway(io, r#"
            [site."a.example"]
            respond = "200 open"
            "/admin" = { when = [{ header.X-Role = "!staff", deny = ["127.0.0.0/8"] }] }
            "/data" = { when = [{ method = "POST", deny = ["127.0.0.0/8"] }] }
        "#);
        let mut client = proxy.client();
        for (path, role, status) in [
            ("/admin", "staff", 200),
            ("/admin;x", "staff", 200),
            ("/admin", "guest", 403),
            ("/admin", "Staff", 403),
            ("/admin;x", "guest", 400),
            ("/adm%69n", "guest", 403),
            ("/other;x", "guest", 200),
        ] {
            let response = ask(&mut client, &format!("GET {path}"), &format!("{HOST}X-Role: {role}\r\n"));
            assert_eq!(response.status, status, "{path} {role}");
        }
        // Some servers take `post` for POST.
        for (method, status) in [("GET", 200), ("POST", 403), ("post", 403), ("put", 200)] {
            let response = ask(&mut client, &format!("{method} /data"), &format!("{HOST}Content-Length: 0\r\n"));
            assert_eq!(response.status, status, "{method}");
        }
    }

    fn conditions_are_the_same_over_http2(io) {
        let proxy = gateway(io, r#"
            [site."a.example"]
            respond = "200 plain"
            [[site."a.example".when]]
            header.X-Canary = "1"
            cookie.side = "left"
            respond = "200 new"
        "#);
        let mut client = h2(&proxy);
        for (fields, text) in [
            (&[("x-canary", "1"), ("cookie", "a=b"), ("cookie", "side=left")][..], "new"),
            (&[("x-canary", "1"), ("cookie", "a=b")][..], "plain"),
        ] {
            let mut head = RequestHead::new(Method::Get, "/");
            head.set_authority("a.example");
            for &(name, value) in fields {
                head.fields.try_append(name, value).unwrap();
            }
            let stream = client.send_head(&head, BodyLength::Empty);
            assert_eq!(client.answer(stream).content, text.as_bytes(), "{fields:?}");
        }
    }
}
