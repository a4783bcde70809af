//! TLS inside QUIC (RFC 9001): the same certificates, tickets and client authentication as over TCP, and towards servers
//! the same trust.

use std::any::Any;
use std::convert::Infallible;
use std::io::Cursor;
use std::rc::Rc;
use std::sync::Arc;

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use blitz_quic::quinn_proto::crypto::rustls::QuicServerConfig;
use blitz_quic::quinn_proto::crypto::{
    self, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, UnsupportedVersion,
};
use blitz_quic::quinn_proto::transport_parameters::TransportParameters;
use blitz_quic::quinn_proto::{
    ConnectError, ConnectionError, ConnectionId, Side, TransportError, TransportErrorCode,
};
use blitz_quic::{CryptoFrames, ReceivingKey};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;
use rustls::quic::{
    self, ClientConnection, Connection, KeyChange, Secrets, ServerConnection, Suite, Version,
};
use rustls::{AlertDescription, CipherSuite, ClientConfig, ServerConfig};

use super::error::TlsError;
use super::info::TlsInfo;
use super::policies::{Hello, HelloReader, PolicyTable};
use super::server::{Choice, ServerTls, take_choice};

/// Starts the TLS sessions of QUIC connections.
pub(crate) struct QuicTls {
    config: Arc<ServerConfig>,
    /// Keys of Initial packets, which do not depend on certificates.
    initial: Suite,
    /// Signs Retry packets.
    retry: QuicServerConfig,
    /// `None` if all server names have the policy of the listener.
    policies: Option<Arc<PolicyTable>>,
}

impl QuicTls {
    /// From the settings of a listener. QUIC has TLS 1.3 only, and this listener HTTP/3 only.
    pub(crate) fn new(tls: &ServerTls) -> QuicTls {
        let with_alpn = |config: &ServerConfig| {
            let mut config = config.clone();
            config.alpn_protocols = vec![b"h3".to_vec()];
            Arc::new(config)
        };
        let config = with_alpn(&tls.config);
        let policies = tls.policies.as_ref().map(|table| {
            let made = table.with(|entry| Ok::<_, Infallible>(with_alpn(&entry.config)));
            let Ok(table) = made;
            Arc::new(table)
        });
        let Ok(retry) = QuicServerConfig::try_from(Arc::clone(&config)) else {
            unreachable!("the provider of every listener has TLS_AES_128_GCM_SHA256")
        };
        QuicTls {
            initial: initial_suite(config.crypto_provider()),
            config,
            retry,
            policies,
        }
    }
}

/// The suite of Initial packets (RFC 9001, section 5.2).
fn initial_suite(provider: &CryptoProvider) -> Suite {
    let suites = provider.cipher_suites.iter();
    let found = suites
        .filter(|suite| suite.suite() == CipherSuite::TLS13_AES_128_GCM_SHA256)
        .find_map(|suite| suite.tls13()?.quic_suite());
    match found {
        Some(suite) => suite,
        None => unreachable!("the provider has TLS_AES_128_GCM_SHA256"),
    }
}

impl crypto::ServerConfig for QuicTls {
    fn initial_keys(&self, version: u32, id: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        if version != 1 {
            return Err(UnsupportedVersion);
        }
        let of_initial = self.initial.keys(id, rustls::Side::Server, Version::V1);
        Ok(keys(of_initial, &CryptoFrames::default()))
    }

    fn retry_tag(&self, version: u32, id: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.retry.retry_tag(version, id, packet)
    }

    fn start_session(
        self: Arc<Self>,
        _: u32,
        parameters: &TransportParameters,
    ) -> Box<dyn crypto::Session> {
        let mut encoded = Vec::new();
        parameters.write(&mut encoded);
        let hello = self.policies.as_ref().map(|policies| {
            Box::new(WaitingHello {
                hello: HelloReader::default(),
                policies: Arc::clone(policies),
                parameters: encoded.clone(),
                received: Vec::new(),
            })
        });
        let config = Arc::clone(&self.config);
        let mut session = QuicSession::new(begin(config, encoded), Side::Server, self.initial);
        session.hello = hello;
        Box::new(session)
    }
}

