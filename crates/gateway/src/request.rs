//! A request on its way to an upstream: the state that phases share.

use std::borrow::Cow;

use blitz_http::{
    Exchange, Pooled, ProxyHeader, RequestHead, Responder, Response, Timer, Upstream,
};
use blitz_site::compress::Negotiated;
use blitz_site::{CoreObservers, Edit, Failure, Notes, Record, RouteName};

use crate::proxy_header::proxy_header;
use crate::reconnecting::Reconnecting;
use crate::request_kind::RequestKind;
use crate::rewriting::Rewriting;
use crate::route::ForwardRoute;
use crate::rules::Rules;
use crate::service::GatewayService;
use crate::sites::SiteRoutes;
use crate::upload::Upload;
use crate::upstream::{Choice, Processed, RetryBudget, RetryShare, Tried};

/// A request that a target matched. Dropping it emits its record (phase `finish`).
pub(crate) struct Request<'a> {
    pub(crate) head: Pooled<RequestHead>,
    pub(crate) upload: Upload,
    /// Gone once the response has begun.
    pub(crate) responder: Option<Responder>,
    /// The final response of the upstream, until it is relayed.
    pub(crate) response: Option<Response>,
    pub(crate) kind: RequestKind,
    pub(crate) tried: Tried,
    /// Which server it goes to, if the route has several.
    pub(crate) choice: Option<Box<Choice<'a>>>,
    pub(crate) repeats: Repeats,
    pub(crate) reconnecting: Reconnecting,
    /// Is reported if no other address can be connected to. Boxed, so that requests without one are small.
    pub(crate) connect_failure: Option<Box<ConnectFailure>>,
    /// Of the route; `None` changes nothing.
    pub(crate) rules: Option<&'a Rules>,
    /// For routes with a path of their own.
    pub(crate) rewriting: Option<Box<Rewriting<'a>>>,
    /// The header at the beginning of connections to the upstream, if it names the client.
    proxy_header: Option<Box<ProxyHeader>>,
    /// How its response may be compressed; `None` if its route compresses none.
    pub(crate) negotiated: Option<Negotiated>,
    /// Changes of the fields of the final response.
    pub(crate) edits: Cow<'a, [Edit]>,
    /// Of the route's policies.
    pub(crate) notes: Option<Box<Notes<'a>>>,
    /// Whether the upstream gets the certificate of the client.
    pub(crate) sends_certificate: bool,
    pub(crate) record: Record<'a>,
}

/// How often a request was sent again (rule 13), also a second time before the first attempt has ended.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    /// Because the upstream did not process it.
    pub(crate) unprocessed: u8,
    /// Although the upstream may have processed it.
    pub(crate) perhaps_processed: u8,
    /// The client got an interim response, which a retry could contradict.
    pub(crate) has_interim: bool,
}

/// A failure to connect to one address of the upstream.
pub(crate) struct ConnectFailure {
    pub(crate) failure: Failure,
    pub(crate) upstream: Upstream,
    /// See [`Record::rule`].
    pub(crate) rule: Option<&'static str>,
}

impl<'a> Request<'a> {
    // A call of its own would copy it.
    #[inline(always)]
    pub(crate) fn new<E>(
        gateway: &'a GatewayService<E>,
        observers: &'a CoreObservers,
        site: &'a SiteRoutes,
        route: &ForwardRoute<'a>,
        exchange: Exchange,
        notes: Option<Box<Notes<'a>>>,
    ) -> Request<'a> {
        let Exchange {
            request: mut head,
            mut body,
            responder,
            peer,
        } = exchange;
        let options = &gateway.options;
        let rules = route.rules();
        let trusted = &options.trusted_proxies;
        let edits =
            rules.map(|rules| rules.edit_response(&mut head, &peer, trusted, notes.as_deref()));
        let compression = rules.and_then(|rules| rules.compression.as_deref());
        let negotiated = compression.map(|compression| Negotiated::of(compression, &head));
        let proxy_protocol = route.forward.proxy_protocol;
        let proxy_header =
            proxy_protocol.map(|version| proxy_header(version, &head, &peer, trusted));
        let kind = RequestKind::of(&head, &body, &responder, route.forward.upgrades.as_deref());
        if kind.is_message_stream() {
            body.disable_min_rate();
        }
        let waits = !body.is_done() && responder.expects_continue();
        let hold = waits.then(|| blitz_http::sleep(options.continue_timeout));
        let mut upload = Upload::new(body, hold);
        if let Some(limits) = &site.limits {
            upload.limit_trailers(limits.trailer_bytes_max);
        }
        let name = route.route as &dyn RouteName;
        // Last, so that it is not copied.
        let record = Record::new(&head, peer, site.name(), Some(name), observers);
        Request {
            head,
            upload,
            responder: Some(responder),
            response: None,
            kind,
            tried: Tried::default(),
            choice: None,
            repeats: Repeats::default(),
            reconnecting: Reconnecting::default(),
            connect_failure: None,
            rules,
            rewriting: None,
            proxy_header,
            negotiated,
            edits: edits.unwrap_or_default(),
            notes,
            sends_certificate: options.client_cert_header || site.tls.sends_certificate,
            record,
        }
    }

    /// How many requests may be sent again.
    pub(crate) fn retries(&self, route: &ForwardRoute<'a>) -> &'a RetryBudget {
        match &self.choice {
            None => &route.balancer.get().retries,
            Some(choice) => &choice.group().retries,
        }
    }

    /// Fires when it has taken as long as it may until the head of its response.
    pub(crate) fn time_limit(&self) -> Option<Timer> {
        let limit = self.rules?.request_timeout?;
        Some(blitz_http::sleep_until(self.record.started + limit))
    }

    /// Counts a retry, if the budget of the upstream has one left.
    pub(crate) fn try_retry(&self, route: &ForwardRoute<'a>, processed: Processed) -> bool {
        let (shared, share) = match &self.choice {
            None => (route.balancer().shared_retries(), RetryShare::default()),
            Some(choice) => {
                let retry = choice
                    .settings()
                    .and_then(|settings| settings.retry.as_ref());
                let share = retry.and_then(|retry| retry.value.budget);
                let share = share.map_or_else(RetryShare::default, RetryShare::from);
                (choice.group().shared_retries(), share)
            }
        };
        let budget = self.retries(route);
        budget.try_retry(processed, share, shared, blitz_http::now())
    }

    /// Whether a retry would go to another server or address, as far as that is known.
    pub(crate) fn has_other(&self, route: &ForwardRoute<'a>) -> bool {
        let now = blitz_http::now();
        match &self.choice {
            None => route.balancer().has_other(&self.tried, now),
            Some(choice) => choice.has_other(now),
        }
    }

    /// Notes where the next attempt goes.
    #[inline]
    pub(crate) fn go_to(&mut self, upstream: Upstream) {
        self.record.upstream = Some(self.with_header(upstream));
    }

    /// The connections for this request to an address.
    #[inline]
    pub(crate) fn with_header(&self, upstream: Upstream) -> Upstream {
        match &self.proxy_header {
            None => upstream,
            Some(header) => upstream.with_header(**header),
        }
    }
}
