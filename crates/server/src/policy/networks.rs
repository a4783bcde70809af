//! Networks of clients.

use std::path::PathBuf;
use std::sync::Arc;

use blitz_site::{ClientAddress, NetworkSet, NetworkSetBuilder, add_networks, parse_network};

use super::source::Source;
use super::{AppPolicy, Kind};
use crate::error::Error;

/// Networks of clients that are served, or are not; see [`allow`] and [`deny`].
#[must_use]
pub struct NetworksPolicy {
    is_allowed: bool,
    texts: Vec<String>,
    files: Vec<Source>,
}

/// Serves clients of these networks only; others get 403. [`deny`] comes first.
///
/// Behind a proxy the client is the proxy, unless the app is a part of a gateway that trusts it.
///
/// ```
/// use blitz::{App, policy::allow};
///
/// let app = App::new()
///     .policy(allow().networks(["10.0.0.0/8", "fd00::/8", "unix"]))
///     .get("/", || "Hello, colleague!");
/// # app.build().unwrap();
/// ```
pub fn allow() -> NetworksPolicy {
    NetworksPolicy {
        is_allowed: true,
        texts: Vec::new(),
        files: Vec::new(),
    }
}

/// Refuses clients of these networks with 403; see [`allow`].
pub fn deny() -> NetworksPolicy {
    NetworksPolicy {
        is_allowed: false,
        ..allow()
    }
}

impl NetworksPolicy {
    /// Networks (`10.0.0.0/8`), addresses, or `unix` for clients of unix sockets.
    pub fn networks<T: Into<String>>(
        mut self,
        networks: impl IntoIterator<Item = T>,
    ) -> NetworksPolicy {
        self.texts.extend(networks.into_iter().map(Into::into));
        self
    }

    /// The networks of a file: one a line, with comments behind `#`. It is read when the policy is added to the app.
    pub fn file(mut self, path: impl Into<PathBuf>) -> NetworksPolicy {
        self.files.push(Source::File(path.into()));
        self
    }

    fn set(&self) -> Result<NetworkSet, Error> {
        if self.texts.is_empty() && self.files.is_empty() {
            let name = if self.is_allowed { "allow" } else { "deny" };
            return Err(Error::new(format!("`{name}` has no networks"))
                .with_remedy("Call `.networks(..)` or `.file(..)`."));
        }
        let mut builder = NetworkSetBuilder::default();
        for text in &self.texts {
            let bounds = parse_network(text).map_err(|(problem, remedy)| {
                Source::Text(Vec::new()).error((format!("`{text}`: {problem}"), remedy))
            })?;
            // There is room for all that a program writes.
            let _ = builder.add(bounds);
        }
        for file in &self.files {
            let content = file.read()?;
            add_networks(&content[..], &mut builder)
                .map_err(|error| file.error((error.to_string(), error.remedy())))?;
        }
        Ok(builder.build())
    }
}

impl From<NetworksPolicy> for AppPolicy {
    fn from(policy: NetworksPolicy) -> AppPolicy {
        AppPolicy(policy.set().map(|set| match policy.is_allowed {
            true => Kind::Allow(Arc::new(set)),
            false => Kind::Deny(Arc::new(set)),
        }))
    }
}

/// The networks of a route. By default all clients are served.
#[derive(Debug, Default)]
pub(crate) struct Access {
    pub(super) allow: Option<Arc<NetworkSet>>,
    pub(super) deny: Option<Arc<NetworkSet>>,
}

impl Access {
    /// Whether this client is served.
    pub(crate) fn admits(&self, client: ClientAddress) -> bool {
        let client = match client {
            ClientAddress::Address(address) => Some(address),
            ClientAddress::Unix => None,
            ClientAddress::Unknown => return self.allow.is_none() && self.deny.is_none(),
        };
        let is_in = |set: &Arc<NetworkSet>| set.contains(client);
        !self.deny.as_ref().is_some_and(is_in) && self.allow.as_ref().is_none_or(is_in)
    }
}
