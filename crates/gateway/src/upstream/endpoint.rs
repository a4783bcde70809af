//! One upstream as one core sees it: which of its addresses comes next.

use std::cell::{Cell, RefCell};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use blitz_http::{Address, Pool, Protocol, Upstream, UpstreamTls};

use super::resolve::{Answer, NameFailure, Resolved};

/// How long an address that could not be connected to is passed over while there are others.
const REST: Duration = Duration::from_secs(1);
/// Addresses tried for one request.
const TRIES_MAX: usize = 3;

/// The addresses of an upstream, taken in turn, and the connections to them.
pub(crate) struct Endpoint {
    source: Source,
    connections: Connections,
    turn: Cell<usize>,
    /// Handles to the addresses used so far, so that none has to be looked up per request.
    upstreams: RefCell<Vec<(SocketAddr, Upstream)>>,
    /// Addresses that failed lately, until when they rest; as short as the list of addresses.
    resting: RefCell<Vec<(SocketAddr, Instant)>>,
}

/// Where connections come from, what is spoken on them, and whether they are encrypted.
#[derive(Clone)]
pub(crate) struct Connections {
    pub(crate) pool: Pool,
    pub(crate) protocol: Protocol,
    pub(crate) tls: Option<UpstreamTls>,
}

impl Connections {
    fn to(&self, address: &Address) -> Upstream {
        match &self.tls {
            None => self.pool.upstream_speaking(address, self.protocol),
            Some(tls) => self.pool.upstream_tls(address, tls),
        }
    }
}

enum Source {
    One(Upstream),
    /// Either of these is this machine; an application may listen on only one of them.
    Localhost([SocketAddr; 2]),
    Name(Arc<Resolved>),
}

/// The addresses that one request has tried.
#[derive(Debug, Default)]
pub(crate) struct Tried {
    turn: Option<usize>,
    count: usize,
    addresses: [Option<SocketAddr>; TRIES_MAX],
    /// Where it was sent, which is good enough for its second time.
    again: Option<SocketAddr>,
}

impl Tried {
    /// Lets a retry go where the first attempt went if no other address takes it.
    pub(crate) fn may_return_to(&mut self, upstream: &Upstream) {
        if let Address::Tcp(address) = *upstream.address() {
            self.again = Some(address);
        }
    }
}

/// What to do next for a request that needs a connection.
pub(crate) enum Pick {
    /// Take a connection from there.
    Upstream(Upstream),
    /// The name's first answer is still on its way: ask again soon.
    Pending,
    /// The name has no address.
    Unresolved(NameFailure),
    /// Every address was tried, or as many as one request may try.
    Exhausted,
}

impl Endpoint {
    pub(crate) fn fixed(connections: Connections, address: &Address) -> Endpoint {
        let upstream = connections.to(address);
        Endpoint::new(connections, Source::One(upstream))
    }

