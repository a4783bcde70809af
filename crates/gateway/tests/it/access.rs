//! Nobody leaves the `allow`, `deny` and `jwt` of a path by another spelling of host, method or path, by another version of HTTP,
//! or because they stand in a preset, in a block `when` or in an included file.

use std::env;
use std::sync::Arc;

use blitz_config::{Document, Environment, read};
use blitz_gateway::{Gateway, LoadedFile, NetworkSet, Options, ReadFile, compile, read_networks};
use blitz_http::{BodyLength, RequestHead, Status, TlsSlot};
use blitz_testing::h3::headers;
use blitz_testing::{Client, Upstream};

use crate::h2_client;
use crate::h3_support::{QuicServer, block_on};
use crate::site_rules::gateway;
use crate::support::{self, Proxy, eventually, numbers};

/// Requests of each version and driver; `.ci/run --full` sends more.
const REQUESTS: usize = 1_000;

const HOSTS: [&str; 5] = [
    "localhost",
    "LOCALHOST",
    "localHost.",
    "localhost:443",
    "localhost.:8080",
];

const METHODS: [&str; 4] = ["GET", "POST", "post", "gEt"];

const SIDES: [&str; 3] = ["left", "right", ""];

const SEGMENTS: [&str; 22] = [
    "admin",
    "adm%69n",
    "%61dmin",
    "ADMIN",
    "form",
    "f%6Frm",
    "when",
    "wh%65n",
    "a",
    "%61",
    "",
    "",
    ".",
    "..",
    "%2e",
    "%2E%2e",
    "a%2Fadmin",
    "%5c",
    ";x",
    "admin;v=1",
    "..;",
    "form;a/b",
];

/// A request with a spelling of its own.
struct Spelling {
    method: &'static str,
    host: &'static str,
    side: &'static str,
    target: String,
    /// A line of HTTP/1.1 names the host in the target.
    is_absolute: bool,
}

/// Spellings that follow from a seed.
fn spellings(seed: u64) -> impl Iterator<Item = Spelling> {
    let mut random = numbers(seed);
    std::iter::from_fn(move || {
        let segments = (0..=random(4)).map(|_| SEGMENTS[random(SEGMENTS.len())]);
        let mut target: String = segments.flat_map(|segment| ["/", segment]).collect();
        if random(5) == 0 {
            target += ["?q=/../x", "?/admin;", "?"][random(3)];
        }
        Some(Spelling {
            method: METHODS[random(METHODS.len())],
            host: HOSTS[random(HOSTS.len())],
            side: SIDES[random(SIDES.len())],
            target,
            is_absolute: random(4) == 0,
        })
    })
}

impl Spelling {
    /// Whether a server may read this target as one that clients of this machine may not request: path parameters are
    /// dropped, escapes decoded, backslashes and several slashes are one slash, dot segments removed, methods have any case.
    fn is_protected(&self, target: &str) -> bool {
        let path = target.split('?').next().unwrap_or_default();
        let without_parameters: Vec<_> = path
            .split('/')
            .map(|segment| segment.split(';').next().unwrap_or_default())
            .collect();
        let mut decoded = without_parameters.join("/").to_lowercase();
        for (escape, plain) in [
            ("%2f", "/"),
            ("%5c", "/"),
            ("%2e", "."),
            ("%61", "a"),
            ("%65", "e"),
            ("%69", "i"),
            ("%6f", "o"),
        ] {
            decoded = decoded.replace(escape, plain);
        }
        // Paths differ by case, but for the escapes above.
        let is_upper = path.contains("ADMIN");
        let mut segments: Vec<&str> = Vec::new();
        for segment in decoded.split('/') {
            match segment {
                "" | "." => {}
                ".." => drop(segments.pop()),
                other => segments.push(other),
            }
        }
        let is_post = self.method.eq_ignore_ascii_case("POST");
        match segments.as_slice() {
            ["admin", ..] | ["a", "admin", ..] => !is_upper,
            ["form", ..] => is_post,
            ["when", ..] => self.side == "right",
            _ => false,
        }
    }

    /// The lines of HTTP/1.1 and HTTP/1.0.
    fn lines(&self, minor: usize) -> String {
        let Spelling {
            method,
            host,
            side,
            target,
            is_absolute,
        } = self;
        let (target, host) = match is_absolute {
            true => (format!("http://{host}{target}"), "other.example"),
            false => (target.clone(), *host),
        };
        format!(
            "{method} {target} HTTP/1.{minor}\r\nHost: {host}\r\nX-Side: {side}\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n"
        )
    }
}

