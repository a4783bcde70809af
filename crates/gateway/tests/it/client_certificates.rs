//! Certificates of the clients of a site: who gets in over which version, and on which connection.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use blitz_config::{Document, Environment, read};
use blitz_gateway::{Gateway, LoadedFile, Rejection, Site, compile, tls_policies};
use blitz_http::{
    ClientCertificate, IoChoice, Method, RequestHead, ServerTls, TicketKeys, TlsSlot,
};
use blitz_site::{ClientAddress, Notes, Policies, Policy, PolicyRequest, Prover};
use blitz_testing::h2::{self, flag, kind};
use blitz_testing::h3::headers;
use blitz_testing::quic::{Quic, RawClient, soon};
use blitz_testing::read_head;
use rustls::HandshakeKind;
use rustls::client::{
    ClientSessionMemoryCache, ClientSessionStore, Resumption, Tls12ClientSessionValue,
    Tls13ClientSessionValue,
};
use rustls::pki_types::ServerName;
use rustls::{NamedGroup, SupportedProtocolVersion};

use crate::basic_auth::basic;
use crate::h2::result_of;
use crate::h3_support::block_on;
use crate::site_rules::test_file;
use crate::support::{Proxy, Upstream, ok};
use crate::tls_support::{Authority, Outside, Pair, Stream};

const HOSTS: [&str; 6] = [
    "open.example",
    "a.example",
    "b.example",
    "maybe.example",
    "any.example",
    "new.example",
];

/// The authorities of servers and clients.
struct World {
    servers: Authority,
    one: Authority,
    two: Authority,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Version {
    Http1,
    Http2,
    Http3,
}

const VERSIONS: [Version; 3] = [Version::Http1, Version::Http2, Version::Http3];

impl World {
    fn new() -> World {
        World {
            servers: Authority::new(),
            one: Authority::new(),
            two: Authority::new(),
        }
    }

    fn sites(&self, url: &str, authority_of_a: &str) -> Vec<Site> {
        let text = format!(
            r#"
            defaults.tls = true
            [site."open.example"]
            to = "{url}"
            request_trailers = true
            [site."a.example"]
            to = "{url}"
            tls = {{ client_ca = "{authority_of_a}", client_cert_header = true }}
            request_trailers = true
            request_headers.X-User = "{{client_cert.subject}}"
            request_headers.X-Print = "sha256:{{client_cert.fingerprint}}"
            [site."b.example"]
            to = "{url}"
            tls = {{ client_ca = "two.pem" }}
            [site."maybe.example"]
            to = "{url}"
            tls = {{ client_ca = "one.pem", client_auth = "optional", client_cert_header = true }}
            request_trailers = true
            request_headers.X-User = "{{client_cert.subject}}"
            "/open".client_cert = false
            [site."any.example"]
            to = "{url}"
            tls = {{ client_ca = "one.pem", client_auth = "optional" }}
            satisfy = "any"
            basic_auth = "users.htpasswd"
            request_trailers = true
            request_headers.X-User = "{{client_cert.subject}}"
            [site."new.example"]
            to = "{url}"
            tls.min = "1.3"
            "#
        );
        let mut files = |name: &str| {
            let content = match name {
                "one.pem" => &self.one.pem,
                "two.pem" => &self.two.pem,
                _ => return test_file(name),
            };
            Ok(LoadedFile::new(name.as_ref(), content.as_bytes()))
        };
        let document = Document::new("blitz.toml", text);
        let (configuration, mut diagnostics) = read(&document, &Environment::default());
        let sites = compile(&configuration, &mut files, &mut diagnostics);
        assert_eq!(diagnostics, []);
        sites
    }

    fn tls(&self, sites: &[Site], keys: &TicketKeys) -> ServerTls {
        let builder = ServerTls::builder()
            .certificate(self.servers.pair(&HOSTS).load())
            .ticket_keys(keys);
        let policies = tls_policies(sites).into_iter();
        let builder = policies.fold(builder, |builder, (names, policy)| {
            builder.policy(names, policy)
        });
        builder.build().unwrap()
    }

