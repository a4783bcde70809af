//! Priorities as the peer states them (RFC 9218, section 4).

/// How soon a response is wanted, and whether parts of it are of use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Priority {
    /// 0 is the most urgent, 7 the least.
    pub(crate) urgency: u8,
    /// Whether it shares its turn with others; else it is sent as a whole, in order of requests.
    pub(crate) incremental: bool,
}

impl Priority {
    /// Of a stream about which nothing was said. The RFC's default is to send such responses one
    /// after the other; but who knows of no priorities is better served by fairness, since one
    /// long response would hold up all others.
    pub(crate) const UNSTATED: Priority = Priority {
        urgency: 3,
        incremental: true,
    };

    /// Reads what a client says of a request.
    pub(crate) fn parse(value: &[u8]) -> Priority {
        Wish::parse(value).over(Priority {
            urgency: 3,
            incremental: false,
        })
    }
}

/// What was said of a priority, which may be a part of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Wish {
    urgency: Option<u8>,
    incremental: Option<bool>,
}

impl Wish {
    /// Reads a field value: a dictionary (RFC 9651) of which `u` and `i` are known. What is
    /// malformed or unknown is ignored, as section 4 asks for.
    pub(crate) fn parse(value: &[u8]) -> Wish {
        let mut wish = Wish::default();
        for member in value.split(|&byte| byte == b',') {
            let item = member.split(|&byte| byte == b';').next().unwrap_or(b"");
            match item.trim_ascii() {
                [b'u', b'=', digit @ b'0'..=b'7'] => wish.urgency = Some(digit - b'0'),
                b"i" | b"i=?1" => wish.incremental = Some(true),
                b"i=?0" => wish.incremental = Some(false),
                _ => {}
            }
        }
        wish
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
    fn members_are_found_and_rubbish_is_ignored() {
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
