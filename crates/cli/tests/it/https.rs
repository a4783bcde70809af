use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use blitz_http::Certificate;
use blitz_testing::{Client, IO_TIMEOUT, Upstream};
use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned};

use crate::{blitz, stderr, stdout};

/// A temporary folder, removed when dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "blitz-https-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// Makes a pair with `blitz cert`; returns certificate and key.
    pub(crate) fn certificate(&self, name: &str) -> (String, String) {
        let output = blitz(&["cert", "--out", &self.file(""), name]);
        assert!(output.status.success(), "{}", stderr(&output));
        (
            self.file(&format!("{name}.pem")),
            self.file(&format!("{name}.key")),
        )
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Errors are ignored, so that they do not hide the failure of a test.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A running `blitz`, killed when dropped.
pub(crate) struct Running {
    child: Child,
    pub(crate) announced: String,
    /// Its standard error.
    log_file: PathBuf,
}

impl Running {
    pub(crate) fn start(folder: &Folder, flags: &[&str]) -> Running {
        Running::start_with(folder, &[&["--listen-tls", "127.0.0.1:0"], flags].concat())
    }

    /// Without flags of its own for listeners, of which one is for TLS.
    pub(crate) fn start_with(folder: &Folder, flags: &[&str]) -> Running {
        Running::announcing(folder, flags, "https://")
    }

    /// The last line of its start message is a command to try at a URL with this scheme.
    pub(crate) fn announcing(folder: &Folder, flags: &[&str], scheme: &str) -> Running {
        let log_file = folder.0.join("log");
        let lacks_control = flags.contains(&"--config") && !flags.contains(&"--control");
        let lacks_address = !flags.contains(&"--control-listen");
        let mut child = Command::new(env!("CARGO_BIN_EXE_blitz"))
            .args(["run", "--cores", "2"])
            .args(flags)
            // No test may take the socket or the port of the machine's own Blitz.
            .args(lacks_control.then_some("--control=off"))
            .args(lacks_address.then_some("--control-listen=off"))
            .env("XDG_STATE_HOME", &folder.0)
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&log_file).unwrap())
            .spawn()
            .expect("the binary starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut announced = String::new();
        // The command to try over TLS comes last.
        let is_last = |line: &str| line.trim().starts_with("try") && line.contains(scheme);
        while !announced.lines().any(is_last) {
            let read = stdout.read_line(&mut announced).expect("text");
            assert!(
                read > 0,
                "{announced}{}",
                fs::read_to_string(&log_file).unwrap()
            );
        }
        Running {
            child,
            announced,
            log_file,
        }
    }

    pub(crate) fn address(&self, scheme: &str) -> SocketAddr {
        let mut lines = self.announced.lines().map(str::trim);
        let url = lines.find_map(|line| {
            let url = line.strip_prefix("listening on")?.trim();
            url.strip_prefix(scheme)?.split(' ').next()
        });
        url.expect("the start message has the address")
            .parse()
            .unwrap()
    }

    /// The address of the control interface, if it has one.
    pub(crate) fn control_address(&self) -> Option<SocketAddr> {
        let mut lines = self.announced.lines();
        let url = lines.find_map(|line| line.trim().strip_prefix("control at"))?;
        let address = url.trim().strip_prefix("http://").expect("it is a URL");
        Some(address.parse().unwrap())
    }

    /// Sends a signal with the shell's `kill`.
    pub(crate) fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        let sent = Command::new("sh").args(["-c", &kill]).status();
        assert!(sent.expect("a shell").success());
    }

    /// The exit code, once it has ended.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        let deadline = Instant::now() + IO_TIMEOUT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(
                Instant::now() < deadline,
                "it has not ended: {}",
                self.log()
            );
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends HUP and waits for the expected log message.
    pub(crate) fn reload(&self, expected: &str) {
        let before = self.log().matches(expected).count();
        self.signal("HUP");
        let deadline = Instant::now() + IO_TIMEOUT;
        while self.log().matches(expected).count() == before {
            assert!(Instant::now() < deadline, "{}", self.log());
            thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn id(&self) -> String {
        self.child.id().to_string()
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log_file).unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) type Stream = StreamOwned<ClientConnection, TcpStream>;

pub(crate) fn config(authority: &Path, own: Option<&(String, String)>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(authority).unwrap())
        .unwrap();
    let builder = ClientConfig::builder().with_root_certificates(roots);
    let mut config = match own {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => builder
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_file(certificate).unwrap()],
                PrivateKeyDer::from_pem_file(key).unwrap(),
            )
            .unwrap(),
    };
    // The server sends no certificate when a session is resumed.
    config.resumption = Resumption::disabled();
    Arc::new(config)
}

