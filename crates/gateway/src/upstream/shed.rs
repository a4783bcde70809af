//! Upstreams that shed load: their requests need a permit, and those beyond the limit wait for a moment or are shed.
//!
//! A request has its permit from before it gets a connection until the head of its response comes: that is the time in
//! which an upstream works on it. Content that follows takes as long as the client wants, so that tunnels, streams of
//! events and long downloads do not count.

mod controller;
mod gradient;
#[cfg(test)]
mod tests;
mod unloaded;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use blitz_config::{Importance, Shed as Settings};
use blitz_http::PoolFuture;

use controller::{Arrival, Controller};
use unloaded::Unloaded;

/// The upstreams of a configuration that shed load, by their names; all cores share it.
pub(crate) type SharedSheds = HashMap<Box<str>, SharedShed>;

/// An upstream that sheds load.
#[derive(Debug, Clone)]
pub(crate) struct SharedShed {
    settings: Settings,
    unloaded: Arc<Unloaded>,
}

impl SharedShed {
    /// With what is known of it from the configuration before.
    pub(crate) fn new(settings: Settings, before: Option<&SharedShed>) -> SharedShed {
        SharedShed {
            settings,
            unloaded: before.map_or_else(Arc::default, |before| Arc::clone(&before.unloaded)),
        }
    }
}

/// An upstream that sheds load, on a core.
#[derive(Debug)]
pub(crate) struct Shed {
    controller: RefCell<Controller<Rc<Waiter>>>,
}

/// Its state on a core.
#[derive(Debug, Clone)]
pub(crate) struct ShedState {
    /// The name of the upstream.
    pub(crate) name: Box<str>,
    pub(crate) limit: usize,
    pub(crate) in_flight: usize,
    pub(crate) waiting: usize,
    /// The time of a response without load, of all cores.
    pub(crate) unloaded: Option<Duration>,
}

impl ShedState {
    /// Adds the state on another core.
    pub(crate) fn add(&mut self, other: &ShedState) {
        self.limit += other.limit;
        self.in_flight += other.in_flight;
        self.waiting += other.waiting;
        self.unloaded = self.unloaded.or(other.unloaded);
    }
}

/// A request that may be sent. It counts until this is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    shed: Rc<Shed>,
    started: Instant,
    is_answered: bool,
}

/// The decision on a request.
pub(crate) enum Admission {
    Admitted(Permit),
    /// It has to wait for its permit; `None` is none.
    Waits(PoolFuture<Option<Permit>>),
    Shed,
}

/// A request that waits.
#[derive(Debug)]
struct Waiter {
    state: Cell<Waiting>,
    waker: RefCell<Option<Waker>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waiting {
    Yes,
    /// It counts as sent.
    Admitted,
    /// Another request took its place, or its permit is made.
    Over,
}

impl Shed {
    fn new(shared: &SharedShed) -> Shed {
        let cores = blitz_http::core_count();
        let unloaded = Arc::clone(&shared.unloaded);
        let controller = Controller::new(&shared.settings, cores, unloaded, blitz_http::now());
        Shed {
            controller: RefCell::new(controller),
        }
    }

    /// Decides on a request.
    pub(crate) fn admit(self: &Rc<Self>, importance: Importance, now: Instant) -> Admission {
        let mut made = None;
        let waiter = || {
            let waiter = Rc::new(Waiter {
                state: Cell::new(Waiting::Yes),
                waker: RefCell::default(),
            });
            Rc::clone(made.insert(waiter))
        };
        let arrival = self.controller.borrow_mut().arrive(importance, now, waiter);
        let admission = match arrival {
            Arrival::Admitted => Admission::Admitted(self.permit(now)),
            Arrival::Shed => Admission::Shed,
            Arrival::Waits { wait, displaced } => {
                if let Some(displaced) = displaced {
                    displaced.end(Waiting::Over);
                }
                match made {
                    Some(waiter) => Admission::Waits(self.wait(waiter, importance, wait)),
                    None => Admission::Shed,
                }
            }
        };
        // The limit may have risen with time.
        self.wake();
        admission
    }

    /// A permit for a request that nobody waits for, if no other request wants it.
    pub(crate) fn try_admit(self: &Rc<Self>, now: Instant) -> Option<Permit> {
        let is_admitted = self.controller.borrow_mut().try_begin(now);
        is_admitted.then(|| self.permit(now))
    }

