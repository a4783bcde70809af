//! What a core counts.

use std::sync::atomic::{AtomicU64, Ordering};

/// One count, written by its core alone and read by anybody.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// A load and a store, both plain moves: with one writer no update is lost.
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.0
            .store(self.0.load(Ordering::Relaxed) + n, Ordering::Relaxed);
    }

    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Declares the counters once: as cells of a core, and as the numbers that others see.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What the cores have counted since they were started.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Counters { $($(#[$doc])* pub $name: u64,)* }

        /// The counters of one core.
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
    /// Operations handed to io_uring.
    sqes,
    /// Completions reaped from io_uring; reports of the epoll driver.
    cqes,
    /// Connections accepted.
    accepted,
    /// Times that accepting rested, at the limit of sockets or for want of descriptors.
    accept_paused,
    /// Bytes received.
    received_bytes,
    /// Bytes that the kernel took for sending.
    sent_bytes,
    /// Receives that found the pool empty and waited in line.
    no_buffers,
    /// Connections shed because they held the most while nobody could receive.
    shed,
    /// Times that a task could begin nothing more, because enough had begun in the turn.
    held_back,
    /// Times that memory went back to the operating system after a burst.
    trims,
    /// Wakes from other threads that found the mailbox full.
    mailbox_overflows,
    /// Tasks that panicked and were dropped.
    task_panics,
}
