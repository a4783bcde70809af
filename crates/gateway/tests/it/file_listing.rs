//! Folders without an index are listed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use blitz_http::{BodyLength, Method, RequestHead, Status};

use crate::h2::h2;
use crate::site_rules::{HOST, ask, gateway};

/// A folder that is removed with this value.
struct Tree(PathBuf);

impl Tree {
    fn with(files: &[&str]) -> Tree {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("blitz-listing-{}-{number}", std::process::id());
        let tree = Tree(std::env::temp_dir().join(name));
        let _ = fs::remove_dir_all(&tree.0);
        for file in files {
            let path = tree.0.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "text").unwrap();
        }
        tree
    }

    fn site(&self, lines: &str) -> String {
        let root = self.0.display();
        format!("[site.\"a.example\"]\nfiles = \"{root}\"\n{lines}\n")
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const JSON: &str = "Accept: application/json\r\n";

scenarios! {
    fn folders_without_an_index_are_listed(io) {
        let tree = Tree::with(&["a<b>.txt", ".env", "sub/index.html", "empty/.hidden", "docs/b c.txt", "docs/d/e", "off/x"]);
        symlink("/etc/passwd", tree.0.join("docs/out")).unwrap();
        symlink("/etc", tree.0.join("etc")).unwrap();
        let root = tree.0.display();
        let proxy = gateway(io, &tree.site(&format!(r#"
            list = true
            "/off".list = false
            "/closed" = {{ files = "{root}/docs", list = true, deny = ["127.0.0.0/8"] }}
            "/mapped" = {{ files = "{root}/docs", list = true, symlinks = "deny" }}
            "/fallback" = {{ files = "{root}", fallback = "/docs/b c.txt", list = true }}
        "#)));
        let mut client = proxy.client();
        let response = ask(&mut client, "GET /", HOST);
        assert_eq!(response.status, 200);
        for (name, value) in [
            ("content-type", "text/html; charset=utf-8"),
            ("vary", "Accept"),
            ("cache-control", "no-cache"),
            ("x-content-type-options", "nosniff"),
        ] {
            assert_eq!(response.field(name), Some(value), "{name}");
        }
        let policy = response.field("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'"), "{policy}");
        let page = response.text();
        for part in ["<a href=\"a%3Cb%3E.txt\">a&lt;b&gt;.txt</a>", "<a href=\"docs/\">docs/</a>", "aria-sort=\"ascending\""] {
            assert!(page.contains(part), "{part} in {page}");
        }
        for hidden in [".env", "href=\"etc", "passwd", "a<b>"] {
            assert!(!page.contains(hidden), "{hidden} in {page}");
        }
        // Listed files are delivered.
        assert_eq!(ask(&mut client, "GET /a%3Cb%3E.txt", HOST).text(), "text");
        assert_eq!(ask(&mut client, "GET /sub/", HOST).text(), "text");
        assert_eq!(ask(&mut client, "GET /docs", HOST).status, 308);
        let response = ask(&mut client, "GET /docs/?sort=size&order=desc", &format!("{HOST}{JSON}"));
        assert_eq!(response.field("content-type"), Some("application/json"));
        let json: serde_json::Value = serde_json::from_str(response.text()).unwrap();
        let names: Vec<_> = json["entries"].as_array().unwrap().iter().map(|entry| entry["url"].as_str().unwrap()).collect();
        assert_eq!(names, ["d/", "b%20c.txt"]);
        assert_eq!(ask(&mut client, "GET /docs/b%20c.txt", HOST).text(), "text");
        let text = |client: &mut _, line: &str| ask(client, line, HOST).text().to_owned();
        assert!(text(&mut client, "GET /empty/").contains("The folder is empty"));
        assert!(text(&mut client, "GET /mapped/d/").contains("<li><a href=\"../\">/mapped/</a><li><span aria-current=\"page\">d</span>"));
        assert!(text(&mut client, "GET /fallback/").contains("docs/"), "a listing comes before the fallback");
        assert_eq!(text(&mut client, "GET /fallback/none"), "text");
        for (line, status) in [
            ("GET /none/", 404),
            ("GET /fallback/none/", 404),
            ("GET /etc/", 404),
            ("GET /docs/out/", 404),
            ("GET /.git/", 404),
            ("GET /a%3Cb%3E.txt/", 404),
            ("GET /off/", 404),
            ("GET /closed/", 403),
            ("POST /docs/", 405),
        ] {
            assert_eq!(ask(&mut client, line, HOST).status, status, "{line}");
        }
        let mut client = proxy.client();
        client.send(format!("HEAD /docs/ HTTP/1.1\r\n{HOST}Connection: close\r\n\r\n"));
        let head = String::from_utf8(client.rest()).unwrap();
        assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"), "{head}");
    }

    fn large_folders_are_listed_in_part_over_each_version(io) {
        let tree = Tree::with(&["a"]);
        for number in 0..10_001 {
            fs::write(tree.0.join(format!("file-{number:05}")), "").unwrap();
        }
        let proxy = gateway(io, &tree.site("list = true"));
        let response = ask(&mut proxy.client(), "GET /", &format!("{HOST}{JSON}"));
        let json: serde_json::Value = serde_json::from_str(response.text()).unwrap();
        assert_eq!((json["complete"].as_bool(), json["entries"].as_array().unwrap().len()), (Some(false), 10_000));
        let mut client = h2(&proxy);
        let mut head = RequestHead::new(Method::Get, "/");
        head.set_authority("a.example");
        let stream = client.send_head(&head, BodyLength::Empty);
        let answer = client.answer(stream);
        assert_eq!(answer.status, Some(Status::OK));
        let page = String::from_utf8(answer.content).unwrap();
        assert!(page.contains("these are 10000 of them") && page.ends_with("</table></main>\n"));
    }
}
