//! The way of a request that is not sent: for `blitz explain`.

use blitz_config::RequestBuffer;
use blitz_http::{BodyLength, Method, Name, Peer, RequestHead, Scheme};
use blitz_site::decompress::RequestCoding;
use blitz_site::matcher::Verdict;
use blitz_site::{ClientAddress, Notes, PolicyRequest, Rejection, apply_to_request};

use crate::forward::{self, ForwardedClient, LoopId};
use crate::grpc::Call;
use crate::phases::{check_encryption, check_method};
use crate::route::{Action, Forward, Route};
use crate::rules::{Facts, client_of, received};
use crate::sites::{SiteRoutes, Sites};
use crate::trusted::TrustedProxies;
use crate::variants::Subject;

/// The explanation of a request: its site, its routes and its outcome.
#[derive(Debug)]
pub struct Explanation<'a> {
    /// The site of its host.
    pub site: Option<&'a SiteRoutes>,
    /// The routes of the site by rank, those that match first.
    pub routes: Vec<(&'a Route, Verdict)>,
    /// The named groups of the regex of the route that matches, with what they match of the received path.
    pub groups: Vec<(String, String)>,
    /// The variant of the route that matches.
    pub variant: Option<&'a Route>,
    /// The number of the combination of blocks `when` that apply ([`blitz_config::combination`]): 0 if none does.
    pub combination: usize,
    /// The outcome of the request.
    pub outcome: RequestOutcome,
    /// The other path as which servers may read that of a request that is rejected for it, if that is known.
    pub reading: Option<String>,
    /// Why the token of a request that is rejected for it is refused.
    pub reason: Option<String>,
}

/// The outcome of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestOutcome {
    /// The gateway refuses it, or redirects it to HTTPS.
    Rejected(Rejection),
    /// A route answers it.
    Answered {
        /// The status.
        status: u16,
        /// The target of a redirect.
        location: Option<String>,
    },
    /// An app answers it.
    App,
    /// A file answers it, if there is one at this path; `None` if none is served at such paths.
    File(Option<String>),
    /// An upstream receives it.
    Forwarded {
        /// The file that is looked for first, if the route has files and the request reads one.
        file: Option<String>,
        /// The upstream, of several servers the first.
        url: String,
        /// The servers with their weights, and how one is chosen; nothing if there is one server.
        servers: Vec<String>,
        /// Another upstream that gets copies of requests.
        mirror: Option<String>,
        /// Path and query that the upstream receives.
        target: String,
        /// The host that the upstream receives.
        host: String,
        /// Other fields that the upstream receives. Random values are examples.
        fields: Vec<(String, String)>,
    },
}

/// The way of this request through these sites, from this client.
pub fn explain<'a>(
    sites: &'a Sites,
    head: &mut RequestHead,
    peer: &Peer,
    trusted: &TrustedProxies,
) -> Explanation<'a> {
    let Some(site) = sites.find_by_host(head.authority()) else {
        let rejection = match peer.scheme {
            Scheme::Https => Rejection::Misdirected,
            Scheme::Http => Rejection::UnknownHost,
        };
        return Explanation {
            site: None,
            routes: Vec::new(),
            groups: Vec::new(),
            variant: None,
            combination: 0,
            outcome: RequestOutcome::Rejected(rejection),
            reading: None,
            reason: None,
        };
    };
    let routes = site.routes.explain(head);
    let groups = site.routes.groups(head).into_iter();
    let groups = groups
        .map(|(name, part)| (name.to_owned(), received(head, part).to_owned()))
        .collect();
    let subject = Subject::of(head, peer, trusted);
    let matching = site.find(head);
    let variants = matching.and_then(|route| route.variants.as_deref());
    let combination = variants.map_or(0, |variants| variants.combination(&subject));
    let variant = matching.map(|route| route.variant(&subject));
    let outcome = match variant {
        Some(route) => outcome(site, route, head, peer, trusted),
        None => check_head(site, head, peer, trusted)
            .and_then(|()| check_unrouted(site, head, client_of(&head.fields, peer, trusted))),
    };
    let outcome = outcome.unwrap_or_else(RequestOutcome::Rejected);
    let reading = match (&outcome, variant) {
        (RequestOutcome::Rejected(Rejection::AmbiguousPath), Some(route)) => {
            site.refused_reading(route, head, client_of(&head.fields, peer, trusted))
        }
        _ => None,
    };
    let reason = match (&outcome, variant) {
        (
            RequestOutcome::Rejected(
                Rejection::InvalidToken | Rejection::TokenExpired | Rejection::InsufficientScope,
            ),
            Some(route),
        ) => refusal(route, head, client_of(&head.fields, peer, trusted)),
        _ => None,
    };
    Explanation {
        site: Some(site),
        routes,
        groups,
        variant,
        combination,
        outcome,
        reading: reading.filter(|reading| !reading.is_empty()),
        reason,
    }
}

