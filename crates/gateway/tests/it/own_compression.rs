//! Responses of the gateway itself are compressed: fixed ones, pages of errors and files.

use blitz_http::{BodyLength, Method, Name, RequestHead};

use crate::decoders::decoded;
use crate::files::{Tree, settle};
use crate::h2::h2;
use crate::site_rules::{HOST, ask, gateway};
use crate::support::Proxy;

const LINE: &str = "a line of some text that is repeated\n";

fn coding<'a>(response: &'a blitz_testing::Response, expected: &str) -> Option<&'a str> {
    let coding = response.field("content-encoding");
    if let Some(coding) = coding {
        assert!(decoded(coding, &response.body) == expected.as_bytes());
    } else {
        assert!(response.body == expected.as_bytes());
    }
    coding
}

fn get(proxy: &Proxy, path: &str, fields: &str) -> blitz_testing::Response {
    ask(
        &mut proxy.client(),
        &format!("GET {path}"),
        &format!("{HOST}{fields}"),
    )
}

scenarios! {
    fn fixed_responses_are_compressed_if_the_route_says_so(io) {
        let text = LINE.trim_end().repeat(50);
        let long = LINE.trim_end().repeat(3000);
        let proxy = gateway(io, &format!(r#"
            [site."a.example"]
            respond = "200 {text}"
            compress = true
            "/long".respond = "200 {long}"
            "/short".respond = "200 short"
            "/off".compress = false
            "/default".compress = "files"
        "#));
        for algorithm in ["zstd", "br", "gzip"] {
            let fields = format!("Accept-Encoding: {algorithm}\r\n");
            assert_eq!(coding(&get(&proxy, "/", &fields), &text), Some(algorithm));
            assert_eq!(coding(&get(&proxy, "/long", &fields), &long), Some(algorithm));
            let short = get(&proxy, "/short", &fields);
            assert_eq!((short.text(), short.field("vary")), ("short", None));
        }
        let plain = get(&proxy, "/", "");
        assert_eq!((coding(&plain, &text), plain.field("vary")), (None, Some("Accept-Encoding")));
        for path in ["/off", "/default"] {
            assert_eq!(coding(&get(&proxy, path, "Accept-Encoding: gzip\r\n"), &text), None);
        }
        assert_eq!(proxy.counters().compressed, 6);
    }

    fn a_browser_gets_a_compressed_page_of_an_error(io) {
        let proxy = gateway(io, r#"
            [site."a.example"]
            "/in".respond = 204
            "/in".compress = { min_size = "1" }
            "/in".methods = ["PUT"]
        "#);
        let refused = get(&proxy, "/in", "Accept: application/json\r\nAccept-Encoding: gzip\r\n");
        assert_eq!((refused.status, refused.field("content-encoding")), (405, Some("gzip")));
        let content = decoded("gzip", &refused.body);
        assert!(String::from_utf8_lossy(&content).contains("not allowed"));
    }

    fn files_are_compressed_by_default_and_have_ranges_without_it(io) {
        let small = LINE.repeat(500);
        let large = LINE.repeat(10_000);
        let tree = Tree::with(&[
            ("small.css", &small), ("large.js", &large), ("image.png", &small), ("tiny.css", LINE),
        ]);
        settle();
        let proxy = gateway(io, &tree.site(""));
        // The second response of each is remembered.
        for _ in 0..2 {
            for algorithm in ["zstd", "br", "gzip"] {
                let fields = format!("Accept-Encoding: {algorithm}\r\n");
                for (path, content) in [("/small.css", &small), ("/large.js", &large)] {
                    let answer = get(&proxy, path, &fields);
                    assert_eq!(coding(&answer, content), Some(algorithm), "{path}");
                    assert_eq!(answer.field("vary"), Some("Accept-Encoding"));
                    assert_eq!(answer.field("accept-ranges"), None);
                    let tag = answer.field("etag").unwrap();
                    assert!(tag.starts_with("W/\""), "{tag}");
                    let known = format!("{fields}If-None-Match: {tag}\r\n");
                    let unchanged = get(&proxy, path, &known);
                    assert_eq!((unchanged.status, unchanged.field("etag")), (304, Some(tag)), "{path}");
                    // A weak tag is no precondition of a change.
                    let known = format!("{fields}If-Match: {tag}\r\n");
                    assert_eq!(get(&proxy, path, &known).status, 412, "{path}");
                }
                assert_eq!(coding(&get(&proxy, "/image.png", &fields), &small), None);
                assert_eq!(coding(&get(&proxy, "/tiny.css", &fields), LINE), None);
            }
        }
        let answer = get(&proxy, "/small.css", "");
        assert_eq!((coding(&answer, &small), answer.field("vary")), (None, Some("Accept-Encoding")));
        assert_eq!(answer.field("accept-ranges"), Some("bytes"));
        // A part is never compressed.
        for fields in ["Range: bytes=0-9\r\n", "Range: bytes=0-9\r\nAccept-Encoding: gzip\r\n"] {
            let part = get(&proxy, "/large.js", fields);
            assert_eq!((part.status, part.text()), (206, &large[..10]));
            assert_eq!(part.field("content-encoding"), None);
        }
        // A small file that is compressed is sent as a whole.
        let whole = get(&proxy, "/small.css", "Range: bytes=0-9\r\nAccept-Encoding: gzip\r\n");
        assert_eq!((whole.status, coding(&whole, &small)), (200, Some("gzip")));
        let part = get(&proxy, "/small.css", "Range: bytes=0-9\r\n");
        assert_eq!((part.status, part.text()), (206, &small[..10]));
    }

    fn head_and_other_versions_get_the_same_of_files(io) {
        let (small, large) = (LINE.repeat(500), LINE.repeat(10_000));
        let tree = Tree::with(&[("small.css", &small), ("large.js", &large)]);
        let proxy = gateway(io, &tree.site(""));
        let mut client = h2(&proxy);
        for (path, content) in [("/small.css", &small), ("/large.js", &large)] {
            for method in [Method::Get, Method::Head] {
                let mut head = RequestHead::new(method, path);
                head.set_authority("a.example");
                head.fields.append(Name::AcceptEncoding, "br");
                let stream = client.send_head(&head, BodyLength::Empty);
                let answer = client.answer(stream);
                assert_eq!(answer.fields.get_str(Name::ContentEncoding), Some("br"), "{path}");
                match method {
                    Method::Get => assert!(decoded("br", &answer.content) == content.as_bytes()),
                    _ => assert!(answer.content.is_empty()),
                }
            }
        }
    }

    fn the_route_chooses_how_files_are_compressed(io) {
        let text = LINE.repeat(100);
        let tree = Tree::with(&[("a.css", &text), ("off/a.css", &text), ("b/a.css", &text)]);
        let proxy = gateway(io, &tree.site(
            "compress = { types = [\"text/css\"], algorithms = [\"gzip\"] }\n\
             \"/off\".compress = false\n\"/b\".compress = { types = [\"text/html\"] }",
        ));
        let fields = "Accept-Encoding: zstd, br, gzip\r\n";
        assert_eq!(coding(&get(&proxy, "/a.css", fields), &text), Some("gzip"));
        for path in ["/off/a.css", "/b/a.css"] {
            let answer = get(&proxy, path, fields);
            assert_eq!((coding(&answer, &text), answer.field("vary")), (None, None), "{path}");
        }
    }
}
