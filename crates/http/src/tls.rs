//! TLS 1.2 and 1.3 between a socket and those who speak HTTP, with rustls and aws-lc.
//!
//! Received records are decrypted where they lie and become slices; what is sent is encrypted
//! into a pooled buffer as soon as it is queued (rule 21). `session.rs` is the one file that
//! knows how rustls wants to be called.

mod certificate;
mod client;
mod counters;
mod error;
mod handshake;
mod info;
mod pem;
mod server;
mod session;
mod stream;
mod tickets;
mod time;
mod validity;

pub use certificate::{Certificate, ValidityProblem};
pub use client::{ClientTls, ClientTlsBuilder, ClientTlsSlot, UpstreamTls};
pub use counters::TlsCounters;
pub use error::{CertificateProblem, TlsConfigError, TlsError};
pub use info::{ClientCertificate, TlsInfo, TlsVersion};
pub use pem::CaSet;
pub use server::{ClientAuth, ServerTls, ServerTlsBuilder, TlsSlot};
pub use tickets::TicketKeys;

pub(crate) use client::{AlpnOffer, TlsConnector, TlsKey};
pub(crate) use handshake::connect;
pub(crate) use stream::{ReadOutcome, Tls};
