//! TLS towards servers: trusted authorities, the client certificate, and the ALPN offer.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use blitz_quic::quinn_proto::{self, NoneTokenStore, TokenMemoryCache, TokenStore};
use rustls::ClientConfig;
use rustls::client::{ResolvesClientCert, Resumption, WebPkiServerVerifier};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls::sign::{CertifiedKey, SingleCertAndKey};

use super::any_certificate::AnyCertificate;
use super::certificate::Certificate;
use super::error::TlsConfigError;
use super::pem::CaSet;
use super::quic::QuicClientTls;
use super::refused::DescribingVerifier;
use super::time::CoreTime;
use crate::conn::Protocol;

/// Resumable sessions that a core keeps for one `ClientTls`.
const SESSIONS_MAX: usize = 256;

/// Immutable TLS settings for connections to servers, shared by all cores. A request never uses a
/// connection that was made with other settings.
#[derive(Clone)]
pub struct ClientTls(Arc<ClientTlsSettings>);

struct ClientTlsSettings {
    /// Unique in the process.
    id: u64,
    config: ClientConfig,
}

/// Builds a [`ClientTls`].
#[derive(Debug, Default)]
pub struct ClientTlsBuilder {
    authorities: Option<CaSet>,
    certificate: Option<Certificate>,
    accepts_any_certificate: bool,
}

/// Whether handshakes use the core's resumable sessions (RFC 8446, section 2.2; RFC 5077).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handshakes {
    /// They resume a session if there is one, and leave one behind.
    Resumable,
    /// Each is complete.
    Full,
}

/// The versions of HTTP that a client offers in ALPN (RFC 7301).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AlpnOffer {
    /// HTTP/2 and HTTP/1.1.
    All,
    /// This one alone: HTTP/1.1, for example, for a WebSocket to a server without extended CONNECT.
    Only(Protocol),
}

impl AlpnOffer {
    pub(super) fn alpn(self) -> Vec<Vec<u8>> {
        match self {
            AlpnOffer::All => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
            AlpnOffer::Only(protocol) => vec![protocol.alpn_name().into()],
        }
    }
}

impl ClientTls {
    /// A builder that trusts the well-known authorities and sends no client certificate.
    #[must_use]
    pub fn builder() -> ClientTlsBuilder {
        ClientTlsBuilder::default()
    }
}

impl ClientTlsBuilder {
    /// Trusts these authorities and no others.
    #[must_use]
    pub fn authorities(mut self, authorities: CaSet) -> ClientTlsBuilder {
        self.authorities = Some(authorities);
        self
    }

    /// Sends this certificate to servers that request one.
    #[must_use]
    pub fn certificate(mut self, certificate: Certificate) -> ClientTlsBuilder {
        self.certificate = Some(certificate);
        self
    }

    /// Verifies no certificate of a server: neither issuer nor name nor date. Anybody on the path to the
    /// server can then read and change everything, so this is only for load tests of development servers.
    /// The authorities have no effect.
    #[must_use]
    pub fn danger_accept_any_certificate(mut self) -> ClientTlsBuilder {
        self.accepts_any_certificate = true;
        self
    }

    /// Builds the settings.
    ///
    /// # Errors
    /// The cryptography provider does not support the settings.
    pub fn build(self) -> Result<ClientTls, TlsConfigError> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_details(Arc::clone(&provider), Arc::new(CoreTime))
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsConfigError::new(None, error.to_string(), ""))?;
        let builder = match self.accepts_any_certificate {
            true => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider))),
            false => {
                let authorities = self.authorities.unwrap_or_else(CaSet::well_known);
                let roots = authorities.roots;
                let verifier =
                    WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), provider);
                match verifier.build() {
                    Ok(verifier) => builder
                        .dangerous()
                        .with_custom_certificate_verifier(Arc::new(DescribingVerifier(verifier))),
                    // There is no authority: every certificate is refused.
                    Err(_) => builder.with_root_certificates(roots),
                }
            }
        };
        let config = match self.certificate {
            None => builder.with_no_client_auth(),
            Some(certificate) => {
                let key = CertifiedKey::clone(&certificate.key);
                let resolver: Arc<dyn ResolvesClientCert> = Arc::new(SingleCertAndKey::from(key));
                builder.with_client_cert_resolver(resolver)
            }
        };
        Ok(ClientTls(Arc::new(ClientTlsSettings {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            config,
        })))
    }
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientTls({})", self.0.id)
    }
}

