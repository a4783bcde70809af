//! The labels of a series, packed into a number: a request finds its series by one lookup.

use blitz_http::{Method, Scheme};

use super::ended_request::{ContactError, EndedRequest};
use crate::failure::Failure;

/// The number of a route's texts in metrics, which whoever compiles the configuration assigns. Clients cannot make new
/// ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RouteLabel(u32);

impl RouteLabel {
    /// The requests that have no series of their own.
    pub const OTHER: RouteLabel = RouteLabel(0);

    /// The requests that no route matched.
    pub const UNROUTED: RouteLabel = RouteLabel(1);

    /// The most labels.
    pub const MAX: u32 = 1 << LABEL.bits;

    /// # Panics
    /// The number is not below [`RouteLabel::MAX`].
    #[must_use]
    pub fn new(number: u32) -> RouteLabel {
        assert!(number < RouteLabel::MAX, "a key has no room for {number}");
        RouteLabel(number)
    }

    /// Its number.
    #[must_use]
    pub fn number(self) -> usize {
        self.0 as usize
    }
}

/// Some bits of a key.
struct Part {
    shift: u32,
    bits: u32,
}

impl Part {
    const fn after(before: &Part, bits: u32) -> Part {
        Part {
            shift: before.shift + before.bits,
            bits,
        }
    }

    #[inline(always)]
    const fn put(&self, value: u64) -> u64 {
        value << self.shift
    }

    #[inline(always)]
    const fn get(&self, key: u64) -> u64 {
        (key >> self.shift) & ((1 << self.bits) - 1)
    }
}

const LABEL: Part = Part { shift: 0, bits: 18 };
const METHOD: Part = Part::after(&LABEL, 4);
const SCHEME: Part = Part::after(&METHOD, 1);
const VERSION: Part = Part::after(&SCHEME, 2);
const CLASS: Part = Part::after(&VERSION, 3);
/// Whether it is for several methods, schemes and versions.
const MERGED: Part = Part::after(&CLASS, 1);
/// Whether an upstream was contacted.
const CONTACT: Part = Part::after(&MERGED, 1);
/// Whether it has responded.
const RESPONSE: Part = Part::after(&CONTACT, 1);
/// Why there is no complete response of the upstream; 0 if there is one.
const ERROR: Part = Part::after(&RESPONSE, 7);

/// See [`ContactError::Abandoned`].
const ABANDONED: u64 = 127;

const _: () = assert!(Failure::ALL.len() < ABANDONED as usize);

/// `method` of the methods in their order; others are no label, since clients choose them.
const METHODS: [&str; 10] = [
    "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "_OTHER",
];

/// `version` of the versions in their order.
const VERSIONS: [&str; 4] = ["1.0", "1.1", "2", "3"];

/// `status` of the classes; the first is without a response.
const CLASSES: [&str; 6] = ["none", "1xx", "2xx", "3xx", "4xx", "5xx"];

/// `scheme` and `version` of series that are for several.
const SEVERAL: &str = "_other";

/// The labels of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeriesKey(u64);

impl SeriesKey {
    #[inline(always)]
    pub(super) fn of(request: &EndedRequest<'_>) -> SeriesKey {
        let class = request
            .status
            .map_or(0, |status| (status.code() / 100).min(5));
        let label = request.label;
        let mut key = LABEL.put(u64::from(label.0))
            | METHOD.put(request.method as u64)
            | SCHEME.put(request.scheme as u64)
            | VERSION.put(request.version as u64)
            | CLASS.put(u64::from(class));
        if let Some(contact) = &request.contact {
            let error = match contact.error {
                ContactError::None => 0,
                ContactError::Failure(failure) => failure as u64 + 1,
                ContactError::Abandoned => ABANDONED,
            };
            let has_responded = u64::from(contact.has_responded);
            key |= CONTACT.put(1) | RESPONSE.put(has_responded) | ERROR.put(error);
        }
        match label {
            RouteLabel::OTHER => SeriesKey(key).merged(),
            _ => SeriesKey(key),
        }
    }

    pub(super) fn number(self) -> u64 {
        self.0
    }

    #[cfg(test)]
    pub(super) fn for_test(label: u64, class: u64) -> SeriesKey {
        SeriesKey(LABEL.put(label) | CLASS.put(class))
    }

    #[cfg(test)]
    pub(super) fn with_method(self, method: u64) -> SeriesKey {
        SeriesKey(self.0 | METHOD.put(method))
    }

    /// The series of the requests that have none of their own: of the labels it has the class of the status, and
    /// whether the upstream responded.
    pub(super) fn merged(self) -> SeriesKey {
        let kept = CLASS.put(CLASS.get(self.0))
            | CONTACT.put(CONTACT.get(self.0))
            | RESPONSE.put(RESPONSE.get(self.0));
        SeriesKey(kept | METHOD.put(Method::Other as u64))
    }

