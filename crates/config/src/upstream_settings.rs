//! Settings of an upstream that has a name, beside its servers and the choice among them.

use std::time::Duration;

use crate::access_log::Share;
use crate::health::HealthCheck;
use crate::shed::Shed;
use crate::span::{Placed, Span};
use crate::units::{StatusPattern, TimeLimit};

/// Lists the keys of `[upstream.NAME]` that are read one by one.
macro_rules! settings {
    ($($(#[$meta:meta])* $key:ident: $kind:ty,)*) => {
        /// The settings of an upstream beside its servers; `None` is the default. Two are equal if they say the same, wherever it
        /// is written.
        #[derive(Debug, Clone, Default)]
        pub struct UpstreamSettings {
            $($(#[$meta])* pub $key: Option<Placed<$kind>>,)*
        }

        impl UpstreamSettings {
            /// The keys that are written, with the places of their values.
            pub fn written(&self) -> impl Iterator<Item = (&'static str, &Span)> {
                let all = [$((stringify!($key), self.$key.as_ref().map(|value| &value.span)),)*];
                all.into_iter().filter_map(|(key, span)| Some((key, span?)))
            }
        }

        impl PartialEq for UpstreamSettings {
            fn eq(&self, other: &UpstreamSettings) -> bool {
                $(
                    let (own, others) = (self.$key.as_ref(), other.$key.as_ref());
                    if own.map(|value| &value.value) != others.map(|value| &value.value) {
                        return false;
                    }
                )*
                true
            }
        }

        impl Eq for UpstreamSettings {}
    };
}

/// When a server that fails gets no requests for a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outlier {
    /// Whether servers are ejected at all.
    pub is_on: bool,
    /// Consecutive failures after which a server is compared with the others.
    pub failures: u32,
    /// How many times the median response time of the others that of a server may be; `None` ejects no slow servers.
    pub latency: Option<u32>,
    /// How long the first ejection lasts; it doubles each time, up to a minute.
    pub time: Duration,
}

impl Default for Outlier {
    fn default() -> Outlier {
        Outlier {
            is_on: true,
            failures: 5,
            latency: None,
            time: Duration::from_secs(5),
        }
    }
}

impl UpstreamSettings {
    /// When servers are ejected.
    #[must_use]
    pub fn outlier(&self) -> Outlier {
        let written = self.outlier.as_ref();
        written.map_or_else(Outlier::default, |outlier| outlier.value)
    }
}

/// Which requests are sent again, and how many.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Retry {
    /// Statuses of responses in whose place a request is sent again.
    pub on: Vec<StatusPattern>,
    /// The share of the requests that may be sent again; `None` is a fifth.
    pub budget: Option<Share>,
}

/// Requests that wait for a connection. `None` is the default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Queue {
    /// The most of them, of a core and an address.
    pub max: Option<u64>,
    /// How long each of them waits.
    pub timeout: Option<TimeLimit>,
}

settings! {
    /// When a server that fails gets no requests for a time.
    outlier: Outlier,
    /// After which time without a response a request is sent a second time.
    hedge: TimeLimit,
    /// The most connections in use, of a core to an address.
    connections_max: u64,
    /// Requests that wait for a connection.
    queue: Queue,
    /// Which requests are sent again.
    retry: Retry,
    /// How its servers are checked.
    health: HealthCheck,
    /// It sheds load, within these bounds.
    shed: Shed,
    /// How long a server that is new or was unavailable gets fewer requests than its weight.
    slow_start: Duration,
}
