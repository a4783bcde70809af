//! TLS of listeners: certificates, client authentication and ALPN, in an immutable snapshot that
//! all cores share.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::crypto::aws_lc_rs;
use rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, SupportedProtocolVersion};

use super::certificate::Certificate;
use super::error::TlsConfigError;
use super::info::TlsVersion;
use super::pem::CaSet;
use super::policies::{PolicyEntry, PolicyTable, ServerNames, TlsPolicy, TlsPolicyId};
use super::tickets::TicketKeys;
use super::time::CoreTime;

/// The versions by default.
const VERSIONS: &[&SupportedProtocolVersion] = &[&TLS13, &TLS12];

/// Those of policies that demand the latest.
const ONLY_1_3: &[&SupportedProtocolVersion] = &[&TLS13];

/// Immutable TLS settings of a listener; [`TlsSlot`] replaces them.
///
/// They allow TLS 1.3 and 1.2 with rustls's default cipher suites, prefer the key exchange
/// X25519MLKEM768, and do not allow early data.
#[derive(Clone)]
pub struct ServerTls {
    pub(super) config: Arc<ServerConfig>,
    resolver: Arc<CertificateResolver>,
    client_auth: ClientAuth,
    /// `None` if all server names have the policy of the listener.
    pub(super) policies: Option<Arc<PolicyTable>>,
}

/// Whether clients have to authenticate with a certificate.
#[derive(Debug, Clone, Default)]
pub enum ClientAuth {
    /// The server requests no certificate.
    #[default]
    None,
    /// Clients may send a certificate. If they do, one of these authorities must have issued it.
    Optional(CaSet),
    /// Clients must send a certificate that one of these authorities has issued.
    Required(CaSet),
}

/// Builds a [`ServerTls`].
#[derive(Debug, Default)]
pub struct ServerTlsBuilder {
    certificates: Vec<Certificate>,
    alpn: Vec<Vec<u8>>,
    client_auth: ClientAuth,
    ticket_keys: Option<TicketKeys>,
    policies: Vec<(ServerNames, TlsPolicy)>,
}

impl ServerTls {
    /// A builder without certificates that negotiates HTTP/2 and HTTP/1.1.
    #[must_use]
    pub fn builder() -> ServerTlsBuilder {
        ServerTlsBuilder {
            alpn: vec![b"h2".to_vec(), b"http/1.1".to_vec()],
            ..ServerTlsBuilder::default()
        }
    }

    /// The certificates, the default first.
    pub fn certificates(&self) -> impl Iterator<Item = &Certificate> {
        self.resolver.all.iter().map(|certificate| &**certificate)
    }

    /// Whether clients have to authenticate.
    #[must_use]
    pub fn client_auth(&self) -> &ClientAuth {
        &self.client_auth
    }

    /// The same settings with other ticket keys, for the rotation of keys.
    ///
    /// # Errors
    /// No keys can be derived from them.
    pub fn with_ticket_keys(&self, keys: &TicketKeys) -> Result<ServerTls, TlsConfigError> {
        let with_keys = |config: &ServerConfig, policy: &[u8]| {
            let mut config = config.clone();
            config.ticketer = Arc::new(keys.for_policy(policy)?);
            Ok(Arc::new(config))
        };
        let config = with_keys(&self.config, &self.client_auth.policy())?;
        let policies = self.policies.as_ref().map(|table| {
            let of_site = |entry: &PolicyEntry| match entry.policy.id() {
                None => Ok(Arc::clone(&config)),
                Some(_) => with_keys(&entry.config, &entry.policy.tickets(&self.client_auth)),
            };
            table.with(of_site).map(Arc::new)
        });
        let policies = policies.transpose()?;
        Ok(ServerTls {
            config,
            policies,
            ..self.clone()
        })
    }
}

impl std::fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerTls")
            .field("certificates", &self.resolver.all)
            .field("client_auth", &self.client_auth)
            .finish_non_exhaustive()
    }
}

impl ServerTlsBuilder {
    /// Adds a certificate. If several are for the client's server name, the first with a key type
    /// that the client supports is used. If none is, or the client sends no server name, the first
    /// of all certificates with such a key type is used.
    #[must_use]
    pub fn certificate(mut self, certificate: Certificate) -> ServerTlsBuilder {
        self.certificates.push(certificate);
        self
    }