/// Rules that refuse all clients of this machine, in the preset, of `/a/admin`, of `POST /form`, and in the block.
type Access = [&'static str; 4];

const NETWORKS: Access = [
    "allow = [\"10.0.0.0/8\"]",
    "deny = [\"127.0.0.0/8\"]",
    "deny = [\"127.0.0.0/8\"]",
    "deny = [\"127.0.0.1\"]",
];

/// The same networks, in files.
const NETWORK_FILES: Access = [
    "allow = { file = \"ten.txt\" }",
    "deny = { file = [\"ten.txt\", \"local.txt\"] }",
    "deny = { file = \"local.txt\", networks = [\"unix\"] }",
    "deny = { file = \"local.txt\" }",
];

/// Files of networks.
struct Files;

impl ReadFile for Files {
    fn read(&mut self, _: &str) -> Result<LoadedFile, (String, String)> {
        Err((String::new(), String::new()))
    }

    fn networks(&mut self, file: &str) -> Result<Arc<NetworkSet>, (String, String)> {
        let text = match file {
            "ten.txt" => "# inside\n10.0.0.0/8\n",
            _ => "127.0.0.0/8\n::1\n",
        };
        Ok(Arc::new(read_networks(text.as_bytes()).unwrap()))
    }
}

/// The clients have no token.
const TOKENS: Access = [
    "jwt = { secret = \"a secret of exactly 32 bytes ...\" }",
    "jwt = { secret = \"a secret of exactly 32 bytes ...\", audience = \"a\" }",
    "jwt = { secret = \"a secret of exactly 32 bytes ...\" }",
    "jwt = { secret = \"a secret of exactly 32 bytes ...\", issuer = \"i\" }",
];

/// The site is in an included file, and some of its rules are in a preset of the main file.
fn site(gateway: Gateway, upstream: &Upstream, access: Access) -> Proxy {
    let [preset, admin, form, when] = access;
    let main = &format!("include = [\"team.toml\"]\npreset.inside.{preset}\n");
    let team = format!(
        r#"
            [site."localhost"]
            to = "{}"
            "/admin".use = "inside"
            "/a/admin".{admin}
            "POST /form".{form}
            [[site."localhost"."/when".when]]
            header.X-Side = "right"
            {when}
        "#,
        upstream.url()
    );
    let mut document = Document::new("blitz.toml", main);
    document.include("team.toml", "", &team);
    let (configuration, mut diagnostics) = read(&document, &Environment::default());
    let sites = compile(&configuration, &mut Files, &mut diagnostics);
    assert_eq!(diagnostics, []);
    Proxy::start(sites.into_iter().fold(gateway, Gateway::site), &[])
}

/// An upstream that responds with the target that it gets.
fn reached() -> Upstream {
    Upstream::start(|request| {
        let target = request.line.split(' ').nth(1).unwrap_or_default();
        let length = target.len();
        format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{target}").into_bytes()
    })
}

/// Counts outcomes, none of which may be a protected target at the upstream.
#[derive(Default)]
struct Outcomes {
    refused: usize,
    reached: usize,
}

impl Outcomes {
    fn add(&mut self, spelling: &Spelling, status: u16, content: &[u8]) {
        let Spelling {
            method,
            host,
            side,
            target,
            ..
        } = spelling;
        if status != 200 {
            self.refused += usize::from(spelling.is_protected(target));
            return;
        }
        self.reached += 1;
        // Dot segments are gone, for example.
        let received = String::from_utf8_lossy(content);
        let context = || format!("{method} {host} {target} with side {side}: {received}");
        assert!(!spelling.is_protected(&received), "{}", context());
    }
}

impl Drop for Outcomes {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert!(
                self.refused > requests() / 20,
                "{} were refused",
                self.refused
            );
            assert!(
                self.reached > requests() / 20,
                "{} were served",
                self.reached
            );
        }
    }
}

fn requests() -> usize {
    let chosen = env::var("BLITZ_EXPLAINED_REQUESTS").ok();
    chosen.map_or(REQUESTS, |number| {
        number.parse::<usize>().expect("a number") / 4
    })
}

