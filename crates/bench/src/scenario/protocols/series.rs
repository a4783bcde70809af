//! The runs of a measurement.

use std::str::FromStr;

use super::workload::{Client, Mode, Workload};
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
    /// The congestion control of TCP; empty for the loopback.
    pub(super) tcp: String,
    pub(super) series: Vec<Series>,
    /// Why the link was not what it should be.
    pub(super) invalid: Option<String>,
}

impl Series {
    /// The figure of the workload over HTTP/3, compared with that of a client of HTTP/2.
    pub(super) fn http3_to(&self, base: Client) -> Option<stats::Comparison> {
        let http3 = Client::Http3.name();
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

    /// In words.
    pub(super) fn name(&self) -> String {
        name_of(self.link.as_ref())
    }
}

/// The network in words.
pub(super) fn name_of(link: Option<&NamedLink>) -> String {
    link.map_or("Loopback".to_owned(), |link| link.text.clone())
}