    /// The application protocols to negotiate, the preferred first.
    #[must_use]
    pub fn alpn<'a>(mut self, protocols: impl IntoIterator<Item = &'a str>) -> ServerTlsBuilder {
        let protocols = protocols.into_iter();
        self.alpn = protocols.map(|name| name.as_bytes().to_vec()).collect();
        self
    }

    /// Sets whether clients have to authenticate.
    #[must_use]
    pub fn client_auth(mut self, client_auth: ClientAuth) -> ServerTlsBuilder {
        self.client_auth = client_auth;
        self
    }

    /// Sets the secrets of session tickets, which all listeners share. Without them the listener
    /// makes its own, and its sessions end with the snapshot.
    #[must_use]
    pub fn ticket_keys(mut self, keys: &TicketKeys) -> ServerTlsBuilder {
        self.ticket_keys = Some(keys.clone());
        self
    }

    /// Sets the policy for server names. Of equal names the last one counts; names without one have the policy of the
    /// listener.
    #[must_use]
    pub fn policy(mut self, names: ServerNames, policy: TlsPolicy) -> ServerTlsBuilder {
        self.policies.push((names, policy));
        self
    }

    /// Builds the snapshot.
    ///
    /// # Errors
    /// There is no certificate, no authority although clients have to authenticate, or no
    /// randomness.
    pub fn build(self) -> Result<ServerTls, TlsConfigError> {
        let failed = |problem: String| TlsConfigError::new(None, problem, "");
        if self.certificates.is_empty() {
            return Err(failed("a TLS listener needs a certificate".into()));
        }
        let keys = match self.ticket_keys {
            Some(keys) => keys,
            None => TicketKeys::new()?,
        };
        let resolver = Arc::new(CertificateResolver::new(self.certificates));
        let maker = ConfigMaker {
            resolver: &resolver,
            alpn: &self.alpn,
            keys: &keys,
        };
        let tickets = self.client_auth.policy();
        let config = maker.config(&self.client_auth, VERSIONS, (None, &tickets))?;
        let of_site = |policy: &TlsPolicy| {
            let client_auth = policy.client_auth_on(&self.client_auth);
            let versions = match policy.min_version {
                Some(TlsVersion::V1_3) => ONLY_1_3,
                None | Some(TlsVersion::V1_2) => VERSIONS,
            };
            let tickets = policy.tickets(&self.client_auth);
            maker.config(client_auth, versions, (policy.id(), &tickets))
        };
        let policies = PolicyTable::new(&config, &self.policies, of_site)?;
        Ok(ServerTls {
            config,
            resolver,
            client_auth: self.client_auth,
            policies: policies.map(Arc::new),
        })
    }
}

/// The common part of the settings of all policies.
struct ConfigMaker<'a> {
    resolver: &'a Arc<CertificateResolver>,
    alpn: &'a [Vec<u8>],
    keys: &'a TicketKeys,
}

impl ConfigMaker<'_> {
    /// The settings of a policy, with what identifies it for requests and for tickets.
    fn config(
        &self,
        client_auth: &ClientAuth,
        versions: &[&'static SupportedProtocolVersion],
        (id, tickets): (Option<TlsPolicyId>, &[u8]),
    ) -> Result<Arc<ServerConfig>, TlsConfigError> {
        let failed = |problem: String| TlsConfigError::new(None, problem, "");
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_details(Arc::clone(&provider), Arc::new(CoreTime))
            .with_protocol_versions(versions)
            .map_err(|error| failed(error.to_string()))?;
        let builder = match client_auth {
            ClientAuth::None => builder.with_no_client_auth(),
            ClientAuth::Optional(set) | ClientAuth::Required(set) => {
                let roots = Arc::clone(&set.roots);
                let mut verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                if matches!(client_auth, ClientAuth::Optional(_)) {
                    verifier = verifier.allow_unauthenticated();
                }
                let verifier = verifier.build();
                builder.with_client_cert_verifier(verifier.map_err(|e| failed(e.to_string()))?)
            }
        };
        let mut config = builder.with_cert_resolver(Arc::new(PolicyResolver {
            certificates: Arc::clone(self.resolver),
            policy: id,
        }));
        config.alpn_protocols = self.alpn.to_vec();
        // Tickets only: a session store would need a lock that all cores share.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.ticketer = Arc::new(self.keys.for_policy(tickets)?);
        Ok(Arc::new(config))
    }
}

