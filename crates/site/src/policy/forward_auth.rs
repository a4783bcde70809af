//! Decisions of another service, an authorizer, on the requests of a route.
//!
//! It gets the head of each request, and lets it pass with a status of 2xx. Any other final response but a failure goes to
//! the client in place of that of the route.

mod no_decision;
mod remembered;

use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use blitz_http::{
    Fields, LogLimit, Name, PoolFuture, PooledFuture, RequestHead, ResponseHead, Status,
};

use super::spelling::spelled_cookies;
use super::{Identity, Notes, PolicyRequest, PolicyResponse, RateKey, Waited, set};
use crate::client::ClientAddress;
use crate::cookies::cookies;
use crate::counters::count;
use crate::edit::{Edit, FieldChange, apply_to_request, is_alias};
use crate::rejection::Rejection;

pub use no_decision::{AuthorizerAttempt, NoDecision};

/// The most bytes of a key of a remembered decision.
const KEY_BYTES_MAX: usize = 8 * 1024;

/// Seconds after which a client may try again if there was no decision.
const RETRY_AFTER: &[u8] = b"1";

/// An authorizer of a route, and what it is asked.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ForwardAuthSettings {
    /// Its URL without a path.
    pub origin: String,
    /// Path and query of the requests to it.
    pub target: String,
    /// Names of the fields in lower case that it gets; `None` is all but those of the content.
    pub send: Option<Vec<String>>,
    /// Names of fields in lower case that requests get from its responses.
    pub copy: Vec<String>,
    /// Whether clients get the cookies that it sets when it lets a request pass.
    pub passes_cookies: bool,
    /// Whether requests pass if it gives no decision.
    pub is_open: bool,
    /// How long it may take.
    pub timeout: Duration,
    /// How decisions are remembered that let requests pass.
    pub cache: Option<AuthCacheSettings>,
}

/// How decisions are remembered.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AuthCacheSettings {
    /// How long, at most.
    pub time: Duration,
    /// The values by which the authorizer knows the client. A request without any is not remembered.
    pub by: Vec<RateKey>,
    /// Whether a decision is for all paths and methods of a host.
    pub any_path: bool,
}

/// The means to ask authorizers, on the core of a request.
pub trait Authorizer {
    /// Asks about a request. The response is a final one; that of a refusal has its content.
    ///
    /// # Errors
    /// Why there is no decision, at once or later.
    fn ask(
        &self,
        question: AuthorizerQuestion<'_>,
    ) -> Result<PoolFuture<AuthorizerAnswer>, Rejection>;

    /// Whether the client uses TLS.
    fn is_secure(&self) -> bool;

    /// Whether the peer may tell where requests came from.
    fn trusts_peer(&self) -> bool;
}

/// The end of a request to an authorizer.
pub struct AuthorizerAnswer {
    /// Its response, or why there is none.
    pub outcome: Result<PolicyResponse, Rejection>,
    /// How it went.
    pub attempt: AuthorizerAttempt,
}

/// A request that an authorizer decides on.
pub struct AuthorizerQuestion<'q> {
    /// The authorizer.
    pub settings: &'q ForwardAuthSettings,
    /// The head of the request, as the client sent it.
    pub head: &'q RequestHead,
    /// The facts that other policies have verified.
    notes: &'q Notes<'q>,
    not_asked: &'q [Edit],
}

impl AuthorizerQuestion<'_> {
    /// Makes the fields those of verified facts: not before hop-by-hop fields are removed, whose names are the client's
    /// choice.
    pub fn identify(&self, fields: &mut Fields) {
        self.notes.identify(fields);
        apply_to_request(self.not_asked, fields);
    }
}

/// The policy.
#[derive(Debug)]
pub struct ForwardAuth {
    settings: ForwardAuthSettings,
    /// Its number in the process: what another one has remembered does not count.
    number: u64,
    /// Removes the fields that it sets.
    removal: Box<[Edit]>,
    /// Those of them that the authorizer must not get from clients, who prove by the others who they are.
    not_asked: Box<[Edit]>,
}

impl PartialEq for ForwardAuth {
    fn eq(&self, other: &ForwardAuth) -> bool {
        self.settings == other.settings
    }
}

