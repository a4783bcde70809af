//! Shares of clients in what a core has of something: memory, or places in a queue.

use std::collections::BTreeMap;

use crate::client::ClientNetwork;

/// The part of it that one client may hold.
const CLIENT_PART: usize = 4;

/// The amount of something that a core has, and its holders: an entry for each client that holds some.
pub(crate) struct ClientShares {
    max: usize,
    held: usize,
    clients: BTreeMap<ClientNetwork, usize>,
}

impl ClientShares {
    pub(crate) const fn new(max: usize) -> ClientShares {
        ClientShares {
            max,
            held: 0,
            clients: BTreeMap::new(),
        }
    }

    /// Changes how much one holder of a client holds. Returns `false` if that is more than there is, or more than the
    /// share of the client, who may have one holder of any size. In any case it counts until the holder changes it
    /// again.
    pub(crate) fn change(&mut self, client: ClientNetwork, before: usize, after: usize) -> bool {
        self.held = self.held - before + after;
        let of_client = self.clients.entry(client).or_default();
        *of_client = *of_client - before + after;
        let of_client = *of_client;
        if of_client == 0 {
            self.clients.remove(&client);
        }
        let is_share = of_client == after || of_client <= self.max / CLIENT_PART;
        self.held <= self.max && is_share
    }

    #[cfg(test)]
    pub(crate) fn is_unused(&self) -> bool {
        self.held == 0 && self.clients.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_holds_a_share_at_most_and_one_holder_in_any_case() {
        let [a, b, c] = [1, 2, 3].map(ClientNetwork::V4);
        let mut shares = ClientShares::new(16);
        assert!((0..4).all(|_| shares.change(a, 0, 1)));
        assert!(!shares.change(a, 0, 1));
        assert!(!shares.change(a, 1, 2));
        shares.change(a, 2, 0);
        assert!(shares.change(b, 0, 10), "the only holder of a client");
        assert!(!shares.change(c, 0, 3), "there are two left");
        assert!(shares.change(c, 3, 2));
        for (client, held) in [(a, 4), (b, 10), (c, 2)] {
            shares.change(client, held, 0);
        }
        assert!(shares.is_unused());
    }
}
