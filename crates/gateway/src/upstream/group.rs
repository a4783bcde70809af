//! Several servers for the requests of a route, as a configuration has them and as one core sees them.

use std::fmt::Write;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use blitz_config::{Balance, ClientKey, Sticky, UpstreamSettings};

use super::balancer::Balancer;
use super::retry_budget::RetryBudget;
use super::selector::{Affinity, Selector};
use crate::target::Target;

/// The servers of a route before the start; all cores share it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct GroupConfig {
    targets: Box<[GroupTarget]>,
    /// How clients stay with a target.
    sticky: Option<Sticky>,
    /// Those of all targets, one target after the other.
    pub(crate) servers: Box<[Arc<Target>]>,
}

/// A target of a route: some of its servers.
#[derive(Debug, PartialEq, Eq)]
struct GroupTarget {
    name: Box<str>,
    weight: u16,
    /// Where its servers are.
    servers: Range<usize>,
    weights: Box<[u16]>,
    balance: Balance,
    sticky: Option<Sticky>,
    settings: Arc<UpstreamSettings>,
}

impl GroupConfig {
    /// The same as in a file. `None` if a server cannot be used.
    pub(crate) fn new<'a>(
        group: &'a blitz_config::TargetGroup,
        mut target_of: impl FnMut(&'a blitz_config::Placed<String>) -> Option<Arc<Target>>,
    ) -> Option<GroupConfig> {
        let mut servers = Vec::new();
        let mut targets = Vec::with_capacity(group.targets.len());
        for target in &group.targets {
            let first = servers.len();
            // All are tried, so that each mistake is reported.
            let found: Vec<_> = target
                .servers
                .iter()
                .map(|server| target_of(&server.url))
                .collect();
            servers.extend(found);
            let balance = target.balance.as_ref();
            let sticky = target.sticky.as_ref();
            targets.push(GroupTarget {
                name: target.name.as_str().into(),
                weight: target.weight,
                servers: first..servers.len(),
                weights: target.servers.iter().map(|server| server.weight).collect(),
                balance: balance.map_or_else(Balance::default, |balance| balance.value.clone()),
                sticky: sticky.map(|sticky| sticky.value.clone()),
                settings: Arc::clone(&target.settings),
            });
        }
        let sticky = group.sticky.as_ref();
        Some(GroupConfig {
            targets: targets.into(),
            sticky: sticky.map(|sticky| sticky.value.clone()),
            servers: servers.into_iter().collect::<Option<_>>()?,
        })
    }

    /// The names of its targets, as the configuration has them.
    pub(crate) fn target_names(&self) -> String {
        let names: Vec<&str> = self.targets.iter().map(|target| &*target.name).collect();
        names.join(", ")
    }

    /// The target of each server, in the order of the servers.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let targets = self.targets.iter();
        targets.flat_map(|target| target.servers.clone().map(move |_| &*target.name))
    }

    /// A line for each server, and before it one for each choice.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let has_targets = self.targets.len() > 1;
        if has_targets {
            lines.push(choice(&Balance::RoundRobin, self.sticky.as_ref()));
        }
        for target in &self.targets {
            let is_one = target.servers.len() == 1;
            let margin = if has_targets { "  " } else { "" };
            if has_targets && is_one {
                let url = self.servers[target.servers.start].url();
                lines.push(format!("weight {} {url}", target.weight));
                continue;
            }
            if has_targets {
                lines.push(format!("weight {} {}", target.weight, target.name));
            }
            lines.push(format!(
                "{margin}{}",
                choice(&target.balance, target.sticky.as_ref())
            ));
            for (server, weight) in self.servers[target.servers.clone()]
                .iter()
                .zip(&target.weights)
            {
                lines.push(format!("{margin}weight {weight} {}", server.url()));
            }
        }
        lines
    }
}

/// How a choice is made, for people.
fn choice(balance: &Balance, sticky: Option<&Sticky>) -> String {
    let key = |key: &ClientKey| match key {
        ClientKey::Client => "the client's address".to_owned(),
        ClientKey::Header(name) => format!("the field {name}"),
        ClientKey::Cookie(name) => format!("the cookie {name}"),
    };
    let mut text = match sticky {
        Some(Sticky::Cookie(name)) => format!("sticky by the cookie {name}, else "),
        Some(Sticky::Key(by)) => format!("sticky by {}, else ", key(by)),
        None => String::new(),
    };
    // Writing to a text does not fail.
    let _ = match balance {
        Balance::P2c => write!(text, "the better of two by random"),
        Balance::RoundRobin => write!(text, "in turn"),
        Balance::LeastRequests => write!(text, "the fewest requests"),
        Balance::Hash(by) => write!(text, "by a hash of {}", key(by)),
    };
    text
}

/// The servers of a route on a core.
pub(crate) struct Group {
    config: Arc<GroupConfig>,
    /// Chooses a target.
    pub(super) outer: Selector,
    /// For each target, what chooses one of its servers.
    pub(super) inner: Box<[Selector]>,
    balancers: Box<[Rc<Balancer>]>,
    pub(crate) retries: RetryBudget,
}

