//! The runs of a measurement.

use super::stage::Run;
use super::workload::{Client, Mode, Workload};
use crate::link::LinkSpec;
use crate::stats::{self, compare};

/// The runs of one workload, mode and network: for each client, in the order of the rounds.
pub(super) struct Series {
    pub(super) workload: &'static Workload,
    pub(super) mode: Mode,
    pub(super) runs: Vec<(Client, Vec<Run>)>,
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
    /// The runs of a client, if it was run.
    pub(super) fn runs_of(&self, client: Client) -> Option<&[Run]> {
        let found = self.runs.iter().find(|(known, _)| *known == client);
        found.map(|(_, runs)| runs.as_slice())
    }

    /// A figure of two clients, by rounds.
    pub(super) fn compare(
        &self,
        client: Client,
        base: Client,
        value: fn(&Run) -> f64,
    ) -> Option<stats::Comparison> {
        let (runs, base) = (self.runs_of(client)?, self.runs_of(base)?);
        let pairs = runs.iter().zip(base);
        let pairs: Vec<(f64, f64)> = pairs.map(|(run, base)| (value(run), value(base))).collect();
        compare(&pairs)
    }
}

impl OnNetwork {
    /// In words.
    pub(super) fn name(&self) -> String {
        let link = self.link.as_ref();
        link.map_or("Loopback".to_owned(), ToString::to_string)
    }
}
