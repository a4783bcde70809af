//! The requests of all clients, and their responses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use blitz_testing::IO_TIMEOUT;

/// The requests of all clients, by their paths.
#[derive(Default)]
pub(super) struct Ledger {
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Default)]
struct Inner {
    sent: BTreeMap<String, Sent>,
    /// Clients that have requests in flight and wait for the drain.
    drainable: usize,
}

/// A request.
#[derive(Debug, Clone, Default)]
pub(super) struct Sent {
    /// The final status that its client has got.
    pub(super) status: Option<u16>,
    /// The upstream has got its head.
    pub(super) has_arrived: bool,
}

impl Ledger {
    /// The path of a new request: the kind, the client and a number.
    pub(super) fn send(&self, kind: &str, client: &str) -> String {
        self.with(|inner| {
            let path = format!("/{kind}/{client}-{}", inner.sent.len());
            inner.sent.insert(path.clone(), Sent::default());
            path
        })
    }

    /// Its client got this status.
    pub(super) fn got(&self, path: &str, status: u16) {
        self.with(|inner| {
            let sent = inner.sent.get_mut(path).expect("it was sent");
            assert_eq!(
                sent.status.replace(status),
                None,
                "{path} has two responses"
            );
        });
    }

    /// The upstream has got it, perhaps again.
    pub(super) fn arrived(&self, path: &str) {
        self.with(|inner| {
            let sent = inner.sent.get_mut(path);
            sent.unwrap_or_else(|| panic!("nobody has sent {path}"))
                .has_arrived = true;
        });
    }

    pub(super) fn has_arrived(&self, path: &str) -> bool {
        self.with(|inner| inner.sent[path].has_arrived)
    }

    /// Waits until the upstream has it.
    pub(super) fn wait_arrived(&self, path: &str) {
        self.wait(path, |inner| inner.sent[path].has_arrived);
    }

    /// A client has requests in flight, which end with the process.
    pub(super) fn is_drainable(&self) {
        self.with(|inner| inner.drainable += 1);
    }

    /// Waits for so many clients.
    pub(super) fn wait_drainable(&self, clients: usize) {
        self.wait("clients", |inner| inner.drainable == clients);
    }

    /// All requests.
    pub(super) fn sent(&self) -> Vec<(String, Sent)> {
        self.with(|inner| inner.sent.clone().into_iter().collect())
    }

    /// Each kind was seen with the statuses that it is about: otherwise the comparison proves less than it seems to.
    pub(super) fn check_variety(&self) {
        let mut found = BTreeMap::<String, BTreeSet<u16>>::new();
        for (path, sent) in self.sent() {
            let kind = path.split('/').nth(1).unwrap().to_owned();
            found.entry(kind).or_default().extend(sent.status);
        }
        for (kind, status) in [
            ("ok", 200),
            ("missing", 404),
            ("closed", 403),
            ("down", 502),
            ("fixed", 410),
            ("slow", 504),
            ("reset", 502),
            ("bad", 400),
            ("slow-head", 408),
            ("slow-upload", 408),
            ("hold", 200),
        ] {
            let statuses = found.get(kind).cloned().unwrap_or_default();
            assert!(statuses.contains(&status), "{kind}: {statuses:?}");
        }
    }

    fn wait(&self, what: &str, mut holds: impl FnMut(&Inner) -> bool) {
        let deadline = Instant::now() + IO_TIMEOUT;
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        while !holds(&inner) {
            assert!(Instant::now() < deadline, "{what}: it does not come");
            let waited = self.changed.wait_timeout(inner, Duration::from_millis(100));
            inner = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Inner) -> T) -> T {
        let done = act(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
        done
    }
}
