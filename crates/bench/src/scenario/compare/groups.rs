//! The groups of the comparison and their systems.

use crate::group::{ClientProtocol, Group, LoadTool, Requests, ServerWork};
use crate::peer::varnish::Storage;
use crate::peer::{CONTENT_BYTES, CONTENT_FOLDER};
use crate::process::Workers;
use crate::study::{Contender, Version};
use crate::system::{System, SystemKind};

/// Systems with the same work.
#[derive(Debug)]
pub(super) struct CompareGroup {
    pub(super) title: &'static str,
    pub(super) version: Version,
    /// For the servers; its name selects it.
    pub(super) group: Group,
}

impl PartialEq for CompareGroup {
    fn eq(&self, other: &CompareGroup) -> bool {
        self.group == other.group
    }
}

/// The protocol of the clients: a version of HTTP, and how servers are told of it.
type ClientSetup = (Version, ClientProtocol, LoadTool);

const H1: ClientSetup = (Version::Http1, ClientProtocol::Http1, LoadTool::Wrk);
const TLS: ClientSetup = (Version::Http1, ClientProtocol::Tls, LoadTool::Wrk);
const H2: ClientSetup = (
    Version::Http2,
    ClientProtocol::Tls,
    LoadTool::H2load { varied: false },
);
const H3: ClientSetup = (
    Version::Http3,
    ClientProtocol::Tls,
    LoadTool::Http3(Requests::Same),
);

const SMALL: ServerWork = ServerWork::Respond;
const LARGE: ServerWork = ServerWork::SendContent;
const SMALL_PROXIED: ServerWork = ServerWork::ProxyToHttp1;
const LARGE_PROXIED: ServerWork = ServerWork::ProxyContentToHttp1;
const SMALL_FILE: ServerWork = ServerWork::SendFile {
    bytes: SMALL_FILE_BYTES,
};
const LARGE_FILE: ServerWork = ServerWork::SendFile {
    bytes: CONTENT_BYTES,
};
const SMALL_FILE_BYTES: u64 = 1 << 10;

const fn group(
    name: &'static str,
    title: &'static str,
    (version, protocol, load_tool): ClientSetup,
    role: ServerWork,
) -> CompareGroup {
    CompareGroup {
        title,
        version,
        group: Group {
            name,
            title,
            protocol,
            role,
            load_tool,
            bases: &[],
            plausible: None,
        },
    }
}

/// The group of `--quick`.
pub(super) const QUICK: &str = "proxied-h1-small";

pub(super) static GROUPS: [CompareGroup; 22] = [
    group(QUICK, "HTTP/1.1, proxied, 13 bytes", H1, SMALL_PROXIED),
    group(
        "proxied-h1-large",
        "HTTP/1.1, proxied, 1 MiB",
        H1,
        LARGE_PROXIED,
    ),
    group(
        "proxied-tls-small",
        "HTTP/1.1 over TLS, proxied, 13 bytes",
        TLS,
        SMALL_PROXIED,
    ),
    group(
        "proxied-tls-large",
        "HTTP/1.1 over TLS, proxied, 1 MiB",
        TLS,
        LARGE_PROXIED,
    ),
    group(
        "proxied-h2-small",
        "HTTP/2 over TLS, proxied, 13 bytes",
        H2,
        SMALL_PROXIED,
    ),
    group(
        "proxied-h2-large",
        "HTTP/2 over TLS, proxied, 1 MiB",
        H2,
        LARGE_PROXIED,
    ),
    group(
        "proxied-h3-small",
        "HTTP/3, proxied, 13 bytes",
        H3,
        SMALL_PROXIED,
    ),
    group(
        "proxied-h3-large",
        "HTTP/3, proxied, 1 MiB",
        H3,
        LARGE_PROXIED,
    ),
    group("static-h1-small", "HTTP/1.1, static, 13 bytes", H1, SMALL),
    group("static-h1-large", "HTTP/1.1, static, 1 MiB", H1, LARGE),
    group(
        "static-tls-small",
        "HTTP/1.1 over TLS, static, 13 bytes",
        TLS,
        SMALL,
    ),
    group(
        "static-tls-large",
        "HTTP/1.1 over TLS, static, 1 MiB",
        TLS,
        LARGE,
    ),
    group(
        "static-h2-small",
        "HTTP/2 over TLS, static, 13 bytes",
        H2,
        SMALL,
    ),
    group(
        "static-h2-large",
        "HTTP/2 over TLS, static, 1 MiB",
        H2,
        LARGE,
    ),
    group("static-h3-small", "HTTP/3, static, 13 bytes", H3, SMALL),
    group("static-h3-large", "HTTP/3, static, 1 MiB", H3, LARGE),
    group("files-h1-small", "HTTP/1.1, file of 1 KiB", H1, SMALL_FILE),
    group("files-h1-large", "HTTP/1.1, file of 1 MiB", H1, LARGE_FILE),
    group(
        "files-h2-small",
        "HTTP/2 over TLS, file of 1 KiB",
        H2,
        SMALL_FILE,
    ),
    group(
        "files-h2-large",
        "HTTP/2 over TLS, file of 1 MiB",
        H2,
        LARGE_FILE,
    ),
    group("files-h3-small", "HTTP/3, file of 1 KiB", H3, SMALL_FILE),
    group("files-h3-large", "HTTP/3, file of 1 MiB", H3, LARGE_FILE),
];