/// The checks before routing. A trusted proxy may tell that the client uses TLS.
fn check_head(
    site: &SiteRoutes,
    head: &RequestHead,
    peer: &Peer,
    trusted: &TrustedProxies,
) -> Result<(), Rejection> {
    if site.redirects && Facts::of(head, peer, trusted).scheme == Scheme::Http {
        check_encryption(head)?;
    }
    site.check_limits(head)
}

/// A preflight about a path without a route is answered.
fn check_unrouted(
    site: &SiteRoutes,
    head: &RequestHead,
    client: ClientAddress,
) -> Result<RequestOutcome, Rejection> {
    if let Some(rules) = &site.rules {
        rules
            .policies
            .decide(&question(head, client), &mut Notes::default())?;
    }
    Err(Rejection::UnknownPath)
}

/// Why a policy of the route refuses the token of the request.
fn refusal(route: &Route, head: &RequestHead, client: ClientAddress) -> Option<String> {
    let rules = route.rules.as_ref()?;
    let request = question(head, client);
    let mut notes = Notes::default();
    let decided = rules.policies.decide(&request, &mut notes);
    decided.and_then(|()| notes.assume_passed(&request)).err()?;
    notes.reason.take().map(String::from)
}

/// A request of which the time is not known.
fn question(head: &RequestHead, client: ClientAddress) -> PolicyRequest<'_> {
    PolicyRequest {
        head,
        client,
        certificate: None,
        clock: None,
        limits: None,
        authorizer: None,
    }
}

/// The checks of the route, in the order of the phase `route`.
fn check_rules<'r>(
    site: &SiteRoutes,
    route: &'r Route,
    head: &RequestHead,
    client: ClientAddress,
    notes: &mut Notes<'r>,
) -> Result<(), Rejection> {
    if site.has_access_rules() {
        site.admit(route, head, client)?;
    }
    let Some(rules) = &route.rules else {
        return Ok(());
    };
    let request = question(head, client);
    rules.policies.decide(&request, notes)?;
    notes.assume_passed(&request)?;
    rules.check_method(head)
}

fn outcome(
    site: &SiteRoutes,
    route: &Route,
    head: &mut RequestHead,
    peer: &Peer,
    trusted: &TrustedProxies,
) -> Result<RequestOutcome, Rejection> {
    check_head(site, head, peer, trusted)?;
    let client = client_of(&head.fields, peer, trusted);
    let mut notes = Notes::default();
    check_rules(site, route, head, client, &mut notes)?;
    let bytes_max = route.rules.as_ref().and_then(|rules| rules.body_bytes_max);
    let declared = head.fields.get_str(Name::ContentLength);
    let declared = declared.and_then(|length| length.parse::<u64>().ok());
    if declared
        .zip(bytes_max)
        .is_some_and(|(length, max)| length > max)
    {
        return Err(Rejection::ContentTooLarge);
    }
    if !matches!(route.action, Action::Endpoint(_)) {
        check_method(head)?;
    }
    match &route.action {
        Action::Endpoint(_) => Ok(RequestOutcome::App),
        Action::Files(files) => Ok(RequestOutcome::File(files.shown(head.path()))),
        Action::Answer(answer) => {
            let (response, _) =
                answer.respond(&Facts::of(head, peer, trusted).with_notes(Some(&notes)));
            let location = response.fields.get_str(Name::Location);
            Ok(RequestOutcome::Answered {
                status: response.status.code(),
                location: location.map(str::to_owned),
            })
        }
        Action::Forward(forward) => {
            forwarded((route, forward), head, declared, &notes, (peer, trusted))
        }
    }
}

