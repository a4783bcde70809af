//! Reloads whose steps a program takes itself, as simulations do.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::https_redirect::HttpsRedirect;
use crate::sites::Site;
use crate::snapshot::{Snapshot, SnapshotMaker, take_on_core};
use crate::start_error::StartError;

/// Replaces the sites of a gateway whose cores a program has started itself
/// ([`Gateway::on_cores`](crate::Gateway::on_cores)).
pub struct SteppedReloads {
    maker: SnapshotMaker,
    newest: Arc<ArcSwap<Snapshot>>,
    https_redirect: HttpsRedirect,
}

/// Sites for all cores, each of which takes them by itself.
pub struct NewSites(Arc<Snapshot>);

impl SteppedReloads {
    pub(crate) fn new(
        maker: SnapshotMaker,
        newest: Arc<ArcSwap<Snapshot>>,
        https_redirect: HttpsRedirect,
    ) -> SteppedReloads {
        SteppedReloads {
            maker,
            newest,
            https_redirect,
        }
    }

    /// Makes sites that no core has yet.
    ///
    /// # Errors
    /// As [`Reloading::prepare`](crate::Reloading::prepare).
    pub fn make(&mut self, sites: Vec<Site>) -> Result<NewSites, StartError> {
        let before = self.newest.load();
        let observed = before.observed().clone();
        let snapshot = self
            .maker
            .make_after(&before, sites, self.https_redirect, observed)?;
        let before = self.newest.swap(Arc::clone(&snapshot));
        self.maker.retire(before);
        Ok(NewSites(snapshot))
    }

    /// Frees the configurations that no core has any more; returns the number of those that are left, with the newest.
    pub fn free(&mut self) -> usize {
        self.maker.free_retired();
        self.maker.retired_count() + 1
    }
}

impl NewSites {
    /// Replaces the sites of the gateways on the calling core.
    pub fn take_on_core(&self) {
        take_on_core(&self.0);
    }
}
