//! The rules of a route: its demands on requests, and its changes of messages.

mod fields;
mod template;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use blitz_config::{
    Algorithm, Compress, FieldRules, Method as Named, Methods, Placed, Settings, TimeLimit,
};
use blitz_http::{FOREVER, Method, Peer, RequestHead, RequestOptions};
use blitz_site::compress::{Compressing, Compression, MediaRange};
use blitz_site::{ClientAddress, ContentCoding, Edit, Notes, Pages, Policies, Rejection};

use crate::clients::Access;
use crate::forward;
use crate::routes::method_of;
use crate::trusted::TrustedProxies;

pub(crate) use fields::Edits;
pub(crate) use template::{
    Facts, client_of, encoded_path_text, path as path_of, received, received_head, redirect_target,
    rest_start, text as text_of,
};

/// The timeouts of a request with these settings.
pub(crate) fn timeouts(settings: &Settings) -> RequestOptions {
    let duration = |limit: &Option<Placed<TimeLimit>>| {
        limit.as_ref().map(|limit| match limit.value {
            TimeLimit::After(duration) => duration.min(FOREVER),
            TimeLimit::Forever => FOREVER,
        })
    };
    RequestOptions {
        response_timeout: duration(&settings.timeouts.response),
        body_timeout: duration(&settings.timeouts.idle),
    }
}

/// How long a request with these settings may take until the head of its response; `None` is no limit.
pub(crate) fn request_timeout(settings: &Settings) -> Option<Duration> {
    match settings.timeouts.request.as_ref()?.value {
        TimeLimit::After(duration) => Some(duration.min(FOREVER)),
        TimeLimit::Forever => None,
    }
}

/// Whether a boolean is `true`; by default it is not.
pub(crate) fn is_on(setting: &Option<Placed<bool>>) -> bool {
    setting.as_ref().is_some_and(|setting| setting.value)
}

/// The compression of all responses; `None` if none but those of files are compressed.
fn compression(settings: &Settings) -> Option<Arc<Compression>> {
    match &settings.compress.as_ref()?.value {
        Compress::Responses(compression) => Some(Arc::new(compression_of(compression))),
        Compress::Never | Compress::Files => None,
    }
}

/// The compression of files; `None` sends them as they are stored.
pub(crate) fn file_compression(settings: &Settings) -> Option<Compression> {
    match settings.compress.as_ref().map(|compress| &compress.value) {
        None | Some(Compress::Files) => Some(Compression::default()),
        Some(Compress::Responses(compression)) => Some(compression_of(compression)),
        Some(Compress::Never) => None,
    }
}

fn compression_of(settings: &blitz_config::Compression) -> Compression {
    let mut compression = Compression::default();
    if let Some(types) = &settings.types {
        // The reader has checked them.
        let types = types.iter().filter_map(|range| MediaRange::parse(&range.0));
        compression = compression.with_types(types.collect());
    }
    if let Some(bytes) = settings.min_size {
        compression = compression.with_min_size(bytes);
    }
    if let Some(algorithms) = &settings.algorithms {
        let coding = |algorithm: &Algorithm| match algorithm {
            Algorithm::Zstd => ContentCoding::Zstandard,
            Algorithm::Brotli => ContentCoding::Brotli,
            Algorithm::Gzip => ContentCoding::Gzip,
        };
        compression = compression.with_codings(algorithms.iter().map(coding).collect());
    }
    compression
}

/// The rules of a route. By default it demands and changes nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Rules {
    access: Access,
    methods: Option<Methods>,
    /// The most content of a request, in bytes; `None` is that of the gateway.
    pub(crate) body_bytes_max: Option<u64>,
    /// The most content of a request that is decoded, in bytes; `None` decodes none.
    pub(crate) decompress_max: Option<u64>,
    pub(crate) timeouts: RequestOptions,
    /// How long a request may take until the head of its response, with all attempts.
    pub(crate) request_timeout: Option<Duration>,
    pub(crate) policies: Policies,
    pub(crate) request_edits: Option<Edits>,
    pub(crate) response_edits: Option<Edits>,
    pub(crate) pages: Pages,
    /// Whether the pages are for errors of the upstream, too.
    pub(crate) replaces_errors: bool,
    /// How responses are compressed; `None` leaves them as they are. Files have a compression of their own.
    pub(crate) compression: Option<Arc<Compression>>,
}

