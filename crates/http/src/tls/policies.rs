//! TLS policies of sites: the server name of the client (SNI) chooses the settings of its handshake.

use std::collections::HashMap;
use std::sync::Arc;

use aws_lc_rs::digest;
use rustls::ServerConfig;
use rustls::server::Acceptor;

use super::error::TlsConfigError;
use super::info::TlsVersion;
use super::server::ClientAuth;

/// The header of a record with a handshake message, without its length (RFC 8446, section 5.1).
const HANDSHAKE_RECORD: [u8; 3] = [22, 3, 1];

/// Server names that clients send.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ServerNames {
    /// This one.
    Exact(String),
    /// Those with one label more than this one.
    Below(String),
    /// All that no other policy is for, and none at all.
    Any,
}

/// The demands of handshakes for some server names. The default is the policy of the listener.
#[derive(Debug, Clone, Default)]
pub struct TlsPolicy {
    /// Whether clients have to authenticate; [`ClientAuth::None`] is as on the listener.
    pub client_auth: ClientAuth,
    /// The least version.
    pub min_version: Option<TlsVersion>,
}

impl PartialEq for TlsPolicy {
    fn eq(&self, other: &TlsPolicy) -> bool {
        self.id() == other.id()
    }
}

impl Eq for TlsPolicy {}

/// Tells policies apart: the mode of client authentication, the certificates of its authorities, the least version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TlsPolicyId([u8; 32]);

impl TlsPolicy {
    /// Its number; `None` if it is that of the listener.
    #[must_use]
    pub fn id(&self) -> Option<TlsPolicyId> {
        if matches!(self.client_auth, ClientAuth::None) && self.min_version.is_none() {
            return None;
        }
        let digest = digest::digest(&digest::SHA256, &self.tickets(&ClientAuth::None));
        let mut id = [0; 32];
        id.copy_from_slice(digest.as_ref());
        Some(TlsPolicyId(id))
    }

    /// How clients have to authenticate, on a listener with this rule of its own.
    pub(super) fn client_auth_on<'a>(&'a self, listener: &'a ClientAuth) -> &'a ClientAuth {
        match &self.client_auth {
            ClientAuth::None => listener,
            own => own,
        }
    }

    /// Identifies the policy for the keys of tickets (rule 22). It differs from that of every listener.
    pub(super) fn tickets(&self, listener: &ClientAuth) -> Vec<u8> {
        let min = match self.min_version {
            None => b"any",
            Some(TlsVersion::V1_2) => b"1.2",
            Some(TlsVersion::V1_3) => b"1.3",
        };
        let mut policy = self.client_auth_on(listener).policy();
        policy.extend_from_slice(b"site");
        policy.extend_from_slice(min);
        policy
    }
}

/// The settings by server names. Immutable, and shared by all cores.
pub(super) struct PolicyTable {
    exact: HashMap<String, usize>,
    below: HashMap<String, usize>,
    any: usize,
    /// The first is that of the listener.
    pub(super) entries: Vec<PolicyEntry>,
}

#[derive(Clone)]
pub(super) struct PolicyEntry {
    pub(super) config: Arc<ServerConfig>,
    pub(super) policy: TlsPolicy,
}