/// Replaceable TLS settings. Clones are handles to the same slot, on any thread.
///
/// After a replacement, connections that were made with the old settings finish their running
/// requests and get no new ones.
#[derive(Debug, Clone)]
pub struct ClientTlsSlot(Arc<ClientTlsState>);

#[derive(Debug)]
struct ClientTlsState {
    /// Unique in the process.
    id: u64,
    current: ArcSwap<ClientTls>,
    /// The `id` of `current`. Cores load it for every connection that they take from a pool, which
    /// is cheap because it hardly ever changes.
    current_id: AtomicU64,
}

impl From<ClientTls> for ClientTlsSlot {
    fn from(tls: ClientTls) -> ClientTlsSlot {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        ClientTlsSlot(Arc::new(ClientTlsState {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            current_id: AtomicU64::new(tls.0.id),
            current: ArcSwap::from_pointee(tls),
        }))
    }
}

impl ClientTlsSlot {
    /// Replaces the settings.
    pub fn replace(&self, tls: ClientTls) {
        let id = tls.0.id;
        self.0.current.store(Arc::new(tls));
        // Stored last: a core that loads the new number also loads the new settings.
        self.0.current_id.store(id, Ordering::Release);
    }
}

/// TLS towards one server: the settings, and the name that the server's certificate must have.
#[derive(Debug, Clone)]
pub struct UpstreamTls {
    slot: ClientTlsSlot,
    name: ServerName<'static>,
}

impl UpstreamTls {
    /// TLS towards a server whose certificate must be valid for `host`: the host of the URL,
    /// without brackets or port. A name is also sent as SNI, an address is not (RFC 6066,
    /// section 3).
    ///
    /// # Errors
    /// `host` is neither a name nor an address.
    pub fn new(slot: &ClientTlsSlot, host: &str) -> Result<UpstreamTls, TlsConfigError> {
        let name = ServerName::try_from(host.to_owned()).map_err(|_| {
            let problem = format!("`{host}` is neither a DNS name nor an address");
            TlsConfigError::new(None, problem, "Use a name such as www.example.com.")
        })?;
        Ok(UpstreamTls {
            slot: slot.clone(),
            name,
        })
    }

    pub(crate) fn key(&self) -> TlsKey {
        (self.slot.0.id, self.name.clone())
    }

    /// A connector of this core with the current settings.
    pub(crate) fn connector(&self, handshakes: Handshakes) -> Rc<TlsConnector> {
        let tls = self.slot.0.current.load();
        Rc::new(TlsConnector {
            id: tls.0.id,
            config: config_of_core(&tls, handshakes),
            name: self.name.clone(),
            sent_name: self.sent_name(),
        })
    }

    /// The name as it is sent (SNI); `None` for an address.
    fn sent_name(&self) -> Option<Box<str>> {
        match &self.name {
            ServerName::DnsName(name) => Some(Box::from(name.as_ref())),
            _ => None,
        }
    }

    /// The configuration of a new connection of QUIC of this core, and the name for its tokens.
    pub(crate) fn datagrams(&self, handshakes: Handshakes) -> (quinn_proto::ClientConfig, String) {
        let tls = self.slot.0.current.load();
        let (config, tokens) = datagrams_of_core(&tls, handshakes);
        let mut config = quinn_proto::ClientConfig::new(Arc::new(QuicClientTls {
            config,
            name: self.name.clone(),
            sent_name: self.sent_name(),
        }));
        config.token_store(tokens);
        (config, self.name.to_str().into_owned())
    }

