//! The networks of `allow` and `deny`, some of which stand in files.

use std::sync::Arc;

use crate::network::Network;
use crate::span::Placed;

/// Networks of clients: those of the configuration, and those of files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkList {
    /// Those of the configuration.
    pub networks: Vec<Network>,
    /// Files with further ones, one a line. Their places are those of the paths.
    pub files: Vec<Placed<String>>,
    /// A list that has the client as well: the `allow` of the route around a block `when`.
    pub within: Option<Arc<Placed<NetworkList>>>,
}

/// A list and the place of its value.
type PlacedList = Placed<NetworkList>;

impl NetworkList {
    /// Whether all of its networks are in the configuration.
    fn is_plain(&self) -> bool {
        self.files.is_empty() && self.within.is_none()
    }

    /// The clients that both lists have. Its place is that of the second, which has no `within`.
    pub(crate) fn intersection(a: &Arc<PlacedList>, b: &PlacedList) -> PlacedList {
        let both = match a.value.is_plain() && b.value.is_plain() {
            true => {
                let with_all = |network: &Network| {
                    let network = *network;
                    let others = a.value.networks.iter();
                    others.filter_map(move |other| network.intersection(*other))
                };
                NetworkList {
                    networks: b.value.networks.iter().flat_map(with_all).collect(),
                    ..NetworkList::default()
                }
            }
            false => NetworkList {
                within: Some(Arc::clone(a)),
                ..b.value.clone()
            },
        };
        Placed::new(both, b.span.clone())
    }

    /// The clients of one of the lists, neither of which has a `within`. Its place is that of the second.
    pub(crate) fn union(a: &PlacedList, b: &PlacedList) -> PlacedList {
        let (a, b, span) = (&a.value, &b.value, b.span.clone());
        let all = NetworkList {
            networks: a.networks.iter().chain(&b.networks).copied().collect(),
            files: a.files.iter().chain(&b.files).cloned().collect(),
            within: None,
        };
        Placed::new(all, span)
    }
}
