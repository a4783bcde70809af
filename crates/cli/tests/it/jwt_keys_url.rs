//! `jwt.keys_url`: keys that are fetched, rotated and remembered.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use blitz_testing::{Client, IO_TIMEOUT, Response, Upstream};

use crate::https::{Folder, Running};

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// A key of an issuer, for ES256.
struct Key {
    name: &'static str,
    pair: EcdsaKeyPair,
}

impl Key {
    fn new(name: &'static str) -> Key {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        Key { name, pair }
    }

    /// As a member of a key set.
    fn public(&self) -> String {
        let point = self.pair.public_key().as_ref();
        let (x, y) = (encode(&point[1..33]), encode(&point[33..]));
        let name = self.name;
        format!(r#"{{"kty":"EC","crv":"P-256","kid":"{name}","use":"sig","x":"{x}","y":"{y}"}}"#)
    }

    /// The field with a token that does not expire before the year 2100.
    fn bearer(&self) -> String {
        let header = encode(format!(r#"{{"alg":"ES256","kid":"{}"}}"#, self.name));
        let message = format!("{header}.{}", encode(r#"{"sub":"alice","exp":4102444800}"#));
        let signature = self
            .pair
            .sign(&SystemRandom::new(), message.as_bytes())
            .unwrap();
        format!("Authorization: Bearer {message}.{}\r\n", encode(signature))
    }
}

fn set_of(keys: &[&Key]) -> String {
    let keys: Vec<_> = keys.iter().map(|key| key.public()).collect();
    ok(&format!("{{\"keys\":[{}]}}", keys.join(",")))
}

fn ok(content: &str) -> String {
    let length = content.len();
    format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{content}")
}

/// An issuer whose response can be changed.
struct Issuer {
    upstream: Upstream,
    response: Arc<Mutex<String>>,
}

impl Issuer {
    fn start(response: &str) -> Issuer {
        let response = Arc::new(Mutex::new(response.to_owned()));
        let sent = Arc::clone(&response);
        let upstream = Upstream::start(move |_| sent.lock().unwrap().clone().into_bytes());
        Issuer { upstream, response }
    }

    fn respond(&self, response: &str) {
        response.clone_into(&mut self.response.lock().unwrap());
    }

    fn start_gateway(&self, folder: &Folder) -> Running {
        let text = format!(
            "listen = [\"127.0.0.1:0\"]\n[site.\"a.example\"]\nrespond = \"200 in\"\n\
             jwt = {{ keys_url = \"{}/keys\" }}\n\"/optional\".jwt = {{ keys_url = \"{}/keys\", optional = true }}\n",
            self.upstream.url(),
            self.upstream.url()
        );
        fs::write(folder.file("blitz.toml"), text).unwrap();
        Running::announcing(folder, &["--config", &folder.file("")], "http://")
    }
}

fn ask(running: &Running, path: &str, fields: &str) -> Response {
    let mut client = Client::connect(running.address("http://"));
    client.send(format!(
        "GET {path} HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n"
    ));
    client.response()
}

/// Asks until the status is this one.
fn wait_for(running: &Running, fields: &str, status: u16) {
    let end = Instant::now() + 3 * IO_TIMEOUT;
    loop {
        let response = ask(running, "/", fields);
        if response.status == status {
            return;
        }
        assert!(
            Instant::now() < end,
            "{}: {}",
            response.status,
            response.text()
        );
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn keys_are_fetched_rotated_and_kept() {
    let folder = Folder::new();
    let (old, new) = (Key::new("old"), Key::new("new"));
    let issuer = Issuer::start("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n");
    let running = issuer.start_gateway(&folder);
    // Nobody can tell whether a token is valid.
    let response = ask(&running, "/", &old.bearer());
    assert_eq!(
        (response.status, response.field("retry-after")),
        (503, Some("5"))
    );
    assert_eq!(response.field("www-authenticate"), None);
    assert_eq!(ask(&running, "/", "").status, 401);
    assert_eq!(ask(&running, "/optional", "").status, 200);
    issuer.respond(&set_of(&[&old]));
    wait_for(&running, &old.bearer(), 200);
    assert_eq!(ask(&running, "/optional", &old.bearer()).status, 200);
    assert_eq!(ask(&running, "/", &new.bearer()).status, 401);
    // A token with a key that is not known has the set fetched; tokens of a withdrawn key are refused, also known ones.
    issuer.respond(&set_of(&[&new]));
    wait_for(&running, &new.bearer(), 200);
    assert_eq!(ask(&running, "/", &old.bearer()).status, 401);
    drop(running);
    // The next start has the keys without the issuer.
    let stored = fs::read_dir(folder.file("blitz")).unwrap();
    let stored: Vec<_> = stored.map(|entry| entry.unwrap().path()).collect();
    let is_of_keys = |path: &&std::path::PathBuf| path.to_string_lossy().contains("/keys-");
    let file = stored.iter().find(is_of_keys).expect("keys are stored");
    assert_eq!(
        fs::metadata(file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    issuer.respond("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n");
    let running = issuer.start_gateway(&folder);
    wait_for(&running, &new.bearer(), 200);
    // A reload keeps them.
    running.reload("the configuration was read again");
    assert_eq!(ask(&running, "/", &new.bearer()).status, 200);
}

#[test]
fn a_private_authority_verifies_the_server_of_the_keys() {
    let (folder, other) = (Folder::new(), Folder::new());
    let key = Key::new("one");
    let issuer = Issuer::start(&set_of(&[&key]));
    // Blitz is its own issuer over TLS.
    let (cert, private_key) = folder.certificate("localhost");
    other.certificate("localhost");
    let url = issuer.upstream.url();
    let server = Running::start(
        &folder,
        &["--cert", &cert, "--key", &private_key, "--to", &url],
    );
    let port = server.address("https://").port();
    let start = |of: &Folder, ca: &str| {
        let text = format!(
            "listen = [\"127.0.0.1:0\"]\n[site.\"a.example\"]\nrespond = \"200 in\"\n\
             jwt = {{ keys_url = \"https://localhost:{port}/keys\"{ca} }}\n"
        );
        fs::write(of.file("blitz.toml"), text).unwrap();
        Running::announcing(of, &["--config", &of.file("")], "http://")
    };
    let gateway = Folder::new();
    let ca = format!(", keys_ca = \"{}\"", folder.file("ca.pem"));
    let running = start(&gateway, &ca);
    wait_for(&running, &key.bearer(), 200);
    drop(running);
    // Others do not verify it, and keys that it has verified are none of theirs.
    for ca in [
        String::new(),
        format!(", keys_ca = \"{}\"", other.file("ca.pem")),
    ] {
        let running = start(&gateway, &ca);
        let end = Instant::now() + 3 * IO_TIMEOUT;
        while !running.log().contains("cannot be fetched") {
            assert!(Instant::now() < end, "{ca}: {}", running.log());
            thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(ask(&running, "/", &key.bearer()).status, 503, "{ca}");
    }
}

#[test]
fn hostile_documents_change_nothing() {
    let key = Key::new("one");
    let good = set_of(&[&key]);
    let secret = encode("a secret of exactly 32 bytes ...");
    let large = format!(
        "{{\"x\":\"{}\",\"keys\":[{}]}}",
        "x".repeat(1 << 20),
        key.public()
    );
    let twice = format!("{{\"keys\":[{0},{0}]}}", key.public());
    let private = key.public().replace("\"kty\"", "\"d\":\"AAAA\",\"kty\"");
    let hostile = [
        format!(
            "HTTP/1.1 302 Found\r\nLocation: /other\r\nContent-Length: {}\r\n\r\n{{}}",
            2
        ),
        good.replace("200 OK", "203 Other"),
        good.replace(
            "\r\nContent-Length",
            "\r\nContent-Encoding: gzip\r\nContent-Length",
        ),
        ok(&large),
        ok(&twice),
        ok(&format!("{{\"keys\":[{private}]}}")),
        ok(&format!(
            r#"{{"keys":[{{"kty":"oct","kid":"one","k":"{secret}"}}]}}"#
        )),
        ok("{\"keys\":[]}"),
        ok("[]"),
        ok(""),
        ok("<html></html>"),
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"keys\":[".to_owned(),
        "nothing of HTTP\r\n\r\n".to_owned(),
    ];
    // Each at once: pauses between fetches are long.
    thread::scope(|scope| {
        for document in &hostile {
            let (key, good) = (&key, &good);
            scope.spawn(move || {
                let folder = Folder::new();
                let issuer = Issuer::start(document);
                let running = issuer.start_gateway(&folder);
                // A document that stops in its middle is given up after 10 s.
                let end = Instant::now() + 3 * IO_TIMEOUT;
                while !running.log().contains("cannot be fetched") {
                    assert!(Instant::now() < end, "{document:.80}: {}", running.log());
                    thread::sleep(Duration::from_millis(20));
                }
                assert_eq!(
                    ask(&running, "/", &key.bearer()).status,
                    503,
                    "{document:.80}"
                );
                issuer.respond(good);
                wait_for(&running, &key.bearer(), 200);
            });
        }
    });
}
