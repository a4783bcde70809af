//! The runs of a measurement.

use super::workload::{Client, Mode, Workload};
use crate::link::LinkSpec;
use crate::stats;
use crate::study::{Measured, REQUESTS_PER_SECOND};

/// The runs of one workload, mode and network.
pub(super) struct Series {
    pub(super) workload: &'static Workload,
    pub(super) mode: Mode,
    pub(super) measured: Measured,
}

/// The series over one network.
pub(super) struct OnNetwork {
    /// `None` for the loopback.
    pub(super) link: Option<LinkSpec>,
    pub(super) series: Vec<Series>,
    /// Why the link was not what it should be.
    pub(super) invalid: Option<String>,
}

impl Series {
    /// Requests per second over HTTP/3, compared with those of a client of HTTP/2.
    pub(super) fn http3_to(&self, base: Client) -> Option<stats::Comparison> {
        let http3 = Client::Http3.name();
        self.measured
            .compare(http3, base.name(), &REQUESTS_PER_SECOND)
    }
}

impl OnNetwork {
    /// In words.
    pub(super) fn name(&self) -> String {
        let link = self.link.as_ref();
        link.map_or("Loopback".to_owned(), ToString::to_string)
    }
}