pub(crate) fn connect(address: SocketAddr, name: &str, config: &Arc<ClientConfig>) -> Stream {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(IO_TIMEOUT)).unwrap();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    StreamOwned::new(
        ClientConnection::new(Arc::clone(config), name).unwrap(),
        socket,
    )
}

/// Sends a request and reads until the server closes.
pub(crate) fn get(stream: &mut Stream, host: &str, path: &str) -> std::io::Result<String> {
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    match stream.read_to_string(&mut answer) {
        Err(error) if error.kind() != ErrorKind::UnexpectedEof => Err(error),
        _ => Ok(answer),
    }
}

/// The certificate that the server sends on a new connection.
fn shown(address: SocketAddr, name: &str, config: &Arc<ClientConfig>) -> Vec<u8> {
    let mut stream = connect(address, name, config);
    let answer = get(&mut stream, name, "/ping").unwrap();
    assert!(answer.ends_with("pong"), "{answer}");
    stream.conn.peer_certificates().unwrap()[0].to_vec()
}

fn of_file(file: &str) -> Vec<u8> {
    CertificateDer::from_pem_file(file).unwrap().to_vec()
}

#[test]
fn a_development_certificate_is_made_and_stored() {
    let folder = Folder::new();
    let ask = || {
        let running = Running::start(&folder, &[]);
        let of_browsers = "over UDP; browsers use it with a public certificate only\n";
        assert!(
            running.announced.contains(of_browsers),
            "{}",
            running.announced
        );
        let authority = folder.0.join("blitz/ca.pem");
        let command = format!("curl --cacert {} https://localhost", authority.display());
        assert!(
            running.announced.contains(&command),
            "{}",
            running.announced
        );
        shown(
            running.address("https://"),
            "localhost",
            &config(&authority, None),
        )
    };
    assert_eq!(ask(), ask());
}

/// Clients must not be told of HTTP/3 where another program has the port.
#[test]
fn a_udp_port_in_use_is_a_warning() {
    let folder = Folder::new();
    let (other, port) = udp_port();
    let listener = format!("127.0.0.1:{port}");
    let running = Running::start(&folder, &["--listen-tls", &listener]);
    let log = running.log();
    assert!(
        log.contains(&format!("no HTTP/3 at UDP {listener}")),
        "{log}"
    );
    let remedy = format!("`ss -lunp 'sport = :{port}'` shows, or let it end");
    assert!(log.contains(&remedy), "{log}");
    let config = config(&folder.0.join("blitz/ca.pem"), None);
    let alt_svc = |address: SocketAddr| {
        let answer = get(
            &mut connect(address, "localhost", &config),
            "localhost",
            "/ping",
        );
        let answer = answer.unwrap();
        let mut lines = answer.lines();
        lines.find_map(|line| Some(line.strip_prefix("Alt-Svc: ")?.to_owned()))
    };
    assert_eq!(alt_svc(listener.parse().unwrap()).as_deref(), Some("clear"));
    let first = running.address("https://");
    assert_eq!(
        alt_svc(first),
        Some(format!("h3=\":{}\"; ma=3600", first.port()))
    );
    assert!(
        running
            .announced
            .contains(&format!("HTTP/3 at     {first} over UDP"))
    );
    assert!(
        !running
            .announced
            .contains(&format!("HTTP/3 at     {listener}"))
    );
    drop(other);
}

/// A process that was told to end frees its TCP port at once, and its UDP port after its last connection.
#[test]
fn a_udp_port_that_is_released_soon_is_waited_for() {
    let folder = Folder::new();
    let (other, port) = udp_port();
    let listener = format!("127.0.0.1:{port}");
    let log_file = folder.0.join("log");
    let waiting = format!("UDP {listener} is in use: waiting up to 5s");
    let releasing = thread::spawn(move || {
        let deadline = Instant::now() + IO_TIMEOUT;
        while !fs::read_to_string(&log_file).is_ok_and(|log| log.contains(&waiting)) {
            assert!(Instant::now() < deadline, "no line of the wait");
            thread::sleep(Duration::from_millis(10));
        }
        // Longer than a TCP address is waited for.
        thread::sleep(Duration::from_millis(1_500));
        drop(other);
    });
    let running = Running::start(&folder, &["--listen-tls", &listener]);
    releasing.join().unwrap();
    let is_served = format!("HTTP/3 at     {listener} over UDP");
    assert!(
        running.announced.contains(&is_served),
        "{}",
        running.announced
    );
    assert!(!running.log().contains("no HTTP/3"), "{}", running.log());
}