    pub(crate) fn localhost(connections: Connections, port: u16) -> Endpoint {
        let v4 = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, port));
        Endpoint::new(connections, Source::Localhost([v4, v6]))
    }

    pub(crate) fn named(connections: Connections, name: Arc<Resolved>) -> Endpoint {
        Endpoint::new(connections, Source::Name(name))
    }

    fn new(connections: Connections, source: Source) -> Endpoint {
        Endpoint {
            source,
            connections,
            turn: Cell::new(0),
            upstreams: RefCell::default(),
            resting: RefCell::default(),
        }
    }

    /// The next address for a request that has tried `tried`, which is noted there.
    pub(crate) fn pick(&self, tried: &mut Tried, now: Instant) -> Pick {
        match &self.source {
            Source::One(_) if tried.count > 0 => Pick::Exhausted,
            Source::One(upstream) => {
                tried.count = 1;
                Pick::Upstream(upstream.clone())
            }
            Source::Localhost(addresses) => {
                // Not in turn: the one that answers is asked until it fails.
                tried.turn = Some(0);
                self.pick_of(addresses, tried, now)
            }
            Source::Name(name) => match &**name.answer() {
                Answer::Pending => Pick::Pending,
                Answer::Failed(failure) => Pick::Unresolved(*failure),
                Answer::Addresses(addresses) => self.pick_of(addresses, tried, now),
            },
        }
    }

    /// Notes that an address could not be connected to.
    pub(crate) fn failed(&self, upstream: &Upstream, now: Instant) {
        let Address::Tcp(address) = *upstream.address() else {
            return;
        };
        let mut resting = self.resting.borrow_mut();
        resting.retain(|&(other, until)| other != address && until > now);
        resting.push((address, now + REST));
    }

    fn pick_of(&self, all: &[SocketAddr], tried: &mut Tried, now: Instant) -> Pick {
        match self.next_of(all, tried, now) {
            Some(address) => Pick::Upstream(self.upstream(address, all)),
            None => Pick::Exhausted,
        }
    }

    fn next_of(&self, all: &[SocketAddr], tried: &mut Tried, now: Instant) -> Option<SocketAddr> {
        if tried.count == TRIES_MAX {
            return tried.again.take();
        }
        let turn = *tried.turn.get_or_insert_with(|| {
            let turn = self.turn.get();
            self.turn.set(turn.wrapping_add(1));
            turn
        });
        let in_turn = (0..all.len()).map(|offset| all[(turn % all.len() + offset) % all.len()]);
        let mut left = in_turn.filter(|address| !tried.addresses.contains(&Some(*address)));
        let rested = left.clone().find(|address| !self.rests(*address, now));
        if rested.is_none() && tried.again.is_some() {
            return tried.again.take();
        }
        // Resting addresses come last, but they come: all may have failed a moment ago.
        let address = rested.or_else(|| left.next())?;
        tried.addresses[tried.count] = Some(address);
        tried.count += 1;
        Some(address)
    }

    fn rests(&self, address: SocketAddr, now: Instant) -> bool {
        self.resting
            .borrow()
            .iter()
            .any(|&(other, until)| other == address && until > now)
    }

    fn upstream(&self, address: SocketAddr, all: &[SocketAddr]) -> Upstream {
        let mut upstreams = self.upstreams.borrow_mut();
        if let Some((_, upstream)) = upstreams.iter().find(|(known, _)| *known == address) {
            return upstream.clone();
        }
        // A new address came with a new answer; those that left with the old one go.
        upstreams.retain(|(known, _)| all.contains(known));
        let upstream = self.connections.to(&Address::Tcp(address));
        upstreams.push((address, upstream.clone()));
        upstream
    }
}

#[cfg(test)]
mod tests {
    use blitz_http::ClientOptions;

    use super::*;

