//! How servers are spoken to over TLS: whom to believe, what to show, what to ask for.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use rustls::ClientConfig;
use rustls::client::{ResolvesClientCert, Resumption};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls::sign::{CertifiedKey, SingleCertAndKey};

use super::certificate::Certificate;
use super::error::TlsConfigError;
use super::pem::CaSet;
use super::time::CoreTime;

/// Sessions that a core keeps per settings to resume them, by server.
const SESSIONS_MAX: usize = 256;

/// TLS towards servers. It never changes, and every core can use it; a server's certificate is
/// always verified. Connections of one are never used for requests of another.
#[derive(Clone)]
pub struct ClientTls(Arc<Settings>);

struct Settings {
    /// Tells settings apart; never used again.
    id: u64,
    config: ClientConfig,
}

/// Collects what makes a [`ClientTls`].
#[derive(Debug, Default)]
pub struct ClientTlsBuilder {
    authorities: Option<CaSet>,
    certificate: Option<Certificate>,
}

/// The versions of HTTP that a server may choose from (RFC 7301).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AlpnOffer {
    /// HTTP/2 and HTTP/1.1.
    Http2AndHttp1,
    /// HTTP/1.1 alone, for what only that can do with this server.
    Http1,
}

impl AlpnOffer {
    pub(super) fn alpn(self) -> Vec<Vec<u8>> {
        match self {
            AlpnOffer::Http2AndHttp1 => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
            AlpnOffer::Http1 => vec![b"http/1.1".to_vec()],
        }
    }
}

impl ClientTls {
    /// A builder that believes the well-known authorities and shows no certificate.
    #[must_use]
    pub fn builder() -> ClientTlsBuilder {
        ClientTlsBuilder::default()
    }
}

impl ClientTlsBuilder {
    /// Believes these authorities and no others.
    #[must_use]
    pub fn authorities(mut self, authorities: CaSet) -> ClientTlsBuilder {
        self.authorities = Some(authorities);
        self
    }

    /// Shows this certificate to servers that ask for one.
    #[must_use]
    pub fn certificate(mut self, certificate: Certificate) -> ClientTlsBuilder {
        self.certificate = Some(certificate);
        self
    }

    /// The settings.
    ///
    /// # Errors
    /// If they cannot be used with the cryptography at hand.
    pub fn build(self) -> Result<ClientTls, TlsConfigError> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let authorities = self.authorities.unwrap_or_else(CaSet::well_known);
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_details(provider, Arc::new(CoreTime))
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsConfigError::new(None, error.to_string(), ""))?
            .with_root_certificates(authorities.roots);
        let config = match self.certificate {
            None => builder.with_no_client_auth(),
            Some(certificate) => {
                let key = CertifiedKey::clone(&certificate.key);
                let resolver: Arc<dyn ResolvesClientCert> = Arc::new(SingleCertAndKey::from(key));
                builder.with_client_cert_resolver(resolver)
            }
        };
        Ok(ClientTls(Arc::new(Settings {
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

/// Where the settings are found. Cloning gives another handle to the same, on any thread.
///
/// When others are put in, connections that were made with the old ones get no more requests; those
/// that have some go on with them.
#[derive(Debug, Clone)]
pub struct ClientTlsSlot(Arc<Slot>);

#[derive(Debug)]
struct Slot {
    /// Tells slots apart; never used again.
    id: u64,
    current: ArcSwap<ClientTls>,
    /// The `id` of what is in it. Cores look at it for every connection that they take from a pool,
    /// and it hardly ever changes.
    current_id: AtomicU64,
}

impl From<ClientTls> for ClientTlsSlot {
    fn from(tls: ClientTls) -> ClientTlsSlot {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        ClientTlsSlot(Arc::new(Slot {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            current_id: AtomicU64::new(tls.0.id),
            current: ArcSwap::from_pointee(tls),
        }))
    }
}

impl ClientTlsSlot {
    /// Puts other settings in.
    pub fn replace(&self, tls: ClientTls) {
        let id = tls.0.id;
        self.0.current.store(Arc::new(tls));
        // Who sees the number finds what it stands for.
        self.0.current_id.store(id, Ordering::Release);
    }
}

/// A server to be spoken to over TLS: the settings, and the name that its certificate must have.
#[derive(Debug, Clone)]
pub struct UpstreamTls {
    slot: ClientTlsSlot,
    name: ServerName<'static>,
}

impl UpstreamTls {
    /// For a server whose certificate is for `host`: the host of the URL, without brackets or
    /// port. A name is also sent (SNI), an address is not (RFC 6066, section 3).
    ///
    /// # Errors
    /// If it is neither a name nor an address.
    pub fn new(slot: &ClientTlsSlot, host: &str) -> Result<UpstreamTls, TlsConfigError> {
        let name = ServerName::try_from(host.to_owned()).map_err(|_| {
            let problem = format!("`{host}` is no name that a certificate can have");
            TlsConfigError::new(None, problem, "Write a name such as www.example.com.")
        })?;
        Ok(UpstreamTls {
            slot: slot.clone(),
            name,
        })
    }

    pub(crate) fn key(&self) -> TlsKey {
        (self.slot.0.id, self.name.clone())
    }

    /// What a core of it needs to connect now.
    pub(crate) fn connector(&self) -> Rc<TlsConnector> {
        let tls = self.slot.0.current.load();
        Rc::new(TlsConnector {
            id: tls.0.id,
            config: config_of_core(&tls),
            name: self.name.clone(),
        })
    }

    /// Whether other settings were put in since.
    #[inline]
    pub(crate) fn has_replaced(&self, connector: &TlsConnector) -> bool {
        self.slot.0.current_id.load(Ordering::Acquire) != connector.id
    }
}

/// Tells connections apart that must not be mixed.
pub(crate) type TlsKey = (u64, ServerName<'static>);

/// A server to connect to, on one core.
pub(crate) struct TlsConnector {
    /// Of the settings.
    pub(crate) id: u64,
    pub(super) config: Arc<ClientConfig>,
    pub(super) name: ServerName<'static>,
}

impl TlsConnector {
    pub(super) fn server_name(&self) -> Option<Box<str>> {
        match &self.name {
            ServerName::DnsName(name) => Some(Box::from(name.as_ref())),
            _ => None,
        }
    }
}

/// A core's own copy of settings, with the sessions that it can resume: they are behind a lock in
/// rustls, which is never contended where only one core knows it.
fn config_of_core(tls: &ClientTls) -> Arc<ClientConfig> {
    thread_local! {
        static CONFIGS: RefCell<Vec<(u64, Weak<ClientConfig>)>> =
            const { RefCell::new(Vec::new()) };
    }
    CONFIGS.with_borrow_mut(|configs| {
        configs.retain(|(_, config)| config.strong_count() > 0);
        let known = configs.iter().find(|(id, _)| *id == tls.0.id);
        if let Some(config) = known.and_then(|(_, config)| config.upgrade()) {
            return config;
        }
        let mut config = tls.0.config.clone();
        config.resumption = Resumption::in_memory_sessions(SESSIONS_MAX);
        let config = Arc::new(config);
        configs.push((tls.0.id, Arc::downgrade(&config)));
        config
    })
}
