//! TLS of peers: rustls over simulated streams.
//!
//! Keys and randomness are rustls's own and differ each time, but nothing that is sent changes its length, so
//! that runs stay repeatable.

use std::io;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use blitz_http::{CaSet, Certificate, ClientTls, ServerTls};
use quinn_proto::crypto::rustls::QuicClientConfig;
use rcgen::{CertificateParams, KeyPair, PKCS_ED25519, SerialNumber};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig};

use crate::plan::Version;

/// Ciphertext of one read.
const READ_BYTES: usize = 4 * 1024;

const NAMES: [&str; 4] = ["gateway", "localhost", "127.0.0.1", "::1"];

/// The certificate of the gateway and of all upstreams, which everybody trusts.
struct Identity {
    certificate: CertificateDer<'static>,
    key: KeyPair,
    pem: String,
}

/// An Ed25519 key: its signatures always have the same length.
fn identity() -> &'static Identity {
    static IDENTITY: OnceLock<Identity> = OnceLock::new();
    IDENTITY.get_or_init(|| {
        let names = NAMES.map(str::to_owned);
        let mut params = CertificateParams::new(names).expect("the names are valid");
        params.serial_number = Some(SerialNumber::from(1));
        let key = KeyPair::generate_for(&PKCS_ED25519).expect("there is randomness");
        let certificate = params.self_signed(&key).expect("the key can sign");
        Identity {
            certificate: certificate.der().clone(),
            key,
            pem: certificate.pem(),
        }
    })
}

/// The settings of the gateway's listener.
pub(crate) fn listener() -> ServerTls {
    let Identity { key, pem, .. } = identity();
    let certificate = Certificate::from_pem(pem.as_bytes(), key.serialize_pem().as_bytes());
    let certificate = certificate.expect("rcgen has written it");
    let tls = ServerTls::builder().certificate(certificate).build();
    tls.expect("the settings are valid")
}

/// The settings of the gateway's connections to upstreams.
pub(crate) fn upstreams() -> ClientTls {
    let authorities = CaSet::from_pem(identity().pem.as_bytes()).expect("rcgen has written it");
    let tls = ClientTls::builder().authorities(authorities).build();
    tls.expect("the settings are valid")
}

fn alpn(version: Version) -> Vec<Vec<u8>> {
    let name: &[u8] = match version {
        Version::Http2 | Version::RawHttp2 => b"h2",
        Version::Http3 => b"h3",
        Version::Http1 | Version::Raw => b"http/1.1",
    };
    vec![name.to_vec()]
}

/// The settings of an upstream that speaks this version.
pub(crate) fn server(version: Version) -> Arc<ServerConfig> {
    let Identity {
        certificate, key, ..
    } = identity();
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider knows them")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key.into())
        .expect("the key belongs to the certificate");
    config.alpn_protocols = alpn(version);
    Arc::new(config)
}

/// The client's end of a connection to the gateway.
pub(crate) fn client(version: Version) -> Session {
    let name = ServerName::try_from("gateway").expect("it is a valid name");
    let connection = ClientConnection::new(Arc::new(client_config(version)), name);
    connection.expect("the settings are valid").into()
}

/// The same, for QUIC. A later connection with the same settings resumes the session of an earlier one.
pub(crate) fn quic_client() -> quinn_proto::ClientConfig {
    let config = client_config(Version::Http3);
    let crypto = QuicClientConfig::try_from(config);
    quinn_proto::ClientConfig::new(Arc::new(crypto.expect("the provider has the ciphers")))
}

fn client_config(version: Version) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots
        .add(identity().certificate.clone())
        .expect("it is a valid certificate");
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider knows them")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn(version);
    config
}

/// One end of a connection.
pub(crate) struct Session {
    connection: Connection,
    /// Ciphertext that follows content which was not read yet.
    received: Vec<u8>,
}

impl Session {
    /// Announces the end of what is sent.
    pub(crate) fn close(&mut self) {
        self.connection.send_close_notify();
    }
}

impl<C: Into<Connection>> From<C> for Session {
    fn from(connection: C) -> Session {
        Session {
            connection: connection.into(),
            received: Vec::new(),
        }
    }
}

/// The carrier of the ciphertext.
pub(crate) trait Carrier {
    fn poll_receive(&self, cx: &Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>>;
    fn poll_send(&self, cx: &Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;
}

/// Sends what rustls has to send.
pub(crate) fn poll_flush(
    session: &mut Session,
    carrier: &impl Carrier,
    cx: &Context<'_>,
) -> Poll<io::Result<()>> {
    while session.connection.wants_write() {
        match session.connection.write_tls(&mut Output { carrier, cx }) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
    Poll::Ready(Ok(()))
}

/// Ready when the handshake is complete.
pub(crate) fn poll_handshake(
    session: &mut Session,
    carrier: &impl Carrier,
    cx: &Context<'_>,
) -> Poll<io::Result<()>> {
    loop {
        ready!(poll_flush(session, carrier, cx))?;
        if !session.connection.is_handshaking() {
            return Poll::Ready(Ok(()));
        }
        if ready!(poll_receive(session, carrier, cx))? == 0 {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
    }
}

/// Reads decrypted content; 0 bytes are close_notify.
pub(crate) fn poll_read(
    session: &mut Session,
    carrier: &impl Carrier,
    cx: &Context<'_>,
    into: &mut [u8],
) -> Poll<io::Result<usize>> {
    loop {
        match io::Read::read(&mut session.connection.reader(), into) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            read => return Poll::Ready(read),
        }
        if let Poll::Ready(Err(error)) = poll_flush(session, carrier, cx) {
            return Poll::Ready(Err(error));
        }
        ready!(poll_receive(session, carrier, cx))?;
    }
}

/// Encrypts what rustls has room for.
pub(crate) fn poll_write(
    session: &mut Session,
    carrier: &impl Carrier,
    cx: &Context<'_>,
    bytes: &[u8],
) -> Poll<io::Result<usize>> {
    ready!(poll_flush(session, carrier, cx))?;
    let written = io::Write::write(&mut session.connection.writer(), bytes)?;
    match poll_flush(session, carrier, cx) {
        Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
        Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(written)),
    }
}

/// Decrypts what was received until there is content, receiving once if nothing is left; 0 bytes are FIN.
fn poll_receive(
    session: &mut Session,
    carrier: &impl Carrier,
    cx: &Context<'_>,
) -> Poll<io::Result<usize>> {
    if session.received.is_empty() {
        let mut buffer = [0; READ_BYTES];
        let n = ready!(carrier.poll_receive(cx, &mut buffer))?;
        session.received.extend_from_slice(&buffer[..n]);
    }
    let mut left = &session.received[..];
    loop {
        session.connection.read_tls(&mut left)?;
        match session.connection.process_new_packets() {
            // rustls takes no more while it keeps content.
            Ok(state) if state.plaintext_bytes_to_read() > 0 || left.is_empty() => break,
            Ok(_) => {}
            Err(error) => {
                session.received.clear();
                // The alert says why, if it still arrives.
                let _ = poll_flush(session, carrier, cx);
                return Poll::Ready(Err(io::Error::other(error)));
            }
        }
    }
    let taken = session.received.len() - left.len();
    session.received.drain(..taken);
    Poll::Ready(Ok(taken))
}

/// Where rustls writes to.
struct Output<'a, 'b, C> {
    carrier: &'a C,
    cx: &'a Context<'b>,
}

impl<C: Carrier> io::Write for Output<'_, '_, C> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.carrier.poll_send(self.cx, bytes) {
            Poll::Ready(written) => written,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
