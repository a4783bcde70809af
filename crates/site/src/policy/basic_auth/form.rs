//! Forms of hashes: hashes of one form take the same time.

/// The form of a hash: its function with all that decides on the time of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Bcrypt {
        cost: u32,
    },
    Argon2id {
        memory: u32,
        passes: u32,
        lanes: u32,
    },
    ShaCrypt {
        is_512: bool,
        rounds: u32,
    },
    Apr1,
    Sha1,
}

impl Form {
    /// About the time of a check in nanoseconds, to compare forms by.
    pub(super) fn nanoseconds(self) -> u64 {
        match self {
            Form::Bcrypt { cost } => 65_000 << cost,
            Form::Argon2id { memory, passes, .. } => 1000_u64
                .saturating_mul(memory.into())
                .saturating_mul(passes.into()),
            Form::ShaCrypt { rounds, .. } => 1000 * u64::from(rounds),
            Form::Apr1 => 300_000,
            Form::Sha1 => 300,
        }
    }
}
