#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use blitz_testing::IO_TIMEOUT;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::signals_end_the_server::example;

/// A certificate file and a key file, removed when dropped.
struct Files {
    folder: PathBuf,
}

impl Files {
    fn new(name: &str) -> Files {
        let folder = std::env::temp_dir().join(format!("blitz-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Files { folder }
    }

    fn certificate(&self) -> PathBuf {
        self.folder.join("own.pem")
    }

    fn key(&self) -> PathBuf {
        self.folder.join("own.key")
    }

    /// Writes a new certificate with its key; returns the configuration of a client that trusts it.
    fn renew(&self) -> Arc<ClientConfig> {
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        fs::write(self.certificate(), &pem).unwrap();
        fs::write(self.key(), key.serialize_pem()).unwrap();
        let mut roots = RootCertStore::empty();
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        roots.add(der).unwrap();
        let config = ClientConfig::builder().with_root_certificates(roots);
        let mut config = config.with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Arc::new(config)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The running example `https`.
struct Served {
    child: Child,
    address: SocketAddr,
    lines: Receiver<String>,
}

impl Served {
    fn start(files: &Files) -> Served {
        Served::with(files, &[])
    }

    fn with(files: &Files, more: &[&str]) -> Served {
        let mut child = Command::new(example("https"))
            .args([files.certificate(), files.key()])
            .arg("127.0.0.1:0")
            .args(more)
            .env("BLITZ_CORES", "1")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the example runs");
        let (send, lines) = channel();
        let stderr = BufReader::new(child.stderr.take().expect("it is piped"));
        thread::spawn(move || {
            stderr
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| send.send(line))
        });
        let line = lines
            .recv_timeout(IO_TIMEOUT)
            .expect("the address is printed");
        let address = line.strip_prefix("Listening on https://");
        let address = address.and_then(|rest| rest.split(' ').next());
        let address = address.unwrap_or_else(|| panic!("{line}"));
        Served {
            address: address.parse().unwrap(),
            child,
            lines,
        }
    }

    /// The response to a request, if the client trusts the certificate.
    fn get(&self, config: &Arc<ClientConfig>) -> Result<String, std::io::Error> {
        let name = ServerName::try_from("localhost").unwrap();
        let session = ClientConnection::new(Arc::clone(config), name).unwrap();
        let tcp = TcpStream::connect(self.address)?;
        tcp.set_read_timeout(Some(IO_TIMEOUT))?;
        let mut stream = StreamOwned::new(session, tcp);
        stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    fn reload(&self) {
        let kill = format!("kill -HUP {}", self.child.id());
        assert!(
            Command::new("sh")
                .args(["-c", &kill])
                .status()
                .unwrap()
                .success()
        );
    }

    /// Waits until a client with `config` trusts the server.
    fn until_trusted(&self, config: &Arc<ClientConfig>) {
        let end = std::time::Instant::now() + IO_TIMEOUT;
        while self.get(config).is_err() {
            assert!(std::time::Instant::now() < end, "never");
            thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn an_app_serves_tls_and_reloads_certificates() {
    let files = Files::new("https");
    let first = files.renew();
    let served = Served::start(&files);
    let answer = served.get(&first).expect("it is believed");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nHello, World!"), "{answer}");
    let second = files.renew();
    assert!(served.get(&second).is_err(), "there was no signal");
    served.reload();
    served.until_trusted(&second);
    // An invalid file changes nothing.
    fs::write(files.certificate(), "no certificate").unwrap();
    served.reload();
    thread::sleep(std::time::Duration::from_millis(200));
    assert!(served.get(&second).is_ok());
    let line = served.lines.try_recv().expect("the error is logged");
    assert!(line.contains("ERROR"), "{line}");
}

#[test]
fn an_app_serves_http3_unless_it_is_told_not_to() {
    let files = Files::new("http3");
    let client = files.renew();
    for (more, is_served) in [(&[][..], true), (&["tcp"], false)] {
        let served = Served::with(&files, more);
        let alt_svc = match is_served {
            true => format!("Alt-Svc: h3=\":{}\"; ma=3600\r\n", served.address.port()),
            false => "Alt-Svc: clear\r\n".to_owned(),
        };
        let answer = served.get(&client).expect("it is believed");
        assert!(answer.contains(&alt_svc), "{answer}");
        assert_eq!(UdpSocket::bind(served.address).is_err(), is_served);
    }
}

#[test]
fn an_invalid_file_is_named_with_a_remedy() {
    let files = Files::new("https-wrong");
    files.renew();
    fs::write(files.key(), "no key").unwrap();
    let output = Command::new(example("https"))
        .args([files.certificate(), files.key()])
        .arg("127.0.0.1:0")
        .output()
        .expect("the example runs");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(
        message.contains("own.key") && message.lines().count() > 1,
        "{message}"
    );
}
