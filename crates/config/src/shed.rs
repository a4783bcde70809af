//! How an upstream sheds load: bounds of the limit that adapts, and the rank of the requests of a route.

use std::time::Duration;

/// The bounds of an upstream that sheds load; `None` is the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Shed {
    /// The least limit, on all cores together.
    pub min: Option<u32>,
    /// The greatest limit, on all cores together.
    pub max: Option<u32>,
    /// The most requests of a core that wait.
    pub queue: Option<u32>,
    /// How long a request waits at most.
    pub wait: Option<Duration>,
}

/// The rank of requests where load is shed: those of a lower rank are shed first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub enum Importance {
    /// Shed before all others.
    Low,
    /// Without a rank of their own.
    #[default]
    Normal,
    /// Shed after the usual ones.
    High,
    /// Shed last.
    Critical,
}

impl Importance {
    /// All ranks; those that are shed first come first.
    pub const ALL: [Importance; 4] = [
        Importance::Low,
        Importance::Normal,
        Importance::High,
        Importance::Critical,
    ];

    /// The value of `importance`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Importance::Low => "low",
            Importance::Normal => "normal",
            Importance::High => "high",
            Importance::Critical => "critical",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::IMPORTANCES;

    #[test]
    fn the_ranks_are_those_of_the_table_of_keys() {
        let names: Vec<_> = Importance::ALL.iter().rev().map(|one| one.name()).collect();
        assert_eq!(names, IMPORTANCES);
        assert!(Importance::ALL.is_sorted());
    }
}
