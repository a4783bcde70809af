//! A server as all cores know it: what one of them, a check, or an operator says of it counts for every core.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::set::Identity;

/// What cores share about a server. Reading it costs one load from a cache line that hardly ever changes.
#[derive(Debug)]
pub(crate) struct Member {
    /// Its URL.
    pub(crate) url: Box<str>,
    check: AtomicU8,
    is_drained: AtomicBool,
}

/// The verdict of the checks of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CheckState {
    /// It is not checked, or was not checked yet.
    Unknown,
    Up,
    Down,
}

impl Member {
    pub(super) fn new(url: &str) -> Member {
        Member {
            url: url.into(),
            check: AtomicU8::new(CheckState::Unknown as u8),
            is_drained: AtomicBool::new(false),
        }
    }

    pub(crate) fn check_state(&self) -> CheckState {
        match self.check.load(Ordering::Relaxed) {
            1 => CheckState::Up,
            2 => CheckState::Down,
            _ => CheckState::Unknown,
        }
    }

    pub(crate) fn set_check_state(&self, state: CheckState) {
        self.check.store(state as u8, Ordering::Relaxed);
    }

    /// Whether an operator has taken it out: it gets only requests of clients that stay with it.
    pub(crate) fn is_drained(&self) -> bool {
        self.is_drained.load(Ordering::Relaxed)
    }

    pub(crate) fn set_drained(&self, is_drained: bool) {
        self.is_drained.store(is_drained, Ordering::Relaxed);
    }
}

/// The servers of a gateway. They outlive configurations: a reload forgets nothing about those that stay.
#[derive(Debug, Clone, Default)]
pub(crate) struct Members(Arc<Mutex<HashMap<Identity, Weak<Member>>>>);

impl Members {
    /// The server with this identity, which is new if no configuration in use has it.
    pub(crate) fn get(&self, identity: &Identity) -> Arc<Member> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get(identity).and_then(Weak::upgrade) {
            return known;
        }
        all.retain(|_, member| member.strong_count() > 0);
        let member = Arc::new(Member::new(&identity.url()));
        all.insert(identity.clone(), Arc::downgrade(&member));
        member
    }

    /// Those in use.
    pub(crate) fn all(&self) -> Vec<Arc<Member>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.values().filter_map(Weak::upgrade).collect()
    }
}
