//! Static files of a route.

use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use blitz_gateway::{Ended, Options, Record, RecordHook};
use blitz_http::{BodyLength, IoChoice, Method, RequestHead, Status};
use blitz_testing::h3::headers;
use blitz_testing::{Client, Response};

use crate::h2::h2;
use crate::h3_support::{QuicServer, block_on};
use crate::site_rules::{HOST, ask, gateway, gateway_with};
use crate::support::{Proxy, eventually, numbers};

/// A folder that is removed with this value. The files to serve are in its folder `www`.
pub(crate) struct Tree(PathBuf);

impl Tree {
    fn new() -> Tree {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let root = format!("blitz-files-{}-{number}", std::process::id());
        let root = std::env::temp_dir().join(root);
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(root.join("www")).unwrap();
        fs::write(root.join("secret"), "secret").unwrap();
        Tree(root)
    }

    /// One with these files.
    pub(crate) fn with(files: &[(&str, &str)]) -> Tree {
        let tree = Tree::new();
        files
            .iter()
            .for_each(|(path, content)| tree.write(path, content));
        tree
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.0.join("www").join(path)
    }

    pub(crate) fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// A site of it with further lines.
    pub(crate) fn site(&self, lines: &str) -> String {
        let root = self.path("");
        format!(
            "[site.\"a.example\"]\nfiles = \"{}\"\n{lines}\n",
            root.display()
        )
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn get(client: &mut Client, path: &str, fields: &str) -> Response {
    ask(client, &format!("GET {path}"), &format!("{HOST}{fields}"))
}

fn status_of(client: &mut Client, path: &str) -> u16 {
    get(client, path, "").status
}

const HTML: &str = "Accept: text/html,*/*;q=0.8\r\n";

/// Files change rarely; those that have just been changed are not remembered.
pub(crate) fn settle() {
    thread::sleep(Duration::from_millis(3100));
}

/// Content whose every part differs.
pub(crate) fn content(length: usize) -> Vec<u8> {
    let mut next = numbers(7);
    (0..length).map(|_| next(256) as u8).collect()
}

scenarios! {
    fn files_are_found_by_their_paths(io) {
        let tree = Tree::with(&[
            ("index.html", "home"), ("about.html", "about"), ("a b/ä.txt", "text"), ("docs/index.html", "docs"),
            ("docs/x.css", "css"), ("both/index.html", "folder"), ("both.html", "file"), ("empty", ""),
            (".well-known/security.txt", "mail"), ("sub/.well-known/x", "no"), ("noindex/x", "x"), ("UP.PNG", "png"),
        ]);
        let proxy = gateway(io, &tree.site("extensions = [\".html\"]\n\"/assets\" = { }\n\"=/exact\" = { }"));
        let mut client = proxy.client();
        for round in 0..2 {
            for (path, status, text, kind) in [
                ("/", 200, "home", "text/html; charset=utf-8"),
                ("/index.html", 200, "home", "text/html; charset=utf-8"),
                ("/about", 200, "about", "text/html; charset=utf-8"),
                ("/docs/index", 200, "docs", "text/html; charset=utf-8"),
                ("/.", 200, "home", "text/html; charset=utf-8"),
                ("/about?x=1", 200, "about", "text/html; charset=utf-8"),
                ("/a%20b/%c3%a4.txt", 200, "text", "text/plain; charset=utf-8"),
                ("/docs/", 200, "docs", "text/html; charset=utf-8"),
                ("/docs/./x.css", 200, "css", "text/css; charset=utf-8"),
                ("/both", 200, "file", "text/html; charset=utf-8"),
                ("/both/", 200, "folder", "text/html; charset=utf-8"),
                ("/empty", 200, "", "application/octet-stream"),
                ("/UP.PNG", 200, "png", "image/png"),
                ("/.well-known/security.txt", 200, "mail", "text/plain; charset=utf-8"),
            ] {
                let response = get(&mut client, path, "");
                assert_eq!((response.status, response.text()), (status, text), "{path}");
                assert_eq!(response.field("content-type"), Some(kind), "{path}");
                assert_eq!(response.field("accept-ranges"), Some("bytes"), "{path}");
                assert_eq!(response.field("vary"), None, "{path}");
                let length = response.field("content-length").unwrap().to_owned();
                assert_eq!(length, text.len().to_string());
                let tag = response.field("etag").unwrap().to_owned();
                let again = get(&mut client, path, &format!("If-None-Match: {tag}\r\n"));
                assert_eq!((again.status, again.field("etag")), (304, Some(&*tag)), "{path}");
                assert_eq!(again.field("content-type"), None, "{path}");
            }
            for path in [
                "/none", "/none.html", "/index.html/", "/about/", "/docs/none", "/noindex/",
                "/docs/x.css/y", "/docs/x.css/", "/sub/.well-known/x", "/ABOUT", "/assets", "/docs//x.css",
                "//docs/x.css", "/docs%2Fx.css", "/docs%5Cx.css", "/about.htm",
            ] {
                assert_eq!(status_of(&mut client, path), 404, "{path}");
            }
            if round == 0 {
                settle();
            }
        }
        let long = format!("/{}", "a".repeat(300));
        assert_eq!(status_of(&mut client, &long), 404);
        // A folder without a slash.
        for (path, location) in [("/docs", "/docs/"), ("/docs?a=b", "/docs/?a=b"), ("/a%20b", "/a%20b/"), ("/noindex", "/noindex/")] {
            let response = get(&mut client, path, "");
            assert_eq!((response.status, response.field("location")), (308, Some(location)), "{path}");
        }
        for (path, file) in [("/", "index.html"), ("/docs/", "docs/index.html")] {
            let written = fs::metadata(tree.path(file)).unwrap().modified().unwrap();
            let response = get(&mut client, path, "");
            let date = httpdate_of(response.field("last-modified").unwrap());
            assert_eq!(date, written.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs(), "{path}");
        }
    }

    fn only_get_and_head_are_answered(io) {
        let tree = Tree::with(&[("a.txt", "hello"), ("large.bin", "")]);
        tree.write("large.bin", content(300_000));
        let proxy = gateway(io, &tree.site("\"/none\" = { methods = [\"GET\"] }"));
        let mut client = proxy.client();
        for method in ["POST", "PUT", "DELETE", "PATCH", "get"] {
            let response = ask(&mut client, &format!("{method} /a.txt"), &format!("{HOST}Content-Length: 2\r\n\r\nhi"));
            assert_eq!((response.status, response.field("allow")), (405, Some("GET, HEAD, OPTIONS")), "{method}");
            client = proxy.client();
        }
        let response = ask(&mut client, "OPTIONS /a.txt", HOST);
        assert_eq!((response.status, response.field("allow")), (204, Some("GET, HEAD, OPTIONS")));
        assert_eq!(ask(&mut client, "TRACE /a.txt", HOST).status, 405);
        for (path, length) in [("/a.txt", "5"), ("/large.bin", "300000"), ("/missing", "")] {
            let mut peer = proxy.peer();
            peer.send(format!("HEAD {path} HTTP/1.1\r\n{HOST}Range: bytes=0-0\r\nConnection: close\r\n\r\n"));
            let rest = String::from_utf8(peer.rest().0).unwrap().to_lowercase();
            assert!(rest.ends_with("\r\n\r\n"), "{rest}");
            match length {
                "" => assert!(rest.starts_with("http/1.1 404"), "{rest}"),
                _ => {
                    assert!(rest.starts_with("http/1.1 200"), "{rest}");
                    assert!(rest.contains(&format!("content-length: {length}\r\n")), "{rest}");
                }
            }
        }
    }

    fn the_folder_stands_for_the_path_of_the_route_that_writes_it(io) {
        let tree = Tree::with(&[("x.txt", "x"), ("deep/y.txt", "y"), ("deep/z.md", "z"), ("assets/x.txt", "below"), ("index.html", "home")]);
        let root = tree.path("").display().to_string();
        let proxy = gateway(io, &format!(r#"
            [preset.static]
            files = "{root}"
            [site."a.example"]
            respond = 204
            "/assets" = {{ files = "{root}" }}
            "/assets/deep".headers.X-Deep = "1"
            "/img*" = {{ files = "{root}" }}
            "/u/{{id}}/files" = {{ files = "{root}" }}
            "/preset".use = "static"
            '~/.*\.md$' = {{ files = "{root}" }}
        "#));
        let mut client = proxy.client();
        for (path, status, text) in [
            ("/assets/x.txt", 200, "x"), ("/assets/", 200, "home"), ("/assets/deep/y.txt", 200, "y"),
            ("/img/x.txt", 200, "x"), ("/imgx.txt", 200, "x"), ("/u/7/files/x.txt", 200, "x"), ("/u/a%2Fb/files/deep/y.txt", 200, "y"),
            ("/preset/x.txt", 200, "x"), ("/deep/z.md", 200, "z"), ("/x.txt", 204, ""),
        ] {
            let response = get(&mut client, path, "");
            assert_eq!(response.status, status, "{path}");
            if status == 200 {
                assert_eq!(response.text(), text, "{path}");
            }
        }
        assert_eq!(get(&mut client, "/assets", "").field("location"), Some("/assets/"));
        assert_eq!(get(&mut client, "/u/%2F%2Fevil.example/files/deep", "").field("location"), Some("/u/%2F%2Fevil.example/files/deep/"));
        assert_eq!(get(&mut client, "/assets/deep/y.txt", "").field("x-deep"), Some("1"));
    }

    fn pages_without_a_file_get_the_fallback(io) {
        let tree = Tree::with(&[("index.html", "app"), ("real.txt", "real"), (".env", "secret")]);
        let proxy = gateway(io, &tree.site("fallback = \"/index.html\"\n\"/plain\".fallback = false"));
        let mut client = proxy.client();
        for _ in 0..2 {
            for (path, fields, status) in [
                ("/settings/profile", "", 200), ("/settings/", "", 200), ("/settings/profile", "Accept: application/json\r\n", 200),
                ("/a.b", HTML, 200), ("/a.b", "", 404), ("/app.js", "Accept: */*\r\n", 404), ("/.env", HTML, 404),
                ("/.git/x", HTML, 404), ("/%2egit/x", HTML, 404), ("/a//b", HTML, 404), ("/plain/x", HTML, 404),
                ("/a%2Fb", HTML, 404),
            ] {
                let response = get(&mut client, path, fields);
                assert_eq!(response.status, status, "{path}");
                assert_eq!(response.text() == "app", status == 200, "{path}");
                let vary = (status == 200 && path.contains('.')).then_some("Accept");
                assert_eq!(response.field("vary"), vary, "{path}");
            }
            assert_eq!(get(&mut client, "/real.txt", HTML).text(), "real");
        }
    }

    fn the_rules_of_the_route_apply(io) {
        let tree = Tree::with(&[("a.txt", "a"), ("private/x.txt", "private"), ("hashed/app.js", "js")]);
        let proxy = gateway(io, &tree.site(r#"
            errors.404 = "404.html"
            headers.Cache-Control = "no-cache"
            headers.X-Asked = "{path}"
            "/hashed".headers.Cache-Control = "max-age=31536000"
            "/private".deny = ["127.0.0.0/8"]
            "/readonly".methods = ["HEAD"]
        "#));
        let mut client = proxy.client();
        let response = get(&mut client, "/a.txt", "");
        assert_eq!((response.field("cache-control"), response.field("x-asked")), (Some("no-cache"), Some("/a.txt")));
        let tag = response.field("etag").unwrap().to_owned();
        let response = get(&mut client, "/a.txt", &format!("If-None-Match: {tag}\r\n"));
        assert_eq!((response.status, response.field("cache-control")), (304, Some("no-cache")));
        assert_eq!(get(&mut client, "/hashed/app.js", "").field("cache-control"), Some("max-age=31536000"));
        assert_eq!(status_of(&mut client, "/private/x.txt"), 403);
        // Whichever way the path is spelled.
        for path in ["/%70rivate/x.txt", "/hashed/../private/x.txt", "//private/x.txt", "/private;a/x.txt", "/private%2Fx.txt"] {
            assert!(matches!(status_of(&mut client, path), 400 | 403 | 404), "{path}");
        }
        assert_eq!(status_of(&mut client, "/readonly/x"), 405);
        let response = get(&mut client, "/none", HTML);
        assert_eq!((response.status, response.text()), (404, "<h1>not here</h1>"));
        assert_eq!(get(&mut client, "/none", "").field("content-type"), Some("application/problem+json"));
    }

    fn hidden_files_are_served_only_if_the_route_says_so(io) {
        let tree = Tree::with(&[(".git/config", "git"), (".env", "env"), ("a/.htpasswd", "users"), ("a/..b", "dots")]);
        let paths = ["/.git/config", "/.env", "/a/.htpasswd", "/%2egit/config", "/%2Egit/config", "/a/%2ehtpasswd", "/a/..b", "/.git", "/.git/"];
        let closed = gateway(io, &tree.site(""));
        let open = gateway(io, &tree.site("hidden = true"));
        let (mut closed, mut open) = (closed.client(), open.client());
        for path in paths {
            assert_eq!(status_of(&mut closed, path), 404, "{path}");
            let status = status_of(&mut open, path);
            assert_eq!(status, if path == "/.git" { 308 } else if path == "/.git/" { 404 } else { 200 }, "{path}");
        }
    }

    fn no_spelling_of_a_path_leaves_the_folder(io) {
        let tree = Tree::with(&[("a/b.txt", "inside"), ("index.html", "inside"), (".hidden/x", "hidden")]);
        tree.write("../secret.txt", "secret");
        let proxy = gateway(io, &tree.site("extensions = [\".html\"]\nfallback = \"/index.html\"\n\"/in\" = { }"));
        let parts = [
            "..", ".", "%2e%2e", "%2E.", ".%2e", "..;", "..%00", "%00", "..%2f", "%2f..", "%5c..", "..\\", "\\", "/", "//", "a",
            "b.txt", "secret", "secret.txt", "etc", "passwd", "%252e%252e", "%c0%ae%c0%ae", "..%c0%af", "%u002e", ".hidden", "x",
            "in", "proc", "self", "%2fetc%2fpasswd", "....", "...", "%ff", "%0a", "%7f", "~", "*", "?", "#", "%2e%2e%2f", ";a", "%3b",
        ];
        let mut next = numbers(0xF11E);
        let mut client = proxy.client();
        let mut served = 0;
        for _ in 0..4000 {
            let mut path = String::new();
            for _ in 0..=next(6) {
                if next(4) > 0 {
                    path.push('/');
                }
                path.push_str(parts[next(parts.len())]);
            }
            let path = format!("/{path}");
            client.send(format!("GET {path} HTTP/1.1\r\n{HOST}Accept: text/html\r\n\r\n"));
            let response = client.response();
            let body = String::from_utf8_lossy(&response.body);
            assert!(matches!(response.status, 200 | 308 | 400 | 404), "{path}: {}", response.status);
            if response.status == 200 {
                assert_eq!(body, "inside", "{path}");
                served += 1;
            }
            if let Some(location) = response.field("location") {
                assert!(location.starts_with('/') && !location.starts_with("//") && !location.starts_with("/\\"), "{path}: {location}");
            }
            assert!(!body.contains("secret") || response.status != 200, "{path}");
            if response.field("connection") == Some("close") {
                client = proxy.client();
            }
        }
        assert!(served > 100, "{served}");
    }

    fn symbolic_links_are_followed_as_the_route_says(io) {
        let tree = Tree::with(&[("a/x.txt", "inside"), ("index.html", "home")]);
        symlink("a", tree.path("relative")).unwrap();
        symlink("../a/x.txt", tree.path("a/up")).unwrap();
        symlink("../secret", tree.path("out")).unwrap();
        symlink("..", tree.path("parent")).unwrap();
        symlink(tree.0.join("secret"), tree.path("absolute")).unwrap();
        symlink(tree.path("a/x.txt"), tree.path("absolute-inside")).unwrap();
        symlink("loop", tree.path("loop")).unwrap();
        symlink("/proc/self/cwd", tree.path("magic")).unwrap();
        let all = [
            ("/relative/x.txt", [200, 200, 404]), ("/a/up", [200, 200, 404]), ("/out", [404, 200, 404]),
            ("/parent/secret", [404, 200, 404]), ("/absolute", [404, 200, 404]), ("/absolute-inside", [404, 200, 404]),
            ("/loop", [404, 404, 404]), ("/a/x.txt", [200, 200, 200]), ("/magic/Cargo.toml", [404, 404, 404]),
        ];
        for (number, links) in ["inside", "follow", "deny"].into_iter().enumerate() {
            let proxy = gateway(io, &tree.site(&format!("symlinks = \"{links}\"")));
            let mut client = proxy.client();
            for (path, statuses) in all {
                assert_eq!(status_of(&mut client, path), statuses[number], "{links} {path}");
            }
        }
        // The folder itself may be a link, which a new version replaces.
        symlink("www", tree.0.join("current")).unwrap();
        let root = tree.0.join("current");
        let proxy = gateway(io, &format!("[site.\"a.example\"]\nfiles = \"{}\"\n", root.display()));
        assert_eq!(get(&mut proxy.client(), "/", "").text(), "home");
    }

    fn a_race_of_renamed_links_leaves_no_folder(io) {
        let tree = Tree::with(&[("dir/x", "inside")]);
        fs::create_dir_all(tree.0.join("outside")).unwrap();
        fs::write(tree.0.join("outside/x"), "secret").unwrap();
        let proxy = gateway(io, &tree.site(""));
        let stop = Arc::new(AtomicBool::new(false));
        let (dir, link, other) = (tree.path("dir"), tree.path("link"), tree.path("other"));
        symlink("../outside", &link).unwrap();
        let stopped = Arc::clone(&stop);
        let swapping = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                fs::rename(&dir, &other).unwrap();
                fs::rename(&link, &dir).unwrap();
                fs::rename(&dir, &link).unwrap();
                fs::rename(&other, &dir).unwrap();
            }
        });
        let mut client = proxy.client();
        for _ in 0..500 {
            let response = get(&mut client, "/dir/x", "");
            match response.status {
                200 => assert_eq!(response.text(), "inside"),
                status => assert!(matches!(status, 404 | 503), "{status}"),
            }
        }
        stop.store(true, Ordering::Relaxed);
        swapping.join().unwrap();
    }

    fn what_is_no_regular_file_is_not_read(io) {
        let tree = Tree::with(&[("x", "x")]);
        let made = Command::new("mkfifo").arg(tree.path("fifo")).status().unwrap();
        assert!(made.success());
        let _listener = UnixListener::bind(tree.path("socket")).unwrap();
        symlink("/dev/zero", tree.path("zero")).unwrap();
        let proxy = gateway(io, &tree.site("symlinks = \"follow\""));
        let mut client = proxy.client();
        for path in ["/fifo", "/socket", "/zero", "/fifo/", "/zero/x"] {
            assert_eq!(status_of(&mut client, path), 404, "{path}");
        }
        assert_eq!(status_of(&mut client, "/x"), 200);
    }

    fn compressed_siblings_are_negotiated(io) {
        let tree = Tree::with(&[("app.js", "plain"), ("app.js.br", "brotli"), ("app.js.gz", "gzip"), ("alone.js", "alone"), ("only.js.gz", "x")]);
        let proxy = gateway(io, &tree.site(""));
        let mut client = proxy.client();
        for round in 0..2 {
            for (accepted, text, coding) in [
                ("", "plain", None),
                ("Accept-Encoding: gzip, deflate, br, zstd\r\n", "brotli", Some("br")),
                ("Accept-Encoding: gzip, zstd\r\n", "gzip", Some("gzip")),
                ("Accept-Encoding: br;q=0.1, gzip\r\n", "gzip", Some("gzip")),
                ("Accept-Encoding: br;q=0, zstd\r\n", "plain", None),
                ("Accept-Encoding: identity, gzip;q=0.5\r\n", "plain", None),
            ] {
                let response = get(&mut client, "/app.js", accepted);
                assert_eq!((response.text(), response.field("content-encoding")), (text, coding), "{accepted}");
                assert_eq!(response.field("content-type"), Some("text/javascript; charset=utf-8"));
                assert_eq!(response.field("vary"), Some("Accept-Encoding"));
                let tag = response.field("etag").unwrap().to_owned();
                assert!(tag.contains(coding.unwrap_or("\"")), "{tag}");
                let part = get(&mut client, "/app.js", &format!("{accepted}Range: bytes=1-2\r\nIf-Range: {tag}\r\n"));
                assert_eq!((part.status, part.text(), part.field("content-encoding")), (206, &text[1..3], coding));
                let same = get(&mut client, "/app.js", &format!("{accepted}If-None-Match: {tag}\r\n"));
                assert_eq!((same.status, same.field("vary")), (304, Some("Accept-Encoding")));
            }
            let response = get(&mut client, "/alone.js", "Accept-Encoding: gzip\r\n");
            assert_eq!((response.text(), response.field("vary")), ("alone", None));
            assert_eq!(get(&mut client, "/only.js", "Accept-Encoding: gzip\r\n").status, 404);
            if round == 0 {
                settle();
            }
        }
    }

    fn parts_of_files_are_sent(io) {
        let tree = Tree::new();
        let large = content(1_000_000);
        tree.write("large.bin", &large);
        tree.write("small.bin", &large[..1000]);
        tree.write("empty.bin", "");
        let proxy = gateway(io, &tree.site(""));
        let mut client = proxy.client();
        for (path, all) in [("/large.bin", &large[..]), ("/small.bin", &large[..1000])] {
            let size = all.len();
            assert_eq!(get(&mut client, path, "").body, all, "{path}");
            for (range, first, end) in [("0-0", 0, 1), ("10-19", 10, 20), ("-5", size - 5, size), ("500-", 500, size), ("0-999999999", 0, size)] {
                let response = get(&mut client, path, &format!("Range: bytes={range}\r\n"));
                assert_eq!(response.status, 206, "{range}");
                let expected = format!("bytes {first}-{}/{size}", end - 1);
                assert_eq!(response.field("content-range"), Some(&*expected));
                assert_eq!(response.body, &all[first..end], "{range}");
            }
            let response = get(&mut client, path, "Range: bytes=0-1, 5-6,-3\r\n");
            assert_eq!(response.status, 206);
            let kind = response.field("content-type").unwrap();
            let boundary = kind.strip_prefix("multipart/byteranges; boundary=").unwrap();
            let mut expected = Vec::new();
            for (before, part) in [("", 0..2), ("\r\n", 5..7), ("\r\n", size - 3..size)] {
                expected.extend(format!("{before}--{boundary}\r\nContent-Type: application/octet-stream\r\nContent-Range: bytes {}-{}/{size}\r\n\r\n", part.start, part.end - 1).bytes());
                expected.extend(&all[part]);
            }
            expected.extend(format!("\r\n--{boundary}--\r\n").bytes());
            assert_eq!(response.body, expected);
            let response = get(&mut client, path, &format!("Range: bytes={size}-\r\n"));
            assert_eq!(response.status, 416);
            assert_eq!(response.field("content-range"), Some(&*format!("bytes */{size}")));
            for ignored in ["items=0-1", "bytes=5-4", "bytes=x", "bytes=0-,0-,0-"] {
                assert_eq!(get(&mut client, path, &format!("Range: {ignored}\r\n")).body.len(), size, "{ignored}");
            }
            let many = format!("Range: bytes={}\r\n", "0-0,".repeat(1000));
            assert_eq!(get(&mut client, path, &many).body.len(), size);
            assert_eq!(get(&mut client, path, "Range: bytes=0-0\r\nIf-Range: \"other\"\r\n").body.len(), size);
            assert_eq!(get(&mut client, path, "If-Match: \"other\"\r\n").status, 412);
        }
        assert_eq!(get(&mut client, "/empty.bin", "Range: bytes=0-\r\n").status, 416);
        assert_eq!(get(&mut client, "/empty.bin", "").body, b"");
    }

    fn pipelined_requests_for_large_files_are_answered_in_order(io) {
        let tree = Tree::new();
        let large = content(2_000_000);
        tree.write("large.bin", &large);
        tree.write("small.bin", &large[..1000]);
        let (proxy, records) = recorded(io, &tree);
        let paths = ["/large.bin", "/small.bin", "/none", "/large.bin", "/large.bin", "/small.bin"];
        let requests: String = paths.iter().map(|path| format!("GET {path} HTTP/1.1\r\n{HOST}\r\n")).collect();
        let mut client = proxy.client();
        client.send(&requests);
        for path in paths {
            let response = client.response();
            let expected = match path {
                "/large.bin" => &large[..],
                "/small.bin" => &large[..1000],
                _ => {
                    assert_eq!(response.status, 404);
                    continue;
                }
            };
            assert!(response.body == expected, "{path}: {} bytes", response.body.len());
        }
        eventually("there are records", || records.lock().unwrap().len() == paths.len());
        let bytes: Vec<u64> = records.lock().unwrap().iter().map(|(_, bytes)| *bytes).collect();
        assert_eq!([bytes[0], bytes[1], bytes[3], bytes[4]], [2_000_000, 1000, 2_000_000, 2_000_000]);
        assert!(records.lock().unwrap().iter().all(|(ended, _)| matches!(ended, Ended::Complete)));
    }

    fn a_client_that_stops_to_read_a_large_file_is_closed_after_its_deadline(io) {
        let tree = Tree::new();
        tree.write("large.bin", content(32 << 20));
        let mut options = Options::default();
        options.limits.send_stall_timeout = Duration::from_millis(300);
        let proxy = gateway_with(io, options, &tree.site(""));
        let mut stream = TcpStream::connect(proxy.address).unwrap();
        std::io::Write::write_all(&mut stream, format!("GET /large.bin HTTP/1.1\r\n{HOST}\r\n").as_bytes()).unwrap();
        eventually("the deadline passes", || proxy.http_counters().send_stalls == 1);
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all);
        assert!(all.len() < 32 << 20, "{} bytes", all.len());
    }

    fn every_version_gets_the_same_files(io) {
        let tree = Tree::new();
        let large = content(700_000);
        tree.write("large.bin", &large);
        tree.write("a.txt", "hello");
        let proxy = gateway(io, &tree.site(""));
        let mut client = h2(&proxy);
        for (path, body) in [("/large.bin", &large[..]), ("/a.txt", b"hello"), ("/large.bin", &large)] {
            let mut head = RequestHead::new(Method::Get, path);
            head.set_authority("a.example");
            let stream = client.send_head(&head, BodyLength::Empty);
            let answer = client.answer(stream);
            assert_eq!(answer.status, Some(Status::OK));
            assert!(answer.content == body, "{path}: {} bytes", answer.content.len());
        }
        let site = tree.site("").replace("a.example", "localhost");
        block_on(async {
            let server = QuicServer::with(|slot| over_tls(io, slot, &site));
            let client = server.raw_client().await;
            for (path, status, body) in [("/large.bin", 200, &large[..]), ("/a.txt", 200, b"hello"), ("/.git/x", 404, b"")] {
                let head = headers(&[(":method", "GET"), (":scheme", "https"), (":authority", "localhost"), (":path", path)]);
                let response = client.ask(head).await;
                assert_eq!(response.heads, [Some(status)], "{path}");
                assert!(status == 404 || response.content == body, "{path}: {} bytes", response.content.len());
            }
        });
    }

    fn a_changed_file_is_sent_within_the_time_that_is_promised(io) {
        let tree = Tree::with(&[("a.txt", "first"), ("gone.txt", "here")]);
        let proxy = gateway(io, &tree.site(""));
        let mut client = proxy.client();
        settle();
        for _ in 0..3 {
            assert_eq!(get(&mut client, "/a.txt", "").text(), "first");
            assert_eq!(get(&mut client, "/gone.txt", "").text(), "here");
        }
        tree.write("a.txt", "other");
        fs::remove_file(tree.path("gone.txt")).unwrap();
        // The bound is a second; a busy machine may add to it.
        thread::sleep(Duration::from_millis(1100));
        assert_eq!(get(&mut client, "/a.txt", "").text(), "other");
        assert_eq!(status_of(&mut client, "/gone.txt"), 404);
        // Changed a moment ago, it is not remembered.
        for number in 0..10 {
            let text = format!("text {number}");
            tree.write("a.txt", &text);
            assert_eq!(get(&mut client, "/a.txt", "").text(), text);
        }
        // A reload forgets all.
        let other = Tree::with(&[("a.txt", "elsewhere")]);
        let mut proxy = proxy;
        proxy.replace_sites(&other.site(""));
        assert_eq!(get(&mut proxy.client(), "/a.txt", "").text(), "elsewhere");
    }

    fn records_have_the_bytes_that_were_sent(io) {
        let tree = Tree::with(&[("a.txt", "hello")]);
        tree.write("large.bin", content(300_000));
        let (proxy, records) = recorded(io, &tree);
        let mut client = proxy.client();
        for (path, fields, bytes) in [
            ("/a.txt", "", 5),
            ("/large.bin", "", 300_000),
            ("/large.bin", "Range: bytes=1-10\r\n", 10),
            ("/large.bin", "If-None-Match: *\r\n", 0),
        ] {
            records.lock().unwrap().clear();
            get(&mut client, path, fields);
            eventually("there is a record", || !records.lock().unwrap().is_empty());
            let records = records.lock().unwrap();
            let (ended, sent) = &records[0];
            assert!(matches!(ended, Ended::Complete), "{path}: {ended:?}");
            assert_eq!(*sent, bytes, "{path} {fields}");
        }
    }

    fn a_response_without_a_file_has_the_id_of_its_record(io) {
        let tree = Tree::with(&[("a.txt", "a")]);
        let ids = Arc::new(Mutex::new(Vec::new()));
        let keeps = Arc::clone(&ids);
        let hook = RecordHook::new(move |_: &Record<'_>, head: &RequestHead| {
            let id = head.fields.get("x-request-id").unwrap_or_default();
            keeps.lock().unwrap().push(String::from_utf8_lossy(id).into_owned());
        });
        let options = Options { record_hook: Some(hook), ..Options::default() };
        let proxy = gateway_with(io, options, &tree.site(""));
        let mut client = proxy.client();
        for (path, status) in [("/none", 404), ("/none", 404)] {
            let response = get(&mut client, path, "");
            assert_eq!(response.status, status);
            eventually("there is a record", || !ids.lock().unwrap().is_empty());
            let id = ids.lock().unwrap().pop().unwrap();
            assert_eq!(response.field("x-request-id"), Some(&*id), "{path}");
        }
    }

    fn a_file_that_becomes_shorter_cuts_the_response_off(io) {
        let tree = Tree::new();
        let all = content(16 << 20);
        tree.write("large.bin", &all);
        let (proxy, records) = recorded(io, &tree);
        let mut stream = TcpStream::connect(proxy.address).unwrap();
        std::io::Write::write_all(&mut stream, format!("GET /large.bin HTTP/1.1\r\n{HOST}\r\n").as_bytes()).unwrap();
        let mut received = vec![0; 100_000];
        stream.read_exact(&mut received).unwrap();
        let file = fs::File::options().write(true).open(tree.path("large.bin")).unwrap();
        file.set_len(200_000).unwrap();
        let _ = stream.read_to_end(&mut received);
        let start = received.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
        let content = &received[start..];
        assert!(content.len() < all.len(), "{} bytes", content.len());
        // The kernel clears pages that it has not sent yet, from the new end on.
        let is_of_file = |(at, byte)| byte == all[at] || (at >= 200_000 && byte == 0);
        assert!(content.iter().copied().enumerate().all(is_of_file), "other bytes than those of the file");
        eventually("there is a record", || !records.lock().unwrap().is_empty());
        assert!(matches!(records.lock().unwrap()[0].0, Ended::Aborted));
    }

    fn a_slow_reader_of_a_large_file_holds_little_memory(io) {
        let tree = Tree::new();
        tree.write("large.bin", "");
        let file = fs::File::options().write(true).open(tree.path("large.bin")).unwrap();
        file.set_len(1 << 30).unwrap();
        let (proxy, records) = recorded(io, &tree);
        let mut stream = TcpStream::connect(proxy.address).unwrap();
        std::io::Write::write_all(&mut stream, format!("GET /large.bin HTTP/1.1\r\n{HOST}\r\n").as_bytes()).unwrap();
        let mut some = vec![0; 1000];
        stream.read_exact(&mut some).unwrap();
        thread::sleep(Duration::from_millis(300));
        // The core serves others meanwhile.
        assert_eq!(status_of(&mut proxy.client(), "/none"), 404);
        drop(stream);
        eventually("there are records", || records.lock().unwrap().len() == 2);
        let records = records.lock().unwrap();
        let (ended, bytes) = &records[1];
        assert!(matches!(ended, Ended::ClientGone), "{ended:?}");
        // The queued pieces, and the buffers of the kernel at both ends.
        assert!(*bytes < 16 << 20, "{bytes} bytes");
    }
}

pub(crate) fn over_tls(io: IoChoice, slot: blitz_http::TlsSlot, site: &str) -> Proxy {
    use blitz_config::{Document, Environment, read};
    let (configuration, mut diagnostics) =
        read(&Document::new("blitz.toml", site), &Environment::default());
    let mut no_file = |_: &str| Err((String::new(), String::new()));
    let sites = blitz_gateway::compile(&configuration, &mut no_file, &mut diagnostics);
    assert_eq!(diagnostics, []);
    let gateway = Proxy::gateway_over_tls(io, slot);
    let gateway = sites
        .into_iter()
        .fold(gateway, blitz_gateway::Gateway::site);
    Proxy::start(gateway, &[])
}

type Records = Arc<Mutex<Vec<(Ended, u64)>>>;

/// A gateway for the tree, and the ends and the bytes of its requests.
fn recorded(io: IoChoice, tree: &Tree) -> (Proxy, Records) {
    let records = Records::default();
    let keeps = Arc::clone(&records);
    let options = Options {
        record_hook: Some(RecordHook::new(move |record: &Record<'_>, _| {
            let response = &record.response;
            keeps
                .lock()
                .unwrap()
                .push((response.ended.clone(), response.bytes));
        })),
        ..Options::default()
    };
    (gateway_with(io, options, &tree.site("")), records)
}

/// The seconds since 1970 of a date.
fn httpdate_of(date: &str) -> u64 {
    let output = Command::new("date")
        .args(["-u", "-d", date, "+%s"])
        .output()
        .unwrap();
    String::from_utf8(output.stdout)
        .unwrap()
        .trim()
        .parse()
        .unwrap()
}