impl PolicyTable {
    /// The table of these policies; `None` if all are that of the listener. `make` makes the settings of a policy.
    ///
    /// # Errors
    /// Those of `make`.
    pub(super) fn new(
        listener: &Arc<ServerConfig>,
        policies: &[(ServerNames, TlsPolicy)],
        make: impl Fn(&TlsPolicy) -> Result<Arc<ServerConfig>, TlsConfigError>,
    ) -> Result<Option<PolicyTable>, TlsConfigError> {
        let mut numbers: HashMap<TlsPolicyId, usize> = HashMap::new();
        let mut table = PolicyTable {
            exact: HashMap::new(),
            below: HashMap::new(),
            any: 0,
            entries: vec![PolicyEntry {
                config: Arc::clone(listener),
                policy: TlsPolicy::default(),
            }],
        };
        for (names, policy) in policies {
            let number = match policy.id() {
                None => 0,
                Some(id) => match numbers.get(&id) {
                    Some(number) => *number,
                    None => {
                        table.entries.push(PolicyEntry {
                            config: make(policy)?,
                            policy: policy.clone(),
                        });
                        numbers.insert(id, table.entries.len() - 1);
                        table.entries.len() - 1
                    }
                },
            };
            match names {
                ServerNames::Exact(name) => {
                    table.exact.insert(name.to_ascii_lowercase(), number);
                }
                ServerNames::Below(parent) => {
                    table.below.insert(parent.to_ascii_lowercase(), number);
                }
                ServerNames::Any => table.any = number,
            }
        }
        Ok((table.entries.len() > 1).then_some(table))
    }

    /// The same names with other settings.
    ///
    /// # Errors
    /// Those of `make`.
    pub(super) fn with<E>(
        &self,
        make: impl Fn(&PolicyEntry) -> Result<Arc<ServerConfig>, E>,
    ) -> Result<PolicyTable, E> {
        let mut entries = Vec::with_capacity(self.entries.len());
        for entry in &self.entries {
            let config = make(entry)?;
            let policy = entry.policy.clone();
            entries.push(PolicyEntry { config, policy });
        }
        Ok(PolicyTable {
            exact: self.exact.clone(),
            below: self.below.clone(),
            any: self.any,
            entries,
        })
    }

    /// The settings for a server name.
    pub(super) fn config(&self, name: Option<&str>) -> &Arc<ServerConfig> {
        let found = name.and_then(|name| {
            let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
            let below = || self.below.get(name.split_once('.')?.1);
            self.exact.get(&name).or_else(below)
        });
        let number = found.copied().unwrap_or(self.any);
        &self.entries.get(number).unwrap_or(&self.entries[0]).config
    }
}

/// Reads the first message of a client for its server name, with the parser of rustls, before a session begins.
///
/// **Invariant: access depends on no result of it.** A session notes the policy that it has run with, which requests are
/// compared with.
#[derive(Default)]
pub(super) struct HelloReader {
    acceptor: Acceptor,
    /// Bytes that the acceptor has.
    seen: usize,
}

/// The first message of a client.
pub(super) enum Hello {
    Incomplete,
    Complete(Option<String>),
    /// The session finds out why.
    Invalid,
}

impl HelloReader {
    /// `records` are all that came, those of earlier calls included.
    pub(super) fn read_records(&mut self, records: &[u8]) -> Hello {
        let new = records.get(self.seen..).unwrap_or_default();
        self.seen = records.len();
        self.feed(new)
    }

    /// The next bytes of a stream of messages, as QUIC has them, without records.
    pub(super) fn read_messages(&mut self, bytes: &[u8]) -> Hello {
        let mut hello = Hello::Incomplete;
        for piece in bytes.chunks(super::session::CONTENT_BYTES_MAX) {
            // A piece is shorter than the number reaches.
            let len = u16::try_from(piece.len()).unwrap_or_default();
            let record = [&HANDSHAKE_RECORD[..], &len.to_be_bytes(), piece].concat();
            hello = self.feed(&record);
            if !matches!(hello, Hello::Incomplete) {
                break;
            }
        }
        hello
    }

    fn feed(&mut self, mut records: &[u8]) -> Hello {
        while !records.is_empty() {
            match self.acceptor.read_tls(&mut records) {
                Ok(1..) => {}
                Ok(0) | Err(_) => return Hello::Invalid,
            }
            match self.acceptor.accept() {
                Ok(None) => {}
                Ok(Some(accepted)) => {
                    let name = accepted.client_hello().server_name().map(str::to_owned);
                    return Hello::Complete(name);
                }
                Err(_) => return Hello::Invalid,
            }
        }
        Hello::Incomplete
    }
}

