//! Settings of an upstream that has a name, beside its servers and the choice among them.

use std::time::Duration;

use crate::span::{Placed, Span};

/// Lists the keys of `[upstream.NAME]` that are read one by one.
macro_rules! settings {
    ($($(#[$meta:meta])* $key:ident: $kind:ty,)*) => {
        /// What an upstream says about its servers; `None` is the default. Two are equal if they say the same, wherever it
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

settings! {
    /// How long a server that is new or was unavailable gets fewer requests than its weight.
    slow_start: Duration,
}
