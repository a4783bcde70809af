//! The counters of a core.

use std::sync::atomic::{AtomicU64, Ordering};

/// One counter, written by its core only and read by any thread.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// A load and a store, both plain moves: with a single writer no update is lost.
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.0
            .store(self.0.load(Ordering::Relaxed) + n, Ordering::Relaxed);
    }

    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Declares the counters once: as the cells of a core, and as a snapshot for readers.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A snapshot of the counters since the cores were started.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Counters { $($(#[$doc])* pub $name: u64,)* }

        /// The cells of one core.
        #[derive(Debug, Default)]
        pub(crate) struct CounterCells { $(pub(crate) $name: Count,)* }

        impl CounterCells {
            pub(crate) fn read(&self) -> Counters {
                Counters { $($name: self.$name.read(),)* }
            }
        }

        impl Counters {
            /// Names and values, in the order of declaration.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }

        impl std::ops::Add for Counters {
            type Output = Counters;

            fn add(self, other: Counters) -> Counters {
                Counters { $($name: self.$name + other.$name,)* }
            }
        }
    };
}

counters! {
    /// Turns of the loop.
    turns,
    /// System calls that submit or wait (`io_uring_enter`, `epoll_wait`).
    enters,
    /// Operations submitted to io_uring.
    sqes,
    /// Completions of io_uring; reports of the epoll driver.
    cqes,
    /// Connections accepted.
    accepted,
    /// Connections that this core accepted while it was busy or at its limit, and gave to another core.
    accepts_given,
    /// Pauses of accepting, at the limit of sockets or for lack of descriptors.
    accept_paused,
    /// Idle connections that were closed in favour of new ones.
    evicted,
    /// Receives that delivered bytes.
    receives,
    /// Bytes received.
    received_bytes,
    /// Sends of which the kernel accepted all bytes or a part.
    sends,
    /// Bytes that the kernel accepted for sending.
    sent_bytes,
    /// Those of them that were sent from files in memory, without a copy.
    file_bytes_sent,
    /// Datagrams received, in batches or singly.
    datagrams_received,
    /// Batches of datagrams received.
    trains_received,
    /// Datagrams that the kernel accepted for sending.
    datagrams_sent,
    /// Batches of datagrams that the kernel accepted.
    trains_sent,
    /// Datagrams that the kernel did not send, such as larger ones than the path takes.
    datagrams_unsent,
    /// Datagrams or whole batches that the kernel received and dropped: the socket's buffer was full, or they
    /// were empty or damaged.
    datagrams_dropped,
    /// Batches that were received and cannot be used: cut, or without a sender.
    trains_unusable,
    /// Times that a UDP socket received nothing for a while, because its reader had not read.
    trains_paused,
    /// Datagrams that were forwarded to another core.
    datagrams_forwarded,
    /// Datagrams that were not forwarded: too many waited for the other core or its reader, or there was none.
    datagrams_not_forwarded,
    /// Receives that found the pool empty and were queued.
    no_buffers,
    /// Connections that were shed because they held the most memory while no socket could receive.
    shed,
    /// Lingering connections that were closed early, because more lingered than may at once.
    lingering_cut,
    /// Tasks and parked sockets that were held back because the turn had started enough requests.
    held_back,
    /// Times that memory was given back to the operating system after a burst.
    trims,
    /// Wakes from other threads that found the mailbox full.
    mailbox_overflows,
    /// Tasks that panicked and were dropped.
    task_panics,
}