#[cfg(test)]
mod tests {
    use rustls::server::ProducesTickets;

    use super::super::tickets::TicketKeys;
    use super::*;
    use crate::CaSet;

    fn authorities() -> CaSet {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::default();
        CaSet::from_pem(params.self_signed(&key).unwrap().pem().as_bytes()).unwrap()
    }

    #[test]
    fn policies_that_differ_accept_no_tickets_of_each_other() {
        let (one, two) = (authorities(), authorities());
        let policy = |client_auth, min_version| TlsPolicy {
            client_auth,
            min_version,
        };
        let all = [
            policy(ClientAuth::None, None),
            policy(ClientAuth::None, Some(TlsVersion::V1_3)),
            policy(ClientAuth::Optional(one.clone()), None),
            policy(ClientAuth::Required(one.clone()), None),
            policy(ClientAuth::Required(one.clone()), Some(TlsVersion::V1_3)),
            policy(ClientAuth::Required(two.clone()), None),
        ];
        let keys = TicketKeys::new().unwrap();
        let of_listener = [ClientAuth::None, ClientAuth::Required(one)];
        let mut producers: Vec<_> = all
            .iter()
            .map(|policy| policy.tickets(&ClientAuth::None))
            .collect();
        producers.extend(of_listener.iter().map(ClientAuth::policy));
        let producers: Vec<_> = producers
            .iter()
            .map(|policy| keys.for_policy(policy).unwrap())
            .collect();
        for (at, producer) in producers.iter().enumerate() {
            let ticket = producer.encrypt(b"session").unwrap();
            for (other, consumer) in producers.iter().enumerate() {
                assert_eq!(
                    consumer.decrypt(&ticket).is_some(),
                    at == other,
                    "{at} {other}"
                );
            }
        }
        for (at, policy) in all.iter().enumerate() {
            for (other, second) in all.iter().enumerate() {
                assert_eq!(policy.id() == second.id(), at == other, "{at} {other}");
            }
        }
        assert_eq!(all[0].id(), None);
    }

    /// A ClientHello of rustls for this name.
    fn hello(name: &str) -> Vec<u8> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        let name = name.to_owned().try_into().unwrap();
        let mut client = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
        let mut sent = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut sent).unwrap();
        }
        sent
    }

    #[test]
    fn the_server_name_of_a_hello_is_found_however_it_is_split() {
        let records = hello("a.example");
        let message = &records[5..];
        let is_found =
            |hello: &Hello| matches!(hello, Hello::Complete(Some(name)) if name == "a.example");
        // In records of so many bytes, of which each call has one more.
        for bytes in [1, 7, 100, message.len()] {
            let mut reader = HelloReader::default();
            let mut sent = Vec::new();
            let mut hello = Hello::Incomplete;
            for piece in message.chunks(bytes) {
                assert!(matches!(hello, Hello::Incomplete), "{bytes}");
                sent.extend_from_slice(&HANDSHAKE_RECORD);
                sent.extend_from_slice(&(piece.len() as u16).to_be_bytes());
                sent.extend_from_slice(piece);
                hello = reader.read_records(&sent);
            }
            assert!(is_found(&hello), "{bytes}");
            let mut reader = HelloReader::default();
            let mut hello = Hello::Incomplete;
            for piece in message.chunks(bytes) {
                hello = reader.read_messages(piece);
            }
            assert!(is_found(&hello), "{bytes}");
        }
        for at in 0..records.len() {
            let mut changed = records.clone();
            changed[at] ^= 0x55;
            let _ = HelloReader::default().read_records(&changed);
            let _ = HelloReader::default().read_messages(&changed);
        }
        let mut reader = HelloReader::default();
        assert!(matches!(
            reader.read_records(b"GET / HTTP/1.1\r\n"),
            Hello::Invalid
        ));
    }
}