    fn permit(self: &Rc<Self>, now: Instant) -> Permit {
        Permit {
            shed: Rc::clone(self),
            started: now,
            is_answered: false,
        }
    }

    fn wait(
        self: &Rc<Self>,
        waiter: Rc<Waiter>,
        importance: Importance,
        wait: Duration,
    ) -> PoolFuture<Option<Permit>> {
        let place = Place {
            shed: Rc::clone(self),
            waiter,
            importance,
        };
        PoolFuture::new(async move {
            let waiter = &place.waiter;
            // Too late or in time, the state says it.
            let _ = blitz_http::timeout(wait, poll_fn(|cx| waiter.poll(cx.waker()))).await;
            if waiter.state.get() != Waiting::Admitted {
                return None;
            }
            waiter.state.set(Waiting::Over);
            Some(place.shed.permit(blitz_http::now()))
        })
    }

    /// Lets requests that wait be sent, as many as the limit allows.
    fn wake(&self) {
        loop {
            // No waker runs while the controller is borrowed.
            let next = self.controller.borrow_mut().next();
            match next {
                Some(waiter) => waiter.end(Waiting::Admitted),
                None => return,
            }
        }
    }

    fn end(&self, started: Instant, is_answered: bool) {
        let now = blitz_http::now();
        self.controller.borrow_mut().end(started, is_answered, now);
        self.wake();
    }

    fn state(&self, name: &str) -> ShedState {
        let controller = self.controller.borrow();
        ShedState {
            name: name.into(),
            limit: controller.limit(),
            in_flight: controller.in_flight(),
            waiting: controller.waiting(),
            unloaded: controller.unloaded(),
        }
    }
}

impl Waiter {
    fn end(&self, state: Waiting) {
        self.state.set(state);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn poll(&self, waker: &Waker) -> Poll<()> {
        if self.state.get() != Waiting::Yes {
            return Poll::Ready(());
        }
        *self.waker.borrow_mut() = Some(waker.clone());
        Poll::Pending
    }
}

/// The place of a request that waits, until this is dropped.
struct Place {
    shed: Rc<Shed>,
    waiter: Rc<Waiter>,
    importance: Importance,
}

impl Drop for Place {
    fn drop(&mut self) {
        match self.waiter.state.get() {
            Waiting::Yes => {
                let is_it = |other: &Rc<Waiter>| Rc::ptr_eq(other, &self.waiter);
                let mut controller = self.shed.controller.borrow_mut();
                controller.leave(self.importance, is_it);
            }
            // Its client has left in the meantime.
            Waiting::Admitted => self.shed.end(blitz_http::now(), false),
            Waiting::Over => {}
        }
    }
}

impl Permit {
    pub(crate) fn is_of(&self, shed: &Rc<Shed>) -> bool {
        Rc::ptr_eq(&self.shed, shed)
    }

    /// Another attempt begins.
    pub(crate) fn restart(&mut self, now: Instant) {
        self.started = now;
    }

    /// The head of the response has come. A failure may be quick, and its time is no measure.
    pub(crate) fn answered(mut self, is_failure: bool) {
        self.is_answered = !is_failure;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.shed.end(self.started, self.is_answered);
    }
}

/// The upstreams of a core that shed load. They outlive configurations.
#[derive(Debug, Default)]
pub(crate) struct Sheds(HashMap<Box<str>, Rc<Shed>>);

impl Sheds {
    /// That of this name, with the settings of the newest configuration that needed it.
    pub(crate) fn get(&mut self, name: &str, shared: &SharedShed) -> Rc<Shed> {
        if let Some(known) = self.0.get(name) {
            let mut controller = known.controller.borrow_mut();
            controller.set(&shared.settings, blitz_http::core_count());
            return Rc::clone(known);
        }
        let shed = Rc::new(Shed::new(shared));
        self.0.insert(name.into(), Rc::clone(&shed));
        shed
    }

    /// Forgets the others.
    pub(crate) fn retain(&mut self, stay: &SharedSheds) {
        self.0.retain(|name, _| stay.contains_key(name));
    }

    pub(crate) fn states(&self) -> impl Iterator<Item = ShedState> {
        self.0.iter().map(|(name, shed)| shed.state(name))
    }
}
