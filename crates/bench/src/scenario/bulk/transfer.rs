//! The content that a run has transferred, and its plausibility.

use std::net::SocketAddr;

use super::backend::{self, BackendCounters};
use super::groups::{BulkGroup, Direction};
use super::size::ContentSize;
use crate::group::LoadTool;
use crate::load_tool::LoadSummary;

/// More than the head of a response.
const HEAD_BYTES_MAX: u64 = 1024;

/// The uploads that the backend has read since an earlier time.
pub(crate) struct Uploaded {
    complete: u64,
    bytes: u64,
}

impl Uploaded {
    /// Nothing, of a server without a backend.
    pub(crate) const NONE: Uploaded = Uploaded {
        complete: 0,
        bytes: 0,
    };

    pub(crate) fn since(before: &BackendCounters, backend: SocketAddr) -> Result<Uploaded, String> {
        let now = backend::counters(backend)?;
        Ok(Uploaded {
            complete: now.uploads - before.uploads,
            bytes: now.received_bytes - before.received_bytes,
        })
    }
}

/// The counts of one run.
pub(crate) struct Transfer {
    /// Complete exchanges.
    pub(crate) requests: u64,
    /// Content, also of exchanges that were not complete at the end.
    pub(crate) content_bytes: u64,
}

impl Transfer {
    /// Downloads are counted by the load tool and uploads by the backend, because no load tool counts the
    /// bytes that it sends. wrk counts the heads of responses as well.
    pub(crate) fn of(
        group: &BulkGroup,
        summary: &LoadSummary,
        head_bytes: u64,
        uploaded: &Uploaded,
    ) -> Transfer {
        match (group.direction, group.group.load_tool) {
            (Direction::Upload, _) => Transfer {
                requests: uploaded.complete,
                content_bytes: uploaded.bytes,
            },
            (Direction::Download, LoadTool::H2load { .. }) => Transfer {
                requests: summary.requests,
                content_bytes: summary.bytes,
            },
            (Direction::Download, _) => Transfer {
                requests: summary.requests,
                content_bytes: summary.bytes.saturating_sub(summary.requests * head_bytes),
            },
        }
    }
}

/// The exchanges of a run.
pub(crate) struct Expected {
    pub(crate) size: ContentSize,
    /// Most exchanges that were not complete at the end.
    pub(crate) in_flight: u64,
}

impl Expected {
    /// Fails if a request failed, or if the bytes do not match the number of complete exchanges.
    pub(crate) fn check(&self, summary: &LoadSummary, transfer: &Transfer) -> Result<(), String> {
        let Transfer {
            requests,
            content_bytes,
        } = *transfer;
        let responses = summary.requests;
        if summary.errors > 0 {
            return Err(format!("{} of {responses} requests failed", summary.errors));
        }
        // A run may be too short for a whole exchange of a huge size: its bytes count all the same.
        if content_bytes == 0 || (requests == 0 && !self.size.is_huge()) {
            return Err("no exchange was complete".to_owned());
        }
        if requests < responses {
            return Err(format!(
                "the backend read {requests} uploads, but {responses} have a response"
            ));
        }
        let (size, in_flight) = (self.size.bytes(), self.in_flight);
        // wrk counts the head of a response with its first bytes, and the backend may read the last
        // uploads of the run before.
        let least = responses * size;
        let most = (requests + 2 * in_flight) * (size + HEAD_BYTES_MAX);
        if !(least..=most).contains(&content_bytes) {
            return Err(format!(
                "{requests} exchanges of {size} bytes transferred {content_bytes} bytes"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::bulk::groups::GROUPS;

    /// Checks a run with this size, errors and responses, and these exchanges and bytes.
    fn check(size: &str, errors: u64, responses: u64, requests: u64, bytes: u64) -> bool {
        let expected = Expected {
            size: size.parse().unwrap(),
            in_flight: 4,
        };
        let transfer = Transfer {
            requests,
            content_bytes: bytes,
        };
        expected
            .check(&summary(responses, 0, errors), &transfer)
            .is_ok()
    }

    fn summary(requests: u64, bytes: u64, errors: u64) -> LoadSummary {
        LoadSummary {
            requests,
            bytes,
            duration_us: 1,
            p50_us: None,
            p99_us: None,
            max_us: None,
            errors,
        }
    }

    #[test]
    fn the_bytes_match_the_exchanges_and_those_in_flight() {
        let mib = 1 << 20;
        assert!(check("1m", 0, 10, 10, 10 * mib));
        assert!(check("1m", 0, 10, 10, 14 * mib));
        assert!(!check("1m", 0, 10, 10, 10 * mib - 1), "too short");
        assert!(!check("1m", 0, 10, 10, 20 * mib), "too long");
    }

    #[test]
    fn errors_and_missing_exchanges_are_reported() {
        assert!(!check("1", 1, 10, 10, 10), "a failed request");
        assert!(!check("1", 0, 10, 9, 9), "an upload that was not read");
        assert!(!check("1", 0, 0, 0, 3), "nothing is complete");
        assert!(check("100m", 0, 0, 0, 3), "a part of a huge content");
        assert!(!check("100m", 0, 0, 0, 0), "nothing at all");
    }

    #[test]
    fn heads_are_no_content_and_uploads_are_counted_by_the_backend() {
        let uploaded = Uploaded {
            complete: 7,
            bytes: 70,
        };
        let bytes = |name: &str| {
            let group = GROUPS.iter().find(|group| group.group.name == name);
            let transfer = Transfer::of(group.unwrap(), &summary(2, 40, 0), 10, &uploaded);
            (transfer.requests, transfer.content_bytes)
        };
        assert_eq!(bytes("h1-down"), (2, 20));
        assert_eq!(bytes("h2-down"), (2, 40));
        assert_eq!(bytes("h1-up"), (7, 70));
    }
}