/// The handshake of a client with these settings.
fn begin(config: Arc<ServerConfig>, parameters: Vec<u8>) -> SessionState {
    match ServerConnection::new(config, Version::V1, parameters) {
        Ok(tls) => SessionState::Handshaking(Box::new(tls.into()), None),
        Err(_) => SessionState::Failed,
    }
}

/// The most bytes of the first message of a client; rustls refuses longer ones.
const HELLO_BYTES_MAX: usize = 64 * 1024;

/// A client's first message, whose server name chooses the settings of the session.
struct WaitingHello {
    hello: HelloReader,
    policies: Arc<PolicyTable>,
    parameters: Vec<u8>,
    received: Vec<u8>,
}

impl WaitingHello {
    /// The settings, once the message is complete.
    fn receive(&mut self, bytes: &[u8]) -> Option<&Arc<ServerConfig>> {
        self.received.extend_from_slice(bytes);
        let hello = match self.received.len() > HELLO_BYTES_MAX {
            true => Hello::Invalid,
            false => self.hello.read_messages(bytes),
        };
        match hello {
            Hello::Incomplete => None,
            Hello::Complete(name) => Some(self.policies.config(name.as_deref())),
            Hello::Invalid => Some(self.policies.config(None)),
        }
    }
}

/// Starts the TLS sessions of QUIC connections to one server.
pub(super) struct QuicClientTls {
    /// With ALPN.
    pub(super) config: Arc<ClientConfig>,
    pub(super) name: ServerName<'static>,
    /// The name as it is sent (SNI).
    pub(super) sent_name: Option<Box<str>>,
}

impl crypto::ClientConfig for QuicClientTls {
    fn start_session(
        self: Arc<Self>,
        _: u32,
        _: &str,
        parameters: &TransportParameters,
    ) -> Result<Box<dyn crypto::Session>, ConnectError> {
        let mut encoded = Vec::new();
        parameters.write(&mut encoded);
        let (config, name) = (Arc::clone(&self.config), self.name.clone());
        let initial = initial_suite(config.crypto_provider());
        let tls = ClientConnection::new(config, Version::V1, name, encoded)
            .map_err(|_| ConnectError::EndpointStopping)?;
        let choice = Choice {
            server_name: self.sent_name.clone(),
            ..Choice::default()
        };
        let state = SessionState::Handshaking(Box::new(tls.into()), Some(choice));
        Ok(Box::new(QuicSession::new(state, Side::Client, initial)))
    }
}

/// The known facts about a handshake that is not complete.
struct Unfinished {
    /// The server name that the client sends.
    name: Option<Box<str>>,
    /// The facts about a client.
    info: Option<TlsInfo>,
    /// Why it has failed here.
    error: Option<TlsError>,
}

/// The server name that the client has sent, also if its handshake has failed.
pub(crate) fn server_name(session: &dyn crypto::Session) -> Option<Box<str>> {
    let data = session.handshake_data()?;
    match data.downcast::<Unfinished>() {
        Ok(unfinished) => unfinished.name,
        Err(data) => data.downcast::<Rc<TlsInfo>>().ok()?.server_name.clone(),
    }
}

/// The facts that are known of a client whose handshake has failed.
pub(crate) fn facts(session: &dyn crypto::Session) -> Option<Rc<TlsInfo>> {
    let data = session.handshake_data()?;
    match data.downcast::<Unfinished>() {
        Ok(unfinished) => unfinished.info.map(Rc::new),
        Err(data) => data.downcast::<Rc<TlsInfo>>().ok().map(|info| *info),
    }
}

/// Why a handshake with a server has failed, which has ended its connection for this reason.
pub(crate) fn failure_with_server(
    session: &dyn crypto::Session,
    reason: &ConnectionError,
) -> TlsError {
    let data = session.handshake_data();
    let unfinished = data.and_then(|data| data.downcast::<Unfinished>().ok());
    let own = unfinished.and_then(|unfinished| unfinished.error);
    own.unwrap_or_else(|| failure_of(reason))
}

/// The TLS session of one connection.
struct QuicSession {
    state: SessionState,
    side: Side,
    /// Keys of Initial packets.
    initial: Suite,
    /// Those that have come behind the Initial packets.
    crypto_frames: CryptoFrames,
    next_secrets: Option<Secrets>,
    is_reported: bool,
    /// Why the handshake has failed.
    error: Option<TlsError>,
    /// Until the client's first message is complete.
    hello: Option<Box<WaitingHello>>,
}

