//! Priorities of HTTP/2 and HTTP/3 (RFC 9218): their parameters here, the order of sending in
//! [`schedule`]. The frames that carry them are the versions' own.

pub(crate) mod schedule;

/// How urgent a response is, and whether the client can use parts of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Priority {
    /// 0 is the most urgent, 7 the least.
    pub urgency: u8,
    /// Whether it takes turns with others; otherwise it is sent as a whole, in order of requests.
    pub incremental: bool,
}

impl Priority {
    /// The priority of a stream without any signal. The RFC's default is to send such responses one
    /// after the other. We share the bandwidth instead: for a client without priorities, one long
    /// response would hold up all others.
    pub const UNSTATED: Priority = Priority {
        urgency: 3,
        incremental: true,
    };

    /// Reads the priority that a client gives a request.
    pub(crate) fn parse(value: &[u8]) -> Priority {
        PriorityOverride::parse(value).over(Priority {
            urgency: 3,
            incremental: false,
        })
    }
}

/// The parameters of a `Priority` field, each of which may be missing. Those of a response override
/// the client's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PriorityOverride {
    urgency: Option<u8>,
    incremental: Option<bool>,
}

impl PriorityOverride {
    /// Reads a field value: a dictionary (RFC 9651) of which `u` and `i` are known. Malformed and
    /// unknown members are ignored (section 4).
    pub(crate) fn parse(value: &[u8]) -> PriorityOverride {
        let mut overrides = PriorityOverride::default();
        for member in value.split(|&byte| byte == b',') {
            let item = member.split(|&byte| byte == b';').next().unwrap_or(b"");
            match item.trim_ascii() {
                [b'u', b'=', digit @ b'0'..=b'7'] => overrides.urgency = Some(digit - b'0'),
                b"i" | b"i=?1" => overrides.incremental = Some(true),
                b"i=?0" => overrides.incremental = Some(false),
                _ => {}
            }
        }
        overrides
    }

    /// RFC 9218, section 8: "the absence of a priority parameter in an HTTP response indicates the
    /// server's disinterest in changing the client-provided value."
    pub(crate) fn over(self, priority: Priority) -> Priority {
        Priority {
            urgency: self.urgency.unwrap_or(priority.urgency),
            incremental: self.incremental.unwrap_or(priority.incremental),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_members_are_read_and_others_are_ignored() {
        for (value, urgency, incremental) in [
            ("", 3, false),
            ("u=0", 0, false),
            ("u=7, i", 7, true),
            ("i=?1,u=5;x=y", 5, true),
            ("i, i=?0", 3, false),
            ("u=8, i=1, u, ii", 3, false),
            ("u=1, \u{e4}, u=2", 2, false),
        ] {
            let expected = Priority {
                urgency,
                incremental,
            };
            assert_eq!(Priority::parse(value.as_bytes()), expected, "{value}");
        }
    }
}
