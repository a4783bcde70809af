//! A route with `files` and `to`: the upstream gets requests without a file.

use std::os::unix::fs::symlink;
use std::thread;
use std::time::Duration;

use blitz_http::{BodyLength, Method, RequestHead};

use crate::files::{Tree, settle};
use crate::h2::h2;
use crate::site_rules::{HOST, ask, gateway};
use crate::support::{Upstream, ok};

const HTML: &str = "Accept: text/html,*/*;q=0.8\r\n";

/// Responds with the line and the content of the request.
fn echo() -> Upstream {
    Upstream::scripted(|_, peer| {
        while let Some((head, content)) = peer.request() {
            let line = head.line.strip_suffix(" HTTP/1.1").unwrap();
            let text = format!("up {line} {}", String::from_utf8_lossy(&content));
            peer.send(match head.line.starts_with("HEAD") {
                true => "HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n".to_owned(),
                false => ok(text.trim_end()),
            });
        }
    })
}

scenarios! {
    fn a_file_is_sent_and_all_else_reaches_the_upstream(io) {
        let tree = Tree::with(&[
            ("index.html", "home"), ("a.txt", "a"), ("docs/index.html", "docs"), ("bare/x.txt", "x"), ("about.html", "about"),
            (".git/config", "secret"), (".well-known/x", "known"),
        ]);
        symlink("../secret", tree.path("out")).unwrap();
        let upstream = echo();
        let site = tree.site(&format!("to = \"{}\"\nextensions = [\".html\"]\nheaders.X-Site = \"1\"", upstream.url()));
        let proxy = gateway(io, &site);
        let mut client = proxy.client();
        for round in 0..2 {
            for (line, text) in [
                ("GET /", "home"), ("GET /a.txt", "a"), ("GET /docs/", "docs"), ("GET /bare/x.txt", "x"), ("GET /about", "about"),
                ("GET /.well-known/x", "known"), ("GET /%61.txt?q", "a"),
                // Without a file.
                ("GET /none", "up GET /none"), ("GET /none/?x=1", "up GET /none/?x=1"), ("GET /bare", "up GET /bare"),
                ("GET /bare/", "up GET /bare/"), ("GET /a.txt/", "up GET /a.txt/"),
                // Of paths that have no files here, the upstream is the owner.
                ("GET /.git/config", "up GET /.git/config"), ("GET /%2egit/config", "up GET /%2egit/config"),
                ("GET /a%2Ftxt", "up GET /a%2Ftxt"), ("GET //a.txt", "up GET //a.txt"), ("GET /out", "up GET /out"),
                // Other methods than GET and HEAD.
                ("DELETE /a.txt", "up DELETE /a.txt"), ("OPTIONS /a.txt", "up OPTIONS /a.txt"), ("get /a.txt", "up get /a.txt"),
            ] {
                let response = ask(&mut client, line, HOST);
                assert_eq!((response.status, response.text()), (200, text), "{line}");
                assert_eq!(response.all("x-site"), ["1"], "{line}");
                assert_eq!(response.field("etag").is_some(), !text.starts_with("up"), "{line}");
            }
            let response = ask(&mut client, "GET /docs?x", HOST);
            assert_eq!((response.status, response.field("location")), (308, Some("/docs/?x")));
            if round == 0 {
                settle();
            }
        }
        for (path, length) in [("/a.txt", "content-length: 1\r\n"), ("/none", "content-length: 77\r\n")] {
            let mut peer = proxy.peer();
            peer.send(format!("HEAD {path} HTTP/1.1\r\n{HOST}Connection: close\r\n\r\n"));
            let rest = String::from_utf8(peer.rest().0).unwrap().to_lowercase();
            assert!(rest.starts_with("http/1.1 200") && rest.contains(length), "{path}: {rest}");
        }
        let mut client = h2(&proxy);
        for (path, text) in [("/a.txt", "a"), ("/none", "up GET /none")] {
            let mut head = RequestHead::new(Method::Get, path);
            head.set_authority("a.example");
            let stream = client.send_head(&head, BodyLength::Empty);
            assert_eq!(client.answer(stream).content, text.as_bytes());
        }
    }

    fn the_content_of_a_request_reaches_the_upstream(io) {
        let tree = Tree::with(&[("a.txt", "a")]);
        let upstream = echo();
        let proxy = gateway(io, &tree.site(&format!("to = \"{}\"", upstream.url())));
        let mut client = proxy.client();
        for line in ["POST /a.txt", "PUT /none", "GET /none"] {
            client.send(format!("{line} HTTP/1.1\r\n{HOST}Content-Length: 5\r\n\r\nhello"));
            assert_eq!(client.response().text(), format!("up {line} hello"));
        }
        // It comes after the file was looked for.
        client.send(format!("GET /none HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"));
        thread::sleep(Duration::from_millis(50));
        client.send("2\r\nde\r\n0\r\n\r\n");
        assert_eq!(client.response().text(), "up GET /none abcde");
        // A file answers a GET whose content it does not need.
        client.send(format!("GET /a.txt HTTP/1.1\r\n{HOST}Content-Length: 5\r\n\r\nhello"));
        assert_eq!(client.response().text(), "a");
    }

    fn a_request_for_another_protocol_is_for_the_upstream(io) {
        let tree = Tree::with(&[("index.html", "home")]);
        let upstream = Upstream::with_response(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\
             Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
        );
        let proxy = gateway(io, &tree.site(&format!("to = \"{}\"", upstream.url())));
        let handshake = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
        let mut client = proxy.client();
        assert_eq!(ask(&mut client, "GET /", HOST).text(), "home");
        client.send(format!("GET / HTTP/1.1\r\n{HOST}{handshake}\r\n"));
        assert_eq!(client.response().status, 101);
    }

    fn the_fallback_is_for_clients_that_want_pages(io) {
        let tree = Tree::with(&[("index.html", "app")]);
        let upstream = echo();
        let proxy = gateway(io, &tree.site(&format!("to = \"{}\"\nfallback = \"/index.html\"", upstream.url())));
        let mut client = proxy.client();
        for (line, fields, text, varies) in [
            ("GET /settings/profile", HTML, "app", true),
            ("GET /settings/profile", "", "up GET /settings/profile", true),
            ("GET /api/x", "Accept: application/json\r\n", "up GET /api/x", true),
            ("GET /api/x", "Accept: */*\r\n", "up GET /api/x", true),
            ("POST /api/x", HTML, "up POST /api/x", false),
            ("GET /.env", HTML, "up GET /.env", true),
        ] {
            let response = ask(&mut client, line, &format!("{HOST}{fields}Content-Length: 0\r\n"));
            assert_eq!(response.text(), text, "{line} {fields}");
            // Caches must not mix them up.
            assert_eq!(response.all("vary").contains(&"Accept"), varies, "{line} {fields}");
        }
    }

    fn the_innermost_level_with_an_action_replaces_both(io) {
        let tree = Tree::with(&[("a.txt", "a"), ("in/a.txt", "in")]);
        let upstream = echo();
        let (url, root) = (upstream.url(), tree.path("").display().to_string());
        let proxy = gateway(io, &tree.site(&format!(r#"
            to = "{url}"
            index = ["a.txt"]
            path = "/p{{path}}"
            "/in" = {{ headers.X-In = "1" }}
            "/only" = {{ files = "{root}", index = false }}
            "/up" = {{ to = "{url}" }}
            "/both" = {{ to = "{url}", files = "{root}", path = "{{rest}}" }}
        "#)));
        let mut client = proxy.client();
        for (path, status, text) in [
            ("/", 200, "a"), ("/in/a.txt", 200, "in"), ("/in/", 200, "in"), ("/in/none", 200, "up GET /p/in/none"),
            ("/only/a.txt", 200, "a"), ("/only/none", 404, ""), ("/only/", 404, ""),
            ("/up/a.txt", 200, "up GET /up/a.txt"), ("/both/a.txt", 200, "a"), ("/both/none", 200, "up GET /none"),
            ("/both/", 200, "up GET /"),
        ] {
            let response = ask(&mut client, &format!("GET {path}"), HOST);
            assert_eq!(response.status, status, "{path}");
            assert!(status == 404 || response.text() == text, "{path}: {}", response.text());
        }
        assert_eq!(ask(&mut client, "GET /in/none", HOST).field("x-in"), Some("1"));
    }
}
