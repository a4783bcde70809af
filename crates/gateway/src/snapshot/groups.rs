//! The groups of servers of a snapshot.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use blitz_host::names::{ResolvedService, ServiceResult};
use blitz_http::ProxyVersion;

use crate::route::{Forward, ForwardGroup};
use crate::start_error::StartError;
use crate::target::Target;
use crate::upstream::{ConnectionSettings, GroupConfig, SharedShed, SharedSheds};

/// A group with the numbers of its servers among the upstreams.
pub(super) type NumberedGroup = (Arc<GroupConfig>, Box<[usize]>);

/// The groups of the routes of a snapshot.
#[derive(Default, Clone)]
pub(super) struct Groups {
    pub(super) all: Vec<NumberedGroup>,
    /// For each of them the version of the PROXY header of its connections.
    pub(super) proxy_versions: Vec<Option<ProxyVersion>>,
    /// For each of them the settings of its connections, without those of its upstreams.
    pub(super) settings: Vec<ConnectionSettings>,
}

/// The part of a snapshot that the servers of its services do not change.
pub(super) struct WithoutServers {
    /// How many upstreams it has; those of services come after these.
    pub(super) upstreams: usize,
    pub(super) groups: Groups,
}

/// Numbers groups. Routes that share a group share the turns of its servers.
#[derive(Default)]
pub(super) struct GroupNumbers {
    pub(super) groups: Groups,
    known: HashMap<(*const GroupConfig, ConnectionSettings), usize>,
}

impl GroupNumbers {
    /// Numbers the upstreams of a route and of its mirror. `number` is that of a server; `alone` gets those without a
    /// group.
    pub(super) fn number_forward(
        &mut self,
        forward: &mut Forward,
        alone: &mut HashSet<usize>,
        mut number: impl FnMut(&Target, ConnectionSettings) -> Result<usize, StartError>,
    ) -> Result<(), StartError> {
        let settings = forward.connection_settings;
        let of_first = settings_of_first(forward.group.as_ref(), settings);
        forward.upstream = number(&forward.target, of_first)?;
        match &mut forward.group {
            None => {
                alone.insert(forward.upstream);
            }
            Some(group) => {
                let version = forward.proxy_protocol;
                group.number = self.number(group, settings, version, &mut number)?;
            }
        }
        let Some(mirror) = &mut forward.mirror else {
            return Ok(());
        };
        let of_first = settings_of_first(mirror.group.as_ref(), settings);
        mirror.upstream = number(&mirror.target, of_first)?;
        match &mut mirror.group {
            None => {
                alone.insert(mirror.upstream);
            }
            Some(group) => group.number = self.number(group, settings, None, &mut number)?,
        }
        Ok(())
    }

    /// The number of a group, which is added if it is new. `number` is that of a server.
    fn number(
        &mut self,
        group: &ForwardGroup,
        settings: ConnectionSettings,
        proxy_version: Option<ProxyVersion>,
        number: impl FnMut(&Target, ConnectionSettings) -> Result<usize, StartError>,
    ) -> Result<usize, StartError> {
        let key = (Arc::as_ptr(&group.config), settings);
        if let Some(number) = self.known.get(&key) {
            return Ok(*number);
        }
        let servers = numbers_of(&group.config, settings, number)?;
        let groups = &mut self.groups;
        groups.all.push((Arc::clone(&group.config), servers));
        groups.proxy_versions.push(proxy_version);
        groups.settings.push(settings);
        self.known.insert(key, groups.all.len() - 1);
        Ok(groups.all.len() - 1)
    }
}

/// The numbers of the servers of a group.
pub(super) fn numbers_of(
    config: &GroupConfig,
    settings: ConnectionSettings,
    mut number: impl FnMut(&Target, ConnectionSettings) -> Result<usize, StartError>,
) -> Result<Box<[usize]>, StartError> {
    let servers = config.servers.iter().zip(config.settings());
    let servers = servers.map(|(server, own)| number(server, settings.with(own)));
    servers.collect()
}

impl Groups {
    pub(super) fn has_services(&self) -> bool {
        self.all.iter().any(|(config, _)| config.has_services())
    }

    /// Their targets that shed load, with what is known of them from before.
    pub(super) fn sheds(&self, before: &SharedSheds) -> SharedSheds {
        let targets = self.all.iter().flat_map(|(config, _)| config.sheds());
        let shared = targets.map(|(name, settings)| {
            let shed = SharedShed::new(settings, before.get(name));
            (Box::from(name), shed)
        });
        let mut sheds = SharedSheds::new();
        for (name, shed) in shared {
            // Routes have the same upstream.
            sheds.entry(name).or_insert(shed);
        }
        sheds
    }
}

/// The servers that a service has now, with their weights. Those that cannot be used are left out with a warning.
pub(super) fn servers_of(
    target: &Target,
    service: &ResolvedService,
    mut is_usable: impl FnMut(&Target) -> bool,
) -> Vec<(Arc<Target>, u16)> {
    let latest = service.latest();
    let ServiceResult::Servers(servers) = &**latest else {
        return Vec::new();
    };
    let mut all = Vec::with_capacity(servers.len());
    for server in servers {
        let found = target.of_service(&server.host, server.port);
        match found.filter(&mut is_usable) {
            Some(found) => all.push((Arc::new(found), server.weight)),
            None => {
                let (host, service) = (&server.host, target.url());
                tracing::warn!(service, host, "the host of an SRV record cannot be used");
            }
        }
    }
    all
}

/// The settings of connections to the first server of a route.
fn settings_of_first(
    group: Option<&ForwardGroup>,
    settings: ConnectionSettings,
) -> ConnectionSettings {
    let own = group.and_then(|group| group.config.settings().next());
    own.map_or(settings, |own| settings.with(own))
}
