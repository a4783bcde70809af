//! Routes with regular expressions: what they match, what their groups are in texts, and whom they refuse.

use crate::site_rules::{HOST, ask, gateway};
use crate::support::Upstream;

scenarios! {
    fn groups_are_values_of_texts(io) {
        let upstream = Upstream::with_text("ok");
        let proxy = gateway(io, &format!(r#"
            [site."a.example"]
            to = "{}"
            '~/u/(?<id>\d+)(?<tail>/.*)?' = {{ path = "/users/{{id}}{{tail}}", request_headers.X-Id = "{{id}}", headers.X-Tail = "{{tail}}" }}
            "/s/{{name}}" = {{ path = "/x/y/{{name}}{{rest}}", request_headers.X-All = "{{name}} {{rest}} {{path}}" }}
            '~/blog/(?<year>\d{{4}})-(?<slug>[^/]+)' = {{ redirect = "301 /posts/{{slug}}?year={{year}}" }}
            '~/to/(?<where>.*)' = {{ redirect = "302 {{where}}" }}
            '~/say/(?<word>[^/]*)' = {{ respond = "200 said {{word}}" }}
            '~/up/(?<where>.*)' = {{ path = "/files/{{where}}" }}
        "#, upstream.url()));
        let mut client = proxy.client();
        for (path, sent, id, tail) in [
            ("/u/17", "/users/17", Some("17"), None),
            ("/u/17/x?q", "/users/17/x?q", Some("17"), Some("/x")),
            // As received.
            ("/%75/17/%61%2fb", "/users/17/%61%2fb", Some("17"), Some("/%61%2fb")),
            ("/u/17x", "/u/17x", None, None),
        ] {
            let response = ask(&mut client, &format!("GET {path}"), HOST);
            let heads = upstream.heads();
            let head = heads.last().expect("a request was sent");
            assert_eq!(head.line, format!("GET {sent} HTTP/1.1"), "{path}");
            assert_eq!(head.field("x-id"), id, "{path}");
            assert_eq!(response.field("x-tail"), tail, "{path}");
        }
        // Also where the upstream gets another path, and of parameters.
        let response = ask(&mut client, "GET /s/a%2fb/c", HOST);
        assert_eq!(response.status, 200);
        let heads = upstream.heads();
        let head = heads.last().expect("a request was sent");
        assert_eq!(head.line, "GET /x/y/a%2fb/c HTTP/1.1");
        assert_eq!(head.field("x-all"), Some("a%2fb /c /s/a%2fb/c"));
        for (path, status, location) in [
            ("/blog/2026-a%20b", 301, Some("/posts/a%20b?year=2026")),
            ("/blog/26-x", 200, None),
            // No part of a request becomes a host.
            ("/to//evil.example/x", 302, Some("/evil.example/x")),
            ("/to/%5Cevil.example", 302, Some("/%5Cevil.example")),
        ] {
            let response = ask(&mut client, &format!("GET {path}"), HOST);
            assert_eq!((response.status, response.field("location")), (status, location), "{path}");
        }
        let response = ask(&mut client, "GET /say/hello", HOST);
        assert_eq!(response.text(), "said hello");
        // A composed path has no dot segment in any reading.
        let response = ask(&mut client, "GET /up/x%2F..%2Fy", HOST);
        assert_eq!(response.status, 400);
    }

    fn the_longer_beginning_comes_first_then_the_regex_then_its_priority(io) {
        let proxy = gateway(io, r#"
            [site."a.example"]
            respond = "200 site"
            "/u/{id}" = { respond = "200 parameter" }
            "/u/me" = { respond = "200 text" }
            "/u/4*" = { respond = "200 star" }
            '~/u/[0-9a-f]+' = { respond = "200 hexadecimal", priority = 1 }
            '~/u/\d+' = { respond = "200 digits", priority = 2 }
            '~/u/4\d' = { respond = "200 forty" }
            'POST ~/u/\d+' = { respond = "200 posted" }
            '~.*\.php' = { respond = "200 php" }
        "#);
        let mut client = proxy.client();
        for (line, expected) in [
            ("GET /u/me", "text"),
            ("GET /u/42", "forty"),
            ("GET /u/421", "star"),
            ("GET /u/17", "digits"),
            ("POST /u/17", "posted"),
            ("GET /u/1f", "hexadecimal"),
            ("GET /u/1f/x", "parameter"),
            ("GET /u/x", "parameter"),
            ("GET /x.php", "php"),
            ("GET /x.php/y", "site"),
            ("GET /x.PHP", "site"),
            ("GET /u/17/../me", "text"),
        ] {
            let response = ask(&mut client, line, &format!("{HOST}Content-Length: 0\r\n"));
            assert_eq!(response.text(), expected, "{line}");
        }
    }

    // Another spelling of a path does not lead around the regex that protects it.
    fn a_regex_refuses_all_spellings(io) {
        let proxy = gateway(io, r#"
            [site."a.example"]
            respond = "200 open"
            '~/files/[^/]+/private(/.*)?' = { deny = ["127.0.0.0/8"] }
            '~/team/[a-z]+/' = { deny = ["127.0.0.0/8"] }
            '~/docs/.*\.key' = { deny = ["127.0.0.0/8"] }
        "#);
        let mut client = proxy.client();
        for (path, status) in [
            ("/files/x/public", 200),
            ("/files/x/private", 403),
            ("/files/x/private/y", 403),
            ("/files/x/%70rivate", 403),
            ("/files//x/private", 400),
            ("/files/x/private;v=1", 400),
            ("/files/x%2Fprivate", 400),
            ("/files/x/private%20", 400),
            ("//files/x/private", 400),
            ("/files/x/y/../private", 403),
            ("/team/red/", 403),
            // Many servers answer it as that with a slash.
            ("/team/red", 400),
            ("/team//red", 400),
            ("/team/Red", 200),
            ("/docs/a/b.key", 403),
            ("/docs/a/b.key/", 400),
            ("/docs/a/b.key.", 400),
            ("/docs/a/b.keys", 200),
        ] {
            let response = ask(&mut client, &format!("GET {path}"), HOST);
            assert_eq!(response.status, status, "{path}");
            if status != 200 {
                client = proxy.client();
            }
        }
    }
}
