//! `allow` and `deny`, with the networks of their files.

use std::sync::Arc;

use blitz_config::{Diagnostic, Network, NetworkList, Placed, Settings};
use blitz_site::{NetworkSet, NetworkSetBuilder};

use super::Compiler;
use super::shared::address;
use crate::clients::{Access, ClientList};

/// More networks of the configuration are looked up in a set.
const COMPARED_MAX: usize = 16;

impl<'a> Compiler<'a, '_> {
    /// The clients that these settings serve.
    pub(super) fn access(&mut self, settings: &'a Settings) -> Access {
        let allow = settings.allow.as_ref();
        if let Some(allow) = allow {
            self.warn_if_nobody(allow);
        }
        Access {
            allow: allow.map(|list| self.clients(list)),
            deny: settings.deny.as_ref().map(|list| self.clients(list)),
        }
    }

    /// A list, which routes that inherit it share. A file that cannot be used adds a diagnostic.
    fn clients(&mut self, list: &'a Arc<Placed<NetworkList>>) -> Arc<ClientList> {
        let address = address(list);
        if let Some(known) = self.shared.clients.get(&address) {
            return Arc::clone(known);
        }
        let NetworkList {
            networks, within, ..
        } = &list.value;
        let (compared, in_set) = match networks.len() <= COMPARED_MAX {
            true => (networks.as_slice(), &[][..]),
            false => (&[][..], networks.as_slice()),
        };
        let sets = self.sets(list, in_set);
        let clients = Arc::new(ClientList {
            networks: compared.into(),
            sets: sets.into(),
            within: within.as_ref().map(|within| self.clients(within)),
        });
        self.shared.clients.insert(address, Arc::clone(&clients));
        clients
    }

    /// A set of these networks of a list, and those of its files. A file that cannot be used adds a diagnostic.
    pub(super) fn sets(
        &mut self,
        list: &'a Placed<NetworkList>,
        networks: &[Network],
    ) -> Vec<Arc<NetworkSet>> {
        let mut sets = Vec::with_capacity(list.value.files.len() + 1);
        if !networks.is_empty() {
            let mut builder = NetworkSetBuilder::default();
            if !networks.iter().all(|network| builder.add(network.bounds())) {
                let message = "the list has too many networks";
                self.error("networks", list, message, "write them to several files");
            }
            sets.push(Arc::new(builder.build()));
        }
        for file in &list.value.files {
            match self.shared.networks(file) {
                Ok(set) if sets.contains(&set) => {}
                Ok(set) => sets.push(set),
                Err((problem, remedy)) => self.error("networks", file, &problem, &remedy),
            }
        }
        sets
    }

    /// A file that is empty refuses everybody, which is seldom meant.
    fn warn_if_nobody(&mut self, allow: &'a Placed<NetworkList>) {
        let NetworkList {
            networks, files, ..
        } = &allow.value;
        let Some(first) = files.first().filter(|_| networks.is_empty()) else {
            return;
        };
        let mut counts = files.iter().map(|file| self.shared.networks(file));
        if !counts.all(|set| set.is_ok_and(|set| set.count() == 0)) {
            return;
        }
        let warning = Diagnostic::warning(
            "networks",
            first.span.clone(),
            "the file has no network, so nobody is served",
            "write a network to it, one a line",
        );
        if !self.diagnostics.contains(&warning) {
            self.diagnostics.push(warning);
        }
    }
}
