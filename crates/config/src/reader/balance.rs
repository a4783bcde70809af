//! Several servers: weights, `balance`, `hash` and `sticky`.

use std::collections::BTreeMap;
use std::sync::Arc;

use toml::Spanned;
use toml::de::DeValue;

use super::own::{LevelNumber, OwnSettings, OwnTarget};
use super::template::is_token;
use super::value::StringValue;
use super::{Reader, entries};
use crate::balance::{
    Balance, ClientKey, GroupServer, GroupTarget, STICKY_COOKIE, ServerKey, Sticky, TargetGroup,
    WEIGHT_MAX,
};
use crate::model::Route;
use crate::settings::{Action, Proxy};
use crate::span::{Placed, Span};
use crate::upstream_settings::UpstreamSettings;

pub(super) const URL: &str = "\"http://127.0.0.1:3000\"";
const STICKY: &str = "\"cookie\", \"cookie:NAME\", \"client\", \"header:NAME\" or \"jwt:CLAIM\"";
const SERVER_KEY: &str = "\"client\", \"header:NAME\", \"cookie:NAME\" or \"jwt:CLAIM\"";
const BALANCE: &str = "\"p2c\", \"round_robin\", \"least_requests\" or \"hash\"";

/// Begins the URL of a service, whose servers SRV records tell.
const SERVICE: &str = "srv+";

/// The most servers of an upstream, and targets of a `to`: all are looked at for each request.
const SERVERS_MAX: usize = 256;

/// A URL or a name with its weight.
pub(super) struct Weighted {
    pub(super) text: StringValue,
    pub(super) weight: u16,
}

/// The keys of an upstream for the choice of its servers.
#[derive(Default)]
pub(super) struct OwnBalance {
    pub(super) balance: Option<Placed<Balance>>,
    pub(super) hash: Option<Placed<ServerKey>>,
    pub(super) sticky: Option<Placed<Sticky>>,
    pub(super) settings: UpstreamSettings,
}

