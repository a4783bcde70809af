//! Routes: the action for the requests of a path, and the rules for them.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use blitz_config::{Importance, RequestBuffer, Template, Upgrades};
use blitz_http::{Peer, ProxyVersion, RequestHead, path as request_path};
use blitz_site::metrics::RouteLabel;
use blitz_site::{EndpointMaker, Notes, Rejection, RouteName};

use crate::answer::Answer;
use crate::files::Files;
use crate::mirror::Mirror;
use crate::rewriting::{Rewriting, UpstreamPrefix};
use crate::rules::{Edits, Facts, Rules, path_of, received_head};
use crate::target::{Replaced, Target};
use crate::trusted::TrustedProxies;
use crate::upstream::{Balancer, ConnectionSettings, GroupConfig};
use crate::variants::Variants;

/// A route before the start; all cores share it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Its paths as written, for people: `/api`, `GET /a`, `other paths`.
    pub name: Box<str>,
    /// The action as written: set where the values of variables must not be shown.
    pub written: Option<Box<str>>,
    pub(crate) action: Action,
    /// `None` demands and changes nothing. Routes with the same rules share them.
    pub(crate) rules: Option<Arc<Rules>>,
    /// The variants for requests that meet conditions.
    pub(crate) variants: Option<Box<Variants>>,
    /// Whether its requests have lines in the access log.
    pub(crate) is_logged: bool,
    pub(crate) label: NumberedLabel,
}

/// The number of a route's texts in metrics. It belongs to the process, not to the configuration.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NumberedLabel(pub(crate) RouteLabel);

impl Default for NumberedLabel {
    /// Until a snapshot is made.
    fn default() -> NumberedLabel {
        NumberedLabel(RouteLabel::OTHER)
    }
}

impl PartialEq for NumberedLabel {
    fn eq(&self, _: &NumberedLabel) -> bool {
        true
    }
}

impl Eq for NumberedLabel {}

/// The action of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    Forward(Forward),
    Answer(Answer),
    Endpoint(EndpointMaker),
    /// Routes that inherit a folder share it.
    Files(Arc<Files>),
}

/// An upstream, and the changes of a request for it.
#[derive(Debug, Clone)]
pub(crate) struct Forward {
    /// Routes to the same URL share it. Of several servers it is the first.
    pub(crate) target: Arc<Target>,
    /// The name of the upstream in the configuration, for metrics.
    pub(crate) name: Option<Arc<str>>,
    /// Files that are looked for first.
    pub(crate) files: Option<Arc<Files>>,
    /// All servers, if there are several.
    pub(crate) group: Option<ForwardGroup>,
    /// The number of the upstream in its snapshot, which sets it.
    pub(crate) upstream: usize,
    /// Whether the upstream gets the trailers of requests, as [`Target::request_trailers`] or by the route's own setting.
    pub(crate) request_trailers: bool,
    pub(crate) connection_settings: ConnectionSettings,
    /// The path that the upstream receives.
    pub(crate) path: ForwardedPath,
    /// The host that the upstream receives; `None` is the client's.
    pub(crate) host: Option<Box<str>>,
    /// How much content of a request is received before the upstream is connected to; `None` lets it flow.
    pub(crate) buffer: Option<RequestBuffer>,
    /// Version of the PROXY header that its connections begin with; `None` is no header.
    pub(crate) proxy_protocol: Option<ProxyVersion>,
    /// Protocols that clients may switch to; `None` is WebSockets only.
    pub(crate) upgrades: Option<Box<Upgrades>>,
    /// How often a request is sent again that the upstream may have processed.
    pub(crate) retries: u8,
    /// The rank of its requests where the upstream sheds load.
    pub(crate) importance: Importance,
    /// Another upstream that gets copies of its requests.
    pub(crate) mirror: Option<Box<Mirror>>,
}

/// How often a request is sent again by default.
pub(crate) const RETRIES: u8 = 1;

/// Several servers of a route.
#[derive(Debug, Clone)]
pub(crate) struct ForwardGroup {
    /// Routes to the same upstream share it.
    pub(crate) config: Arc<GroupConfig>,
    /// The number of the group in its snapshot, which sets it.
    pub(crate) number: usize,
    /// Whether the host of requests is that of the server.
    pub(crate) sends_own_host: bool,
}

/// The number belongs to the snapshot, not to the configuration.
impl PartialEq for ForwardGroup {
    fn eq(&self, other: &ForwardGroup) -> bool {
        self.config == other.config && self.sends_own_host == other.sends_own_host
    }
}

