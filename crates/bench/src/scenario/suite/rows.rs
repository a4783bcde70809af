//! The loads of the suite.

use super::SuitePlan;
use super::stage::{NGINX, Stage};
use crate::fixed_response;
use crate::number;
use crate::study::{Case, Length, Load, Requests, Subject, Version};

/// One endpoint over one version of HTTP.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    pub(super) path: &'static str,
    pub(super) version: Version,
    /// Whether nginx and HAProxy send the same response.
    pub(super) has_peers: bool,
    /// Whether it is measured at a constant rate as well.
    pub(super) has_latency: bool,
}

const HEALTH: &str = "/health";
const ECHO: &str = "/echo/some/path";
/// Connections of HTTP/2 and HTTP/3, and streams on each.
const MULTIPLEXED: (u32, u32) = (32, 32);

pub(super) const LOCAL: &[Row] = &[
    row(fixed_response::PATH, Version::Http1, true),
    row(HEALTH, Version::Http1, false),
    row(ECHO, Version::Http1, false),
];

pub(super) const PRODUCTION: &[Row] = &[
    with_latency(row(fixed_response::PATH, Version::Http1, true)),
    row(HEALTH, Version::Http1, false),
    row(ECHO, Version::Http1, false),
    with_latency(row(fixed_response::PATH, Version::Http2, true)),
    with_latency(row(fixed_response::PATH, Version::Http3, true)),
];

const fn row(path: &'static str, version: Version, has_peers: bool) -> Row {
    Row {
        path,
        version,
        has_peers,
        has_latency: false,
    }
}

const fn with_latency(row: Row) -> Row {
    Row {
        has_latency: true,
        ..row
    }
}

impl Row {
    pub(super) fn title(&self) -> String {
        format!("{}, {}", self.path, self.version.name())
    }

    /// `rate` is that of an open loop. The title does not name it, so that results of several runs can be compared.
    pub(super) fn case(
        &self,
        plan: &SuitePlan,
        stage: &Stage,
        length: Length,
        rate: Option<f64>,
    ) -> Case {
        let (connections, streams) = match self.version {
            Version::Http1 => (plan.connections, 1),
            Version::Http2 | Version::Http3 => MULTIPLEXED,
        };
        let servers = stage.servers(self);
        let is_base = |name: &str| servers.iter().any(|server| server.name == name);
        let subjects = servers.iter().map(|server| {
            let load = Load::new(
                server.base(),
                Requests::Path(self.path.to_owned()),
                self.version,
                length,
            );
            Subject {
                name: server.name.to_owned(),
                load: Load {
                    rate,
                    cores: plan.placement.load.list,
                    threads: plan.placement.load.count,
                    ..load.with(connections, streams)
                },
                watched: server.watched(),
                may_fail: false,
            }
        });
        let pace = match rate {
            Some(rate) => format!("{} requests/s", number::count(rate as u64)),
            None => "as many requests as the server answers".to_owned(),
        };
        Case {
            title: match rate {
                Some(_) => format!("{} at a constant rate", self.title()),
                None => self.title(),
            },
            load: format!(
                "GET {}: {connections} connections, {streams} in flight on each, {pace}",
                self.path
            ),
            subjects: subjects.collect(),
            base: Some(NGINX).filter(|name| is_base(name)).map(str::to_owned),
            not_run: stage.not_run(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_endpoint_and_every_version_has_its_row() {
        for path in [fixed_response::PATH, HEALTH, ECHO] {
            for rows in [LOCAL, PRODUCTION] {
                assert!(rows.iter().any(|row| row.path == path));
            }
        }
        for version in [Version::Http1, Version::Http2, Version::Http3] {
            assert!(
                PRODUCTION
                    .iter()
                    .any(|row| row.version == version && row.has_latency)
            );
        }
    }
}
