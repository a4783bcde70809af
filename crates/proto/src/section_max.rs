//! The limits of a section, in whatever version it comes (rule 25).

use crate::limits::Limits;

/// How large one section may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SectionMax {
    /// Bytes of the fields.
    pub(crate) bytes: usize,
    /// Number of fields.
    pub(crate) fields: usize,
}

impl SectionMax {
    pub(crate) fn of_requests(limits: &Limits) -> SectionMax {
        SectionMax {
            bytes: limits.head_bytes_max,
            fields: limits.fields_max,
        }
    }

    /// Of the head of a response, and of its trailers: they may hold a status with its details, as those of gRPC.
    pub(crate) fn of_responses(limits: &Limits) -> SectionMax {
        SectionMax {
            bytes: limits.head_bytes_max,
            fields: limits.response_fields_max,
        }
    }

    pub(crate) fn of_trailers(limits: &Limits) -> SectionMax {
        SectionMax {
            bytes: limits.trailer_bytes_max,
            fields: limits.trailer_fields_max,
        }
    }
}