/// The system that the others are compared with.
pub(super) const BLITZ: &str = "blitz";
/// The bare ring, where it has the work of a group.
const LIMIT: &str = "limit";
/// Varnish as a cache, whose backend gets one request.
const VARNISH_CACHED: &str = "varnish-cached";

/// In the order of tables and charts.
pub(super) const SYSTEMS: [&str; 9] = [
    BLITZ,
    "nginx",
    "haproxy",
    "h2o",
    "varnish",
    "envoy",
    "caddy",
    VARNISH_CACHED,
    LIMIT,
];

impl CompareGroup {
    pub(super) fn name(&self) -> &'static str {
        self.group.name
    }

    /// Whether a word of the command line chooses it: its name, or the beginning of it up to a dash.
    pub(super) fn matches(&self, word: &str) -> bool {
        let rest = self.name().strip_prefix(word);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    }

    pub(super) fn is_proxied(&self) -> bool {
        matches!(self.group.role, SMALL_PROXIED | LARGE_PROXIED)
    }

    pub(super) fn is_large(&self) -> bool {
        matches!(self.group.role, LARGE | LARGE_PROXIED | LARGE_FILE)
    }

    pub(super) fn scheme(&self) -> &'static str {
        match self.group.protocol {
            ClientProtocol::Tls => "https",
            ClientProtocol::Http1 | ClientProtocol::H2c => "http",
        }
    }

    pub(super) fn path(&self) -> String {
        match (self.group.role, self.is_large()) {
            (ServerWork::SendFile { bytes }, _) => format!("/{CONTENT_FOLDER}/data-{bytes}"),
            (_, true) => format!("/data?size={CONTENT_BYTES}"),
            (_, false) => crate::fixed_response::PATH.to_owned(),
        }
    }

    /// The bytes of the file that its responses have as content; `None` for the fixed response.
    pub(super) fn file_bytes(&self) -> Option<u64> {
        match self.group.role {
            ServerWork::SendFile { bytes } => Some(bytes),
            _ => self.is_large().then_some(CONTENT_BYTES),
        }
    }

    /// Connections, and requests in flight on each.
    pub(super) fn connections(&self) -> (u32, u32) {
        match (self.version, self.is_large()) {
            (Version::Http1, false) => (100, 1),
            (Version::Http1, true) => (16, 1),
            (_, false) => (32, 32),
            (_, true) => (4, 4),
        }
    }

    /// Its systems. Those that cannot do its work say so when they are started.
    pub(super) fn contenders(&'static self) -> impl Iterator<Item = Contender> {
        SYSTEMS.iter().filter_map(move |&name| {
            let kind = self.kind(name)?;
            let system = System {
                name,
                group: &self.group,
                kind,
                by_default: true,
                workers: Workers::One,
            };
            Some(Contender { name, system })
        })
    }

    fn kind(&self, name: &str) -> Option<SystemKind> {
        let is_clear = self.group.protocol == ClientProtocol::Http1;
        Some(match name {
            BLITZ => SystemKind::Blitz { io: "auto" },
            "nginx" => SystemKind::Nginx,
            "haproxy" => SystemKind::Haproxy,
            "h2o" => SystemKind::H2o,
            "varnish" => SystemKind::Varnish {
                storage: Storage::Pass,
            },
            "envoy" => SystemKind::Envoy,
            "caddy" => SystemKind::Caddy,
            // Another work: it is shown only where Varnish is.
            VARNISH_CACHED if is_clear && self.is_proxied() => SystemKind::Varnish {
                storage: Storage::Cache,
            },
            LIMIT if is_clear => match self.group.role {
                SMALL => SystemKind::LimitResponder { io: "uring" },
                SMALL_PROXIED => SystemKind::LimitRelay,
                LARGE_PROXIED => SystemKind::LimitRelayLarge,
                _ => return None,
            },
            _ => return None,
        })
    }
}

/// Whether a system is compared with the others at their work: the bare ring parses nothing, and a cache forwards nothing.
pub(super) fn is_peer(name: &str) -> bool {
    ![BLITZ, LIMIT, VARNISH_CACHED].contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_chooses_a_group_or_all_that_begin_with_it() {
        let count = |word| GROUPS.iter().filter(|group| group.matches(word)).count();
        assert_eq!(count("proxied-h1-small"), 1);
        assert_eq!(count("proxied-h1"), 2);
        assert_eq!(count("static"), 8);
        assert_eq!(count("files"), 6);
        assert_eq!(count("proxied-h"), 0);
        assert_eq!(count(QUICK), 1);
    }

    #[test]
    fn names_of_groups_and_systems_are_unique() {
        let groups = GROUPS.iter().map(CompareGroup::name);
        let mut names: Vec<_> = groups.chain(SYSTEMS).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn the_limit_and_the_cache_are_where_they_have_the_work() {
        let with = |name: &str| -> Vec<_> {
            let groups = GROUPS.iter().filter(|group| group.kind(name).is_some());
            groups.map(CompareGroup::name).collect()
        };
        assert_eq!(
            with(VARNISH_CACHED),
            ["proxied-h1-small", "proxied-h1-large"]
        );
        assert_eq!(
            with(LIMIT),
            ["proxied-h1-small", "proxied-h1-large", "static-h1-small"]
        );
        assert_eq!(with(BLITZ).len(), GROUPS.len());
    }
}
