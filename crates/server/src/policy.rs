//! Policies of an app: decisions on requests before any middleware, and changes of responses.
//!
//! They are those of the gateway, with the same verdicts, and decide in a fixed order whatever the order in which they
//! are added: `deny`, `allow`, `cors`, `rate_limit`, `basic_auth`, `api_keys`, `any_of`, `jwt`, `rate_limit` by claims,
//! `concurrency`, `body_max`, `early_hints`, `request_headers`. Their changes, and those of `security_headers` and
//! `headers`, are in all responses of the app: those of `OPTIONS`, 404 and 405, those after a panic, and their own.
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
mod credentials;
mod fields;
mod jwt;
mod limits;
mod networks;
mod security_headers;
mod source;

use std::sync::Arc;

use blitz_site::compress::Compression;
use blitz_site::{EarlyHints, Edit, NetworkSet, Policies, Policy, Prover};

use crate::error::{Error, Result};

pub use compress::{CompressPolicy, compress};
pub use cors::{CorsPolicy, cors};
pub use credentials::{AnyOfPolicy, ApiKeysPolicy, BasicAuthPolicy, any_of, api_keys, basic_auth};
pub use fields::{HeadersPolicy, body_max, headers, request_headers};
pub use jwt::{JwtPolicy, jwt};
pub use limits::{RateLimitPolicy, concurrency, rate_limit};
pub use networks::{NetworksPolicy, allow, deny};
pub use security_headers::{SecurityHeadersPolicy, security_headers};

pub(crate) use networks::Access;
pub(crate) use source::unreadable;

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
    Allow(Arc<NetworkSet>),
    Deny(Arc<NetworkSet>),
    Headers(Arc<[Edit]>),
    RequestHeaders(Arc<[Edit]>),
    BodyMax(u64),
}

impl Kind {
    /// Policies with the same number replace each other; those without one are joined.
    fn number(&self) -> Option<u8> {
        Some(match self {
            Kind::Headers(_) | Kind::RequestHeaders(_) => return None,
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
            Kind::Allow(_) => 13,
            Kind::Deny(_) => 14,
            Kind::BodyMax(_) => 15,
        })
    }

    /// Whether it proves who the client is.
    pub(crate) fn tells_identity(&self) -> bool {
        matches!(self, Kind::Shared(Policy::Proof(_) | Policy::AnyOf(_)))
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
#[derive(Default)]
pub(crate) struct RoutePolicies {
    /// Before the others.
    pub(crate) access: Access,
    pub(crate) policies: Policies,
    /// The most bytes of content.
    pub(crate) body_bytes_max: Option<u64>,
    pub(crate) request_edits: Vec<Edit>,
    pub(crate) response_edits: Vec<Edit>,
    pub(crate) compression: Option<Arc<Compression>>,
    pub(crate) sets_request_id: bool,
    /// Whether they prove who the client is.
    pub(crate) tells_identity: bool,
}

impl RoutePolicies {
    /// Of several of a kind the last one applies. `None` if there are none.
    ///
    /// # Errors
    /// No request could pass them.
    pub(crate) fn new<'k>(
        kinds: impl Iterator<Item = &'k Kind>,
    ) -> Result<Option<RoutePolicies>, Error> {
        let mut applied: Vec<&Kind> = Vec::new();
        for kind in kinds {
            let number = kind.number();
            applied.retain(|known| number.is_none() || known.number() != number);
            applied.push(kind);
        }
        if applied.is_empty() {
            return Ok(None);
        }
        let mut route = RoutePolicies::default();
        let mut policies = Vec::new();
        for kind in applied {
            route.tells_identity |= kind.tells_identity();
            match kind {
                Kind::Shared(policy) => policies.push(policy.clone()),
                Kind::Compress(compression) => route.compression = Some(Arc::clone(compression)),
                Kind::RequestId => route.sets_request_id = true,
                Kind::Allow(networks) => route.access.allow = Some(Arc::clone(networks)),
                Kind::Deny(networks) => route.access.deny = Some(Arc::clone(networks)),
                Kind::Headers(edits) => fields::join(&mut route.response_edits, edits),
                Kind::RequestHeaders(edits) => fields::join(&mut route.request_edits, edits),
                Kind::BodyMax(bytes) => route.body_bytes_max = Some(*bytes),
                Kind::RateLimit(_) | Kind::Concurrency(_) => {}
            }
        }
        credentials::one_authorization(policies.iter())?;
        route.policies = Policies::new(policies);
        Ok(Some(route))
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
