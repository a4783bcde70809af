//! A running gateway that gets another configuration.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use blitz_host::serving::{ListenerConfig, NewListeners, Serving};
use blitz_site::TraceSettings;
use blitz_site::access_log::AccessLog;

use crate::https_redirect::HttpsRedirect;
use crate::metrics::ConfigurationStatus;
use crate::site_changes::{SiteChange, site_changes};
use crate::sites::Site;
use crate::snapshot::{Snapshot, SnapshotMaker, publish};
use crate::start_error::StartError;

/// A running gateway whose sites and listeners can be replaced.
pub struct Reloading<'a> {
    serving: &'a mut Serving,
    maker: &'a mut SnapshotMaker,
    newest: &'a ArcSwap<Snapshot>,
    drain_timeout: Duration,
    status: &'a ConfigurationStatus,
}

/// Sites and listeners that were checked, and that are not in use yet.
pub struct Replacement {
    snapshot: Arc<Snapshot>,
    listeners: NewListeners,
}

impl Replacement {
    /// With this access log, or none. Without this call the one in use stays.
    #[must_use]
    pub fn with_access_log(mut self, log: Option<Arc<AccessLog>>) -> Replacement {
        let snapshot = Arc::get_mut(&mut self.snapshot);
        let snapshot = snapshot.expect("a snapshot that is not in use has one owner");
        snapshot.observed_mut().access_log = log;
        self
    }

    /// With these traces, or none. Without this call those in use stay.
    #[must_use]
    pub fn with_tracing(mut self, tracing: Option<TraceSettings>) -> Replacement {
        let snapshot = Arc::get_mut(&mut self.snapshot);
        let snapshot = snapshot.expect("a snapshot that is not in use has one owner");
        snapshot.observed_mut().tracing = tracing;
        self
    }
}

impl<'a> Reloading<'a> {
    pub(crate) fn new(
        serving: &'a mut Serving,
        maker: &'a mut SnapshotMaker,
        newest: &'a ArcSwap<Snapshot>,
        drain_timeout: Duration,
        status: &'a ConfigurationStatus,
    ) -> Reloading<'a> {
        Reloading {
            serving,
            maker,
            newest,
            drain_timeout,
            status,
        }
    }

    /// The generation of the configuration and the last reload, for metrics.
    #[must_use]
    pub fn status(&self) -> &ConfigurationStatus {
        self.status
    }

    /// Checks sites and listeners, and keeps the addresses of those that are new.
    ///
    /// # Errors
    /// A target contradicts another one or cannot be used, or an address cannot be listened on.
    pub fn prepare(
        &mut self,
        sites: Vec<Site>,
        listeners: impl IntoIterator<Item = ListenerConfig>,
    ) -> Result<Replacement, StartError> {
        let listeners = self.serving.prepare(listeners)?;
        let redirect = HttpsRedirect::of(listeners.configs());
        let before = self.newest.load();
        let observed = before.observed().clone();
        let snapshot = self.maker.make_after(&before, sites, redirect, observed)?;
        Ok(Replacement {
            snapshot,
            listeners,
        })
    }

    /// Replaces all sites and listeners, and calls `apply` between: what else changes with them. Each request ends with the
    /// sites that it began with, and upstreams that stay keep their connections. Connections of listeners that stay are not
    /// closed; those of the others are drained. Returns the sites that differ.
    ///
    /// # Errors
    /// A core cannot open a listener, for example because it has no descriptor left; then nothing has changed.
    pub fn replace(
        &mut self,
        replacement: Replacement,
        apply: impl FnOnce(),
    ) -> Result<Vec<SiteChange>, StartError> {
        let Replacement {
            snapshot,
            listeners,
        } = replacement;
        let superseded = self.serving.open_listeners(listeners)?;
        apply();
        publish(self.serving.cores(), &snapshot);
        let before = self.newest.swap(Arc::clone(&snapshot));
        self.status.count_generation();
        let changes = site_changes(&before.sites, &snapshot.sites);
        self.maker.retire(before);
        self.serving.close_listeners(superseded, self.drain_timeout);
        Ok(changes)
    }

    /// The listeners; port 0 is replaced by the port that was chosen.
    pub fn listeners(&self) -> impl Iterator<Item = &ListenerConfig> + Clone {
        self.serving.listeners()
    }

    /// Has the sites in use get the servers that their services have now, if these have changed. Each request ends with
    /// those that it began with. Returns whether there was a change.
    pub fn follow_services(&mut self) -> bool {
        let before = self.newest.load();
        match self.maker.follow_services(&before) {
            Ok(None) => false,
            Ok(Some(snapshot)) => {
                publish(self.serving.cores(), &snapshot);
                drop(before);
                self.maker.retire(self.newest.swap(snapshot));
                true
            }
            Err(error) => {
                tracing::error!("the servers of a service cannot be used: {error}");
                false
            }
        }
    }

    /// Resolves the names of upstreams again.
    pub fn resolve_again(&self) {
        self.maker.resolver().reload();
    }

    /// Whether targets have names.
    #[must_use]
    pub fn has_names(&self) -> bool {
        self.maker.resolver().has_names()
    }
}
