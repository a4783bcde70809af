//! `JWT_SECRET`: paths of the built-in site that need a token.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use blitz_testing::{Client, IO_TIMEOUT, Response, Upstream};

use crate::https::Folder;

const SECRET: &str = "a secret of exactly 32 bytes ...";

/// A running `blitz`, killed when dropped.
struct Running {
    child: Child,
    announced: String,
    log: String,
}

impl Running {
    fn start(folder: &Folder, secret: Option<&str>, flags: &[&str]) -> Running {
        let log = folder.file("log");
        let mut command = Command::new(env!("CARGO_BIN_EXE_blitz"));
        command.args(["run", "--cores", "1", "--control-listen=off"]);
        command.args(flags).env_remove("JWT_SECRET");
        command.envs(secret.map(|secret| ("JWT_SECRET", secret)));
        command.stdout(Stdio::piped());
        command.stderr(fs::File::create(&log).unwrap());
        let mut child = command.spawn().expect("the binary starts");
        let mut announced = String::new();
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line = line.expect("the start message is text");
            announced += &format!("{line}\n");
            if line.trim().starts_with("try") {
                break;
            }
        }
        Running {
            child,
            announced,
            log,
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Waits for a line with this text: another thread writes the log.
    fn wait_for_log(&self, text: &str) {
        let end = Instant::now() + IO_TIMEOUT;
        while !self.log().contains(text) {
            assert!(Instant::now() < end, "{text}: {}", self.log());
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn ask(&self, line: &str, fields: &str) -> Response {
        let mut lines = self.announced.lines();
        let url = lines.find_map(|line| line.trim().strip_prefix("listening on"));
        let address = url.unwrap().trim().trim_start_matches("http://");
        let mut client = Client::connect(address.parse::<SocketAddr>().unwrap());
        client.send(format!(
            "{line} HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n"
        ));
        client.response()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const LISTEN: [&str; 2] = ["--listen", "127.0.0.1:0"];

fn bearer(secret: &str, header: &str, claims: &str) -> String {
    let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let message = format!(
        "{}.{}",
        encode(header.as_bytes()),
        encode(claims.as_bytes())
    );
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let signature = encode(hmac::sign(&key, message.as_bytes()).as_ref());
    format!("Authorization: Bearer {message}.{signature}\r\n")
}

const HS256: &str = r#"{"alg":"HS256","typ":"JWT"}"#;

/// In the year 2100.
const VALID: &str = r#"{"sub":"alice","exp":4102444800}"#;

#[test]
fn the_secret_protects_paths_of_the_built_in_site() {
    let folder = Folder::new();
    let running = Running::start(&folder, Some(SECRET), &LISTEN);
    for part in [
        "/api/json     -> the built-in site, for tokens",
        "/api/echo ",
    ] {
        assert!(running.announced.contains(part), "{}", running.announced);
    }
    assert!(!running.log().contains("JWT_SECRET"), "{}", running.log());
    assert!(!running.announced.contains(SECRET));
    let token = bearer(SECRET, HS256, VALID);
    // The second time the token is known.
    for _ in 0..2 {
        let response = running.ask("GET /api/echo/a/b", &token);
        assert_eq!((response.status, response.text()), (200, "/api/echo/a/b\n"));
        let response = running.ask("GET /api/json", &token);
        assert_eq!(response.field("content-type"), Some("application/json"));
    }
    let with_content = format!("{token}Content-Length: 0\r\n");
    assert_eq!(running.ask("POST /api/echo", &with_content).status, 200);
    let others = "another secret of about 32 bytes";
    for (fields, expected) in [
        (String::new(), "Bearer realm=\"site\""),
        (
            "Authorization: Basic YTpi\r\n".to_owned(),
            "Bearer realm=\"site\"",
        ),
        (
            bearer(others, HS256, VALID),
            "Bearer realm=\"site\", error=\"invalid_token\"",
        ),
        (
            bearer(SECRET, r#"{"alg":"HS512"}"#, VALID),
            "Bearer realm=\"site\", error=\"invalid_token\"",
        ),
        (
            bearer(SECRET, r#"{"alg":"none"}"#, VALID),
            "Bearer realm=\"site\", error=\"invalid_token\"",
        ),
        (
            bearer(SECRET, HS256, r#"{"exp":1000000000}"#),
            "Bearer realm=\"site\", error=\"invalid_token\", error_description=\"the token has expired\"",
        ),
    ] {
        for line in [
            "GET /api/echo/x",
            "GET /api/json",
            "HEAD /api/echo",
            "GET /api/../api/json",
        ] {
            // The response to HEAD has no content.
            let line = line.replace("HEAD", "DELETE");
            let response = running.ask(&line, &fields);
            let challenge = response.field("www-authenticate");
            assert_eq!(
                (response.status, challenge),
                (401, Some(expected)),
                "{line} {fields}"
            );
        }
    }
    for path in ["/health", "/echo/x", "/json", "/hello"] {
        assert_eq!(
            running.ask(&format!("GET {path}"), "").status,
            200,
            "{path}"
        );
    }
}

#[test]
fn without_the_secret_there_are_no_such_paths() {
    let folder = Folder::new();
    for secret in [None, Some("")] {
        let running = Running::start(&folder, secret, &LISTEN);
        assert!(!running.announced.contains("/api"), "{}", running.announced);
        let token = bearer("", HS256, VALID);
        assert_eq!(running.ask("GET /api/echo/x", &token).status, 404);
        assert_eq!(running.ask("GET /api/json", "").status, 404);
        match secret {
            Some(_) => running.wait_for_log("JWT_SECRET is empty"),
            None => assert!(!running.log().contains("JWT_SECRET")),
        }
    }
}

#[test]
fn a_short_secret_is_a_warning() {
    let folder = Folder::new();
    let running = Running::start(&folder, Some("short"), &LISTEN);
    running.wait_for_log("JWT_SECRET has 5 bytes");
    let response = running.ask("GET /api/json", &bearer("short", HS256, VALID));
    assert_eq!(response.status, 200);
    assert_eq!(running.ask("GET /api/json", "").status, 401);
}

#[test]
fn the_secret_changes_nothing_but_the_built_in_site() {
    let folder = Folder::new();
    let upstream = Upstream::start(|_| b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nup".to_vec());
    let url = upstream.url();
    let file = folder.file("blitz.toml");
    let text = format!("listen = [\"127.0.0.1:0\"]\n[site]\n\"a.example\" = \"{url}\"\n");
    fs::write(&file, text).unwrap();
    let of_target = [&LISTEN[..], &["--to", &url]].concat();
    let of_file = ["--config", &file, "--control=off"];
    for flags in [&of_target[..], &of_file] {
        let running = Running::start(&folder, Some("short"), flags);
        assert!(!running.announced.contains("/api"), "{}", running.announced);
        assert!(!running.log().contains("JWT_SECRET"), "{}", running.log());
        let response = running.ask("GET /api/json", "");
        assert_eq!((response.status, response.text()), (200, "up"));
    }
}
