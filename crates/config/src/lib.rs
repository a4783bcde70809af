#![forbid(unsafe_code)]
//! The configuration of Blitz: the file, the model that it is read into, and diagnostics with places.
//!
//! **Invariant: this crate is pure.** It opens no file and no socket, and variables of the environment are given to it.
//! [`read`] finds all mistakes of a file at once; checks that need files or sockets add their diagnostics later.

mod access_log;
mod balance;
mod claims;
mod compress;
mod condition;
mod diagnostic;
mod document;
mod environment;
mod format;
mod health;
mod keys;
mod method;
mod mirror;
mod model;
mod network;
mod network_list;
mod own;
mod path;
mod path_regex;
mod pattern;
mod policy;
mod process;
mod reader;
mod reference;
mod repair;
mod route_key;
mod schema;
mod settings;
mod shed;
mod span;
mod suggestion;
mod template;
mod units;
mod upgrade;
mod upstream_settings;
mod variant;

pub use access_log::{AccessLog, AccessLogWhen, LoggedStatus, Share};
pub use balance::{Balance, ClientKey, GroupServer, GroupTarget, ServerKey, Sticky, TargetGroup};
pub use compress::{Algorithm, Compress, Compression, MediaRange};
pub use condition::{ClientMatch, Conditions, Match, ValueMatch, regex};
pub use diagnostic::{Diagnostic, Edit, Severity, render, to_json};
pub use document::Document;
pub use environment::Environment;
pub use format::format;
pub use health::{HEALTH_BODY_MAX, HealthCheck, HealthKind, HttpCheck};
pub use keys::{
    BUFFER_FILE_MAX, BUFFER_MAX, CORES_MAX, FIELDS_MAX, HEAD_MAX, KEYS, Key, Kind, Scope, Since,
};
pub use method::{Method, Methods};
pub use mirror::{Mirror, Percent};
pub use model::{
    CertificateFile, ClientCertificates, Configuration, Host, Listener, MinVersion, Route, Site,
    Tls,
};
pub use network::Network;
pub use network_list::NetworkList;
pub use path_regex::PathRegex;
pub use pattern::{PathEnd, PathPattern, Segment};
pub use policy::{
    ApiKeys, AuthCache, BasicAuth, ClaimDemand, ClientCert, Concurrency, Cors, CorsOrigin,
    ForwardAuth, Jwt, JwtKeys, KeySource, KeysUrl, OnFailure, Policies, RateKey, RateLimit,
    Satisfy, Secret, SecurityHeaders, TokenSource,
};
pub use process::{
    Bytes, Control, ControlAddress, FieldTexts, Log, MessageLimits, Metrics, Process, Redis,
    Server, Socket, Tracing, quoted,
};
pub use reader::{includes, read};
pub use reference::reference;
pub use repair::repair;
pub use route_key::RouteKey;
pub use schema::schema;
pub use settings::{
    Action, ErrorPage, FieldChange, FieldRule, FieldRules, Files, ForwardedHost, Proxy,
    ProxyProtocol, Redirect, RedirectOrigin, RequestBuffer, Respond, RespondBody, ResponseLimits,
    Settings, SymbolicLinks, Timeouts, Unrouted,
};
pub use shed::{Importance, Shed};
pub use span::{Placed, Span};
pub use suggestion::nearest;
pub use template::{Placeholder, PlainText, Template, TemplatePart};
pub use units::{
    StatusPattern, TimeLimit, ValueError, parse_duration_sum, parse_size, parse_status,
};
pub use upgrade::{UpgradeProtocol, Upgrades};
pub use upstream_settings::{Outlier, Queue, Retry, UpstreamSettings};
pub use variant::{Level, Variants, combination};
