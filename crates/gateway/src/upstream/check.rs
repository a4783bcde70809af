//! Checks of servers: a core of their own makes them, and all others read the verdict.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use blitz_config::{HealthCheck, UpstreamSettings};
use blitz_host::names::ResolvedName;
use blitz_http::{ClientTlsSlot, Protocol, ProxyVersion};

use super::member::Member;
use super::set::UpstreamConfig;
use crate::target::{Origin, Target};

/// The verdict of the checks of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckState {
    /// It was not checked yet, and counts as up.
    Unknown,
    /// It gets requests.
    Up,
    /// It gets requests only while all others are down as well.
    Down,
}

/// A server with a way to check it. Upstreams with the same server and the same way share it, also over reloads.
pub(crate) struct Check {
    /// No other check of the process has it.
    pub(crate) id: u64,
    pub(crate) subject: CheckSubject,
    pub(crate) settings: HealthCheck,
    state: AtomicU8,
    passed: AtomicU64,
    failed: AtomicU64,
    /// For readers outside of the cores.
    last: Mutex<LastCheck>,
    /// The server, once for each of the connection settings that routes have.
    members: Mutex<Vec<Weak<Member>>>,
}

/// The server of a check, and how it is connected to.
pub(crate) struct CheckSubject {
    /// Its name in metrics.
    pub(crate) label: Arc<str>,
    pub(crate) origin: Origin,
    pub(crate) protocol: Protocol,
    /// The host of requests.
    pub(crate) authority: String,
    /// The name that is being resolved, if it has one.
    pub(crate) name: Option<Arc<ResolvedName>>,
    /// TLS settings, and the host of the certificate.
    pub(crate) tls: Option<(ClientTlsSlot, String)>,
    /// The version of the PROXY header that its connections begin with.
    pub(crate) proxy_protocol: Option<ProxyVersion>,
}

/// The outcome of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    /// Why.
    Failed(String),
    /// This machine lacked something, or the name is not resolved yet, which says nothing about the server.
    Undecided(String),
}

/// The last check of a server.
#[derive(Debug, Clone, Default)]
pub(crate) struct LastCheck {
    /// When it ended, and how long it took.
    pub(crate) ended: Option<(SystemTime, Duration)>,
    /// Why it failed.
    pub(crate) problem: Option<String>,
    /// The last change of the verdict.
    pub(crate) changed: Option<SystemTime>,
}

impl Check {
    #[inline]
    pub(crate) fn state(&self) -> CheckState {
        match self.state.load(Ordering::Relaxed) {
            1 => CheckState::Up,
            2 => CheckState::Down,
            _ => CheckState::Unknown,
        }
    }

    pub(crate) fn set_state(&self, state: CheckState, now: SystemTime) {
        let number = match state {
            CheckState::Unknown => 0,
            CheckState::Up => 1,
            CheckState::Down => 2,
        };
        self.state.store(number, Ordering::Relaxed);
        self.last
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .changed = Some(now);
    }

    /// The server is up again: it gets requests as one that returns.
    pub(crate) fn returned(&self, now: Instant) {
        let members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        for member in members.iter().filter_map(Weak::upgrade) {
            member.became_available(now);
        }
    }

    fn add_member(&self, member: &Arc<Member>) {
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        members.retain(|known| known.strong_count() > 0);
        let member = Arc::downgrade(member);
        if !members.iter().any(|known| known.ptr_eq(&member)) {
            members.push(member);
        }
    }

    /// Notes an outcome for readers.
    pub(crate) fn note(&self, outcome: &Outcome, now: SystemTime, took: Duration) {
        let count = match outcome {
            Outcome::Passed => &self.passed,
            Outcome::Failed(_) => &self.failed,
            Outcome::Undecided(_) => return,
        };
        count.fetch_add(1, Ordering::Relaxed);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.ended = Some((now, took));
        last.problem = match outcome {
            Outcome::Failed(problem) => Some(problem.clone()),
            Outcome::Passed | Outcome::Undecided(_) => None,
        };
    }

    pub(crate) fn last(&self) -> LastCheck {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.clone()
    }

    /// How many checks have passed, and how many have failed.
    pub(crate) fn counts(&self) -> [u64; 2] {
        [&self.passed, &self.failed].map(|count| count.load(Ordering::Relaxed))
    }
}

/// The checks of the servers of a group, in their order; empty if none is checked.
pub(crate) type GroupChecks = Arc<[Option<Arc<Check>>]>;

/// All checks that differ.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    origin: Origin,
    protocol: Protocol,
    is_tls: bool,
    authority: String,
    proxy_protocol: Option<ProxyVersion>,
    settings: HealthCheck,
}

/// The checks of a gateway. A reload forgets nothing about those that stay.
#[derive(Default)]
pub(crate) struct Checks {
    known: HashMap<Key, Weak<Check>>,
    made: u64,
}

impl Checks {
    /// The checks of the servers of a group, each with its settings.
    pub(crate) fn of_group<'a>(
        &mut self,
        servers: impl Iterator<Item = (&'a Target, &'a UpstreamConfig, &'a UpstreamSettings)>,
        proxy_protocol: Option<ProxyVersion>,
    ) -> GroupChecks {
        let checks = servers.map(|(target, upstream, settings)| {
            let health = &settings.health.as_ref()?.value;
            Some(self.get(target, upstream, health, proxy_protocol))
        });
        let checks: Vec<_> = checks.collect();
        match checks.iter().any(Option::is_some) {
            true => checks.into(),
            false => GroupChecks::default(),
        }
    }

    fn get(
        &mut self,
        target: &Target,
        upstream: &UpstreamConfig,
        settings: &HealthCheck,
        proxy_protocol: Option<ProxyVersion>,
    ) -> Arc<Check> {
        let key = Key {
            origin: target.origin.clone(),
            protocol: target.protocol,
            is_tls: target.tls,
            authority: target.authority.clone(),
            proxy_protocol,
            settings: settings.clone(),
        };
        if let Some(known) = self.known.get(&key).and_then(Weak::upgrade) {
            known.add_member(&upstream.member);
            return known;
        }
        self.known.retain(|_, check| check.strong_count() > 0);
        self.made += 1;
        let check = Arc::new(Check {
            id: self.made,
            subject: CheckSubject {
                label: Arc::clone(&upstream.label),
                origin: target.origin.clone(),
                protocol: target.protocol,
                authority: target.authority.clone(),
                name: upstream.name.clone(),
                tls: upstream.tls.clone(),
                proxy_protocol,
            },
            settings: settings.clone(),
            state: AtomicU8::new(0),
            passed: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            last: Mutex::default(),
            members: Mutex::new(vec![Arc::downgrade(&upstream.member)]),
        });
        self.known.insert(key, Arc::downgrade(&check));
        check
    }
}
