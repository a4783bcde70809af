//! TLS 1.2 and 1.3 between sockets and HTTP, with rustls and aws-lc.
//!
//! Received records are decrypted in place and become slices. Queued content is encrypted into a
//! pooled buffer at once (rule 21). Only `session.rs` calls rustls's unbuffered interface.

mod any_certificate;
mod certificate;
mod client;
mod counters;
mod error;
mod failure_log;
mod handshake;
mod info;
mod pem;
mod policies;
mod quic;
mod refused;
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
pub use policies::{ServerNames, TlsPolicy, TlsPolicyId};
pub use refused::refused_certificate;
pub use server::{ClientAuth, ServerTls, ServerTlsBuilder, TlsSlot};
pub use tickets::TicketKeys;

pub(crate) use client::{AlpnOffer, Handshakes, TlsConnector, TlsKey};
pub(crate) use failure_log::{log_client_failure, log_upstream_failure};
pub(crate) use handshake::connect;
pub(crate) use quic::{QuicTls, facts, failure_of, failure_with_server, server_name};
pub(crate) use stream::{ReadOutcome, TlsStream};