impl Eq for ForwardAuth {}

impl Hash for ForwardAuth {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.settings.hash(state);
    }
}

impl ForwardAuth {
    /// The policy of these settings.
    #[must_use]
    pub fn new(settings: ForwardAuthSettings) -> ForwardAuth {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let is_credential = |name: &&String| matches!(&***name, "authorization" | "cookie");
        let names = settings.copy.iter();
        let not_asked = names.clone().filter(|name| !is_credential(name));
        ForwardAuth {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            removal: names.map(|name| set(name, None)).collect(),
            not_asked: not_asked.map(|name| set(name, None)).collect(),
            settings,
        }
    }

    /// Its authorizer and what it is asked.
    #[must_use]
    pub fn settings(&self) -> &ForwardAuthSettings {
        &self.settings
    }

    pub(super) fn decide<'p>(
        &'p self,
        request: &PolicyRequest<'_>,
        notes: &mut Notes<'p>,
    ) -> Result<Option<PooledFuture<'p, Waited>>, Rejection> {
        let Some(authorizer) = request.authorizer else {
            // Nobody is asked, so that the request is one that passes.
            notes.identities.add(self.nobody());
            return Ok(None);
        };
        let key = self.key(request, notes, authorizer);
        let now = blitz_http::now();
        let known = key.as_deref();
        if let Some(edits) = known.and_then(|key| remembered::find(self.number, key, now)) {
            count(|counters| counters.authorizations_remembered += 1);
            notes.identities.add(Some(Identity::Verified(edits)));
            return Ok(None);
        }
        let question = AuthorizerQuestion {
            settings: &self.settings,
            head: request.head,
            notes,
            not_asked: &self.not_asked,
        };
        match authorizer.ask(question) {
            Ok(answer) => Ok(Some(PooledFuture::new(async move {
                self.conclude(answer.await, key)
            }))),
            Err(rejection) => {
                let why = self.no_decision(rejection, AuthorizerAttempt::default());
                // Others are for the request itself.
                if rejection == Rejection::AuthorizerUnreachable && self.passes_failure(&why) {
                    notes.identities.add(self.nobody());
                    return Ok(None);
                }
                notes.no_decision = Some(why);
                notes.edit_response(retry_after());
                Err(rejection)
            }
        }
    }

    #[cold]
    fn no_decision(&self, rejection: Rejection, attempt: AuthorizerAttempt) -> Box<NoDecision> {
        let ForwardAuthSettings { origin, target, .. } = &self.settings;
        let path = target.split('?').next().unwrap_or_default();
        let separator = match origin.starts_with("unix:") {
            true => ":",
            false => "",
        };
        Box::new(NoDecision {
            authorizer: format!("{origin}{separator}{path}").into(),
            rejection,
            attempt,
        })
    }

    /// The client is unknown, whatever it says.
    fn nobody(&self) -> Option<Identity<'_>> {
        (!self.removal.is_empty()).then_some(Identity::None(&self.removal))
    }

    fn conclude(&self, answer: AuthorizerAnswer, key: Option<Vec<u8>>) -> Waited {
        let AuthorizerAnswer {
            outcome,
            mut attempt,
        } = answer;
        let decision = outcome.and_then(|response| {
            let status = response.head.status;
            let verdict = verdict(status).inspect_err(|_| attempt.status = Some(status));
            verdict.map(|rejection| (rejection, response))
        });
        match decision {
            Ok((None, response)) => self.pass(&response.head, key),
            Ok((rejection, response)) => Waited {
                rejection,
                response: Some(Box::new(response)),
                ..Waited::default()
            },
            Err(failure) => self.fail(self.no_decision(failure, attempt)),
        }
    }

    #[cold]
    fn fail(&self, why: Box<NoDecision>) -> Waited {
        match self.passes_failure(&why) {
            true => Waited {
                identities: vec![Identity::Verified(Rc::from(self.removal.clone()))],
                ..Waited::default()
            },
            false => Waited {
                rejection: Some(why.rejection),
                response_edits: retry_after(),
                no_decision: Some(why),
                ..Waited::default()
            },
        }
    }

    fn pass(&self, head: &ResponseHead, key: Option<Vec<u8>>) -> Waited {
        let copied = self.settings.copy.iter().map(|name| {
            let values = head.fields.get_all(&**name).map(<[u8]>::to_vec);
            Edit {
                name: name.as_str().into(),
                change: FieldChange::Set(values.collect()),
            }
        });
        let edits: Rc<[Edit]> = copied.collect();
        let mut response_edits = Vec::new();
        if self.settings.passes_cookies {
            response_edits.extend(head.fields.get_all(Name::SetCookie).map(|value| Edit {
                name: "set-cookie".into(),
                change: FieldChange::Add(value.to_vec()),
            }));
        }
        let cache = self.settings.cache.as_ref();
        let time = cache.and_then(|cache| remembered_time(head, cache.time));
        if let (Some(key), Some(time)) = (key, time) {
            let expires = blitz_http::now() + time;
            remembered::add(self.number, &key, expires, Rc::clone(&edits));
        }
        Waited {
            identities: vec![Identity::Verified(edits)],
            response_edits,
            ..Waited::default()
        }
    }

    /// Whether the request passes although there is no decision. It does not for a reason that a client can make.
    #[cold]
    fn passes_failure(&self, why: &NoDecision) -> bool {
        static LINES: LogLimit = LogLimit::new();
        if !self.settings.is_open || !why.may_pass() {
            return false;
        }
        count(|counters| counters.authorizations_skipped += 1);
        let rule = why.rejection.rule();
        let limited = LINES.allow(rule, &self.settings.origin, blitz_http::now());
        if let Some(omitted) = limited {
            let attempt = &why.attempt;
            tracing::warn!(
                authorizer = &*why.authorizer,
                address = attempt.address.as_ref().map(ToString::to_string),
                cause = why.rejection.detail(),
                rule,
                authorizer_status = attempt.status.map(Status::code),
                problem = attempt.problem(),
                certificate = attempt.refused_certificate().as_deref(),
                omitted = (omitted > 0).then_some(omitted),
                "a request passes without a decision"
            );
        }
        true
    }

    /// The key under which the decision on a request is remembered.
    fn key(
        &self,
        request: &PolicyRequest<'_>,
        notes: &Notes<'_>,
        authorizer: &dyn Authorizer,
    ) -> Option<Vec<u8>> {
        let cache = self.settings.cache.as_ref()?;
        let mut key = vec![u8::from(authorizer.is_secure())];
        let mut is_known = false;
        for by in &cache.by {
            let fields = &request.head.fields;
            is_known |= match by {
                RateKey::Client => match request.client {
                    ClientAddress::Address(address) => {
                        push_all(&mut key, [address.to_string().as_bytes()].into_iter())
                    }
                    ClientAddress::Unix | ClientAddress::Unknown => {
                        push_all(&mut key, std::iter::empty())
                    }
                },
                // The upstream may know the client by another spelling, which would not be in the key.
                RateKey::Cookie(name) if has_other_spelling(fields, name) => return None,
                RateKey::Header(name) if has_alias(fields, name) => return None,
                RateKey::Header(name) => push_all(&mut key, fields.get_all(&**name)),
                RateKey::Cookie(name) => push_all(&mut key, cookies(fields, name)),
                RateKey::User => {
                    let user = request.user(notes).map(str::as_bytes);
                    push_all(&mut key, user.into_iter())
                }
                RateKey::Claim(name) => {
                    let value = notes.claim(name).map(str::as_bytes);
                    push_all(&mut key, value.into_iter())
                }
            };
        }
        let head = request.head;
        push(&mut key, head.authority().unwrap_or_default().as_bytes());
        if authorizer.trusts_peer() {
            for name in [Name::Forwarded, Name::XForwardedHost, Name::XForwardedProto] {
                push_all(&mut key, head.fields.get_all(name));
            }
        }
        if !cache.any_path {
            push(&mut key, head.method_str().as_bytes());
            push(&mut key, head.path_and_query().as_bytes());
        }
        (is_known && key.len() <= KEY_BYTES_MAX).then_some(key)
    }
}