/// The request as the upstream receives it.
fn forwarded(
    (route, forward): (&Route, &Forward),
    head: &mut RequestHead,
    declared: Option<u64>,
    notes: &Notes<'_>,
    (peer, trusted): (&Peer, &TrustedProxies),
) -> Result<RequestOutcome, Rejection> {
    let files = forward.files.as_ref();
    let files = files.filter(|_| matches!(head.method, Method::Get | Method::Head));
    let file = files.and_then(|files| files.shown(head.path()));
    let buffer = forward.buffer.filter(|_| Call::of(head).is_none());
    let buffer_max = buffer.map(RequestBuffer::bytes_max);
    if declared
        .zip(buffer_max)
        .is_some_and(|(length, max)| length > max)
    {
        return Err(Rejection::ContentTooLarge);
    }
    let decompresses = route.rules.as_ref();
    let decompresses = decompresses.is_some_and(|rules| rules.decompress_max.is_some());
    let has_content = declared.is_some() || !matches!(head.method, Method::Get | Method::Head);
    if decompresses && has_content && Call::of(head).is_none() {
        match RequestCoding::of(&head.fields)? {
            Some(_) => RequestCoding::remove_from(&mut head.fields),
            None => {
                head.fields.remove(Name::ContentEncoding);
            }
        }
    }
    let rewriting = forward.replace_path(head, (peer, Some(notes)), trusted, &mut String::new())?;
    edit(head, &forward.target.authority, peer, trusted)?;
    notes.identify(&mut head.fields);
    if let Some(rewriting) = rewriting {
        rewriting.edit_request(&mut head.fields);
    }
    change(head, (route, forward), notes, peer, trusted);
    let host = forward.host.as_deref().or(head.authority());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let fields = head.fields.iter();
    Ok(RequestOutcome::Forwarded {
        file,
        url: forward.target.url(),
        servers: match &forward.group {
            Some(group) => group.config.lines(),
            None => Vec::new(),
        },
        mirror: forward.mirror.as_ref().map(|mirror| mirror.text()),
        target: head.path_and_query().to_owned(),
        host: host.unwrap_or_default().to_owned(),
        fields: fields
            .map(|(name, value)| (text(name.as_bytes()), text(value)))
            .collect(),
    })
}

/// Edits the head as it is edited for an upstream.
fn edit(
    head: &mut RequestHead,
    authority: &str,
    peer: &Peer,
    trusted: &TrustedProxies,
) -> Result<(), Rejection> {
    let declared = head.fields.get_str(Name::ContentLength);
    let length = declared.and_then(|length| length.parse().ok());
    let client = ForwardedClient {
        peer,
        trusted_proxies: trusted,
        is_trusted: trusted.contains(peer),
        upgrade: None,
        length: length.map_or(BodyLength::Empty, BodyLength::Known),
        default_authority: authority,
        loop_id: &LoopId::random(0),
        sends_via: false,
        sends_certificate: false,
        random: || 0,
    };
    let edited = forward::edit_request(head, &client, &mut Vec::new());
    // This gateway's own identifier is in no request.
    edited.map_err(|_| Rejection::ConnectionOptions)?;
    Ok(())
}

/// Makes the changes of the route.
fn change(
    head: &mut RequestHead,
    (route, forward): (&Route, &Forward),
    notes: &Notes<'_>,
    peer: &Peer,
    trusted: &TrustedProxies,
) {
    let rules = route.rules.as_ref();
    if let Some(edits) = rules.and_then(|rules| rules.request_edits.as_ref()) {
        let received = forward.received_head(head, edits);
        let facts = Facts::of(head, peer, trusted);
        let facts = facts.with_notes(Some(notes));
        let facts = facts.with_path_of(received.as_ref().unwrap_or(head));
        let edits = edits.for_request(&facts);
        apply_to_request(&edits, &mut head.fields);
    }
}