    fn plain() -> Connections {
        Connections {
            pool: Pool::new(ClientOptions::default()),
            protocol: Protocol::Http1,
            tls: None,
        }
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn named(addresses: &[&str]) -> Endpoint {
        let addresses = addresses.iter().map(|text| address(text)).collect();
        Endpoint::named(
            plain(),
            Arc::new(Resolved::fixed(Answer::Addresses(addresses))),
        )
    }

    /// All that one request would try, were each to fail without being noted as failed.
    fn picks(endpoint: &Endpoint, now: Instant) -> Vec<String> {
        picks_after(endpoint, &mut Tried::default(), now)
    }

    fn picks_after(endpoint: &Endpoint, tried: &mut Tried, now: Instant) -> Vec<String> {
        let mut picks = Vec::new();
        while let Pick::Upstream(upstream) = endpoint.pick(tried, now) {
            match upstream.address() {
                Address::Tcp(address) => picks.push(address.to_string()),
                Address::Unix(path) => picks.push(path.display().to_string()),
            }
        }
        picks
    }

    #[test]
    fn requests_take_addresses_in_turn_and_try_each_once() {
        let endpoint = named(&["10.0.0.1:1", "10.0.0.2:1"]);
        let now = Instant::now();
        assert_eq!(picks(&endpoint, now), ["10.0.0.1:1", "10.0.0.2:1"]);
        assert_eq!(picks(&endpoint, now), ["10.0.0.2:1", "10.0.0.1:1"]);
        assert_eq!(picks(&endpoint, now), ["10.0.0.1:1", "10.0.0.2:1"]);
    }

    #[test]
    fn one_request_tries_three_addresses_at_most() {
        let endpoint = named(&["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1", "10.0.0.4:1"]);
        assert_eq!(picks(&endpoint, Instant::now()).len(), 3);
    }

    #[test]
    fn an_address_that_failed_rests_unless_there_is_no_other() {
        let endpoint = named(&["10.0.0.1:1", "10.0.0.2:1"]);
        let now = Instant::now();
        let failed = |text| plain().to(&Address::Tcp(address(text)));
        endpoint.failed(&failed("10.0.0.1:1"), now);
        assert_eq!(picks(&endpoint, now), ["10.0.0.2:1", "10.0.0.1:1"]);
        assert_eq!(picks(&endpoint, now), ["10.0.0.2:1", "10.0.0.1:1"]);
        endpoint.failed(&failed("10.0.0.2:1"), now);
        assert_eq!(picks(&endpoint, now).len(), 2, "all rest, so all are tried");
        let later = now + REST;
        assert_eq!(
            picks(&endpoint, later)[0],
            "10.0.0.2:1",
            "its turn had come"
        );
        assert_eq!(picks(&endpoint, later)[0], "10.0.0.1:1");
    }

    #[test]
    fn localhost_stays_with_the_family_that_answers() {
        let endpoint = Endpoint::localhost(plain(), 3000);
        let now = Instant::now();
        assert_eq!(picks(&endpoint, now), ["127.0.0.1:3000", "[::1]:3000"]);
        assert_eq!(picks(&endpoint, now), ["127.0.0.1:3000", "[::1]:3000"]);
        let v4 = plain().to(&Address::Tcp(address("127.0.0.1:3000")));
        endpoint.failed(&v4, now);
        assert_eq!(picks(&endpoint, now), ["[::1]:3000", "127.0.0.1:3000"]);
    }

    #[test]
    fn a_retry_comes_back_when_no_other_address_takes_it() {
        let sent_once = |endpoint: &Endpoint, now| {
            let mut tried = Tried::default();
            let Pick::Upstream(first) = endpoint.pick(&mut tried, now) else {
                panic!("there is an address")
            };
            tried.may_return_to(&first);
            picks_after(endpoint, &mut tried, now)
        };
        let endpoint = Endpoint::localhost(plain(), 3000);
        let now = Instant::now();
        assert_eq!(sent_once(&endpoint, now), ["[::1]:3000", "127.0.0.1:3000"]);
        endpoint.failed(&plain().to(&Address::Tcp(address("[::1]:3000"))), now);
        assert_eq!(sent_once(&endpoint, now), ["127.0.0.1:3000", "[::1]:3000"]);
        let many = named(&["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1", "10.0.0.4:1"]);
        let picks = ["10.0.0.2:1", "10.0.0.3:1", "10.0.0.1:1"];
        assert_eq!(sent_once(&many, now), picks);
    }

    #[test]
    fn a_fixed_address_is_tried_once() {
        let unix = Address::Unix(Arc::new("/run/app.sock".into()));
        let endpoint = Endpoint::fixed(plain(), &unix);
        assert_eq!(picks(&endpoint, Instant::now()), ["/run/app.sock"]);
    }

    #[test]
    fn a_name_without_an_answer_says_which() {
        let pick = |answer| {
            let endpoint = Endpoint::named(plain(), Arc::new(Resolved::fixed(answer)));
            endpoint.pick(&mut Tried::default(), Instant::now())
        };
        assert!(matches!(pick(Answer::Pending), Pick::Pending));
        let failed = pick(Answer::Failed(NameFailure::Timeout));
        assert!(matches!(failed, Pick::Unresolved(NameFailure::Timeout)));
    }
}
