//! Services by name: the servers that the SRV records of a name tell (RFC 2782), kept fresh as addresses are.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::failure::NameFailure;
use super::lookup::{FoundServers, NotFound, ServiceServer, look_up_service};
use super::pause::{PAUSE_MIN, REFRESH_MAX, REFRESH_MIN, longer, with_jitter};

/// Outcome of the last look-up of a service that changed something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceResult {
    /// None yet, or no query has succeeded.
    Failed(NameFailure),
    /// At least one server, in ascending order: those of the lowest priority. They stay in use while later queries fail.
    Servers(Vec<ServiceServer>),
}

/// A name with SRV records, with the newest result for it.
#[derive(Debug)]
pub struct ResolvedService {
    name: String,
    latest: ArcSwap<ServiceResult>,
    reload: Arc<Notify>,
    /// A query has ended.
    is_answered: AtomicBool,
    shared: Arc<Changes>,
}

/// State that the services of a resolver share.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// How often the servers of one have changed.
    count: AtomicU64,
    /// Told when a query has ended.
    answered: (Mutex<()>, Condvar),
}

impl Changes {
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Waits until each of these services has had an answer or a failure, but no longer than this.
    pub(super) fn wait_for(&self, services: &[Arc<ResolvedService>], limit: Duration) {
        let (lock, told) = &self.answered;
        let guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        let is_unanswered =
            |service: &Arc<ResolvedService>| !service.is_answered.load(Ordering::Acquire);
        // After the limit the others go without.
        let _ = told.wait_timeout_while(guard, limit, |()| services.iter().any(is_unanswered));
    }
}

impl ResolvedService {
    pub(super) fn new(name: &str, shared: &Arc<Changes>) -> ResolvedService {
        let failed = ServiceResult::Failed(NameFailure::Timeout);
        ResolvedService {
            name: name.to_owned(),
            latest: ArcSwap::from_pointee(failed),
            reload: Arc::default(),
            is_answered: AtomicBool::new(false),
            shared: Arc::clone(shared),
        }
    }

    /// The newest result.
    pub fn latest(&self) -> arc_swap::Guard<Arc<ServiceResult>> {
        self.latest.load()
    }

    /// Why there is no server; a timeout while the first query is in progress.
    pub fn failure(&self) -> Option<NameFailure> {
        match &**self.latest.load() {
            ServiceResult::Failed(failure) => Some(*failure),
            ServiceResult::Servers(_) => None,
        }
    }

    /// Queries the name again at once.
    pub(super) fn query_again(&self) {
        self.reload.notify_one();
    }

    fn publish(&self, servers: Vec<ServiceServer>, is_news: bool) {
        let name = &self.name;
        let found = ServiceResult::Servers(servers);
        if **self.latest.load() != found {
            tracing::info!(name, servers = ?found, "service resolved");
            self.latest.store(Arc::new(found));
            self.shared.count.fetch_add(1, Ordering::Release);
        } else if is_news {
            tracing::info!(name, "service resolved, no change");
        }
    }

    /// Reports that a query had no result. Earlier servers stay in use.
    fn publish_failure(&self, not_found: &NotFound, is_news: bool) {
        let (name, reason) = (&self.name, &not_found.reason);
        let is_in_use = self.failure().is_none();
        match is_in_use {
            true if is_news => {
                tracing::warn!(
                    name,
                    reason,
                    "service not resolved again, its servers stay in use"
                );
            }
            false if is_news => tracing::warn!(name, reason, "service not resolved"),
            _ => tracing::debug!(name, reason, "service not resolved"),
        }
        if !is_in_use {
            let failed = ServiceResult::Failed(not_found.failure);
            self.latest.store(Arc::new(failed));
        }
    }

    fn note_answer(&self) {
        let (lock, told) = &self.shared.answered;
        let _guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_answered.store(true, Ordering::Release);
        told.notify_all();
    }
}

/// Queries a service again and again until it is dropped.
pub(super) async fn keep_fresh(watched: Weak<ResolvedService>, servers: Arc<[SocketAddr]>) {
    let mut failure = None;
    let mut pause = PAUSE_MIN;
    while let Some(service) = watched.upgrade() {
        let next = match look_up_service(&service.name, &servers).await {
            Ok(FoundServers { servers, ttl }) => {
                pause = PAUSE_MIN;
                service.publish(servers, failure.take().is_some());
                ttl.clamp(REFRESH_MIN, REFRESH_MAX)
            }
            Err(not_found) => {
                // One warning for each change of the reason.
                let known = failure.replace(not_found.failure);
                service.publish_failure(&not_found, known != failure);
                if known.is_some() {
                    pause = longer(pause);
                }
                with_jitter(pause)
            }
        };
        service.note_answer();
        let reload = Arc::clone(&service.reload);
        drop(service);
        // Either is a reason to query again.
        let _ = timeout(next, reload.notified()).await;
    }
}
