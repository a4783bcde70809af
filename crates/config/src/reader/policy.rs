//! Keys of policies.

mod cors;

use super::own::OwnSettings;
use super::{Entry, Reader};

impl Reader<'_> {
    /// Reads the value of a policy.
    pub(super) fn policy(&mut self, entry: &Entry<'_, '_>, own: &mut OwnSettings) {
        let value = entry.value;
        if entry.name == "cors" {
            own.policies.cors = self.own(value, |reader| reader.cors(value));
        }
    }
}
