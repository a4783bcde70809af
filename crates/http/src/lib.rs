#![forbid(unsafe_code)]
//! HTTP over the reactor, for servers, clients and gateways.
//!
//! Only this crate uses both the protocol machines and the reactor. Its interface is the same for
//! every version of HTTP: [`serve`] passes an [`Exchange`] to a [`Service`]; a [`Connection`] from
//! a [`Pool`] carries a request to an upstream, and a [`ClientConnection`] all requests of its owner; bodies are [`RecvBody`] and [`SendBody`] on both
//! sides. Crates above see message events, never a version, and use the re-exports of this crate
//! instead of the crates below.
//!
//! Every connection and exchange belongs to one core; their types are not `Send`.

mod client;
mod conn;
mod counters;
mod date;
mod default_headers;
mod drain;
mod error;
mod exchange;
mod free_list;
mod input;
mod lifetime;
mod log_limit;
pub mod log_text;
mod options;
mod pool;
mod problem;
mod queue;
mod quic_limits;
mod recycle;
mod refused;
mod request_id;
mod serve;
mod timer;
mod tls;
mod transport;
mod waiters;
mod websocket;

pub use client::{ClientConnection, ConnectOptions, ConnectTimings, Connection, ProxyHeader};
pub use conn::{Capabilities, Protocol, UpgradeForm};
pub use counters::{Counters, counters};
pub use drain::Drain;
pub use error::{BodyError, ClientError, Refusal, SendError};
pub use exchange::{
    Exchange, Part, Peer, RecvBody, Responder, Response, ResponseEvent, ResponseStream, Scheme,
    SendBody, Service, ServiceFn, Tunnel, service_fn,
};
pub use log_limit::LogLimit;
pub use options::{
    ClientOptions, ForwardedClientRule, PeerRule, ProxyRule, RefusalContent, RefusedObserver,
    RequestOptions, ServeOptions,
};
pub use pool::{Pool, Upstream};
pub use problem::{accepts_problem, prefers_html};
pub use recycle::{Pooled, Recycle};
pub use refused::{FailedHandshake, IncompleteHead, Refused, RefusedRequest};
pub use request_id::{REQUEST_ID_BYTES_MAX, is_request_id};
pub use serve::datagrams::{CoreDatagramListener, DatagramListener};
pub use serve::serve;
pub use tls::{
    CaSet, Certificate, CertificateProblem, ClientAuth, ClientCertificate, ClientTls,
    ClientTlsBuilder, ClientTlsSlot, ServerNames, ServerTls, ServerTlsBuilder, TicketKeys,
    TlsConfigError, TlsCounters, TlsError, TlsInfo, TlsPolicy, TlsPolicyId, TlsSlot, TlsVersion,
    UpstreamTls, ValidityProblem, refused_certificate,
};
pub use websocket::WebSocketKey;

pub use blitz_quic::Counters as QuicCounters;

pub use blitz_proto::{
    AsName, Blame, BodyLength, Error, ErrorKind, FOREVER, FieldName, Fields, InvalidField,
    InvalidTarget, Limits, Method, Name, NameSet, QuicLimits, RequestHead, ResponseHead, Side,
    Status, TargetForm, Version, is_authority, path,
    proxy_protocol::{ProxiedAddresses, ProxyVersion},
};

/// The reactor's own counters: system calls, operations, bytes.
pub mod reactor {
    pub use blitz_reactor::{Counters, counters, memory_available, sockets_limit, sockets_open};
}

/// Regular files beneath a folder.
pub mod files {
    pub use blitz_reactor::{
        EntryLimits, File, FileFacts, Folder, FolderEntry, Found, Share, SymbolicLinks,
        TooManyWait, blocking_in,
    };
}

pub use blitz_reactor::{
    Address, Buffer, Chunk, Config, Cores, CoresHandle, DriverKind, Elapsed, IoChoice, Lingering,
    Listener, LocalShortage, NoInterface, Pinning, PoolFuture, PooledFuture, PreciseTimer,
    Reservation, ReservedDescriptors, Signal, Signals, Slice, TaskKey, Timer, block_on, blocking,
    core_count, core_index, core_local, now, open_tun, parse_zoned, precise_sleep_until,
    prepare_descriptors, probe, random_u64, read_clock, set_idle_priority, set_real_time, sleep,
    sleep_until, spawn, start, timeout, trim_heap, wall_clock, yield_now,
};

/// The limits of connections that are being closed, for [`Config::lingering`].
#[must_use]
pub fn lingering(limits: &Limits) -> Lingering {
    Lingering {
        time: limits.lingering_time,
        silence: limits.lingering_timeout,
        sockets_max: limits.lingering_connections_max,
    }
}