    fn start(&self, io: IoChoice, url: &str) -> (Proxy, TlsSlot) {
        self.start_with(io, url, &TicketKeys::new().unwrap())
    }

    fn start_with(&self, io: IoChoice, url: &str, keys: &TicketKeys) -> (Proxy, TlsSlot) {
        let sites = self.sites(url, "one.pem");
        let slot = TlsSlot::new(self.tls(&sites, keys));
        let gateway = Proxy::gateway_over_tls(io, slot.clone());
        let proxy = Proxy::start(sites.into_iter().fold(gateway, Gateway::site), &[]);
        (proxy, slot)
    }

    fn client(&self, own: Option<&Pair>) -> Outside {
        self.servers.client_of(rustls::DEFAULT_VERSIONS, own)
    }

    fn alice(&self) -> Pair {
        named(&self.one, "alice")
    }
}

/// A certificate of a client with this common name.
fn named(authority: &Authority, name: &str) -> Pair {
    authority.pair_with(&[], |params| {
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
    })
}

/// A request on a connection.
struct Asked<'a> {
    host: &'a str,
    path: &'a str,
    authorization: &'a str,
}

fn to<'a>(host: &'a str, path: &'a str) -> Asked<'a> {
    Asked {
        host,
        path,
        authorization: "",
    }
}

/// The statuses of requests on a connection whose handshake names this server; `None` if it fails.
fn ask(
    client: &Outside,
    version: Version,
    address: SocketAddr,
    name: &str,
    requests: &[Asked<'_>],
) -> Option<Vec<u16>> {
    let mut client = client.clone();
    match version {
        Version::Http1 => ask_http1(&client, address, name, requests),
        Version::Http2 => {
            client.change(|config| config.alpn_protocols = vec![b"h2".to_vec()]);
            ask_http2(&client, address, name, requests)
        }
        Version::Http3 => {
            client.change(|config| config.alpn_protocols = vec![b"h3".to_vec()]);
            block_on(ask_http3(&client, address, name, requests))
        }
    }
}

fn ask_http1(
    client: &Outside,
    address: SocketAddr,
    name: &str,
    requests: &[Asked<'_>],
) -> Option<Vec<u16>> {
    let mut stream = client.connect_as(address, name);
    let statuses = requests
        .iter()
        .map(|asked| ask_on_http1(&mut stream, asked));
    statuses.collect()
}

/// The status of a request on a connection. With TLS 1.3 the client learns behind its own handshake that the server
/// refuses it.
fn ask_on_http1(stream: &mut Stream, asked: &Asked<'_>) -> Option<u16> {
    let authorization = match asked.authorization {
        "" => String::new(),
        value => format!("Authorization: {value}\r\n"),
    };
    let (host, path) = (asked.host, asked.path);
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{authorization}\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    http1_status(stream)
}

fn http1_status(stream: &mut Stream) -> Option<u16> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        match std::io::Read::read(stream, &mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return None,
        }
    }
    let head = String::from_utf8(head).unwrap();
    let field = |line: &str| {
        line.to_ascii_lowercase()
            .strip_prefix("content-length: ")?
            .parse()
            .ok()
    };
    let length: usize = head.lines().find_map(field).unwrap_or_default();
    std::io::Read::read_exact(stream, &mut vec![0; length]).unwrap();
    Some(head[9..12].parse().unwrap())
}