/// Whether there is another spelling of a cookie.
fn has_other_spelling(fields: &Fields, name: &str) -> bool {
    spelled_cookies(fields, name) != cookies(fields, name).count()
}

/// Whether there is another spelling of a field.
fn has_alias(fields: &Fields, name: &str) -> bool {
    let mut names = fields.iter().map(|(name, _)| name);
    names.any(|other| is_alias(other.as_bytes(), name.as_bytes()))
}

/// Adds values, so that those of another list never give the same bytes; returns whether one of them says something.
fn push_all<'v>(key: &mut Vec<u8>, values: impl Iterator<Item = &'v [u8]>) -> bool {
    let mut is_known = false;
    for value in values {
        is_known |= !value.is_empty();
        key.push(1);
        push(key, value);
    }
    key.push(0);
    is_known
}

fn push(key: &mut Vec<u8>, value: &[u8]) {
    key.extend_from_slice(&(value.len() as u64).to_be_bytes());
    key.extend_from_slice(value);
}

/// Why a request with this response of its authorizer is rejected; `None` if it passes.
///
/// # Errors
/// The response is no decision.
fn verdict(status: Status) -> Result<Option<Rejection>, Rejection> {
    match status.code() {
        200..300 => Ok(None),
        // The conditions of the client are not those of the authorizer.
        304 => Err(Rejection::AuthorizerFailed),
        300..400 | 401 | 407 => Ok(Some(Rejection::Unauthenticated)),
        400..500 => Ok(Some(Rejection::Unauthorized)),
        _ => Err(Rejection::AuthorizerFailed),
    }
}

