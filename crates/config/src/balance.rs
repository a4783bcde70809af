//! Several servers for the requests of a route: their weights, and how one of them is chosen.

use std::sync::Arc;

use crate::span::{Placed, Span};
use crate::upstream_settings::UpstreamSettings;

/// The largest weight of a target or a server.
pub(crate) const WEIGHT_MAX: u64 = 1_000;

/// The name of the cookie of `sticky = "cookie"`.
pub(crate) const STICKY_COOKIE: &str = "blitz-server";

/// The targets of a `to` that has several servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetGroup {
    /// At least one; requests are distributed over them by their weights.
    pub targets: Vec<GroupTarget>,
    /// How clients stay with a target; without it, or if there is one target, that of the target decides.
    pub sticky: Option<Placed<Sticky>>,
}

/// A URL, or an upstream with a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupTarget {
    /// The name of the upstream, or the URL.
    pub name: String,
    /// 0 to 1,000; with 0 it gets only requests that ask for it by a cookie.
    pub weight: u16,
    /// At least one.
    pub servers: Vec<GroupServer>,
    /// The place of its servers; that of its name if it has none of its own.
    pub span: Span,
    /// How one of the servers is chosen; `None` is the default.
    pub balance: Option<Placed<Balance>>,
    /// How clients stay with a server.
    pub sticky: Option<Placed<Sticky>>,
    /// Its other settings.
    pub settings: Arc<UpstreamSettings>,
}

/// A server of a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupServer {
    /// Its URL, which has no path.
    pub url: Placed<String>,
    /// As that of a target.
    pub weight: u16,
}

/// How a server is chosen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum Balance {
    /// Of two random servers the one with fewer requests for its weight.
    #[default]
    P2c,
    /// In turn, by weights.
    RoundRobin,
    /// The one with the fewest requests for its weight.
    LeastRequests,
    /// The same for requests with the same value.
    Hash(ServerKey),
}

/// How clients stay with a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Sticky {
    /// By a cookie of this name, which the response sets.
    Cookie(String),
    /// By a value of the request.
    Key(ServerKey),
}

/// A value by which a server is chosen.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ServerKey {
    /// One of the request.
    Request(ClientKey),
    /// A claim of its verified token.
    Claim(String),
}

impl ServerKey {
    fn claim(&self) -> Option<&str> {
        match self {
            ServerKey::Claim(name) => Some(name),
            ServerKey::Request(_) => None,
        }
    }
}

/// A value that requests of one client have in common.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ClientKey {
    /// The address of the client.
    Client,
    /// A field of the request; the name is in lower case.
    Header(String),
    /// A cookie of the request.
    Cookie(String),
}

impl TargetGroup {
    /// The cookies that its responses set, with the places that say so.
    pub(crate) fn cookies(&self) -> impl Iterator<Item = (&str, &Span)> {
        let inner = self.targets.iter().map(|target| &target.sticky);
        let all = std::iter::once(&self.sticky).chain(inner).flatten();
        all.filter_map(|sticky| match &sticky.value {
            Sticky::Cookie(name) => Some((name.as_str(), &sticky.span)),
            Sticky::Key(_) => None,
        })
    }

    /// The claims that choose targets or servers, with the places that say so.
    pub(crate) fn claims(&self) -> impl Iterator<Item = (&str, &Span)> {
        let inner = self.targets.iter().map(|target| &target.sticky);
        let sticky = std::iter::once(&self.sticky).chain(inner).flatten();
        let of_sticky = sticky.filter_map(|sticky| match &sticky.value {
            Sticky::Key(key) => Some((key.claim()?, &sticky.span)),
            Sticky::Cookie(_) => None,
        });
        let balances = self
            .targets
            .iter()
            .filter_map(|target| target.balance.as_ref());
        let of_balance = balances.filter_map(|balance| match &balance.value {
            Balance::Hash(key) => Some((key.claim()?, &balance.span)),
            Balance::P2c | Balance::RoundRobin | Balance::LeastRequests => None,
        });
        of_sticky.chain(of_balance)
    }

    /// The same with the `sticky` of a route, which stands for that of an only target.
    pub(crate) fn with_sticky(&self, sticky: &Placed<Sticky>) -> TargetGroup {
        let mut group = self.clone();
        match &mut group.targets[..] {
            [target] => target.sticky = Some(sticky.clone()),
            _ => group.sticky = Some(sticky.clone()),
        }
        group
    }

    /// A cookie that both a target and the group set, with the places where it is written.
    pub(crate) fn doubled_cookie(&self) -> Option<(&str, &Span, &Span)> {
        let own = self.sticky.as_ref()?;
        let Sticky::Cookie(name) = &own.value else {
            return None;
        };
        let of_targets = self
            .targets
            .iter()
            .filter_map(|target| target.sticky.as_ref());
        let mut same = of_targets.filter(|sticky| sticky.value == own.value);
        same.next()
            .map(|sticky| (name.as_str(), &own.span, &sticky.span))
    }

    /// Whether both distribute requests alike, wherever they are written.
    pub(crate) fn is_same(&self, other: &TargetGroup) -> bool {
        self.meaning() == other.meaning()
    }

    /// The model without places.
    fn meaning(&self) -> impl PartialEq + use<> {
        let sticky = |sticky: &Option<Placed<Sticky>>| {
            let sticky = sticky.as_ref();
            sticky.map(|sticky| sticky.value.clone())
        };
        let server = |server: &GroupServer| (server.url.value.clone(), server.weight);
        let target = |target: &GroupTarget| {
            let servers: Vec<_> = target.servers.iter().map(server).collect();
            let balance = target.balance.as_ref();
            let balance = balance.map(|balance| balance.value.clone());
            (
                target.name.clone(),
                target.weight,
                servers,
                balance,
                sticky(&target.sticky),
                Arc::clone(&target.settings),
            )
        };
        let targets: Vec<_> = self.targets.iter().map(target).collect();
        (targets, sticky(&self.sticky))
    }
}