fn ask_http2(
    client: &Outside,
    address: SocketAddr,
    name: &str,
    requests: &[Asked<'_>],
) -> Option<Vec<u16>> {
    let mut stream = client.connect_as(address, name);
    begin_http2(&mut stream)?;
    let numbers = (1..).step_by(2);
    let requests = requests.iter().zip(numbers);
    let statuses = requests.map(|(asked, number)| ask_on_http2(&mut stream, number, asked));
    statuses.collect()
}

fn begin_http2(stream: &mut Stream) -> Option<()> {
    const HEADER_TABLE_SIZE: u16 = 1;
    let start = [h2::PREFACE, &h2::settings(&[(HEADER_TABLE_SIZE, 0)])].concat();
    stream.write_all(&start).ok()
}

/// The status of a request on a connection.
fn ask_on_http2(stream: &mut Stream, number: u32, asked: &Asked<'_>) -> Option<u16> {
    let mut fields = vec![
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", asked.host),
        (":path", asked.path),
    ];
    if !asked.authorization.is_empty() {
        fields.push(("authorization", asked.authorization));
    }
    let flags = flag::END_HEADERS | flag::END_STREAM;
    let frame = h2::frame(kind::HEADERS, flags, number, h2::literals(fields));
    stream.write_all(&frame).ok()?;
    http2_status(stream)
}

fn http2_status(stream: &mut Stream) -> Option<u16> {
    loop {
        let frame = h2::read_frame(stream).ok()?;
        match frame.kind {
            kind::SETTINGS if frame.payload.is_empty() => {}
            kind::SETTINGS => {
                let ack = h2::frame(kind::SETTINGS, 1, 0, []);
                stream.write_all(&ack).ok()?;
            }
            kind::HEADERS => return Some(h2_status(&frame.payload)),
            kind::GOAWAY | kind::RST_STREAM => return None,
            _ => {}
        }
    }
}

/// The status at the beginning of a field block without a dynamic table (RFC 7541).
fn h2_status(mut block: &[u8]) -> u16 {
    while block[0] & 0xe0 == 0x20 {
        block = &block[1..];
    }
    match block {
        [index @ 0x88..=0x8e, ..] => [200, 204, 206, 304, 400, 404, 500][usize::from(index - 0x88)],
        [_, length, value @ ..] => {
            let value = &value[..usize::from(length & 0x7f)];
            match length & 0x80 {
                0 => std::str::from_utf8(value).unwrap().parse().unwrap(),
                _ => huffman_digits(value),
            }
        }
        _ => panic!("no status: {block:?}"),
    }
}

/// Three digits in Huffman code (RFC 7541, appendix B): 0 to 2 have 5 bits, the others 6.
fn huffman_digits(value: &[u8]) -> u16 {
    let mut bits = value
        .iter()
        .fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
    let mut left = 8 * value.len();
    let mut status = 0;
    for _ in 0..3 {
        let five = (bits >> (left - 5)) & 0x1f;
        let (digit, used) = match five {
            0..=2 => (five, 5),
            _ => (((bits >> (left - 6)) & 0x3f) - 0x19 + 3, 6),
        };
        status = status * 10 + digit as u16;
        left -= used;
        bits &= (1 << left) - 1;
    }
    status
}

async fn ask_http3(
    client: &Outside,
    address: SocketAddr,
    name: &str,
    requests: &[Asked<'_>],
) -> Option<Vec<u16>> {
    let quic = Quic::connect(&client.config, Default::default(), address, name);
    let quic = quic.await.ok()?;
    // The server refuses a client behind the handshake of the client; otherwise it opens its streams.
    // A stream of the server must not be stopped.
    let _opened = tokio::select! {
        _ = quic.connection.closed() => return None,
        opened = soon(quic.connection.accept_uni()) => opened.ok()?,
    };
    let client = RawClient::begin(quic).await;
    let mut statuses = Vec::new();
    for asked in requests {
        let mut fields = vec![
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", asked.host),
            (":path", asked.path),
        ];
        if !asked.authorization.is_empty() {
            fields.push(("authorization", asked.authorization));
        }
        let response = client.ask(headers(&fields)).await;
        statuses.push(response.heads.first().copied().flatten()?);
    }
    Some(statuses)
}

/// Takes the sessions of all servers for those of one.
#[derive(Debug)]
struct OneServer(ClientSessionMemoryCache);

fn one_name() -> ServerName<'static> {
    ServerName::try_from("one.example").unwrap()
}

impl ClientSessionStore for OneServer {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        self.0.set_kx_hint(one_name(), group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.0.kx_hint(&one_name())
    }

    fn set_tls12_session(&self, _: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.0.set_tls12_session(one_name(), value);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.0.tls12_session(&one_name())
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        self.0.remove_tls12_session(&one_name());
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.0.insert_tls13_ticket(one_name(), value);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.0.take_tls13_ticket(&one_name())
    }
}

/// Connections on which the certificate of a client has identified it.
struct Opened {
    expiry: SystemTime,
    client: Outside,
    http1: Stream,
    http2: Stream,
}

impl Opened {
    /// `None` if the certificate has expired before that.
    fn new(world: &World, upstream: &Upstream, address: SocketAddr, life: u64) -> Option<Opened> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let expiry = Duration::from_secs(now.unwrap().as_secs() + life);
        let pair = world.one.pair_with(&[], |params| {
            let name = &mut params.distinguished_name;
            name.push(rcgen::DnType::CommonName, "alice");
            params.not_after = rcgen::date_time_ymd(1970, 1, 1) + expiry;
        });
        let client = world.client(Some(&pair));
        let mut over_http2 = client.clone();
        over_http2.change(|config| config.alpn_protocols = vec![b"h2".to_vec()]);
        let mut http1 = client.connect_as(address, "maybe.example");
        let mut http2 = over_http2.connect_as(address, "maybe.example");
        begin_http2(&mut http2)?;
        let open = to("maybe.example", "/open");
        let is_alice = || {
            let head = upstream.heads().pop().unwrap();
            head.field("x-user") == Some("alice") && head.field("client-cert").is_some()
        };
        let is_known = ask_on_http1(&mut http1, &open)? == 200 && is_alice();
        let is_known = is_known && ask_on_http2(&mut http2, 1, &open)? == 200 && is_alice();
        is_known.then_some(Opened {
            expiry: SystemTime::UNIX_EPOCH + expiry,
            client,
            http1,
            http2,
        })
    }
}

