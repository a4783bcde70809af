//! Reloads whose steps a program takes itself, as simulations do.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::https_redirect::HttpsRedirect;
use crate::sites::Site;
use crate::snapshot::{Snapshot, SnapshotMaker, states_on_core, take_on_core};
use crate::start_error::StartError;

/// Replaces the sites of a gateway whose cores a program has started itself
/// ([`Gateway::on_cores`](crate::Gateway::on_cores)).
pub struct SteppedReloads {
    maker: SnapshotMaker,
    newest: Arc<ArcSwap<Snapshot>>,
    https_redirect: HttpsRedirect,
}

/// A server as a core sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerOnCore {
    /// Its URL.
    pub url: String,
    /// How long requests will avoid it, because it was ejected or could not be connected to.
    pub avoided_for: Option<Duration>,
    /// Requests of this core that have chosen it among several servers, and have not ended.
    pub running: u32,
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

    /// The servers of the newest sites as the calling core sees them, if it has used them.
    #[must_use]
    pub fn servers_on_core(&self) -> Vec<ServerOnCore> {
        let snapshot = self.newest.load_full();
        let upstreams = snapshot.upstreams();
        let urls: Vec<String> = upstreams.map(|(one, _)| one.identity.url()).collect();
        let upstreams = states_on_core(snapshot.id(), &(0..urls.len())).into_iter();
        let states =
            upstreams.flat_map(|(number, all)| all.into_iter().map(move |one| (number, one)));
        let servers = states.map(|(number, state)| ServerOnCore {
            url: urls[number].clone(),
            avoided_for: state.cooling_down,
            running: state.running,
        });
        servers.collect()
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