scenarios! {
    fn networks_of_files_are_those_of_clients_behind_trusted_proxies(io) {
        let upstream = reached();
        let options = Options {
            trusted_proxies: ["127.0.0.1".parse().unwrap()].into_iter().collect(),
            ..Options::default()
        };
        let access = ["allow = { file = \"ten.txt\" }"; 4];
        let proxy = site(Proxy::gateway(io).options(options), &upstream, access);
        let mut client = proxy.client();
        for (told, status) in [
            ("X-Forwarded-For: 10.1.2.3", 200),
            ("Forwarded: for=10.1.2.3", 200),
            ("X-Forwarded-For: 192.0.2.1", 403),
            ("X-Forwarded-For: 10.1.2.3, 192.0.2.1", 403),
            ("X-Forwarded-For: unreadable", 403),
            ("X-None: 1", 403),
        ] {
            client.send(format!("GET /admin HTTP/1.1\r\nHost: localhost\r\n{told}\r\n\r\n"));
            assert_eq!(client.response().status, status, "{told}");
        }
    }

    fn access_rules_hold_over_http1(io) {
        let upstream = reached();
        for (minor, access) in [(0, NETWORKS), (1, NETWORKS), (1, NETWORK_FILES), (1, TOKENS)] {
            let proxy = site(Proxy::gateway(io), &upstream, access);
            let mut outcomes = Outcomes::default();
            let mut client = proxy.client();
            for spelling in spellings(0x9e37_79b9 + minor as u64).take(requests()) {
                client.send(spelling.lines(minor));
                let response = client.response();
                outcomes.add(&spelling, response.status, &response.body);
                if response.status != 200 {
                    client = Client::connect(proxy.address);
                }
            }
        }
    }

    fn a_client_that_resets_at_once_is_not_taken_for_another_one(io) {
        let upstream = support::Upstream::with_text("reached");
        let text = format!(
            "[site.\"*\"]\nto = \"{}\"\n\"/closed\" = {{ deny = [\"127.0.0.0/8\"] }}\n\
             \"/socket\" = {{ allow = [\"unix\"] }}\n",
            upstream.url()
        );
        let proxy = gateway(io, &text);
        // A connection to the upstream is there, so that nothing delays what follows.
        let mut client = proxy.client();
        client.send("GET /open HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response().status, 200);
        for number in 0..300 {
            let path = ["/closed", "/socket", "/open"][number % 3];
            let mut peer = proxy.peer();
            peer.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"));
            peer.reset();
        }
        eventually("all are closed", || proxy.http_counters().connections == 1);
        let heads = upstream.heads();
        let is_open = |line: &str| line.contains(" /open ");
        assert!(heads.iter().all(|head| is_open(&head.line)), "{:?}", heads.last());
    }

    fn access_rules_hold_over_http2(io) {
        for access in [NETWORKS, NETWORK_FILES, TOKENS] {
            let upstream = reached();
            let proxy = site(Proxy::gateway(io), &upstream, access);
            let mut outcomes = Outcomes::default();
            let mut client = h2_client::Client::connect(proxy.address);
            for spelling in spellings(0x2545_f491).take(requests()) {
                let Ok(mut head) = RequestHead::parse(spelling.method, &spelling.target) else {
                    continue;
                };
                head.set_authority(spelling.host);
                head.fields.append("x-side", spelling.side);
                let stream = client.send_head(&head, BodyLength::Empty);
                let answer = client.answer(stream);
                let status = answer.status.map_or(0, Status::code);
                outcomes.add(&spelling, status, &answer.content);
            }
        }
    }

    fn access_rules_hold_over_http3(io) {
        for access in [NETWORKS, NETWORK_FILES, TOKENS] {
            let upstream = reached();
            let server = QuicServer::with(|tls: TlsSlot| site(Proxy::gateway_over_tls(io, tls), &upstream, access));
            let mut outcomes = Outcomes::default();
            block_on(async {
                let client = server.raw_client().await;
                for spelling in spellings(0x1234_5678).take(requests()) {
                    let head = headers(&[
                        (":method", spelling.method),
                        (":scheme", "https"),
                        (":authority", spelling.host),
                        (":path", &spelling.target),
                        ("x-side", spelling.side),
                    ]);
                    let response = client.ask(head).await;
                    let status = response.heads.first().copied().flatten();
                    outcomes.add(&spelling, status.unwrap_or_default(), &response.content);
                }
            });
        }
    }
}