enum SessionState {
    Handshaking(Box<Connection>, Option<Choice>),
    /// A server's session is of no more use: clients send no messages behind the handshake (RFC 9001, section 6). To
    /// that of a client come tickets.
    Established(Box<TlsInfo>, Option<Box<Connection>>),
    /// It could not be created.
    Failed,
}

impl QuicSession {
    fn new(state: SessionState, side: Side, initial: Suite) -> QuicSession {
        QuicSession {
            state,
            side,
            initial,
            crypto_frames: CryptoFrames::default(),
            next_secrets: None,
            is_reported: false,
            error: None,
            hello: None,
        }
    }

    /// The handshake is complete, and nothing of it is left to be sent.
    fn establish(&mut self) {
        let SessionState::Handshaking(tls, choice) =
            std::mem::replace(&mut self.state, SessionState::Failed)
        else {
            return;
        };
        let is_server = self.side.is_server();
        let info = TlsInfo::new(&tls, is_server, choice);
        self.state = SessionState::Established(Box::new(info), (!is_server).then_some(tls));
    }

    fn read_messages(&mut self, bytes: &[u8]) -> Result<bool, TransportError> {
        let mut no_choice = None;
        let (tls, choice) = match &mut self.state {
            SessionState::Handshaking(tls, choice) => (tls, choice),
            SessionState::Established(_, Some(tls)) => (tls, &mut no_choice),
            SessionState::Established(_, None) => {
                let code = TransportErrorCode::crypto(AlertDescription::UnexpectedMessage.into());
                return Err(failed(code, "a message behind the handshake"));
            }
            SessionState::Failed => {
                let code = TransportErrorCode::INTERNAL_ERROR;
                return Err(failed(code, "no TLS session"));
            }
        };
        let read = tls.read_hs(bytes);
        if let Some(chosen) = take_choice() {
            *choice = Some(chosen);
        }
        read.map_err(|error| {
            self.error = Some(TlsError::new(&error));
            let code = match tls.alert() {
                Some(alert) => TransportErrorCode::crypto(alert.into()),
                None => TransportErrorCode::PROTOCOL_VIOLATION,
            };
            failed(code, &error.to_string())
        })?;
        let is_known = tls.alpn_protocol().is_some() || !tls.is_handshaking();
        Ok(is_known && !std::mem::replace(&mut self.is_reported, true))
    }
}

impl crypto::Session for QuicSession {
    fn initial_keys(&self, id: &ConnectionId, side: Side) -> Keys {
        let of_initial = self.initial.keys(id, side.into(), Version::V1);
        keys(of_initial, &CryptoFrames::default())
    }

