//! How many sockets each core may have, of the descriptors that the process may open (rule 20).

/// Descriptors of a core without sockets: its ring or its epoll instance, that of its mailbox, and one for a moment.
const DESCRIPTORS_OF_CORE: usize = 3;

/// A core has so many sockets at any limit.
const SOCKETS_MIN: usize = 4;

/// Descriptors that sockets of cores leave free, beside those that are open when the cores start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReservedDescriptors {
    /// Of the process.
    pub process: usize,
    /// Of each core, such as those of its listeners.
    pub core: usize,
}

/// The most sockets of a core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SocketShare {
    /// With so many it evicts idle ones before it accepts.
    pub(crate) accepting_max: usize,
    /// With so many it connects no more either.
    pub(crate) connecting_max: usize,
}

impl SocketShare {
    /// The share of each core if the process may have `limit` descriptors, and has `open` before its cores start.
    pub(crate) fn new(
        limit: u64,
        open: usize,
        cores: usize,
        reserved: ReservedDescriptors,
    ) -> SocketShare {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let of_cores = cores.saturating_mul(DESCRIPTORS_OF_CORE + reserved.core);
        let free = limit.saturating_sub(open + reserved.process + of_cores);
        let connecting_max = (free / cores.max(1)).max(SOCKETS_MIN);
        SocketShare {
            accepting_max: connecting_max - connecting_max.div_ceil(10),
            connecting_max,
        }
    }

    /// Whether these are the least, for which nothing is reserved.
    pub(crate) fn is_least(self) -> bool {
        self.connecting_max == SOCKETS_MIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_share_the_descriptors_that_nothing_else_needs() {
        let reserved = ReservedDescriptors {
            process: 24,
            core: 2,
        };
        let share = |limit| SocketShare::new(limit, 16, 2, reserved);
        assert_eq!(
            (share(110).accepting_max, share(110).connecting_max),
            (27, 30)
        );
        assert_eq!(share(20_050).connecting_max, 10_000);
        assert_eq!(share(20_050).accepting_max, 9_000);
        for limit in [0, 6, 40, 57] {
            assert!(share(limit).is_least());
            assert_eq!(
                (share(limit).accepting_max, share(limit).connecting_max),
                (3, 4)
            );
        }
        assert!(!share(60).is_least());
        assert!(share(u64::MAX).connecting_max > 1 << 40);
    }
}
