//! One upstream as one core sees it: which of its addresses comes next.

use std::cell::{Cell, RefCell};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use blitz_http::Address;

use super::resolve::{Answer, NameFailure, Resolved};

/// How long an address that could not be connected to is passed over while there are others.
const REST: Duration = Duration::from_secs(1);
/// Addresses tried for one request.
const TRIES_MAX: usize = 3;

/// The addresses of an upstream, taken in turn.
#[derive(Debug)]
pub(crate) struct Endpoint {
    source: Source,
    turn: Cell<usize>,
    /// Addresses that failed lately, until when they rest; as short as the list of addresses.
    resting: RefCell<Vec<(SocketAddr, Instant)>>,
}

#[derive(Debug)]
enum Source {
    One(Address),
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
}

/// What to do next for a request that needs a connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Pick {
    /// Connect there, or take a pooled connection to it.
    Address(Address),
    /// The name's first answer is still on its way: ask again soon.
    Pending,
    /// The name has no address.
    Unresolved(NameFailure),
    /// Every address was tried, or as many as one request may try.
    Exhausted,
}

impl Endpoint {
    pub(crate) fn fixed(address: Address) -> Endpoint {
        Endpoint::new(Source::One(address))
    }

    pub(crate) fn localhost(port: u16) -> Endpoint {
        let v4 = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, port));
        Endpoint::new(Source::Localhost([v4, v6]))
    }

    pub(crate) fn named(name: Arc<Resolved>) -> Endpoint {
        Endpoint::new(Source::Name(name))
    }

    fn new(source: Source) -> Endpoint {
        Endpoint {
            source,
            turn: Cell::new(0),
            resting: RefCell::default(),
        }
    }

    /// The next address for a request that has tried `tried`, which is noted there.
    pub(crate) fn pick(&self, tried: &mut Tried, now: Instant) -> Pick {
        match &self.source {
            Source::One(_) if tried.count > 0 => Pick::Exhausted,
            Source::One(address) => {
                tried.count = 1;
                Pick::Address(address.clone())
            }
            Source::Localhost(addresses) => self.next_of(addresses, false, tried, now),
            Source::Name(name) => match &**name.answer() {
                Answer::Pending => Pick::Pending,
                Answer::Failed(failure) => Pick::Unresolved(*failure),
                Answer::Addresses(addresses) => self.next_of(addresses, true, tried, now),
            },
        }
    }

    /// Notes that an address could not be connected to.
    pub(crate) fn failed(&self, address: &Address, now: Instant) {
        let Address::Tcp(address) = *address else {
            return;
        };
        let mut resting = self.resting.borrow_mut();
        resting.retain(|&(other, until)| other != address && until > now);
        resting.push((address, now + REST));
    }

    fn next_of(&self, all: &[SocketAddr], rotate: bool, tried: &mut Tried, now: Instant) -> Pick {
        if tried.count == TRIES_MAX {
            return Pick::Exhausted;
        }
        let turn = *tried.turn.get_or_insert_with(|| {
            let turn = self.turn.get();
            self.turn
                .set(if rotate { turn.wrapping_add(1) } else { turn });
            turn
        });
        let in_turn = (0..all.len()).map(|offset| all[(turn % all.len() + offset) % all.len()]);
        let mut left = in_turn.filter(|address| !tried.addresses.contains(&Some(*address)));
        // Resting addresses come last, but they come: all may have failed a moment ago.
        let next = left
            .clone()
            .find(|address| !self.rests(*address, now))
            .or_else(|| left.next());
        let Some(address) = next else {
            return Pick::Exhausted;
        };
        tried.addresses[tried.count] = Some(address);
        tried.count += 1;
        Pick::Address(Address::Tcp(address))
    }

    fn rests(&self, address: SocketAddr, now: Instant) -> bool {
        self.resting
            .borrow()
            .iter()
            .any(|&(other, until)| other == address && until > now)
    }
}
