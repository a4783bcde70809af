//! Files of a folder, beside the routes of an app.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use blitz::policy::{compress, headers, security_headers};
use blitz::{App, Files, Next, Request};
use blitz_testing::Client;

use crate::server::on_both_drivers;

/// A folder that is removed with this value.
struct Folder(PathBuf);

impl Folder {
    fn with(files: &[(&str, &str)]) -> Folder {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("blitz-app-files-{}-{number}", std::process::id());
        let folder = Folder(std::env::temp_dir().join(name));
        for (path, content) in files {
            let path = folder.0.join("dist").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        folder
    }

    fn path(&self) -> PathBuf {
        self.0.join("dist")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// An app with files at several places.
fn app(folder: &Folder) -> App {
    let files = || Files::new(folder.path()).precompressed();
    App::new()
        .policy(security_headers())
        .policy(headers().set("cache-control", "no-cache"))
        .wrap(|request: Request, next: Next| {
            next.run(request).map(|mut response| {
                let status = response.status().code().to_string();
                response.fields_mut().set("x-seen", status);
                response
            })
        })
        .get("/api/time", || "noon")
        .get("/static", || "the route")
        .files("/", files().spa("index.html"))
        .files("/static", files())
        .files("/{tenant}/files", files())
        .nest("/nested", App::new().files("/", files()))
}

#[test]
fn files_are_below_their_prefix_and_routes_come_first() {
    let large = "a line of a large file\n".repeat(20_000);
    let folder = Folder::with(&[
        ("index.html", "home"),
        ("app.js", "let a = 1;"),
        ("api/time", "a file"),
        (".env", "secret"),
        ("large.bin", &large),
    ]);
    let app = || app(&folder);
    on_both_drivers(app, |address| {
        let mut client = Client::connect(address);
        for (path, status, text) in [
            ("/", 200, Some("home")),
            ("/app.js", 200, Some("let a = 1;")),
            ("/api/time", 200, Some("noon")),
            ("/some/page", 200, Some("home")),
            ("/none.png", 404, None),
            ("/.env", 404, None),
            ("/%2eenv", 404, None),
            ("/large.bin", 200, Some(&*large)),
            ("/static", 200, Some("the route")),
            ("/static/", 200, Some("home")),
            ("/static/app.js", 200, Some("let a = 1;")),
            ("/static/some/page", 404, None),
            ("/nested/app.js", 200, Some("let a = 1;")),
            ("/nested", 308, Some("")),
            ("/acme/files", 308, Some("")),
            ("/acme/files/", 200, Some("home")),
            ("/acme/files/app.js", 200, Some("let a = 1;")),
            ("/acme/files//app.js", 404, None),
            ("//app.js", 404, None),
        ] {
            // Twice: the second time a core may remember it.
            for _ in 0..2 {
                let response = client.get(path);
                assert_eq!(response.status, status, "{path}");
                if let Some(text) = text {
                    assert!(response.text() == text, "{path}");
                }
                // Middleware and policies see and change the responses.
                assert_eq!(
                    response.field("x-seen"),
                    Some(&*status.to_string()),
                    "{path}"
                );
                assert_eq!(response.field("cache-control"), Some("no-cache"), "{path}");
                assert_eq!(
                    response.field("x-content-type-options"),
                    Some("nosniff"),
                    "{path}"
                );
            }
        }
        assert_eq!(
            client.get("/nested?a").field("location"),
            Some("/nested/?a")
        );
    });
}

#[test]
fn parts_conditions_and_methods_are_those_of_files() {
    let large = "a line of a large file\n".repeat(20_000);
    let folder = Folder::with(&[("app.js", "let a = 1;"), ("large.bin", &large)]);
    let app = || App::new().files("/", Files::new(folder.path()));
    on_both_drivers(app, |address| {
        let mut client = Client::connect(address);
        for (line, fields, status, text) in [
            ("GET /app.js", "Range: bytes=4-4\r\n", 206, "a"),
            ("GET /large.bin", "Range: bytes=-5\r\n", 206, "file\n"),
            ("GET /app.js", "If-None-Match: *\r\n", 304, ""),
            ("DELETE /app.js", "", 405, ""),
        ] {
            client.send(format!("{line} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
            let response = client.response();
            assert_eq!(response.status, status, "{line} {fields}");
            match status {
                405 => assert_eq!(response.field("allow"), Some("GET, HEAD, OPTIONS")),
                _ => assert_eq!(response.text(), text, "{line} {fields}"),
            }
        }
    });
}

#[test]
fn files_are_compressed_once_whoever_compresses() {
    let large = "a line of a large file\n".repeat(20_000);
    let small = "a line of a small file\n".repeat(100);
    let folder = Folder::with(&[("large.txt", &large), ("small.txt", &small)]);
    let app = || {
        let files = || Files::new(folder.path());
        App::new()
            .files("/own", files())
            .files("/plain", files().precompressed())
            .nest(
                "/policy",
                App::new()
                    .policy(compress())
                    .files("/own", files())
                    .files("/plain", files().precompressed()),
            )
    };
    on_both_drivers(app, |address| {
        let mut client = Client::connect(address);
        for (place, is_compressed) in [
            ("/own", true),
            ("/plain", false),
            ("/policy/own", true),
            ("/policy/plain", true),
        ] {
            for (name, content) in [("large.txt", &large), ("small.txt", &small)] {
                let line = format!("GET {place}/{name} HTTP/1.1\r\nHost: a\r\n");
                client.send(format!("{line}Accept-Encoding: gzip\r\n\r\n"));
                let response = client.response();
                let coding = response.field("content-encoding");
                assert_eq!(coding, is_compressed.then_some("gzip"), "{line}");
                match is_compressed {
                    // RFC 1952: the length stands in the last four bytes.
                    true => {
                        let end = response.body.last_chunk().unwrap();
                        assert_eq!(u32::from_le_bytes(*end) as usize, content.len(), "{line}");
                    }
                    false => assert!(response.text() == *content, "{line}"),
                }
                client.send(format!("{line}\r\n"));
                assert!(client.response().text() == *content, "{line}");
            }
        }
    });
}

#[test]
fn mistakes_in_files_are_found_when_the_app_is_built() {
    let folder = Folder::with(&[("index.html", "home")]);
    let file = folder.path().join("index.html");
    let missing = Path::new("/nonexistent/dist");
    for (files, expected) in [
        (
            Files::new(missing),
            "the folder /nonexistent/dist does not exist\n  Relative paths begin at",
        ),
        (
            Files::new(&file),
            &*format!("{} is no folder", file.display()),
        ),
        (
            Files::new(folder.path()).spa("app.html"),
            &*format!(
                "the page {} does not exist",
                folder.path().join("app.html").display()
            ),
        ),
        (
            Files::new(folder.path()).spa("../secret"),
            "`../secret` is no name of a file",
        ),
        (
            Files::new(folder.path()).index(["a/b"]),
            "`a/b` is no name of a file",
        ),
        (
            Files::new(folder.path()).extensions(["html"]),
            "`html` is no name of a file\n  Write for example `.html`.",
        ),
    ] {
        let error = App::new().files("/", files).build().err();
        let error = error.map(|error| error.to_string()).unwrap_or_default();
        assert!(error.starts_with(expected), "{expected}: {error}");
    }
    let twice = App::new()
        .files("/", Files::new(folder.path()))
        .get("/{rest...}", || "all");
    let error = twice.build().err().unwrap().to_string();
    assert!(error.contains("match the same paths"), "{error}");
}