/// A UDP port in use whose TCP port is free.
fn udp_port() -> (UdpSocket, u16) {
    loop {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return (socket, port);
        }
    }
}

/// BoringSSL rejects a certificate with an address if the authority has constraints of addresses.
#[test]
fn the_development_certificate_for_names_has_no_address() {
    let folder = Folder::new();
    let state = folder.0.join("blitz");
    // An earlier version made one certificate for both.
    let out = state.display().to_string();
    let old = ["cert", "--out", &out, "localhost", "127.0.0.1", "::1"];
    let output = blitz(&old);
    let text = stdout(&output);
    assert!(text.contains("gRPC's C core rejects"), "{text}");
    let file = state.join("localhost.pem");
    let key = fs::read(state.join("localhost.key")).unwrap();
    let both = [fs::read(&file).unwrap(), key].concat();
    fs::write(&file, both).unwrap();

    let running = Running::start(&folder, &[]);
    assert!(!running.log().contains("replaced"), "{}", running.log());
    let address = running.address("https://");
    let config = config(&state.join("ca.pem"), None);
    let of_names = shown(address, "localhost", &config);
    assert_eq!(of_names, of_file(&file.display().to_string()));
    assert_ne!(shown(address, "127.0.0.1", &config), of_names);
    let stored = Certificate::load(&file, &file).unwrap();
    assert!(stored.covers("localhost") && !stored.covers("127.0.0.1") && !stored.covers("::1"));
}

#[test]
fn the_default_names_of_a_certificate_are_no_addresses() {
    let folder = Folder::new();
    let output = blitz(&["cert", "--out", &folder.file("")]);
    let text = stdout(&output);
    assert!(
        !text.contains("127.0.0.1") && !text.contains("C core"),
        "{text}"
    );
    let issued =
        Certificate::load(folder.file("localhost.pem"), folder.file("localhost.key")).unwrap();
    assert!(issued.covers("localhost") && !issued.covers("127.0.0.1"));
}

#[test]
fn a_failed_handshake_of_a_client_is_one_line_with_its_address_and_server_name() {
    let folder = Folder::new();
    let (certificate, key) = folder.certificate("a.example");
    let flags = ["--cert", &certificate, "--key", &key, "--log", "debug"];
    let running = Running::start(&folder, &flags);
    let address = running.address("https://");
    let other = Folder::new();
    other.certificate("a.example");
    let distrusting = config(&other.0.join("ca.pem"), None);
    let mut client = connect(address, "a.example", &distrusting);
    let refused = client.sock.local_addr().unwrap();
    get(&mut client, "a.example", "/").unwrap_err();
    // The rest of the first record is missing.
    let mut cut_off = TcpStream::connect(address).unwrap();
    cut_off.write_all(&[22, 3, 1, 1, 0, 1]).unwrap();
    let cut_off_at = cut_off.local_addr().unwrap();
    drop(cut_off);

    let lines = |text: &str| {
        let log = running.log();
        let lines = log.lines().filter(|line| line.contains(text));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let deadline = Instant::now() + IO_TIMEOUT;
    while lines("TLS of a client failed").len() < 2 {
        assert!(Instant::now() < deadline, "{}", running.log());
        thread::sleep(Duration::from_millis(10));
    }
    for (client, parts) in [
        (refused, &["server_name=\"a.example\"", "UnknownCA"][..]),
        (cut_off_at, &["rule=\"handshake-cut-off\""]),
    ] {
        let about_it = lines(&format!("client={client}"));
        assert_eq!(about_it.len(), 1, "{about_it:?}");
        for part in parts {
            assert!(about_it[0].contains(part), "{about_it:?}");
        }
    }
}

/// An authority of an earlier version, which may issue for any name.
fn keep_unconstrained_authority(folder: &Path) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    let id = params.key_identifier(&key);
    let id: String = id[..4].iter().map(|byte| format!("{byte:02x}")).collect();
    let name = format!("Blitz development CA {id}");
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, name);
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Constrained(0));
    fs::create_dir_all(folder).unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    fs::write(folder.join("ca.pem"), pem).unwrap();
    fs::write(folder.join("ca.key"), key.serialize_pem()).unwrap();
}

