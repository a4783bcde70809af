//! Keys of policies.

mod cors;
mod early_hints;
mod jwt;

use super::own::OwnSettings;
use super::{Entry, Reader};

impl Reader<'_> {
    /// Reads the value of a policy.
    pub(super) fn policy(&mut self, entry: &Entry<'_, '_>, own: &mut OwnSettings) {
        let value = entry.value;
        let policies = &mut own.policies;
        match entry.name {
            "cors" => policies.cors = self.own(value, |reader| reader.cors(value)),
            "early_hints" => {
                policies.early_hints = self.own(value, |reader| reader.early_hints(value));
            }
            "jwt" => policies.jwt = self.own(value, |reader| reader.jwt(value)),
            _ => {}
        }
    }
}
