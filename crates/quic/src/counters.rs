//! Counters of an endpoint.

use std::cell::Cell;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts of one endpoint since its start.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// Nothing was counted.
            pub const NONE: Counters = Counters { $($name: 0,)* };

            /// Adds the counts of another endpoint.
            pub fn add(&mut self, other: &Counters) {
                $(self.$name += other.$name;)*
            }

            /// The counts with their names.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }

        /// The counts while they grow.
        #[derive(Default)]
        pub(crate) struct CounterCells {
            $(pub(crate) $name: Counter,)*
        }

        impl CounterCells {
            pub(crate) fn read(&self) -> Counters {
                Counters { $($name: self.$name.0.get(),)* }
            }
        }
    };
}

counters! {
    /// Connections that have begun their handshake.
    accepted,
    /// Connections to servers that have begun their handshake.
    connects,
    /// Handshakes that were completed.
    handshakes,
    /// Connections that ended before their handshake was complete, timeouts included.
    handshakes_failed,
    /// Handshakes that took too long.
    handshake_timeouts,
    /// Handshakes that were closed for new clients at the limit of incomplete ones.
    handshakes_replaced,
    /// Clients that had to prove their address first.
    retries,
    /// Connection attempts that were ignored at the limit of incomplete handshakes, because none of these was old.
    ignored,
    /// Connection attempts that were refused at the limit of connections.
    refused,
    /// Idle connections that were closed for new ones.
    evicted,
    /// Connection attempts whose first packet was invalid.
    invalid,
    /// Connections that ended for the peer's violation of the protocol.
    violations,
    /// Connections that ended because the state machine or the protocol has panicked.
    panics,
    /// New addresses of clients that were validated.
    migrations,
    /// Datagrams that were ignored because their connection has come from too many hosts without validation, or because
    /// less has come from their host than a reply needs.
    moves_refused,
    /// Datagrams that were ignored because they were longer than QUIC permits.
    too_long,
    /// Replies that were not sent because too many bytes waited for the kernel.
    unanswered,
    /// Datagrams for connections of other cores.
    misdelivered,
}

#[derive(Default)]
pub(crate) struct Counter(Cell<u64>);

impl Counter {
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.0.set(self.0.get() + n);
    }
}