/// The number belongs to the snapshot, not to the configuration. The name changes no request.
impl PartialEq for Forward {
    fn eq(&self, other: &Forward) -> bool {
        let Forward {
            target,
            name: _,
            files,
            group,
            upstream: _,
            request_trailers,
            connection_settings,
            path,
            host,
            buffer,
            proxy_protocol,
            upgrades,
            retries,
            importance,
            mirror,
        } = self;
        *target == other.target
            && *files == other.files
            && *group == other.group
            && *request_trailers == other.request_trailers
            && *connection_settings == other.connection_settings
            && *path == other.path
            && *host == other.host
            && *buffer == other.buffer
            && *proxy_protocol == other.proxy_protocol
            && *upgrades == other.upgrades
            && *retries == other.retries
            && *importance == other.importance
            && *mirror == other.mirror
    }
}

impl Eq for Forward {}

/// The path that an upstream receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ForwardedPath {
    /// The client's, or with the target's own path in place of the prefix.
    OfTarget,
    /// The client's, byte for byte.
    Raw,
    /// With placeholders.
    Template {
        template: Template,
        /// The prefix of the upstream's paths, if responses are rewritten.
        prefix: Option<UpstreamPrefix>,
    },
}

/// The route of a request to an upstream, on its core.
pub(crate) struct ForwardRoute<'a> {
    pub(crate) route: &'a Route,
    pub(crate) forward: &'a Forward,
    pub(crate) target: &'a Target,
    /// That of the server of the current attempt.
    pub(crate) balancer: Cell<&'a Rc<Balancer>>,
}

impl<'a> ForwardRoute<'a> {
    pub(crate) fn new(
        route: &'a Route,
        forward: &'a Forward,
        balancer: &'a Rc<Balancer>,
    ) -> ForwardRoute<'a> {
        ForwardRoute {
            route,
            forward,
            target: &forward.target,
            balancer: Cell::new(balancer),
        }
    }

    pub(crate) fn balancer(&self) -> &'a Balancer {
        self.balancer.get()
    }

    pub(crate) fn rules(&self) -> Option<&'a Rules> {
        self.route.rules.as_deref()
    }
}

impl Route {
    /// The files before its upstream.
    #[inline]
    pub(crate) fn files_first(&self) -> Option<&Arc<Files>> {
        match &self.action {
            Action::Forward(forward) => forward.files.as_ref(),
            Action::Answer(_) | Action::Endpoint(_) | Action::Files(_) => None,
        }
    }

    /// Whether it responds to preflights itself.
    pub(crate) fn takes_preflights(&self) -> bool {
        let rules = self.rules.as_ref();
        rules.is_some_and(|rules| rules.policies.takes_preflights())
    }
}

impl Forward {
    /// The upstream, for people.
    pub(crate) fn url(&self) -> String {
        let url = self.target.url();
        let count = self.group.as_ref().map(|group| group.config.servers.len());
        match count {
            None | Some(1) => url,
            Some(count) => format!("{url} and {} more", count - 1),
        }
    }

    /// Writes the upstream's path into the head, if it differs from the client's; returns how responses are rewritten, if
    /// they are. `path` is working memory.
    ///
    /// # Errors
    /// The path would lead out of its folder.
    #[inline]
    pub(crate) fn replace_path(
        &self,
        head: &mut RequestHead,
        (peer, notes): (&Peer, Option<&Notes<'_>>),
        trusted: &TrustedProxies,
        path: &mut String,
    ) -> Result<Option<Box<Rewriting<'_>>>, Rejection> {
        let is_kept = matches!(self.path, ForwardedPath::OfTarget) && self.target.path.is_none();
        // The usual case; and `OPTIONS *`, also as `OPTIONS http://host` (RFC 9112 section 3.2.4), has no
        // path to replace.
        match is_kept || head.path() == "*" {
            true => Ok(None),
            false => self.write_path(head, (peer, notes), trusted, path),
        }
    }

    /// A head with the path as it was received, if that has been replaced and the edits may need it.
    pub(crate) fn received_head(&self, head: &RequestHead, edits: &Edits) -> Option<RequestHead> {
        let is_replaced =
            !matches!(self.path, ForwardedPath::OfTarget) || self.target.path.is_some();
        match is_replaced && edits.are_per_request() {
            true => received_head(head),
            false => None,
        }
    }

    #[inline(never)]
    fn write_path(
        &self,
        head: &mut RequestHead,
        (peer, notes): (&Peer, Option<&Notes<'_>>),
        trusted: &TrustedProxies,
        path: &mut String,
    ) -> Result<Option<Box<Rewriting<'_>>>, Rejection> {
        let mut rewriting = None;
        let replaced = match &self.path {
            ForwardedPath::OfTarget => {
                self.target
                    .replace_path(head.path(), head.sent_path(), path)
            }
            ForwardedPath::Raw => {
                head.raw_path().clone_into(path);
                Replaced::Written
            }
            ForwardedPath::Template { template, prefix } => {
                let host = self.host.as_deref().unwrap_or_default();
                let names = [self.target.authority.as_str(), host];
                let prefix = prefix.as_ref();
                rewriting = prefix.map(|prefix| Rewriting::new(prefix, head, peer, trusted, names));
                let facts = Facts::of(head, peer, trusted).with_notes(notes);
                compose(template, &facts, path)
            }
        };
        match replaced {
            Replaced::Kept => Ok(rewriting),
            Replaced::DotSegment => Err(Rejection::Path),
            Replaced::Written => {
                head.set_path(path);
                Ok(rewriting)
            }
        }
    }
}

