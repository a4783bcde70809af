//! TLS inside QUIC (RFC 9001): the same certificates, tickets and client authentication as over TCP.

use std::any::Any;
use std::io::Cursor;
use std::rc::Rc;
use std::sync::Arc;

use blitz_quic::ReceivingKey;
use blitz_quic::quinn_proto::crypto::rustls::QuicServerConfig;
use blitz_quic::quinn_proto::crypto::{
    self, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, UnsupportedVersion,
};
use blitz_quic::quinn_proto::transport_parameters::TransportParameters;
use blitz_quic::quinn_proto::{
    ConnectionError, ConnectionId, Side, TransportError, TransportErrorCode,
};
use rustls::quic::{self, KeyChange, Secrets, ServerConnection, Suite, Version};
use rustls::{AlertDescription, CipherSuite, ServerConfig};

use super::error::TlsError;
use super::info::TlsInfo;
use super::server::{Choice, take_choice};

/// Starts the TLS sessions of QUIC connections.
pub(crate) struct QuicTls {
    config: Arc<ServerConfig>,
    /// Keys of Initial packets, which do not depend on certificates.
    initial: Suite,
    /// Signs Retry packets.
    retry: QuicServerConfig,
}

impl QuicTls {
    /// From the settings of a listener. QUIC has TLS 1.3 only, and this listener HTTP/3 only.
    pub(crate) fn new(config: &ServerConfig) -> QuicTls {
        let mut config = config.clone();
        config.alpn_protocols = vec![b"h3".to_vec()];
        let config = Arc::new(config);
        let suites = &config.crypto_provider().cipher_suites;
        let initial = suites
            .iter()
            .filter(|suite| suite.suite() == CipherSuite::TLS13_AES_128_GCM_SHA256)
            .find_map(|suite| suite.tls13()?.quic_suite());
        let retry = QuicServerConfig::try_from(Arc::clone(&config));
        let (Some(initial), Ok(retry)) = (initial, retry) else {
            unreachable!("the provider of every listener has TLS_AES_128_GCM_SHA256")
        };
        QuicTls {
            config,
            initial,
            retry,
        }
    }
}

impl crypto::ServerConfig for QuicTls {
    fn initial_keys(&self, version: u32, id: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        if version != 1 {
            return Err(UnsupportedVersion);
        }
        Ok(keys(self.initial.keys(
            id,
            rustls::Side::Server,
            Version::V1,
        )))
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
        let config = Arc::clone(&self.config);
        let tls = ServerConnection::new(config, Version::V1, encoded);
        let state = match tls {
            Ok(tls) => State::Handshaking(Box::new(tls), None),
            Err(_) => State::Failed,
        };
        Box::new(QuicSession {
            state,
            config: self,
            next_secrets: None,
            is_reported: false,
        })
    }
}

/// The server name of a handshake that is not complete.
struct RequestedName(Box<str>);

/// The server name that the client has sent, also if its handshake has failed.
pub(crate) fn server_name(session: &dyn crypto::Session) -> Option<Box<str>> {
    let data = session.handshake_data()?;
    match data.downcast::<RequestedName>() {
        Ok(name) => Some(name.0),
        Err(data) => data.downcast::<Rc<TlsInfo>>().ok()?.server_name.clone(),
    }
}

/// The TLS session of one connection.
struct QuicSession {
    state: State,
    config: Arc<QuicTls>,
    next_secrets: Option<Secrets>,
    is_reported: bool,
}

enum State {
    Handshaking(Box<ServerConnection>, Option<Choice>),
    /// The session itself is of no more use: clients send no messages behind the handshake (RFC 9001, section 6).
    Established(Box<TlsInfo>),
    /// It could not be created.
    Failed,
}

impl crypto::Session for QuicSession {
    fn initial_keys(&self, id: &ConnectionId, _: Side) -> Keys {
        match crypto::ServerConfig::initial_keys(&*self.config, 1, id) {
            Ok(keys) => keys,
            Err(_) => unreachable!("version 1 is known"),
        }
    }

    /// An `Rc<TlsInfo>`, once the handshake is complete; a [`RequestedName`] before.
    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        match &self.state {
            State::Established(info) => Some(Box::new(Rc::new(TlsInfo::clone(info)))),
            State::Handshaking(_, choice) => {
                let name = choice.as_ref()?.server_name.clone()?;
                Some(Box::new(RequestedName(name)))
            }
            State::Failed => None,
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
            State::Handshaking(tls, _) => tls.is_handshaking(),
            State::Established(_) => false,
            State::Failed => true,
        }
    }

    fn read_handshake(&mut self, bytes: &[u8]) -> Result<bool, TransportError> {
        let (tls, choice) = match &mut self.state {
            State::Handshaking(tls, choice) => (tls, choice),
            State::Established(_) => {
                let code = TransportErrorCode::crypto(AlertDescription::UnexpectedMessage.into());
                return Err(failed(code, "a message behind the handshake"));
            }
            State::Failed => {
                let code = TransportErrorCode::INTERNAL_ERROR;
                return Err(failed(code, "no TLS session"));
            }
        };
        let read = tls.read_hs(bytes);
        if let Some(chosen) = take_choice() {
            *choice = Some(chosen);
        }
        read.map_err(|error| {
            let code = match tls.alert() {
                Some(alert) => TransportErrorCode::crypto(alert.into()),
                None => TransportErrorCode::PROTOCOL_VIOLATION,
            };
            failed(code, &error.to_string())
        })?;
        let is_known = tls.alpn_protocol().is_some() || !tls.is_handshaking();
        Ok(is_known && !std::mem::replace(&mut self.is_reported, true))
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        let State::Handshaking(tls, _) = &self.state else {
            return Ok(None);
        };
        let encoded = tls.quic_transport_parameters();
        let read = |bytes| TransportParameters::read(Side::Server, &mut Cursor::new(bytes));
        Ok(encoded.map(read).transpose()?)
    }

    fn write_handshake(&mut self, out: &mut Vec<u8>) -> Option<Keys> {
        let State::Handshaking(tls, choice) = &mut self.state else {
            return None;
        };
        let before = out.len();
        let Some(change) = tls.write_hs(out) else {
            if out.len() == before && !tls.is_handshaking() {
                let info = TlsInfo::new(tls, true, choice.take());
                self.state = State::Established(Box::new(info));
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
        Some(self::keys(keys))
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let keys = self.next_secrets.as_mut()?.next_packet_keys();
        Some(KeyPair {
            local: Box::new(keys.local),
            remote: Box::new(ReceivingKey(keys.remote)),
        })
    }

    fn is_valid_retry(&self, _: &ConnectionId, _: &[u8], _: &[u8]) -> bool {
        // Only clients receive Retry.
        false
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

fn keys(keys: quic::Keys) -> Keys {
    Keys {
        header: KeyPair {
            local: Box::new(keys.local.header),
            remote: Box::new(keys.remote.header),
        },
        packet: KeyPair {
            local: Box::new(keys.local.packet),
            remote: Box::new(ReceivingKey(keys.remote.packet)),
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

/// What a failed handshake is counted as.
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