    /// The series of a route that has many: it keeps the class of the status, and whether the upstream responded.
    pub(super) fn merged_in_route(self) -> SeriesKey {
        let label = LABEL.put(LABEL.get(self.0));
        SeriesKey(self.merged().0 | label | MERGED.put(1))
    }

    /// Whether it is that of the further requests of a route.
    pub(super) fn is_merged_in_route(self) -> bool {
        MERGED.get(self.0) == 1
    }

    /// The route and the upstream.
    #[must_use]
    pub fn label(self) -> RouteLabel {
        RouteLabel(LABEL.get(self.0) as u32)
    }

    /// Whether it is that of requests which have no series of their own.
    #[must_use]
    pub fn is_merged(self) -> bool {
        self.label() == RouteLabel::OTHER
    }

    /// The series of which this is a part towards clients: upstream and its outcome do not matter there.
    #[must_use]
    pub fn server(self) -> SeriesKey {
        SeriesKey(self.0 & (CONTACT.put(1) - 1))
    }

    /// The method, with `_OTHER` for all that have no registered name.
    #[must_use]
    pub fn method(self) -> &'static str {
        METHODS[METHOD.get(self.0) as usize]
    }

    /// `http` or `https`, as the client was connected; `_other` of several.
    #[must_use]
    pub fn scheme(self) -> &'static str {
        if self.is_merged_in_route() {
            return SEVERAL;
        }
        match SCHEME.get(self.0) {
            0 => Scheme::Http.as_str(),
            _ => Scheme::Https.as_str(),
        }
    }

    /// The version of HTTP with the client; `_other` of several.
    #[must_use]
    pub fn version(self) -> &'static str {
        match self.is_merged_in_route() {
            true => SEVERAL,
            false => VERSIONS[VERSION.get(self.0) as usize],
        }
    }

    /// The class of the status that the client got; `none` if it got no response.
    #[must_use]
    pub fn status(self) -> &'static str {
        CLASSES[CLASS.get(self.0) as usize]
    }

    /// The same of the upstream's response, which the client got.
    #[must_use]
    pub fn upstream_status(self) -> &'static str {
        match RESPONSE.get(self.0) {
            0 => CLASSES[0],
            _ => self.status(),
        }
    }

    /// Why there is no complete response of the upstream: the registered error of `Proxy-Status` (RFC 9209), or
    /// `abandoned` if the client caused the end. `None` if there is a complete response.
    #[must_use]
    pub fn error_type(self) -> Option<&'static str> {
        match ERROR.get(self.0) {
            0 => None,
            ABANDONED => Some("abandoned"),
            number => Some(Failure::ALL[number as usize - 1].token()),
        }
    }
}

#[cfg(test)]
mod tests {
    use blitz_http::Version;

    use super::*;

    #[test]
    fn labels_are_in_the_order_of_their_types() {
        let methods = [
            Method::Get,
            Method::Head,
            Method::Post,
            Method::Put,
            Method::Delete,
            Method::Connect,
            Method::Options,
            Method::Trace,
            Method::Patch,
        ];
        for method in methods {
            let key = SeriesKey(METHOD.put(method as u64));
            assert_eq!(key.method(), method.as_str());
        }
        assert_eq!(
            SeriesKey(METHOD.put(Method::Other as u64)).method(),
            "_OTHER"
        );
        for version in [
            Version::Http10,
            Version::Http11,
            Version::Http2,
            Version::Http3,
        ] {
            let key = SeriesKey(VERSION.put(version as u64));
            assert_eq!(format!("HTTP/{}", key.version()), version.as_str());
        }
        for scheme in [Scheme::Http, Scheme::Https] {
            assert_eq!(
                SeriesKey(SCHEME.put(scheme as u64)).scheme(),
                scheme.as_str()
            );
        }
        for (at, failure) in Failure::ALL.iter().enumerate() {
            assert_eq!(*failure as usize, at);
            let key = SeriesKey(ERROR.put(*failure as u64 + 1));
            assert_eq!(key.error_type(), Some(failure.token()));
        }
    }

    #[test]
    fn the_merged_series_keeps_the_class_and_the_contact() {
        let all = SeriesKey(u64::MAX >> (64 - ERROR.shift - ERROR.bits));
        let failed = SeriesKey(LABEL.put(9) | CLASS.put(5) | CONTACT.put(1) | ERROR.put(3));
        assert_eq!(failed.merged().status(), "5xx");
        assert_eq!(failed.merged().error_type(), None);
        assert!(failed.merged().is_merged() && !failed.is_merged());
        assert_eq!(failed.server(), SeriesKey(LABEL.put(9) | CLASS.put(5)));
        assert_eq!(all.label(), RouteLabel::new(RouteLabel::MAX - 1));
    }
}