    /// Whether the settings were replaced since `connector` was made.
    #[inline]
    pub(crate) fn has_replaced(&self, connector: &TlsConnector) -> bool {
        self.slot.0.current_id.load(Ordering::Acquire) != connector.id
    }
}

/// Identifies the connections that may share a pool: the slot of the settings, and the server's
/// name.
pub(crate) type TlsKey = (u64, ServerName<'static>);

/// Makes TLS connections to one server, on one core.
pub(crate) struct TlsConnector {
    /// The `id` of the settings.
    pub(crate) id: u64,
    pub(super) config: Arc<ClientConfig>,
    pub(super) name: ServerName<'static>,
    /// The name as it is sent (SNI).
    pub(super) sent_name: Option<Box<str>>,
}

/// A core's own copies of some settings, with their resumable sessions. rustls keeps sessions behind a
/// lock; one copy per core keeps that lock uncontended.
struct CoreConfigs {
    /// The copies go with the settings, not with their last connection, which leaves a session behind.
    settings: Weak<ClientTlsSettings>,
    /// By [`Handshakes`].
    streams: [Option<Arc<ClientConfig>>; 2],
    /// The same for QUIC, whose sessions are others, with the tokens of its connections.
    datagrams: [Option<DatagramConfig>; 2],
}

/// The settings of QUIC connections, and where their tokens are kept.
type DatagramConfig = (Arc<ClientConfig>, Arc<dyn TokenStore>);

thread_local! {
    static CONFIGS: RefCell<Vec<CoreConfigs>> = const { RefCell::new(Vec::new()) };
}

fn with_configs_of_core<T>(tls: &ClientTls, act: impl FnOnce(&mut CoreConfigs) -> T) -> T {
    CONFIGS.with_borrow_mut(|all| {
        all.retain(|configs| configs.settings.strong_count() > 0);
        let is_same = |configs: &CoreConfigs| configs.settings.as_ptr() == Arc::as_ptr(&tls.0);
        let at = all.iter().position(is_same).unwrap_or_else(|| {
            all.push(CoreConfigs {
                settings: Arc::downgrade(&tls.0),
                streams: [None, None],
                datagrams: [None, None],
            });
            all.len() - 1
        });
        act(&mut all[at])
    })
}

fn config_of_core(tls: &ClientTls, handshakes: Handshakes) -> Arc<ClientConfig> {
    with_configs_of_core(tls, |configs| {
        let config = &mut configs.streams[handshakes as usize];
        let make = || Arc::new(own_config(tls, handshakes));
        Arc::clone(config.get_or_insert_with(make))
    })
}

fn datagrams_of_core(tls: &ClientTls, handshakes: Handshakes) -> DatagramConfig {
    with_configs_of_core(tls, |configs| {
        let made = &mut configs.datagrams[handshakes as usize];
        let (config, tokens) = made.get_or_insert_with(|| {
            let mut config = own_config(tls, handshakes);
            config.alpn_protocols = vec![Protocol::DATAGRAMS.alpn_name().into()];
            let tokens: Arc<dyn TokenStore> = match handshakes {
                Handshakes::Resumable => Arc::new(TokenMemoryCache::default()),
                Handshakes::Full => Arc::new(NoneTokenStore),
            };
            (Arc::new(config), tokens)
        });
        (Arc::clone(config), Arc::clone(tokens))
    })
}

fn own_config(tls: &ClientTls, handshakes: Handshakes) -> ClientConfig {
    let mut config = tls.0.config.clone();
    config.resumption = match handshakes {
        Handshakes::Resumable => Resumption::in_memory_sessions(SESSIONS_MAX),
        Handshakes::Full => Resumption::disabled(),
    };
    config
}