    /// An `Rc<TlsInfo>`, once the handshake is complete; [`Unfinished`] before.
    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        match &self.state {
            SessionState::Established(info, _) => Some(Box::new(Rc::new(TlsInfo::clone(info)))),
            SessionState::Handshaking(tls, choice) => {
                let name = choice
                    .as_ref()
                    .and_then(|choice| choice.server_name.clone());
                let is_server = self.side.is_server();
                let incomplete = || TlsInfo::of_incomplete(tls, choice.clone());
                Some(Box::new(Unfinished {
                    name,
                    info: is_server.then(incomplete).flatten(),
                    error: self.error,
                }))
            }
            SessionState::Failed => None,
        }
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        None
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        // Early data is not enabled.
        None
    }

    fn early_data_accepted(&self) -> Option<bool> {
        None
    }

    fn is_handshaking(&self) -> bool {
        match &self.state {
            SessionState::Handshaking(tls, _) => tls.is_handshaking(),
            SessionState::Established(..) => false,
            SessionState::Failed => true,
        }
    }

    fn read_handshake(&mut self, bytes: &[u8]) -> Result<bool, TransportError> {
        let Some(mut waiting) = self.hello.take() else {
            return self.read_messages(bytes);
        };
        let Some(config) = waiting.receive(bytes).cloned() else {
            self.hello = Some(waiting);
            return Ok(false);
        };
        self.state = begin(config, std::mem::take(&mut waiting.parameters));
        self.read_messages(&waiting.received)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        let (SessionState::Handshaking(tls, _) | SessionState::Established(_, Some(tls))) =
            &self.state
        else {
            return Ok(None);
        };
        let encoded = tls.quic_transport_parameters();
        let read = |bytes| TransportParameters::read(self.side, &mut Cursor::new(bytes));
        Ok(encoded.map(read).transpose()?)
    }

    fn write_handshake(&mut self, out: &mut Vec<u8>) -> Option<Keys> {
        let SessionState::Handshaking(tls, _) = &mut self.state else {
            return None;
        };
        let before = out.len();
        let Some(change) = tls.write_hs(out) else {
            if out.len() == before && !tls.is_handshaking() {
                self.establish();
            }
            return None;
        };
        let keys = match change {
            KeyChange::Handshake { keys } => keys,
            KeyChange::OneRtt { keys, next } => {
                self.next_secrets = Some(next);
                keys
            }
        };
        Some(self::keys(keys, &self.crypto_frames))
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let keys = self.next_secrets.as_mut()?.next_packet_keys();
        Some(KeyPair {
            local: Box::new(keys.local),
            remote: Box::new(ReceivingKey::new(keys.remote, &self.crypto_frames)),
        })
    }

    /// Only clients receive Retry. RFC 9001, section 5.8: its last bytes are the tag of a pseudo-packet.
    fn is_valid_retry(&self, original: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        let Some((rest, tag)) = payload.split_last_chunk::<16>() else {
            return false;
        };
        let Ok(key) = UnboundKey::new(&AES_128_GCM, &RETRY_KEY) else {
            return false;
        };
        let pseudo_packet = [&[original.len() as u8], &original[..], header, rest].concat();
        let nonce = Nonce::assume_unique_for_key(RETRY_NONCE);
        let (key, mut tag) = (LessSafeKey::new(key), *tag);
        self.side.is_client()
            && key
                .open_in_place(nonce, Aad::from(pseudo_packet), &mut tag)
                .is_ok()
    }

    fn export_keying_material(
        &self,
        _: &mut [u8],
        _: &[u8],
        _: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        // Nothing here exports any.
        Err(ExportKeyingMaterialError)
    }
}

/// The key of the tag of Retry packets, and its nonce (RFC 9001, section 5.8).
const RETRY_KEY: [u8; 16] = [
    0xbe, 0x0c, 0x69, 0x0b, 0x9f, 0x66, 0x57, 0x5a, 0x1d, 0x76, 0x6b, 0x54, 0xe3, 0x68, 0xc8, 0x4e,
];
const RETRY_NONCE: [u8; 12] = [
    0x46, 0x15, 0x99, 0xd3, 0x5d, 0x63, 0x2b, 0xf2, 0x23, 0x98, 0x25, 0xbb,
];

/// Those that are received with share the count.
fn keys(keys: quic::Keys, crypto_frames: &CryptoFrames) -> Keys {
    Keys {
        header: KeyPair {
            local: Box::new(keys.local.header),
            remote: Box::new(keys.remote.header),
        },
        packet: KeyPair {
            local: Box::new(keys.local.packet),
            remote: Box::new(ReceivingKey::new(keys.remote.packet, crypto_frames)),
        },
    }
}

fn failed(code: TransportErrorCode, reason: &str) -> TransportError {
    TransportError {
        code,
        frame: None,
        reason: reason.to_owned(),
    }
}

/// Codes from this one on carry the number of an alert (RFC 9001, section 4.8).
const CRYPTO_ERROR: u64 = 0x100;

/// The error that a failed handshake is counted as.
pub(crate) fn failure_of(reason: &ConnectionError) -> TlsError {
    let alert_of = |code: TransportErrorCode| {
        let number = u64::from(code).checked_sub(CRYPTO_ERROR)?;
        u8::try_from(number).ok()
    };
    match reason {
        ConnectionError::TransportError(error) => {
            alert_of(error.code).map_or(TlsError::Protocol, TlsError::of_own_alert)
        }
        ConnectionError::ConnectionClosed(close) => {
            alert_of(close.error_code).map_or(TlsError::Ended, TlsError::Alert)
        }
        ConnectionError::TimedOut => TlsError::TimedOut,
        _ => TlsError::Ended,
    }
}