/// The path with values in place of placeholders. No server can read a dot segment in it (rule 10). A claim or
/// a user that lacks a value would leave out what tells clients apart.
fn compose(template: &Template, facts: &Facts<'_>, path: &mut String) -> Replaced {
    let lacks_user = template.has_user() && facts.user().is_none();
    if lacks_user || template.claims().any(|name| facts.claim(name).is_none()) {
        return Replaced::DotSegment;
    }
    path.clear();
    path_of(template, facts, path);
    match path.split('/').any(request_path::may_be_dot_segment) {
        true => Replaced::DotSegment,
        false => Replaced::Written,
    }
}

impl RouteName for Route {
    fn name(&self) -> &str {
        &self.name
    }

    fn upstream(&self) -> Option<String> {
        match &self.action {
            Action::Forward(forward) => Some(forward.url()),
            Action::Answer(_) | Action::Endpoint(_) | Action::Files(_) => None,
        }
    }

    fn is_logged(&self) -> bool {
        self.is_logged
    }

    fn label(&self) -> RouteLabel {
        self.label.0
    }
}

impl Route {
    /// A route to an upstream.
    #[must_use]
    pub fn to(target: Target) -> Route {
        let upgrades = (!target.upgrades.is_empty()).then(|| {
            Box::new(Upgrades {
                others: target.upgrades.clone(),
                ..Upgrades::default()
            })
        });
        let target = Arc::new(target);
        let group = target.is_service().then(|| ForwardGroup {
            config: Arc::new(GroupConfig::of_service(&target)),
            number: 0,
            sends_own_host: false,
        });
        Route {
            name: target.prefix.to_string().into(),
            written: None,
            action: Action::Forward(Forward {
                upstream: 0,
                request_trailers: target.request_trailers,
                target,
                name: None,
                files: None,
                group,
                connection_settings: ConnectionSettings::default(),
                path: ForwardedPath::OfTarget,
                host: None,
                buffer: None,
                proxy_protocol: None,
                upgrades,
                retries: RETRIES,
                importance: Importance::default(),
                mirror: None,
            }),
            rules: None,
            variants: None,
            is_logged: true,
            label: NumberedLabel::default(),
        }
    }

    /// A route to an app.
    pub(crate) fn to_endpoint(
        name: &str,
        maker: EndpointMaker,
        rules: Option<Arc<Rules>>,
    ) -> Route {
        Route {
            name: name.into(),
            written: None,
            action: Action::Endpoint(maker),
            rules,
            variants: None,
            is_logged: true,
            label: NumberedLabel::default(),
        }
    }

    /// Its upstream, of several servers the first; `None` if it has none.
    #[must_use]
    pub fn target(&self) -> Option<&Target> {
        match &self.action {
            Action::Forward(forward) => Some(&forward.target),
            Action::Answer(_) | Action::Endpoint(_) | Action::Files(_) => None,
        }
    }

    /// Whether the upstream gets the path byte for byte.
    pub(crate) fn is_raw(&self) -> bool {
        matches!(&self.action, Action::Forward(forward) if forward.path == ForwardedPath::Raw)
    }

    /// Has the upstreams get the trailers of requests.
    pub fn forward_request_trailers(&mut self) {
        for forward in self.forwards_mut() {
            forward.request_trailers = true;
        }
    }

    /// Its upstream, and those of its variants.
    pub(crate) fn forwards_mut(&mut self) -> impl Iterator<Item = &mut Forward> {
        let variants = self.variants.iter_mut();
        let variants = variants.flat_map(|variants| variants.routes.iter_mut());
        let actions = variants.map(|variant| &mut variant.action);
        let actions = std::iter::once(&mut self.action).chain(actions);
        actions.filter_map(|action| match action {
            Action::Forward(forward) => Some(forward),
            Action::Answer(_) | Action::Endpoint(_) | Action::Files(_) => None,
        })
    }

    /// The action, for people.
    #[must_use]
    pub fn destination(&self) -> String {
        if let Some(written) = &self.written {
            return written.to_string();
        }
        match &self.action {
            Action::Forward(forward) => {
                let files = forward.files.as_ref();
                let files =
                    files.map(|files| format!("files of {}, else ", files.root().display()));
                let files = files.unwrap_or_default();
                match &forward.path {
                    ForwardedPath::Template { template, .. } => {
                        format!("{files}{}{template}", forward.url())
                    }
                    _ => {
                        files + &forward.url() + forward.target.path.as_deref().unwrap_or_default()
                    }
                }
            }
            Action::Answer(answer) => answer.to_string(),
            Action::Endpoint(_) => "an app".to_owned(),
            Action::Files(files) => format!("files of {}", files.root().display()),
        }
    }
}
