//! The own settings of a route, before it inherits.

use std::rc::Rc;
use std::sync::Arc;

use super::files::{OwnFileOptions, OwnFolder};
use crate::balance::{Sticky, TargetGroup};
use crate::compress::Compress;
use crate::condition::Conditions;
use crate::method::Methods;
use crate::mirror::Mirror;
use crate::network_list::NetworkList;
use crate::policy::OwnPolicies;
use crate::route_key::RouteKey;
use crate::settings::{
    ErrorPage, FieldRule, ForwardedHost, ProxyProtocol, Redirect, RequestBuffer, Respond,
    ResponseLimits,
};
use crate::shed::Importance;
use crate::span::{Placed, Span};
use crate::template::Template;
use crate::units::{StatusPattern, TimeLimit};
use crate::upgrade::Upgrades;

pub(super) use crate::own::Own;

/// The number of a level, by which values that routes share are told apart: 0 is `defaults`, 1 and more are the routes
/// of a site.
pub(super) type LevelNumber = usize;

/// The first number of blocks `when`.
pub(super) const BLOCKS: LevelNumber = 1 << 30;

/// The first number of presets, which sites share.
pub(super) const PRESETS: LevelNumber = 1 << 31;

/// The own settings of a route, a site or `defaults`.
#[derive(Debug)]
pub(super) struct OwnSettings {
    pub(super) key: Placed<RouteKey>,
    /// The first action, and the place of its key.
    pub(super) action: Option<(OwnAction, Span)>,
    pub(super) path: Own<Arc<Placed<Template>>>,
    pub(super) host: Own<Placed<ForwardedHost>>,
    pub(super) raw_path: Own<Placed<bool>>,
    pub(super) buffer_request: Own<Placed<RequestBuffer>>,
    pub(super) retries: Own<Placed<u8>>,
    pub(super) sticky: Own<Placed<Sticky>>,
    /// The first option of `to` with the place of its key.
    pub(super) option: Option<(&'static str, Span)>,
    pub(super) files: OwnFileOptions,
    pub(super) allow: Own<Arc<Placed<NetworkList>>>,
    pub(super) deny: Own<Arc<Placed<NetworkList>>>,
    /// That of a regex, which nothing inherits.
    pub(super) priority: Option<Placed<u64>>,
    pub(super) methods: Own<Placed<Methods>>,
    pub(super) body_max: Own<Placed<u64>>,
    pub(super) decompress: Own<Placed<u64>>,
    pub(super) access_log: Own<Placed<bool>>,
    pub(super) replace_errors: Own<Placed<bool>>,
    pub(super) request_trailers: Own<Placed<bool>>,
    pub(super) compress: Own<Arc<Placed<Compress>>>,
    pub(super) upgrade: Own<Arc<Placed<Upgrades>>>,
    pub(super) importance: Own<Placed<Importance>>,
    pub(super) mirror: Own<Arc<Placed<Mirror>>>,
    pub(super) policies: OwnPolicies,
    pub(super) connect: Own<Placed<TimeLimit>>,
    pub(super) request: Own<Placed<TimeLimit>>,
    pub(super) response: Own<Placed<TimeLimit>>,
    pub(super) idle: Own<Placed<TimeLimit>>,
    pub(super) headers: OwnMap<String, FieldRule>,
    pub(super) request_headers: OwnMap<String, FieldRule>,
    pub(super) errors: OwnMap<StatusPattern, ErrorPage>,
    /// Presets, which come before all of it.
    pub(super) presets: Vec<(LevelNumber, Rc<OwnSettings>)>,
    /// Blocks `when` in their order.
    pub(super) blocks: Vec<OwnBlock>,
    /// `when = false`: blocks of outer levels do not apply.
    pub(super) is_without_outer_blocks: bool,
    /// Those of `blocks`.
    pub(super) conditions: Arc<[Placed<Conditions>]>,
}

/// The settings of a block `when`, without its conditions.
#[derive(Debug)]
pub(super) struct OwnBlock {
    pub(super) number: LevelNumber,
    pub(super) own: OwnSettings,
}

/// An action.
#[derive(Debug, Clone)]
pub(super) enum OwnAction {
    /// It is wrong, so the levels below it have none.
    Wrong,
    To(OwnTarget),
    Redirect(Placed<Arc<Redirect>>),
    Respond(Placed<Arc<Respond>>),
    Files(OwnFolder),
    /// Files, and the upstream of requests without one.
    FilesFirst(OwnFolder, OwnTarget),
}

/// The upstream of a `to`, with its settings in `upstream`.
#[derive(Debug, Clone)]
pub(super) struct OwnTarget {
    /// The URL of its server, or of the first of several.
    pub(super) url: Placed<String>,
    /// The name of the upstream, if it has one.
    pub(super) name: Option<Arc<str>>,
    /// All servers, if there are several.
    pub(super) group: Option<Arc<TargetGroup>>,
    /// The place that is shown as the `to`.
    pub(super) span: Span,
    pub(super) proxy_protocol: Option<Placed<ProxyProtocol>>,
    pub(super) limits: Option<Placed<ResponseLimits>>,
}

impl From<Placed<String>> for OwnTarget {
    fn from(url: Placed<String>) -> OwnTarget {
        OwnTarget {
            span: url.span.clone(),
            url,
            name: None,
            group: None,
            proxy_protocol: None,
            limits: None,
        }
    }
}

/// A map that is merged by its keys.
#[derive(Debug)]
pub(super) struct OwnMap<K, V> {
    /// `false`: nothing is inherited.
    pub(super) is_removed: bool,
    /// Sorted by key.
    pub(super) entries: Vec<(K, Arc<V>)>,
}

impl<K, V> Default for OwnMap<K, V> {
    fn default() -> OwnMap<K, V> {
        OwnMap {
            is_removed: false,
            entries: Vec::new(),
        }
    }
}

impl<K, V> OwnMap<K, V> {
    pub(super) fn is_written(&self) -> bool {
        self.is_removed || !self.entries.is_empty()
    }
}

impl OwnSettings {
    pub(super) fn new(key: Placed<RouteKey>) -> OwnSettings {
        OwnSettings {
            key,
            action: None,
            path: Own::default(),
            host: Own::default(),
            raw_path: Own::default(),
            buffer_request: Own::default(),
            retries: Own::default(),
            sticky: Own::default(),
            option: None,
            files: OwnFileOptions::default(),
            allow: Own::default(),
            deny: Own::default(),
            priority: None,
            methods: Own::default(),
            body_max: Own::default(),
            decompress: Own::default(),
            access_log: Own::default(),
            replace_errors: Own::default(),
            request_trailers: Own::default(),
            compress: Own::default(),
            upgrade: Own::default(),
            importance: Own::default(),
            mirror: Own::default(),
            policies: OwnPolicies::default(),
            connect: Own::default(),
            request: Own::default(),
            response: Own::default(),
            idle: Own::default(),
            headers: OwnMap::default(),
            request_headers: OwnMap::default(),
            errors: OwnMap::default(),
            presets: Vec::new(),
            blocks: Vec::new(),
            is_without_outer_blocks: false,
            conditions: Arc::default(),
        }
    }

    /// Whether it says an action, itself or by a preset.
    pub(super) fn has_action(&self) -> bool {
        self.action.is_some() || self.presets.iter().any(|(_, preset)| preset.has_action())
    }
}