impl Reader<'_> {
    /// The items of a list, each with the weight 1, or of a map of weights. `None` if one of them is wrong.
    pub(super) fn weighted(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Vec<Weighted>> {
        let before = self.diagnostics.len();
        let mut all = Vec::new();
        match value.get_ref() {
            DeValue::Table(table) => {
                for entry in entries(table) {
                    let weight = self.weight(entry.value);
                    let text = self.expanded(entry.name, entry.key());
                    all.extend(
                        text.zip(weight)
                            .map(|(text, weight)| Weighted { text, weight }),
                    );
                }
            }
            _ => {
                let texts = self.texts(value, URL).into_iter();
                all.extend(texts.map(|text| Weighted { text, weight: 1 }));
            }
        }
        if self.diagnostics.len() != before {
            return None;
        }
        self.check_servers(&all, value.span())?;
        Some(all)
    }

    fn check_servers(&mut self, all: &[Weighted], span: Span) -> Option<()> {
        if all.is_empty() {
            let message = "there is no server";
            self.error("no-servers", span, message, format!("write [{URL}]"));
            return None;
        }
        if all.len() > SERVERS_MAX {
            let message = format!("there are {} servers", all.len());
            let label = format!(
                "{SERVERS_MAX} are the most; one of them may be a name with many addresses"
            );
            self.error("servers", span, message, label);
            return None;
        }
        for (at, one) in all.iter().enumerate() {
            let first = all[..at]
                .iter()
                .find(|other| other.text.value == one.text.value);
            if let Some(first) = first {
                let place = self.document.place(first.text.span.start);
                let message = format!("`{}` is there twice", one.text.written());
                let label =
                    format!("the first is at {place}; a larger weight gives it more requests");
                self.error("same-server", one.text.span.clone(), message, label);
                return None;
            }
        }
        if all.iter().all(|one| one.weight == 0) {
            let message = "nothing would get requests, because all weights are 0";
            self.error("weight", span, message, "give one of them a weight above 0");
            return None;
        }
        Some(())
    }

    fn weight(&mut self, value: &Spanned<DeValue<'_>>) -> Option<u16> {
        let digits = match value.get_ref() {
            DeValue::Integer(number) => number.as_str().replace('_', ""),
            DeValue::String(text) if text.starts_with("${") => {
                self.expanded(text, value.span())?.value
            }
            other => {
                let label = "write a weight, such as 1";
                self.wrong_type(value.span(), other, "a number", label);
                return None;
            }
        };
        let weight = digits.parse().ok();
        let weight = weight.filter(|weight| u64::from(*weight) <= WEIGHT_MAX);
        if weight.is_none() {
            let label = format!("write a number from 0 to {WEIGHT_MAX}; weights are relative");
            self.error("weight", value.span(), "this weight is not possible", label);
        }
        weight
    }

    /// The servers of an upstream with a name.
    pub(super) fn servers(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Vec<GroupServer>> {
        let all = self.weighted(value)?.into_iter();
        let servers: Vec<Option<GroupServer>> = all
            .map(|one| {
                let weight = one.weight;
                let url = self.url(&one.text)?;
                Some(GroupServer { url, weight })
            })
            .collect();
        servers.into_iter().collect()
    }

    /// The target that an upstream with this name and these servers is.
    pub(super) fn named_group(
        &mut self,
        name: &str,
        servers: Vec<GroupServer>,
        span: Span,
        own: OwnBalance,
    ) -> OwnTarget {
        let balance = self.balance_with_hash(own.balance, own.hash);
        let first = servers[0].url.clone();
        let is_service = is_service(&first.value);
        if let ([_], Some(sticky), false) = (&servers[..], &own.sticky, is_service) {
            self.warn_of_sticky(sticky.span.clone());
        }
        if servers.len() == 1 && !is_service && own.settings == UpstreamSettings::default() {
            return OwnTarget {
                name: Some(name.into()),
                ..OwnTarget::from(first)
            };
        }
        let target = GroupTarget {
            name: name.to_owned(),
            weight: 1,
            servers,
            span: span.clone(),
            balance,
            sticky: own.sticky,
            settings: Arc::new(own.settings),
        };
        OwnTarget {
            url: first,
            name: Some(name.into()),
            group: Some(Arc::new(TargetGroup {
                targets: vec![target],
                sticky: None,
            })),
            span,
            proxy_protocol: None,
            limits: None,
        }
    }

    /// The target that a URL in a `to` is. A service is a group also alone, since it has any number of servers.
    pub(super) fn of_url(&mut self, url: Placed<String>) -> OwnTarget {
        if !is_service(&url.value) {
            return OwnTarget::from(url);
        }
        let (name, span) = (url.value.clone(), url.span.clone());
        let server = GroupServer { url, weight: 1 };
        let target = self.named_group(&name, vec![server], span, OwnBalance::default());
        OwnTarget {
            name: None,
            ..target
        }
    }

    fn balance_with_hash(
        &mut self,
        balance: Option<Placed<Balance>>,
        hash: Option<Placed<ServerKey>>,
    ) -> Option<Placed<Balance>> {
        let Some(hash) = hash else { return balance };
        match balance {
            Some(Placed {
                value: Balance::Hash(_),
                span,
            }) => Some(Placed::new(Balance::Hash(hash.value), span)),
            other => {
                let message = "`hash` is for `balance = \"hash\"`";
                let label = "write balance = \"hash\" as well, or leave it out";
                self.error("hash", hash.span, message, label);
                other
            }
        }
    }

    /// Targets with weights in one `to`.
    pub(super) fn group(
        &mut self,
        targets: Vec<(StringValue, u16, OwnTarget)>,
        span: Span,
    ) -> Option<OwnTarget> {
        let (_, _, first) = targets.first()?;
        let (url, proxy_protocol) = (first.url.clone(), first.proxy_protocol.clone());
        let limits = first.limits.clone();
        let version = |target: &OwnTarget| {
            let version = target.proxy_protocol.as_ref();
            version.map(|version| version.value)
        };
        let limits_of = |target: &OwnTarget| {
            let limits = target.limits.as_ref();
            limits.map(|limits| limits.value).unwrap_or_default()
        };
        let differing = |target: &OwnTarget| match version(target) == version(first) {
            false => Some("proxy_protocol"),
            true => (limits_of(target) != limits_of(first)).then_some("limits"),
        };
        let mut all = targets.iter();
        if let Some((text, key)) =
            all.find_map(|(text, _, target)| Some((text, differing(target)?)))
        {
            let message = format!("`{}` has another `{key}`", text.written());
            let label = "the targets of a `to` have the same; give these a route of their own";
            self.error("targets-differ", text.span.clone(), message, label);
            return None;
        }
        let target = |(text, weight, target): (StringValue, u16, OwnTarget)| match target.group {
            Some(group) => GroupTarget {
                weight,
                ..group.targets[0].clone()
            },
            None => GroupTarget {
                name: text.value,
                weight,
                span: target.span,
                servers: vec![GroupServer {
                    url: target.url,
                    weight: 1,
                }],
                balance: None,
                sticky: None,
                settings: Arc::default(),
            },
        };
        Some(OwnTarget {
            url,
            name: None,
            group: Some(Arc::new(TargetGroup {
                targets: targets.into_iter().map(target).collect(),
                sticky: None,
            })),
            span,
            proxy_protocol,
            limits,
        })
    }

    pub(super) fn balance(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Placed<Balance>> {
        let text = self.text(value, BALANCE)?;
        let balance = match text.value.as_str() {
            "p2c" => Balance::P2c,
            "round_robin" => Balance::RoundRobin,
            "least_requests" => Balance::LeastRequests,
            "hash" => Balance::Hash(ServerKey::Request(ClientKey::Client)),
            _ => {
                let message = format!("`{}` is no value of `balance`", text.written());
                self.error("value", text.span, message, format!("write {BALANCE}"));
                return None;
            }
        };
        Some(Placed::new(balance, text.span))
    }

    pub(super) fn hash(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Placed<ServerKey>> {
        let text = self.text(value, SERVER_KEY)?;
        let Some(key) = server_key(&text.value) else {
            let message = format!("`{}` is no value of a request", text.written());
            self.error("hash", text.span, message, format!("write {SERVER_KEY}"));
            return None;
        };
        Some(Placed::new(key, text.span))
    }

    pub(super) fn sticky(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Placed<Sticky>> {
        let text = self.text(value, STICKY)?;
        let sticky = match (text.value.as_str(), server_key(&text.value)) {
            ("cookie", _) => Sticky::Cookie(STICKY_COOKIE.to_owned()),
            (_, Some(ServerKey::Request(ClientKey::Cookie(name)))) => Sticky::Cookie(name),
            (_, Some(key)) => Sticky::Key(key),
            _ => {
                let message = format!("`{}` tells no clients apart", text.written());
                self.error("sticky", text.span, message, format!("write {STICKY}"));
                return None;
            }
        };
        Some(Placed::new(sticky, text.span))
    }

    /// Checks what a route says of several servers. `levels` are that of its `to` and those below.
    pub(super) fn check_group(&mut self, proxy: &Proxy, levels: &[(LevelNumber, &OwnSettings)]) {
        let Some(group) = &proxy.group else {
            let sticky = levels.iter().rev().find(|(_, own)| own.sticky.is_written());
            if let Some(sticky) = sticky.and_then(|(_, own)| own.sticky.value()) {
                self.warn_of_sticky(sticky.span.clone());
            }
            return;
        };
        if let Some((name, own, other)) = group.doubled_cookie() {
            let place = self.document.place(other.start);
            let message = format!("the upstream, at {place}, sets the cookie `{name}` as well");
            let label = "write \"cookie:NAME\" with another name";
            self.error("same-cookie", own.clone(), message, label);
        }
    }

    /// Several servers of one route must not set the cookie of those of another one: each would undo the other's choice.
    pub(super) fn shared_cookies(&mut self, routes: &[Route]) {
        let mut known: BTreeMap<&str, (&TargetGroup, &Span)> = BTreeMap::new();
        let groups = routes
            .iter()
            .filter_map(|route| match &route.settings.action.value {
                Action::Proxy(proxy) => proxy.group.as_deref(),
                Action::Redirect(_) | Action::Respond(_) | Action::Files(_) => None,
            });
        for group in groups {
            for (name, span) in group.cookies() {
                let (other, place) = *known.entry(name).or_insert((group, span));
                if place == span || other.is_same(group) {
                    continue;
                }
                let place = self.document.place(place.start);
                let message = format!(
                    "other servers of the site, at {place}, set the cookie `{name}` as well"
                );
                let label = "write \"cookie:NAME\" with another name";
                self.error("same-cookie", span.clone(), message, label);
            }
        }
    }

    fn warn_of_sticky(&mut self, span: Span) {
        let message = "`sticky` changes nothing, because there is one server";
        self.warning("sticky", span, message, "leave it out, or add a server");
    }
}

/// Whether SRV records tell the servers of a URL.
fn is_service(url: &str) -> bool {
    let start = url.get(..SERVICE.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(SERVICE))
}

/// The same as [`client_key`], or `jwt:CLAIM`.
fn server_key(text: &str) -> Option<ServerKey> {
    match text.strip_prefix("jwt:") {
        Some(claim) => (!claim.is_empty()).then(|| ServerKey::Claim(claim.to_owned())),
        None => client_key(text).map(ServerKey::Request),
    }
}

/// `client`, `header:NAME` or `cookie:NAME`.
pub(super) fn client_key(text: &str) -> Option<ClientKey> {
    if text == "client" {
        return Some(ClientKey::Client);
    }
    let (kind, name) = text.split_once(':')?;
    if !is_token(name) {
        return None;
    }
    match kind {
        "header" => Some(ClientKey::Header(name.to_ascii_lowercase())),
        "cookie" => Some(ClientKey::Cookie(name.to_owned())),
        _ => None,
    }
}
