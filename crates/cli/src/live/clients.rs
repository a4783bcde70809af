//! The clients that need the most.

use serde_json::Value;

/// Clients that are shown.
pub(super) const CLIENTS_MAX: usize = 10;

/// A client, and its requests while it was watched.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Client {
    /// An address or a network; `others` are those that are not shown.
    pub(crate) name: String,
    /// Requests per second.
    pub(crate) rate: f64,
    /// The share of the requests of all clients.
    pub(crate) share: f64,
    /// Open connections.
    pub(crate) open: u64,
}

/// The name of all clients that are not shown.
pub(crate) const OTHERS: &str = "others";

/// The clients of an answer of `/connections` with `top`; none if it has none.
pub(super) fn clients(answer: &Value) -> Vec<Client> {
    let count = |client: &Value, key: &str| client[key].as_u64().unwrap_or_default();
    let named = answer["clients"].as_array().into_iter().flatten();
    let named = named.map(|client| (client["client"].as_str().unwrap_or_default(), client));
    let others = &answer["others"];
    let has_others = count(others, "open") > 0 || count(others, "requests") > 0;
    let all: Vec<_> = named
        .chain(has_others.then_some((OTHERS, others)))
        .collect();
    let total: u64 = all
        .iter()
        .map(|(_, client)| count(client, "requests"))
        .sum();
    let seconds = answer["seconds"].as_f64().unwrap_or(1.0);
    let clients = all.into_iter().map(|(name, client)| {
        let requests = count(client, "requests") as f64;
        Client {
            name: name.to_owned(),
            rate: requests / seconds,
            share: requests / total.max(1) as f64,
            open: count(client, "open"),
        }
    });
    clients.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_those_of_all_requests() {
        let answer = serde_json::json!({
            "seconds": 2,
            "clients": [{"client": "192.0.2.66", "open": 400, "requests": 90}],
            "others": {"open": 20, "requests": 110},
        });
        let client = |name: &str, rate, share, open| Client {
            name: name.to_owned(),
            rate,
            share,
            open,
        };
        assert_eq!(
            clients(&answer),
            [
                client("192.0.2.66", 45.0, 0.45, 400),
                client(OTHERS, 55.0, 0.55, 20)
            ]
        );
        let nobody = serde_json::json!({"clients": [], "others": {"open": 0, "requests": 0}});
        assert_eq!(clients(&nobody), []);
        assert_eq!(clients(&Value::Null), []);
    }
}