impl ClientAuth {
    /// Identifies the policy. A session must not be resumed under another policy.
    pub(super) fn policy(&self) -> Vec<u8> {
        let (mode, set) = match self {
            ClientAuth::None => (0, None),
            ClientAuth::Optional(set) => (1, Some(set)),
            ClientAuth::Required(set) => (2, Some(set)),
        };
        let mut policy = vec![mode];
        policy.extend(set.iter().flat_map(|set| set.digest));
        policy
    }
}

/// Replaceable TLS settings of a listener. Clones are handles to the same slot, on any thread.
///
/// New settings apply to new handshakes; existing connections keep their settings.
#[derive(Debug, Clone)]
pub struct TlsSlot(Arc<ArcSwap<ServerTls>>);

impl TlsSlot {
    /// A slot with this snapshot.
    #[must_use]
    pub fn new(tls: ServerTls) -> TlsSlot {
        TlsSlot(Arc::new(ArcSwap::from_pointee(tls)))
    }

    /// Replaces the snapshot.
    pub fn replace(&self, tls: ServerTls) {
        self.0.store(Arc::new(tls));
    }

    /// The current snapshot.
    #[must_use]
    pub fn current(&self) -> Arc<ServerTls> {
        self.0.load_full()
    }

    /// The current snapshot, for the start of a session.
    pub(crate) fn load(&self) -> arc_swap::Guard<Arc<ServerTls>> {
        self.0.load()
    }
}

/// Finds the certificate for a server name: first by the name itself, then with `*` for its first
/// label, otherwise the first of all.
struct CertificateResolver {
    all: Vec<Arc<Certificate>>,
    by_name: HashMap<String, Vec<usize>>,
}

/// The client's server name, and the certificate that was chosen for it.
#[derive(Clone, Default)]
pub(super) struct Choice {
    pub(super) server_name: Option<Box<str>>,
    pub(super) certificate: Option<Arc<Certificate>>,
    /// The policy of the settings that the session runs with; `None` is that of the listener.
    pub(super) policy: Option<TlsPolicyId>,
}

thread_local! {
    /// The last choice. rustls calls the resolver while it processes a message, and its unbuffered
    /// connections do not expose the server name afterwards.
    static CHOSEN: RefCell<Option<Choice>> = const { RefCell::new(None) };
}

/// The choice that the resolver made on this thread since the last call, if any.
pub(super) fn take_choice() -> Option<Choice> {
    CHOSEN.take()
}

impl CertificateResolver {
    fn new(certificates: Vec<Certificate>) -> CertificateResolver {
        let all: Vec<_> = certificates.into_iter().map(Arc::new).collect();
        let mut by_name: HashMap<String, Vec<usize>> = HashMap::new();
        for (at, certificate) in all.iter().enumerate() {
            for name in certificate.names() {
                by_name.entry(name.clone()).or_default().push(at);
            }
        }
        CertificateResolver { all, by_name }
    }

    fn find(&self, hello: &ClientHello<'_>) -> Option<&Arc<Certificate>> {
        let fits = |at: &&usize| {
            let key = &self.all[**at].key.key;
            key.choose_scheme(hello.signature_schemes()).is_some()
        };
        let for_name = |name: &str| self.by_name.get(name)?.iter().find(fits);
        let found = server_name(hello).and_then(|name| {
            let name = name.to_ascii_lowercase();
            let wildcard = || for_name(&format!("*.{}", name.split_once('.')?.1));
            for_name(&name).or_else(wildcard)
        });
        // If no certificate fits, the handshake fails with an alert, whatever is chosen here.
        let others = || (0..self.all.len()).find(|at| fits(&at));
        self.all.get(found.copied().or_else(others).unwrap_or(0))
    }
}

/// The client's server name. RFC 6066, section 3, allows no dot at its end, but some clients send the one
/// that ends the name in a URL.
fn server_name<'a>(hello: &'a ClientHello<'_>) -> Option<&'a str> {
    let name = hello.server_name()?;
    Some(name.strip_suffix('.').unwrap_or(name))
}

/// The certificates, with the policy of the settings that they belong to.
#[derive(Debug)]
struct PolicyResolver {
    certificates: Arc<CertificateResolver>,
    policy: Option<TlsPolicyId>,
}

impl ResolvesServerCert for PolicyResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let certificate = self.certificates.find(&hello)?;
        CHOSEN.set(Some(Choice {
            server_name: server_name(&hello).map(Box::from),
            certificate: Some(Arc::clone(certificate)),
            policy: self.policy,
        }));
        Some(Arc::clone(&certificate.key))
    }
}

impl std::fmt::Debug for CertificateResolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.all.fmt(f)
    }
}