#[test]
fn an_authority_without_constraints_is_replaced_with_a_message() {
    let folder = Folder::new();
    let authority = folder.0.join("blitz/ca.pem");
    keep_unconstrained_authority(&folder.0.join("blitz"));
    let before = fs::read(&authority).unwrap();
    for expected in ["replaced, because it could issue for any name", ""] {
        let running = Running::start(&folder, &[]);
        assert_eq!(running.log().contains("replaced"), !expected.is_empty());
        assert!(running.log().contains(expected), "{}", running.log());
        let config = config(&authority, None);
        shown(running.address("https://"), "localhost", &config);
    }
    assert_ne!(fs::read(&authority).unwrap(), before);
    let certs = folder.0.join("certs");
    keep_unconstrained_authority(&certs);
    let output = blitz(&["cert", "--out", &folder.file("certs"), "a.example"]);
    let text = stdout(&output);
    assert!(text.contains("replaced      the authority"), "{text}");
}

#[test]
fn the_command_to_try_reaches_the_name_of_the_certificate() {
    for name in ["a.example", "127.0.0.1"] {
        let folder = Folder::new();
        let (certificate, key) = folder.certificate(name);
        let running = Running::start(&folder, &["--cert", &certificate, "--key", &key]);
        let here = running.address("https://");
        let port = here.port();
        let command = match name {
            "127.0.0.1" => format!("curl https://{here}/hello"),
            name => {
                format!("curl --connect-to {name}:{port}:{here} https://{name}:{port}/hello")
            }
        };
        assert!(
            running.announced.contains(&command),
            "{}",
            running.announced
        );
        assert!(
            running.announced.contains("over UDP\n"),
            "{}",
            running.announced
        );
    }
}

#[test]
fn an_unwritable_folder_does_not_prevent_serving() {
    let folder = Folder::new();
    fs::write(folder.0.join("blitz"), "in the way").unwrap();
    let running = Running::start(&folder, &[]);
    assert!(
        running.log().contains("in memory only"),
        "{}",
        running.log()
    );
    assert!(running.announced.contains("--insecure"));
}

#[test]
fn the_server_name_selects_the_certificate() {
    let folder = Folder::new();
    let (a, b) = (
        folder.certificate("a.example"),
        folder.certificate("b.example"),
    );
    let flags = ["--cert", &a.0, "--key", &a.1, "--cert", &b.0, "--key", &b.1];
    let running = Running::start(&folder, &flags);
    let address = running.address("https://");
    let config = config(&folder.0.join("ca.pem"), None);
    assert_eq!(shown(address, "a.example", &config), of_file(&a.0));
    assert_eq!(shown(address, "b.example", &config), of_file(&b.0));
    let mut stream = connect(address, "a.example", &config);
    let answer = get(&mut stream, "b.example", "/ping").unwrap();
    assert!(answer.starts_with("HTTP/1.1 421 "), "{answer}");
}

#[test]
fn hup_applies_valid_files_to_new_connections_and_ignores_invalid_ones() {
    let folder = Folder::new();
    let (certificate, key) = folder.certificate("a.example");
    let running = Running::start(&folder, &["--cert", &certificate, "--key", &key]);
    let address = running.address("https://");
    let config = config(&folder.0.join("ca.pem"), None);
    let first = shown(address, "a.example", &config);
    let mut running_on = connect(address, "a.example", &config);
    running_on.flush().unwrap();
    let mut resuming = ClientConfig::clone(&config);
    resuming.resumption = Resumption::default();
    let resuming = Arc::new(resuming);
    shown(address, "a.example", &resuming);

    fs::remove_file(&certificate).unwrap();
    running.reload("the new ones are invalid");
    assert!(
        running
            .log()
            .contains(&format!("{certificate}: cannot be read"))
    );
    assert_eq!(shown(address, "a.example", &config), first);

    let old_key = fs::read(&key).unwrap();
    fs::remove_file(&key).unwrap();
    folder.certificate("a.example");
    let new_key = fs::read(&key).unwrap();
    fs::write(&key, old_key).unwrap();
    running.reload("does not belong to");
    assert_eq!(shown(address, "a.example", &config), first);

    fs::write(&key, new_key).unwrap();
    running.reload("(expires in ");
    assert_eq!(shown(address, "a.example", &config), of_file(&certificate));
    assert_ne!(first, of_file(&certificate));
    let answer = get(&mut running_on, "a.example", "/ping").unwrap();
    assert!(answer.ends_with("pong"), "{answer}");
    let mut again = connect(address, "a.example", &resuming);
    get(&mut again, "a.example", "/ping").unwrap();
    assert_eq!(again.conn.handshake_kind(), Some(HandshakeKind::Resumed));
}