impl Group {
    /// The balancers are those of the servers.
    pub(crate) fn new(config: &Arc<GroupConfig>, balancers: Box<[Rc<Balancer>]>) -> Group {
        let targets = config.targets.iter();
        let targets = targets.map(|target| (&*target.name, target.weight));
        let inner = config.targets.iter().map(|target| {
            let urls: Vec<String> = config.servers[target.servers.clone()]
                .iter()
                .map(|server| server.url())
                .collect();
            let servers = urls.iter().map(String::as_str);
            Selector::new(
                servers.zip(target.weights.iter().copied()),
                match target.servers.len() {
                    1 => Balance::RoundRobin,
                    _ => target.balance.clone(),
                },
                target.sticky.clone(),
            )
        });
        Group {
            outer: Selector::new(targets, Balance::RoundRobin, config.sticky.clone()),
            inner: inner.collect(),
            config: Arc::clone(config),
            balancers,
            retries: RetryBudget::default(),
        }
    }

    pub(super) fn target(&self, index: ServerIndex) -> &Target {
        &self.config.servers[self.index(index)]
    }

    pub(super) fn balancer(&self, index: ServerIndex) -> &Rc<Balancer> {
        &self.balancers[self.index(index)]
    }

    fn index(&self, index: ServerIndex) -> usize {
        let target = &self.config.targets[usize::from(index.target)];
        target.servers.start + usize::from(index.server)
    }

    /// The server for a request, among those that can be used.
    pub(super) fn pick(
        &self,
        of_target: Affinity,
        of_server: impl Fn(usize) -> Affinity,
        is_usable: impl Fn(ServerIndex) -> bool,
    ) -> Option<ServerIndex> {
        let index = |target: usize, server: usize| ServerIndex {
            target: target as u16,
            server: server as u16,
        };
        let has_server = |target: usize| {
            let wanted = of_server(target).member.map(usize::from);
            let servers = 0..self.config.targets[target].servers.len();
            let mut servers = servers
                .filter(|&server| self.inner[target].weight(server) > 0 || wanted == Some(server));
            servers.any(|server| is_usable(index(target, server)))
        };
        let target = self
            .outer
            .pick(of_target, has_server, |_| 0, blitz_http::random_u64)?;
        let server = self.inner[target].pick(
            of_server(target),
            |server| is_usable(index(target, server)),
            |server| self.balancer(index(target, server)).in_flight.get(),
            blitz_http::random_u64,
        )?;
        Some(index(target, server))
    }

    /// Whether a request says something about the choice of a target or a server.
    pub(super) fn has_affinity(&self) -> bool {
        self.inner.iter().any(Selector::has_affinity)
    }

    pub(super) fn has_cookie(&self) -> bool {
        let mut selectors = std::iter::once(&self.outer).chain(&self.inner);
        selectors.any(|selector| matches!(selector.sticky, Some(Sticky::Cookie(_))))
    }

    /// The settings of the upstream that has this server.
    pub(super) fn settings(&self, index: ServerIndex) -> &UpstreamSettings {
        &self.config.targets[usize::from(index.target)].settings
    }

    pub(super) fn is_avoided(&self, index: ServerIndex, now: Instant) -> bool {
        self.balancer(index).is_avoided(now)
    }
}

/// The index of a server: that of its target, and its own there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ServerIndex {
    pub(super) target: u16,
    pub(super) server: u16,
}

#[cfg(test)]
mod tests {
    use blitz_config::{Action, Document, Environment, read};

    use super::*;

    /// The lines about the servers of a site.
    fn lines(text: &str) -> Vec<String> {
        let document = Document::new("blitz.toml", text);
        let (configuration, diagnostics) = read(&document, &Environment::default());
        assert_eq!(diagnostics, []);
        let settings = &configuration.sites[0].routes[0].settings;
        let Action::Proxy(proxy) = &settings.action.value else {
            panic!("{text} has another action");
        };
        let target = |url: &blitz_config::Placed<String>| url.value.parse().ok().map(Arc::new);
        let group = proxy.group.as_ref().unwrap();
        GroupConfig::new(group, target).unwrap().lines()
    }

    #[test]
    fn servers_are_shown_with_their_weights() {
        let list = lines(
            "[site.\"*\"]\nto = { \"http://a:1\" = 95, \"h2c://b:2\" = 5 }\nsticky = \"cookie\"\n",
        );
        let expected = [
            "sticky by the cookie blitz-server, else in turn",
            "weight 95 http://a:1",
            "weight 5 h2c://b:2",
        ];
        assert_eq!(list, expected);
        let nested = lines(
            "[site.\"*\"]\nto = { app = 2, \"unix:/run/b\" = 1 }\n[upstream.app]\n\
             servers = { \"http://a:1\" = 3, \"http://a:2\" = 0 }\nbalance = \"hash\"\n\
             hash = \"header:X-User\"\n",
        );
        let expected = [
            "in turn",
            "weight 2 app",
            "  by a hash of the field x-user",
            "  weight 3 http://a:1",
            "  weight 0 http://a:2",
            "weight 1 unix:/run/b",
        ];
        assert_eq!(nested, expected);
    }

    #[test]
    fn each_server_that_cannot_be_used_is_asked_for() {
        let document = Document::new(
            "blitz.toml",
            "[site.\"*\"]\nto = [\"http://a:1\", \"http://a:2\"]\n",
        );
        let (configuration, _) = read(&document, &Environment::default());
        let settings = &configuration.sites[0].routes[0].settings;
        let Action::Proxy(proxy) = &settings.action.value else {
            panic!("another action");
        };
        let mut asked = 0;
        let group = GroupConfig::new(proxy.group.as_ref().unwrap(), |_| {
            asked += 1;
            None
        });
        assert_eq!((group, asked), (None, 2));
    }
}