/// How long a decision may be remembered (RFC 9111, section 5.2.2), at most for this time. One that sets a cookie is not.
fn remembered_time(head: &ResponseHead, most: Duration) -> Option<Duration> {
    if head.fields.contains(Name::SetCookie) {
        return None;
    }
    let lines = head.fields.get_all(Name::CacheControl);
    let directives = lines.flat_map(|line| line.split(|byte| *byte == b','));
    let mut time = most;
    for directive in directives {
        let directive = directive.trim_ascii().to_ascii_lowercase();
        let (name, value) = match directive.iter().position(|byte| *byte == b'=') {
            Some(at) => (&directive[..at], &directive[at + 1..]),
            None => (&*directive, &[][..]),
        };
        match name {
            b"no-store" | b"no-cache" => return None,
            b"max-age" => {
                let seconds = str::from_utf8(value)
                    .ok()
                    .and_then(|text| text.parse().ok());
                time = time.min(Duration::from_secs(seconds.unwrap_or(0)));
            }
            _ => {}
        }
    }
    (!time.is_zero()).then_some(time)
}

fn retry_after() -> Vec<Edit> {
    vec![set("retry-after", Some(RETRY_AFTER))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_are_remembered_as_long_as_their_fields_allow() {
        let most = Duration::from_secs(10);
        let time = |lines: &[(&str, &str)]| {
            let mut head = ResponseHead::new(Status::OK);
            for (name, value) in lines {
                head.fields.append(*name, value);
            }
            remembered_time(&head, most).map(|time| time.as_secs())
        };
        assert_eq!(time(&[]), Some(10));
        assert_eq!(time(&[("cache-control", "private, max-age=60")]), Some(10));
        assert_eq!(time(&[("cache-control", "max-age=3")]), Some(3));
        for lines in [
            ("cache-control", "private, No-Store"),
            ("cache-control", "no-cache=\"a\""),
            ("cache-control", "max-age=0"),
            ("cache-control", "max-age=-1"),
            ("cache-control", "max-age=soon"),
            ("set-cookie", "a=b"),
        ] {
            assert_eq!(time(&[lines]), None, "{lines:?}");
        }
    }

    #[test]
    fn values_of_keys_are_told_apart() {
        let key = |values: &[&str]| {
            let mut key = Vec::new();
            push_all(&mut key, values.iter().map(|value| value.as_bytes()));
            key
        };
        let lists: [&[&str]; 6] = [&[], &[""], &["a"], &["a", ""], &["", "a"], &["a", "a"]];
        for (at, list) in lists.iter().enumerate() {
            for other in &lists[at + 1..] {
                assert_ne!(key(list), key(other), "{list:?} {other:?}");
            }
        }
    }
}