#[test]
fn clear_text_is_redirected_to_https() {
    let folder = Folder::new();
    let running = Running::start(&folder, &["--listen", "127.0.0.1:0", "--redirect-https"]);
    let (own, tls) = (
        running.address("http://"),
        running.address("https://").port(),
    );
    let mut client = Client::connect(own);
    for (host, expected) in [
        ("a.example".to_owned(), "https://a.example/x?y=1".to_owned()),
        (
            format!("a.example:{}", own.port()),
            format!("https://a.example:{tls}/x?y=1"),
        ),
    ] {
        client.send(format!("GET /x?y=1 HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        let answer = client.response();
        assert_eq!(answer.status, 308);
        assert_eq!(answer.field("location"), Some(expected.as_str()));
    }
    let challenge = client.get("/.well-known/acme-challenge/token");
    assert_eq!(challenge.status, 404);
    client.send("GET / HTTP/1.0\r\n\r\n");
    assert_eq!(client.response().status, 400);
}

#[test]
fn client_certificates_are_verified_and_sent_to_the_upstream() {
    let folder = Folder::new();
    folder.certificate("client.example");
    let authority = folder.file("ca.pem");
    let upstream = Upstream::start(|request| {
        let value = |wanted: &str| {
            let mut fields = request.fields.iter();
            let found = fields.find(|(name, _)| name == wanted);
            found.map_or("none", |(_, value)| value).to_owned()
        };
        let body = [
            value("client-cert"),
            value("x-forwarded-proto"),
            value("x-forwarded-port"),
        ]
        .join(" ");
        let length = body.len();
        format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
    });
    let own = (
        folder.file("client.example.pem"),
        folder.file("client.example.key"),
    );
    let to = upstream.url();
    let common = [
        "--to",
        &to,
        "--client-ca",
        &authority,
        "--client-cert-header",
    ];
    for (mode, is_let_in) in [("required", false), ("optional", true)] {
        let flags = [&common[..], &["--client-auth", mode]].concat();
        let running = Running::start(&folder, &flags);
        let address = running.address("https://");
        let development = folder.0.join("blitz/ca.pem");
        let mut known = connect(address, "localhost", &config(&development, Some(&own)));
        let answer = get(&mut known, "localhost", "/").unwrap();
        assert!(
            answer.contains("\r\n\r\n:MII") && answer.ends_with(": https 443"),
            "{answer}"
        );
        let mut unknown = connect(address, "localhost", &config(&development, None));
        let answer = get(&mut unknown, "localhost", "/");
        let is_in = answer.is_ok_and(|answer| answer.contains("\r\n\r\nnone https"));
        assert_eq!(is_in, is_let_in, "{mode}");
    }
}

#[test]
fn an_upstream_over_tls_is_verified_and_receives_a_certificate() {
    let folder = Folder::new();
    let (certificate, key) = folder.certificate("127.0.0.1");
    let (authority, stranger) = (folder.file("ca.pem"), Folder::new());
    stranger.certificate("127.0.0.1");
    let flags = [
        "--cert",
        &certificate,
        "--key",
        &key,
        "--client-ca",
        &authority,
    ];
    let upstream = Running::start(&folder, &flags);
    let url = format!("https://127.0.0.1:{}", upstream.address("https://").port());
    let own = ["--upstream-cert", &certificate, "--upstream-key", &key];
    let status = |ca: &str, own: &[&str]| {
        let flags = ["--listen", "127.0.0.1:0", "--to", &url, "--upstream-ca", ca];
        let gateway = Running::start(&stranger, &[&flags[..], own].concat());
        assert!(gateway.announced.contains(&url), "{}", gateway.announced);
        let mut client = Client::connect(gateway.address("http://"));
        // The client's host is forwarded, and the upstream's certificate must cover it as well.
        client.send("GET /ping HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
        let answer = client.response();
        let proxy_status = answer.field("proxy-status").unwrap_or_default().to_owned();
        (answer.status, proxy_status)
    };
    assert_eq!(status(&authority, &own), (200, String::new()));
    let (code, proxy_status) = status(&stranger.file("ca.pem"), &own);
    assert!(
        code == 502 && proxy_status.contains("tls_certificate_error"),
        "{code} {proxy_status}"
    );
    // The upstream uses HTTP/2 over TLS 1.3, where it can only refuse after the handshake.
    let (code, proxy_status) = status(&authority, &[]);
    assert!(
        code == 502 && proxy_status.contains("CertificateRequired"),
        "{code} {proxy_status}"
    );
}

#[test]
fn hup_applies_valid_files_to_upstreams_and_ignores_invalid_ones() {
    let folder = Folder::new();
    let (certificate, key) = folder.certificate("127.0.0.1");
    let ca = folder.file("ca.pem");
    let flags = ["--cert", &certificate, "--key", &key, "--client-ca", &ca];
    let upstream = Running::start(&folder, &flags);
    let url = format!("https://127.0.0.1:{}", upstream.address("https://").port());
    let own = Folder::new();
    let files = ["ca.pem", "own.pem", "own.key"].map(|name| own.file(name));
    for (from, to) in [&ca, &certificate, &key].into_iter().zip(&files) {
        fs::copy(from, to).unwrap();
    }
    let flags = [
        "--listen",
        "127.0.0.1:0",
        "--to",
        &url,
        "--upstream-ca",
        &files[0],
    ];
    let shown = ["--upstream-cert", &files[1], "--upstream-key", &files[2]];
    let gateway = Running::start(&own, &[&flags[..], &shown].concat());
    let mut client = Client::connect(gateway.address("http://"));
    let mut status = || {
        client.send("GET /ping HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
        client.response().status
    };
    assert_eq!(status(), 200);
    gateway.reload("for upstreams over TLS have not changed");
    // A key of another certificate.
    let stranger = Folder::new();
    let (other, other_key) = stranger.certificate("127.0.0.1");
    fs::copy(&other_key, &files[2]).unwrap();
    gateway.reload("the new files are invalid");
    assert!(
        gateway.log().contains("does not belong to"),
        "{}",
        gateway.log()
    );
    assert_eq!(status(), 200);
    // A valid pair that the upstream does not trust.
    fs::copy(&other, &files[1]).unwrap();
    gateway.reload("for upstreams over TLS were read again");
    assert_eq!(status(), 502);
    fs::copy(&certificate, &files[1]).unwrap();
    fs::copy(&key, &files[2]).unwrap();
    gateway.reload("for upstreams over TLS were read again");
    assert_eq!(status(), 200);
}

#[test]
fn invalid_files_are_named_with_a_remedy() {
    let folder = Folder::new();
    let (certificate, key) = folder.certificate("a.example");
    let (_, other_key) = folder.certificate("b.example");
    let missing = folder.file("missing.pem");
    for (certificate, key, problem, advice) in [
        (&missing, &key, "missing.pem: cannot be read", "path"),
        (&certificate, &other_key, "does not belong", "mixed up"),
        (
            &key,
            &certificate,
            "has no certificate",
            "BEGIN CERTIFICATE",
        ),
    ] {
        let flags = [
            "run",
            "--listen-tls",
            "127.0.0.1:0",
            "--cert",
            certificate,
            "--key",
            key,
        ];
        let output = blitz(&flags);
        assert_eq!(output.status.code(), Some(1));
        let text = stderr(&output);
        assert!(text.contains(problem) && text.contains(advice), "{text}");
    }
}

#[test]
fn an_authority_issues_more_than_one_certificate_and_files_are_not_overwritten() {
    let folder = Folder::new();
    folder.certificate("a.example");
    let authority = fs::read(folder.0.join("ca.pem")).unwrap();
    folder.certificate("www.a.example");
    assert_eq!(fs::read(folder.0.join("ca.pem")).unwrap(), authority);
    let output = blitz(&["cert", "--out", &folder.file(""), "b.example"]);
    let text = stdout(&output);
    assert!(text.contains("now permits these names"), "{text}");
    assert_ne!(fs::read(folder.0.join("ca.pem")).unwrap(), authority);
    let output = blitz(&["cert", "--out", &folder.file(""), "a.example"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains(" exists"));
    let output = blitz(&["cert", "--out", &folder.file("more")]);
    assert!(
        stdout(&output).contains("curl --cacert"),
        "{}",
        stdout(&output)
    );
}
