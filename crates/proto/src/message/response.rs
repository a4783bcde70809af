//! Response heads.

use super::{Fields, Status, Version};

/// Status line and fields of a response (RFC 9110, section 6).
#[derive(Debug, Clone)]
pub struct ResponseHead {
    /// The status code; the reason phrase is not stored, since it carries no meaning.
    pub status: Status,
    /// The version with which the response was received; encoders ignore it.
    pub version: Version,
    /// The header section.
    pub fields: Fields,
}

impl ResponseHead {
    /// A head with this status and no fields.
    #[must_use]
    pub const fn new(status: Status) -> ResponseHead {
        ResponseHead {
            status,
            version: Version::Http11,
            fields: Fields::new(),
        }
    }

    /// Copies `other` into the memory of `self`.
    #[inline]
    pub(crate) fn assign(&mut self, other: &ResponseHead) {
        self.status = other.status;
        self.version = other.version;
        self.fields.assign(&other.fields);
    }

    /// Resets the head to `200` without fields; keeps the memory.
    pub fn clear(&mut self) {
        self.status = Status::OK;
        self.version = Version::Http11;
        self.fields.clear();
    }
}

impl Default for ResponseHead {
    fn default() -> ResponseHead {
        ResponseHead::new(Status::OK)
    }
}
