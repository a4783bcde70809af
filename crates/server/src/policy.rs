//! Policies of an app: decisions on requests before any middleware, and changes of responses.
//!
//! They are those of the gateway, with the same verdicts, and decide in a fixed order whatever the order in which they
//! are added: `cors`, `rate_limit`, `jwt`, `concurrency`, `early_hints`. Their changes are in all responses of the app:
//! those of `OPTIONS`, 404 and 405, those after a panic, and their own.
//!
//! ```
//! use blitz::App;
//! use blitz::policy::{compress, cors, rate_limit, request_id};
//!
//! let app = App::new()
//!     .policy(request_id())
//!     .policy(cors().allow_origin("https://app.example"))
//!     .policy(compress())
//!     .policy(rate_limit("100/min"))
//!     .get("/", || "Hello, World!");
//! # app.build().unwrap();
//! ```
//!
//! An app whose policy has a mistake is not built:
//!
//! ```
//! use blitz::App;
//! use blitz::policy::rate_limit;
//!
//! let error = App::new().policy(rate_limit("100rps")).build().err().unwrap();
//! assert!(error.to_string().starts_with("`100rps` is no rate"));
//! ```

mod compress;
mod cors;
mod jwt;
mod limits;

use std::sync::Arc;

use blitz_site::compress::Compression;
use blitz_site::{EarlyHints, Policies, Policy, Prover};

use crate::error::{Error, Result};

pub use compress::{CompressPolicy, compress};
pub use cors::{CorsPolicy, cors};
pub use jwt::{JwtPolicy, jwt};
pub use limits::{RateLimitPolicy, concurrency, rate_limit};

/// The most bytes of the lines of early hints: browsers read no more than a head has.
const HINT_BYTES_MAX: usize = 4096;

/// A policy for [`App::policy`](crate::App::policy).
pub struct AppPolicy(pub(crate) Result<Kind>);

/// A policy, or the settings that it is made of.
#[derive(Clone)]
pub(crate) enum Kind {
    /// A policy of the gateway.
    Shared(Policy),
    RateLimit(RateLimitPolicy),
    Concurrency(u32),
    Compress(Arc<Compression>),
    RequestId,
}

impl Kind {
    /// Policies with the same number replace each other.
    fn number(&self) -> u8 {
        match self {
            Kind::Shared(Policy::Cors(_)) => 0,
            Kind::Shared(Policy::Proof(Prover::Jwt(_))) => 1,
            Kind::Shared(Policy::EarlyHints(_)) => 2,
            Kind::Shared(Policy::RateLimit(_)) | Kind::RateLimit(_) => 3,
            Kind::Shared(Policy::Concurrency(_)) | Kind::Concurrency(_) => 4,
            Kind::Compress(_) => 5,
            Kind::RequestId => 6,
            Kind::Shared(Policy::SecurityHeaders(_)) => 7,
            Kind::Shared(Policy::ForwardAuth(_)) => 8,
            Kind::Shared(Policy::Proof(Prover::BasicAuth(_))) => 9,
            Kind::Shared(Policy::Proof(Prover::ApiKeys(_))) => 10,
            Kind::Shared(Policy::AnyOf(_)) => 11,
            Kind::Shared(Policy::Proof(Prover::ClientCert)) => 12,
        }
    }

    /// The policy, whose place is a name for its counts.
    pub(crate) fn placed(self, place: &str) -> Kind {
        match self {
            Kind::RateLimit(settings) => Kind::Shared(settings.placed(place)),
            Kind::Concurrency(max) => Kind::Shared(limits::placed(place, max)),
            other => other,
        }
    }
}

/// The policies of a route.
pub(crate) struct RoutePolicies {
    pub(crate) policies: Policies,
    pub(crate) compression: Option<Arc<Compression>>,
    pub(crate) sets_request_id: bool,
}

impl RoutePolicies {
    /// Of several of a kind the last one applies. `None` if there are none.
    pub(crate) fn new<'k>(kinds: impl Iterator<Item = &'k Kind>) -> Option<RoutePolicies> {
        let mut applied: Vec<&Kind> = Vec::new();
        for kind in kinds {
            applied.retain(|known| known.number() != kind.number());
            applied.push(kind);
        }
        if applied.is_empty() {
            return None;
        }
        let mut route = RoutePolicies {
            policies: Policies::default(),
            compression: None,
            sets_request_id: false,
        };
        let mut policies = Vec::new();
        for kind in applied {
            match kind {
                Kind::Shared(policy) => policies.push(policy.clone()),
                Kind::Compress(compression) => route.compression = Some(Arc::clone(compression)),
                Kind::RequestId => route.sets_request_id = true,
                Kind::RateLimit(_) | Kind::Concurrency(_) => {}
            }
        }
        route.policies = Policies::new(policies);
        Some(route)
    }
}

/// Gives every request an id in `X-Request-Id`, unless it has a valid one, and copies it to the response.
pub fn request_id() -> AppPolicy {
    AppPolicy(Ok(Kind::RequestId))
}

/// Sends browsers these values of `Link` with 103 before the response to a page (RFC 8297), so that they fetch meanwhile
/// what the page will need.
///
/// ```
/// use blitz::{App, Response, policy::early_hints};
///
/// let app = App::new()
///     .policy(early_hints(["</style.css>; rel=preload; as=style"]))
///     .get("/", || Response::html("<link rel=stylesheet href=/style.css>"));
/// # app.build().unwrap();
/// ```
pub fn early_hints<T: Into<String>>(links: impl IntoIterator<Item = T>) -> AppPolicy {
    let links: Vec<String> = links.into_iter().map(Into::into).collect();
    let is_link = |text: &String| {
        let is_printable = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        is_printable && text.starts_with('<') && text.contains('>')
    };
    if let Some(other) = links.iter().find(|text| !is_link(text)) {
        let error = Error::new(format!("`{other}` is no value of the field `Link`"));
        let remedy = "Write for example `</style.css>; rel=preload; as=style`.";
        return AppPolicy(Err(error.with_remedy(remedy)));
    }
    if links.iter().map(String::len).sum::<usize>() > HINT_BYTES_MAX {
        let problem = format!("early hints have at most {HINT_BYTES_MAX} bytes");
        return AppPolicy(Err(Error::new(problem)));
    }
    let hints = EarlyHints::new(links);
    AppPolicy(Ok(Kind::Shared(Policy::EarlyHints(Arc::new(hints)))))
}
