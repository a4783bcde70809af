//! The addresses of servers: their requests of the window, and the changes of names.

use super::latency::Latency;
use super::reading::{NameChange, Server};
use super::upstreams::Responses;

/// Addresses that are named in a line.
const NAMED_MAX: usize = 4;

/// Seconds of a day: an earlier change has its date.
const DAY: f64 = 86_400.0;

/// The requests of the window that an address got.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct AddressTimes {
    pub(crate) address: String,
    /// Those that were sent again count each time.
    requests: f64,
    failures: f64,
    /// Those with a response head, and the seconds until it came.
    pub(crate) responses: f64,
    seconds: f64,
}

impl AddressTimes {
    /// Seconds until the response head.
    pub(crate) fn mean(&self) -> Option<f64> {
        AddressTimes::mean_of([self])
    }

    pub(super) fn mean_of<'a>(all: impl IntoIterator<Item = &'a AddressTimes>) -> Option<f64> {
        let sum =
            |(count, seconds), one: &AddressTimes| (count + one.responses, seconds + one.seconds);
        let (count, seconds) = all.into_iter().fold((0.0, 0.0), sum);
        (count > 0.0).then(|| seconds / count)
    }

    /// Those of a server.
    pub(super) fn responses(all: &[AddressTimes], seconds: f64) -> Responses {
        let sum = |value: fn(&AddressTimes) -> f64| 0.0 + all.iter().map(value).sum::<f64>();
        let requests = sum(|one| one.requests);
        Responses {
            rate: requests / seconds,
            latency: Latency::default(),
            mean: AddressTimes::mean_of(all),
            failed: sum(|one| one.failures) / requests.max(1.0),
        }
    }
}

/// The addresses of a server with requests since an earlier reading; without one there are none.
pub(super) fn times(earlier: Option<&[Server]>, server: &Server) -> Vec<AddressTimes> {
    let Some(earlier) = earlier else {
        return Vec::new();
    };
    let before = earlier.iter().find(|one| one.url == server.url);
    let times = server.addresses.iter().map(|address| {
        let before = before.and_then(|server| {
            let mut all = server.addresses.iter();
            // The counts begin again if the address was gone meanwhile.
            all.find(|one| one.address == address.address && one.requests <= address.requests)
        });
        let grown = |now: u64, before: Option<u64>| now.saturating_sub(before.unwrap_or(0)) as f64;
        let seconds = before.map_or(0.0, |one| one.response_seconds);
        AddressTimes {
            address: address.address.clone(),
            requests: grown(address.requests, before.map(|one| one.requests)),
            failures: grown(address.failures, before.map(|one| one.failures)),
            responses: grown(address.responses, before.map(|one| one.responses)),
            seconds: (address.response_seconds - seconds).max(0.0),
        }
    });
    times.filter(|one| one.requests > 0.0).collect()
}

/// A change of the addresses of a name.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Change {
    /// `127.0.0.9, was 127.0.0.1 until 22:22:26 UTC`.
    pub(crate) text: String,
    /// Seconds since then.
    pub(crate) age: f64,
    /// The addresses since then.
    pub(crate) addresses: Vec<String>,
}

impl Change {
    pub(super) fn of(server: &Server, change: &NameChange) -> Change {
        let addresses = server.present().map(|one| one.address.clone());
        let addresses: Vec<_> = addresses.collect();
        let (date, time) = change.at.split_once('T').unwrap_or(("", &change.at));
        let time = time.trim_end_matches('Z');
        let until = match change.age > DAY {
            true => format!("{date} {time} UTC"),
            false => format!("{time} UTC"),
        };
        let text = format!(
            "{}, was {} until {until}",
            named(&addresses),
            named(&change.before)
        );
        Change {
            text,
            age: change.age,
            addresses,
        }
    }
}

/// The first addresses, without their port, which is the same for all of a name.
fn named(addresses: &[String]) -> String {
    let host = |address: &String| {
        address
            .rsplit_once(':')
            .map_or(address.clone(), |(host, _)| host.to_owned())
    };
    let mut named: Vec<_> = addresses.iter().take(NAMED_MAX).map(host).collect();
    if let Some(others) = addresses.len().checked_sub(NAMED_MAX + 1) {
        named.push(format!("{} others", others + 1));
    }
    named.join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::reading::Address;
    use super::*;

    fn server(requests: u64, responses: u64, seconds: f64) -> Server {
        Server {
            url: "http://a".to_owned(),
            addresses: vec![Address {
                address: "10.0.0.1:80".to_owned(),
                requests,
                failures: requests - responses,
                responses,
                response_seconds: seconds,
                ..Address::default()
            }],
            ..Server::default()
        }
    }

    #[test]
    fn requests_are_those_since_the_earlier_reading() {
        let (before, after) = (server(10, 8, 4.0), server(20, 12, 6.0));
        let all = times(Some(&[before]), &after);
        let responses = AddressTimes::responses(&all, 2.0);
        let seen = (responses.rate, responses.failed, responses.mean);
        assert_eq!(seen, (5.0, 0.6, Some(0.5)));
        assert_eq!(times(None, &after), []);
        // Another process, or an address that came back, counts from zero.
        let all = times(Some(&[server(30, 30, 1.0)]), &after);
        assert_eq!((all[0].requests, all[0].mean()), (20.0, Some(0.5)));
    }

    #[test]
    fn a_change_names_the_addresses_of_both_sides() {
        let mut change = NameChange {
            before: vec!["[::1]:80".to_owned(), "10.0.0.2:80".to_owned()],
            at: "2026-11-29T22:22:26Z".to_owned(),
            age: 5.0,
        };
        let server = server(1, 1, 0.0);
        let text = Change::of(&server, &change).text;
        assert_eq!(text, "10.0.0.1, was [::1], 10.0.0.2 until 22:22:26 UTC");
        change.age = 2.0 * DAY;
        change.before = (0..6).map(|at| format!("10.0.0.{at}:80")).collect();
        let text = Change::of(&server, &change).text;
        let before = "10.0.0.0, 10.0.0.1, 10.0.0.2, 10.0.0.3, 2 others";
        assert_eq!(
            text,
            format!("10.0.0.1, was {before} until 2026-11-29 22:22:26 UTC")
        );
    }
}