impl Rules {
    /// The rules of these settings.
    pub(crate) fn new(
        settings: &Settings,
        access: Access,
        pages: Pages,
        policies: Policies,
    ) -> Rules {
        Rules {
            access,
            methods: settings.methods.as_ref().map(|methods| methods.value),
            body_bytes_max: settings.body_max.as_ref().map(|bytes| bytes.value),
            decompress_max: settings.decompress.as_ref().map(|bytes| bytes.value),
            timeouts: timeouts(settings),
            request_timeout: request_timeout(settings),
            policies,
            request_edits: Edits::new(&settings.request_headers),
            response_edits: Edits::new(&settings.headers),
            compression: compression(settings),
            replaces_errors: is_on(&settings.replace_errors) && pages != Pages::default(),
            pages,
        }
    }

    /// Those of responses that are not of a route.
    pub(crate) fn of_unrouted(headers: &FieldRules, pages: Pages, policies: Policies) -> Rules {
        Rules {
            response_edits: Edits::new(headers),
            pages,
            policies,
            ..Rules::default()
        }
    }

    /// Those of redirects to the canonical host: only the changes of fields of responses.
    pub(crate) fn of_redirects(&self) -> Rules {
        Rules {
            response_edits: self.response_edits.clone(),
            ..Rules::default()
        }
    }

    /// Whether the rules depend on the client.
    pub(crate) fn has_access_rules(&self) -> bool {
        !self.access.is_empty() || self.policies.of_identity().next().is_some()
    }

    /// Whether requests of these rules prove another identity than those of `taker` do.
    pub(crate) fn demands_more_than(&self, taker: Option<&Rules>) -> bool {
        match taker {
            None => self.policies.of_identity().next().is_some(),
            Some(taker) => taker.policies.lack_identity_of(&self.policies),
        }
    }

    /// The networks of clients that are served.
    pub(crate) fn access(&self) -> &Access {
        &self.access
    }

    /// Whether the rules depend on the client, and differ in that from these rules.
    pub(crate) fn has_other_access_rules_than(&self, rules: Option<&Rules>) -> bool {
        let is_same = |rules: &Rules| rules.access() == self.access();
        !self.access.is_empty() && !rules.is_some_and(is_same) || self.demands_more_than(rules)
    }

    /// Whether this client is served.
    pub(crate) fn admits(&self, client: ClientAddress) -> bool {
        self.access.admits(client)
    }

    /// The compression of the gateway's or an app's response to a request; `None` leaves it as it is.
    #[inline]
    pub(crate) fn compressing<'a>(&'a self, head: &RequestHead) -> Option<Compressing<'a>> {
        let compression = self.compression.as_deref()?;
        let fields = &head.fields;
        Some(Compressing::of(
            compression,
            fields,
            head.method,
            head.version,
        ))
    }

    /// # Errors
    /// The route does not take the method of the request.
    pub(crate) fn check_method(&self, head: &RequestHead) -> Result<(), Rejection> {
        let name = match method_of(head) {
            (Method::Other, token) => token,
            (method, _) => method.as_str(),
        };
        let takes = |methods: &Methods| methods.iter().any(|method| method.name() == name);
        match self.methods.as_ref().is_none_or(takes) {
            true => Ok(()),
            false => Err(Rejection::MethodNotAllowed),
        }
    }

    /// The changes of the fields of the response to this request. Values of placeholders are those of the request as it
    /// came.
    #[inline(never)]
    pub(crate) fn edit_response(
        &self,
        head: &mut RequestHead,
        peer: &Peer,
        trusted: &TrustedProxies,
        notes: Option<&Notes<'_>>,
    ) -> Cow<'_, [Edit]> {
        match &self.response_edits {
            None => Cow::default(),
            Some(Edits::Fixed(edits)) => Cow::Borrowed(edits),
            Some(edits) => {
                forward::ensure_request_id(&mut head.fields);
                edits.for_request(&Facts::of(head, peer, trusted).with_notes(notes))
            }
        }
    }

    /// The methods that the route takes, as in the field `Allow`.
    pub(crate) fn allowed_methods(&self) -> String {
        let names = self.methods.iter().flat_map(|methods| methods.iter());
        names.map(Named::name).collect::<Vec<_>>().join(", ")
    }
}