scenarios! {
    fn the_site_decides_which_certificates_let_in(io) {
        let world = World::new();
        let upstream = Upstream::with_text("in");
        let (proxy, _) = world.start(io, &upstream.url());
        let expired = world.one.pair_with(&["old"], |params| {
            params.not_before = rcgen::date_time_ymd(2019, 1, 1);
            params.not_after = rcgen::date_time_ymd(2020, 1, 1);
        });
        let none = world.client(None);
        let alice = world.client(Some(&world.alice()));
        let bob = world.client(Some(&named(&world.two, "bob")));
        let expired = world.client(Some(&expired));
        let anna = basic("anna:secrets");
        let anna = anna.trim_end().strip_prefix("Authorization: ").unwrap();
        let wrong = basic("anna:wrong");
        let wrong = wrong.trim_end().strip_prefix("Authorization: ").unwrap();
        for version in VERSIONS {
            for (client, who, host, path, authorization, expected) in [
                (&none, "none", "open.example", "/", "", Some(200)),
                (&alice, "alice", "open.example", "/", "", Some(200)),
                (&alice, "alice", "a.example", "/", "", Some(200)),
                (&none, "none", "a.example", "/", "", None),
                (&bob, "bob", "a.example", "/", "", None),
                (&expired, "expired", "a.example", "/", "", None),
                (&bob, "bob", "b.example", "/", "", Some(200)),
                (&alice, "alice", "b.example", "/", "", None),
                (&alice, "alice", "maybe.example", "/", "", Some(200)),
                (&none, "none", "maybe.example", "/", "", Some(403)),
                (&none, "none", "maybe.example", "/open", "", Some(200)),
                (&bob, "bob", "maybe.example", "/open", "", None),
                (&expired, "expired", "maybe.example", "/open", "", None),
                (&alice, "alice", "any.example", "/", "", Some(200)),
                (&none, "none", "any.example", "/", "", Some(401)),
                (&none, "none", "any.example", "/", anna, Some(200)),
                (&none, "none", "any.example", "/", wrong, Some(401)),
                (&alice, "alice", "any.example", "/", wrong, Some(401)),
                (&none, "none", "new.example", "/", "", Some(200)),
            ] {
                let asked = Asked { host, path, authorization };
                let status = ask(client, version, proxy.address, host, &[asked]);
                let expected = expected.map(|status| vec![status]);
                assert_eq!(status, expected, "{version:?} {who} {host}{path} {authorization}");
            }
        }
        let counters = proxy.counters();
        assert_eq!(counters.rejected(Rejection::NoClientCertificate), 3);
        assert_eq!(counters.rejected(Rejection::NoProof), 3);
        assert_eq!(counters.rejected(Rejection::TlsPolicy), 0);
    }

    fn a_connection_is_for_the_hosts_of_its_policy(io) {
        let world = World::new();
        let upstream = Upstream::with_text("in");
        let (proxy, _) = world.start(io, &upstream.url());
        let none = world.client(None);
        let alice = world.client(Some(&world.alice()));
        let bob = world.client(Some(&named(&world.two, "bob")));
        let mut nameless = world.client(Some(&world.alice()));
        nameless.change(|config| config.enable_sni = false);
        let expected = |statuses: [u16; 6]| Some(statuses.to_vec());
        // The order is that of the hosts.
        let cases = [
            (&none, "open.example", [200, 421, 421, 421, 421, 421]),
            (&alice, "open.example", [200, 421, 421, 421, 421, 421]),
            (&alice, "a.example", [421, 200, 421, 421, 421, 421]),
            (&bob, "b.example", [421, 421, 200, 421, 421, 421]),
            (&none, "maybe.example", [421, 421, 421, 403, 401, 421]),
            // The same authorities and the same mode: the handshakes do not differ.
            (&alice, "maybe.example", [421, 421, 421, 200, 200, 421]),
            (&none, "new.example", [421, 421, 421, 421, 421, 200]),
            (&nameless, "a.example", [200, 421, 421, 421, 421, 421]),
        ];
        let mut misdirected = 0;
        for version in VERSIONS {
            for (client, name, statuses) in &cases {
                let requests = HOSTS.map(|host| to(host, "/"));
                let answered = ask(client, version, proxy.address, name, &requests);
                assert_eq!(answered, expected(*statuses), "{version:?} {name}");
                misdirected += statuses.iter().filter(|status| **status == 421).count();
            }
        }
        // With a port, and in other spellings.
        for host in ["a.example:8443", "A.EXAMPLE", "a.example.", "a.example.:443"] {
            let answered = ask(&none, Version::Http1, proxy.address, "open.example", &[to(host, "/")]);
            assert_eq!(answered, Some(vec![421]), "{host}");
            let answered = ask(&alice, Version::Http1, proxy.address, "a.example", &[to(host, "/")]);
            assert_eq!(answered, Some(vec![200]), "{host}");
            misdirected += 1;
        }
        assert_eq!(proxy.counters().rejected(Rejection::TlsPolicy), misdirected as u64);
    }

    fn the_identity_is_that_of_the_certificate(io) {
        let world = World::new();
        let upstream = Upstream::with_text("in");
        let (proxy, _) = world.start(io, &upstream.url());
        let pair = world.alice();
        let print = ClientCertificate::from_der(vec![pair.chain()[0].to_vec()]).unwrap();
        let alice = world.client(Some(&pair));
        let spoofed = "X-User: root\r\nX_User: root\r\nx.user: root\r\nX_Print: root\r\nClient-Cert: :AAAA:\r\n\
                       client_cert: :AAAA:\r\nCLIENT-CERT: :AAAA:\r\nClient.Cert: :AAAA:\r\n\
                       Client-Cert-Chain: :AAAA:\r\n";
        let trailers = "Transfer-Encoding: chunked\r\nTrailer: X-User\r\n\r\n1\r\nx\r\n0\r\n\
                        X-User: root\r\nX_User: root\r\nClient-Cert: :AAAA:\r\n\r\n";
        let mut stream = alice.connect_as(proxy.address, "a.example");
        let request = format!("POST / HTTP/1.1\r\nHost: a.example\r\n{spoofed}{trailers}");
        stream.write_all(request.as_bytes()).unwrap();
        assert_eq!(&read_head(&mut stream)[9..12], "200");
        let head = upstream.head();
        assert_eq!(head.field("x-user"), Some("alice"));
        assert_eq!(head.field("x-print"), Some(&*format!("sha256:{}", print.fingerprint())));
        assert_eq!(print.fingerprint().len(), 64);
        assert_eq!(head.field("client-cert"), Some(&*print.field_value()));
        assert_eq!(head.field("trailer"), None);
        for (name, value) in &head.fields {
            assert!(value != "root" && value != ":AAAA:", "{name}: {value}");
        }
        // Without a certificate there is no identity, whatever the client says.
        let mut stream = world.client(None).connect_as(proxy.address, "maybe.example");
        let request = format!("GET /open HTTP/1.1\r\nHost: maybe.example\r\n{spoofed}\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        assert_eq!(&read_head(&mut stream)[9..12], "200");
        let head = upstream.heads().pop().unwrap();
        for (name, value) in &head.fields {
            assert!(!name.contains("user") && !name.contains("client"), "{name}: {value}");
        }
    }

    fn a_certificate_identifies_nobody_once_it_has_expired(io) {
        let world = World::new();
        let upstream = Upstream::with_text("in");
        let (proxy, _) = world.start(io, &upstream.url());
        // On a busy machine a short life may end before the first requests.
        let opened = [2, 10, 60].into_iter();
        let mut opened = opened.filter_map(|life| Opened::new(&world, &upstream, proxy.address, life));
        let Opened { expiry, client, mut http1, mut http2 } = opened.next().unwrap();
        let after = expiry + Duration::from_secs(1);
        std::thread::sleep(after.duration_since(SystemTime::now()).unwrap_or_default());
        let is_nobody = || {
            let head = upstream.heads().pop().unwrap();
            let identity = ["x-user", "client-cert", "client-cert-chain"];
            identity.iter().all(|name| head.field(name).is_none())
        };
        let (open, closed) = (to("maybe.example", "/open"), to("maybe.example", "/"));
        assert_eq!(ask_on_http1(&mut http1, &open), Some(200));
        assert!(is_nobody(), "over HTTP/1.1");
        assert_eq!(ask_on_http2(&mut http2, 3, &open), Some(200));
        assert!(is_nobody(), "over HTTP/2");
        let mut resumed = client.connect_as(proxy.address, "maybe.example");
        assert_eq!(ask_on_http1(&mut resumed, &open), Some(200));
        assert_eq!(resumed.conn.handshake_kind(), Some(HandshakeKind::Resumed));
        assert!(is_nobody(), "in a resumed session");
        assert_eq!(ask_on_http1(&mut http1, &closed), Some(403));
        assert_eq!(ask_on_http2(&mut http2, 5, &closed), Some(403));
        assert_eq!(ask_on_http1(&mut resumed, &closed), Some(403));
        assert_eq!(proxy.counters().rejected(Rejection::ClientCertificateExpired), 3);
    }

    fn trailers_name_no_client_who_has_no_certificate(io) {
        let world = World::new();
        let (sender, messages) = std::sync::mpsc::channel();
        let upstream = Upstream::scripted(move |_, peer| {
            while peer.head().is_some() {
                // Chunks and trailers.
                let lines = std::iter::from_fn(|| peer.line().filter(|line| !line.is_empty()));
                let lines: Vec<_> = lines.map(|line| line.to_ascii_lowercase()).collect();
                sender.send(lines).unwrap();
                peer.send(ok("in"));
            }
        });
        let (proxy, _) = world.start(io, &upstream.url());
        let mut none = world.client(None);
        let anna = basic("anna:secrets");
        let anna = anna.trim_end().strip_prefix("Authorization: ").unwrap();
        for (host, trailers) in [
            ("open.example", &["x-user: root", "x_user: root"][..]),
            ("maybe.example", &[]),
            ("any.example", &[]),
        ] {
            let expected = [&["1", "x", "0"][..], trailers].concat();
            none.change(|config| config.alpn_protocols = Vec::new());
            let mut stream = none.connect_as(proxy.address, host);
            let request = format!(
                "POST /open HTTP/1.1\r\nHost: {host}\r\nAuthorization: {anna}\r\nTransfer-Encoding: chunked\r\n\r\n\
                 1\r\nx\r\n0\r\nX-User: root\r\nX_User: root\r\n\r\n"
            );
            stream.write_all(request.as_bytes()).unwrap();
            assert_eq!(http1_status(&mut stream), Some(200), "{host}");
            assert_eq!(result_of(&messages), expected, "{host} over HTTP/1.1");
            none.change(|config| config.alpn_protocols = vec![b"h2".to_vec()]);
            let mut stream = none.connect_as(proxy.address, host);
            begin_http2(&mut stream).unwrap();
            let head = [
                (":method", "POST"),
                (":scheme", "https"),
                (":authority", host),
                (":path", "/open"),
                ("authorization", anna),
            ];
            let trailers = [("x-user", "root"), ("x_user", "root")];
            let flags = flag::END_HEADERS | flag::END_STREAM;
            let frames = [
                h2::frame(kind::HEADERS, flag::END_HEADERS, 1, h2::literals(head)),
                h2::frame(kind::DATA, 0, 1, b"x"),
                h2::frame(kind::HEADERS, flags, 1, h2::literals(trailers)),
            ];
            stream.write_all(&frames.concat()).unwrap();
            assert_eq!(http2_status(&mut stream), Some(200), "{host}");
            assert_eq!(result_of(&messages), expected, "{host} over HTTP/2");
        }
    }

    fn a_session_is_resumed_under_its_own_policy_only(io) {
        let world = World::new();
        let upstream = Upstream::with_text("in");
        let keys = TicketKeys::new().unwrap();
        let (proxy, slot) = world.start_with(io, &upstream.url(), &keys);
        let (one, two) = (world.alice(), named(&world.two, "bob"));
        let versions: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS13, &rustls::version::TLS12];
        // The second site, its status, and the site that the session comes from.
        let cases: [(Option<&Pair>, &str, &str, Option<u16>); 6] = [
            (None, "open.example", "a.example", None),
            (None, "maybe.example", "a.example", None),
            (Some(&one), "a.example", "b.example", None),
            (Some(&two), "b.example", "maybe.example", None),
            (Some(&one), "a.example", "maybe.example", Some(200)),
            (None, "open.example", "maybe.example", Some(403)),
        ];
        for version in versions {
            for (own, first, second, expected) in cases {
                let mut client = world.servers.client_of(&[version], own);
                client.change(|config| {
                    let store = OneServer(ClientSessionMemoryCache::new(8));
                    config.resumption = Resumption::store(Arc::new(store));
                });
                let status = ask_http1(&client, proxy.address, first, &[to(first, "/open")]);
                assert_eq!(status, Some(vec![200]), "{first}");
                let status = ask_http1(&client, proxy.address, second, &[to(second, "/")]);
                assert_eq!(status, expected.map(|status| vec![status]), "{first} {second}");
            }
            assert_eq!(proxy.http_counters().tls.resumed, 0);
        }
        // The second connection to the same site resumes, with the identity of the first one.
        for version in versions {
            let client = world.servers.client_of(&[version], Some(&one));
            for kind in [HandshakeKind::Full, HandshakeKind::Resumed] {
                let mut stream = client.connect_as(proxy.address, "a.example");
                stream.write_all(b"GET /again HTTP/1.1\r\nHost: a.example\r\n\r\n").unwrap();
                assert_eq!(&read_head(&mut stream)[9..12], "200");
                assert_eq!(stream.conn.handshake_kind(), Some(kind));
                assert_eq!(upstream.heads().pop().unwrap().field("x-user"), Some("alice"));
            }
        }
        // A rotation of the keys ends no session.
        let client = world.client(Some(&one));
        for kind in [HandshakeKind::Full, HandshakeKind::Resumed] {
            let mut stream = client.connect_as(proxy.address, "a.example");
            stream.write_all(b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").unwrap();
            assert_eq!(&read_head(&mut stream)[9..12], "200");
            assert_eq!(stream.conn.handshake_kind(), Some(kind));
            slot.replace(slot.current().with_ticket_keys(&keys.rotated().unwrap()).unwrap());
        }
        // Over QUIC.
        let quic = |own: Option<&Pair>| {
            let mut client = world.servers.client_of(&[&rustls::version::TLS13], own);
            client.change(|config| {
                let store = OneServer(ClientSessionMemoryCache::new(8));
                config.resumption = Resumption::store(Arc::new(store));
                config.enable_early_data = true;
            });
            client
        };
        let before = proxy.http_counters().tls.resumed;
        for (own, first, second, expected) in cases {
            let client = quic(own);
            let status = ask(&client, Version::Http3, proxy.address, first, &[to(first, "/open")]);
            assert_eq!(status, Some(vec![200]), "{first}");
            let status = ask(&client, Version::Http3, proxy.address, second, &[to(second, "/")]);
            assert_eq!(status, expected.map(|status| vec![status]), "{first} {second}");
        }
        assert_eq!(proxy.http_counters().tls.resumed, before);
        let client = quic(Some(&one));
        for resumed in [0, 1] {
            let status = ask(&client, Version::Http3, proxy.address, "a.example", &[to("a.example", "/")]);
            assert_eq!(status, Some(vec![200]));
            assert_eq!(proxy.http_counters().tls.resumed, before + resumed);
        }
    }

    fn after_a_reload_with_other_authorities_earlier_connections_are_misdirected(io) {
        let world = World::new();
        let upstream = Upstream::with_text("in");
        let (mut proxy, slot) = world.start(io, &upstream.url());
        let alice = world.client(Some(&world.alice()));
        let mut stream = alice.connect_as(proxy.address, "a.example");
        let status = |stream: &mut Stream| {
            let answer = crate::tls_support::length;
            stream.write_all(b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").unwrap();
            let head = read_head(stream);
            let mut content = vec![0; answer(&head)];
            std::io::Read::read_exact(stream, &mut content).unwrap();
            head[9..12].to_owned()
        };
        assert_eq!(status(&mut stream), "200");
        let sites = world.sites(&upstream.url(), "two.pem");
        slot.replace(world.tls(&sites, &TicketKeys::new().unwrap()));
        proxy.keep_one_listener(sites);
        proxy.counters();
        assert_eq!(status(&mut stream), "421");
        assert_eq!(ask(&alice, Version::Http1, proxy.address, "a.example", &[to("a.example", "/")]), None);
        let bob = world.client(Some(&named(&world.two, "bob")));
        let answered = ask(&bob, Version::Http1, proxy.address, "a.example", &[to("a.example", "/")]);
        assert_eq!(answered, Some(vec![200]));
    }
}

#[test]
fn a_certificate_that_expires_on_its_connection_is_refused_from_then_on() {
    fn before() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_577_836_800)
    }
    fn after() -> SystemTime {
        before() + Duration::from_secs(1)
    }
    let authority = Authority::new();
    let pair = authority.pair_with(&["old"], |params| {
        params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    });
    let certificate = ClientCertificate::from_der(vec![pair.chain()[0].to_vec()]);
    let policies = Policies::new(vec![Policy::Proof(Prover::ClientCert)]);
    let head = RequestHead::new(Method::Get, "/");
    let decide = |certificate, clock| {
        let request = PolicyRequest {
            head: &head,
            client: ClientAddress::Unix,
            certificate,
            clock: Some(clock),
            limits: None,
            authorizer: None,
        };
        policies.decide(&request, &mut Notes::default())
    };
    assert_eq!(
        decide(certificate.as_ref(), before as fn() -> SystemTime),
        Ok(())
    );
    let expired = Err(Rejection::ClientCertificateExpired);
    assert_eq!(decide(certificate.as_ref(), after), expired);
    assert_eq!(decide(None, before), Err(Rejection::NoClientCertificate));
}

#[test]
fn digits_in_huffman_code_are_read() {
    // 421: 011010 00010 00001.
    assert_eq!(huffman_digits(&[0b0110_1000, 0b0100_0001]), 421);
}
