//! The clients that need the most: their requests while they are watched, and their open connections as the kernel has
//! them. While nobody asks, nothing is counted.

mod open;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use blitz_gateway::{OwnedRecord, RecordBatch};
use serde_json::{Value, json};

use crate::records::{Consumers, RecordConsumer};

/// Clients that are counted on their own; further ones are counted together.
const CLIENTS_MAX: usize = 16_384;

/// The parts into which a whole is divided for comparisons.
const SHARES: u128 = 1_000_000;

/// The bits of an IPv6 address that its network has: one client may use all addresses behind them.
const NETWORK_BITS: u32 = 64;

/// A client: an address, or a network of IPv6; `None` stands for those of unix sockets.
type Client = Option<IpAddr>;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counts {
    open: u64,
    requests: u64,
    bytes_in: u64,
    bytes_out: u64,
}

#[derive(Debug, Default)]
struct Watched {
    clients: HashMap<Client, Counts>,
    /// All beyond the most.
    others: Counts,
}

/// Counts requests, on the thread of the records.
struct Watcher(Weak<Mutex<Watched>>);

/// Watches the requests that end within this time, and gives the clients with the most of them, at most so many.
/// Connections to the port of the control interface do not count.
pub(super) async fn watch(
    consumers: &Consumers,
    time: Duration,
    count: usize,
    control_port: Option<u16>,
) -> Value {
    let watched = Arc::new(Mutex::new(Watched::default()));
    // If too many others are being added, there are no counts of requests.
    let _ = consumers.add(Box::new(Watcher(Arc::downgrade(&watched))));
    blitz::sleep(time).await;
    let open = blitz::blocking(move || open::connections(control_port)).await;
    let mut watched = lock(&watched);
    for remote in open {
        watched.counts(client(remote)).open += 1;
    }
    watched.report(count)
}

impl RecordConsumer for Watcher {
    fn take(&mut self, batch: &RecordBatch) -> bool {
        let Some(watched) = self.0.upgrade() else {
            return false;
        };
        let mut watched = lock(&watched);
        let records = batch.records.iter();
        for record in records.filter(|record| record.is_request) {
            watched.count(record);
        }
        true
    }

    fn wants_all(&self) -> bool {
        true
    }

    fn is_over(&self) -> bool {
        self.0.strong_count() == 0
    }
}

impl Watched {
    fn count(&mut self, record: &OwnedRecord) {
        let counts = self.counts(record.client().and_then(client));
        counts.requests += 1;
        counts.bytes_in += record.request_bytes;
        counts.bytes_out += record.response_bytes;
    }

    fn counts(&mut self, client: Client) -> &mut Counts {
        if self.clients.len() >= CLIENTS_MAX && !self.clients.contains_key(&client) {
            return &mut self.others;
        }
        self.clients.entry(client).or_default()
    }

    fn report(&self, count: usize) -> Value {
        let mut all: Vec<_> = self.clients.iter().collect();
        let total = all
            .iter()
            .fold(self.others, |sum, (_, counts)| sum.plus(counts));
        // A client with many connections may have no request.
        let share = |count: u64, total: u64| u128::from(count) * SHARES / u128::from(total.max(1));
        let order = |counts: &Counts| {
            let requests = share(counts.requests, total.requests);
            (
                requests.max(share(counts.open, total.open)),
                counts.bytes_in + counts.bytes_out,
            )
        };
        // Those with the same counts in an order that does not change from time to time.
        all.sort_by_key(|(client, counts)| (std::cmp::Reverse(order(counts)), **client));
        let (shown, hidden) = all.split_at(count.min(all.len()));
        let others = hidden
            .iter()
            .fold(self.others, |sum, (_, counts)| sum.plus(counts));
        let clients = shown.iter().map(|(client, counts)| {
            let mut object = counts.object();
            object["client"] = json!(name(**client));
            object
        });
        json!({
            "clients": clients.collect::<Vec<_>>(),
            "others": others.object(),
        })
    }
}

impl Counts {
    fn plus(self, other: &Counts) -> Counts {
        Counts {
            open: self.open + other.open,
            requests: self.requests + other.requests,
            bytes_in: self.bytes_in + other.bytes_in,
            bytes_out: self.bytes_out + other.bytes_out,
        }
    }

    fn object(&self) -> Value {
        json!({
            "open": self.open,
            "requests": self.requests,
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
        })
    }
}

fn client(address: IpAddr) -> Client {
    Some(match address.to_canonical() {
        IpAddr::V6(v6) => {
            let network = v6.to_bits() & (u128::MAX << (u128::BITS - NETWORK_BITS));
            IpAddr::V6(Ipv6Addr::from_bits(network))
        }
        v4 @ IpAddr::V4(_) => v4,
    })
}

fn name(client: Client) -> String {
    match client {
        None => "unix".to_owned(),
        Some(IpAddr::V6(network)) => format!("{network}/{NETWORK_BITS}"),
        Some(address) => address.to_string(),
    }
}

fn lock(watched: &Mutex<Watched>) -> MutexGuard<'_, Watched> {
    watched.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Client {
        client(text.parse().unwrap())
    }

    #[test]
    fn addresses_of_a_network_are_one_client() {
        assert_eq!(of("2001:db8:1:2:3::4"), of("2001:db8:1:2::"));
        assert_ne!(of("2001:db8:1:2::"), of("2001:db8:1:3::"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_eq!(name(of("2001:db8:1:2:3::4")), "2001:db8:1:2::/64");
        assert_eq!(
            (&*name(of("192.0.2.1")), &*name(None)),
            ("192.0.2.1", "unix")
        );
    }

    #[test]
    fn clients_with_the_largest_shares_come_first() {
        let mut watched = Watched::default();
        watched.counts(of("192.0.2.1")).open = 9;
        watched.counts(of("192.0.2.2")).requests = 5;
        watched.counts(of("192.0.2.3")).requests = 7;
        watched.counts(of("192.0.2.3")).open = 1;
        watched.counts(of("192.0.2.4")).bytes_out = 1000;
        let report = watched.report(3);
        let names: Vec<_> = (0..3)
            .map(|at| report["clients"][at]["client"].clone())
            .collect();
        assert_eq!(names, ["192.0.2.1", "192.0.2.3", "192.0.2.2"]);
        assert_eq!(
            report["others"],
            json!({"open": 0, "requests": 0, "bytes_in": 0, "bytes_out": 1000})
        );
    }

    #[test]
    fn clients_beyond_the_most_are_counted_together() {
        let mut watched = Watched::default();
        for number in 0..CLIENTS_MAX as u32 + 3 {
            watched
                .counts(client(IpAddr::from(number.to_be_bytes())))
                .requests += 1;
        }
        assert_eq!(
            (watched.clients.len(), watched.others.requests),
            (CLIENTS_MAX, 3)
        );
        // A known one still counts on its own.
        watched.counts(of("0.0.0.0")).requests += 1;
        assert_eq!(watched.clients[&of("0.0.0.0")].requests, 2);
    }
}
