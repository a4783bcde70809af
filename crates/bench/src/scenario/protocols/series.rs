//! The runs of a measurement.

use std::str::FromStr;

use super::workload::{ClientKind, Mode, Workload};
use crate::link::{LinkSpec, LinkSpecError};
use crate::stats;
use crate::study::Measured;

/// The runs of one workload, mode and network.
pub(super) struct Series {
    pub(super) workload: Workload,
    pub(super) mode: Mode,
    pub(super) measured: Measured,
}

/// A link and its description as it was given.
#[derive(Debug, Clone)]
pub(super) struct NamedLink {
    pub(super) text: String,
    pub(super) spec: LinkSpec,
}

impl FromStr for NamedLink {
    type Err = LinkSpecError;

    fn from_str(text: &str) -> Result<NamedLink, LinkSpecError> {
        Ok(NamedLink {
            text: text.to_owned(),
            spec: text.parse()?,
        })
    }
}

/// The series over one network.
pub(super) struct OnNetwork {
    /// `None` for the loopback.
    pub(super) link: Option<NamedLink>,
    /// The congestion control of TCP, as its sockets say; empty for the loopback.
    pub(super) tcp: String,
    pub(super) series: Vec<Series>,
    /// Why the link was not what it should be.
    pub(super) invalid: Option<String>,
}

impl Series {
    /// The figure of the workload over HTTP/3, compared with that of a client of HTTP/2.
    pub(super) fn http3_to(&self, base: ClientKind) -> Option<stats::Comparison> {
        let http3 = ClientKind::Http3.name();
        self.measured
            .compare(http3, base.name(), &self.workload.figure)
    }
}

impl OnNetwork {
    /// Whether it is the link of workloads that run over no other.
    pub(super) fn is_special(&self) -> bool {
        self.series
            .iter()
            .any(|series| series.workload.link.is_some())
    }

    /// Why versions of HTTP over TCP and over QUIC cannot be compared.
    pub(super) fn obstacle(&self) -> Option<String> {
        let note = congestion_note(&self.tcp)?;
        Some(format!("Different congestion controls ({note})."))
    }

    /// In words.
    pub(super) fn name(&self) -> String {
        name_of(self.link.as_ref())
    }
}

/// That of QUIC in Blitz.
const OF_QUIC: &str = "cubic";

/// The note in the rows if TCP and QUIC have different congestion controls. Then their comparison has no verdict.
pub(super) fn congestion_note(tcp: &str) -> Option<String> {
    let is_other = !tcp.is_empty() && tcp != OF_QUIC;
    is_other.then(|| format!("TCP: {tcp}, QUIC: {OF_QUIC}"))
}

/// The network in words.
pub(super) fn name_of(link: Option<&NamedLink>) -> String {
    link.map_or("Loopback".to_owned(), |link| link.text.clone())
}
