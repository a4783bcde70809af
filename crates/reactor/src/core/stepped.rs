//! A core that its caller steps, so that several cores run on one thread.

use std::future::Future;
use std::pin::Pin;
use std::task::{Poll, Waker};
use std::time::Duration;

use super::{Core, Current};
use crate::driver::Driver;
use crate::simulation::Holdings;

impl Core {
    /// Calls `f` as this core.
    pub(crate) fn enter<R>(&self, f: impl FnOnce() -> R) -> R {
        let _current = Current::enter(self);
        f()
    }

    /// One turn. Returns whether the core has ended, because `main` was done or the driver failed.
    /// Never inlined, so that a profiler can count the instructions of a turn by its name.
    #[inline(never)]
    pub(crate) fn step_once<F: Future + ?Sized>(&self, main: Pin<&mut F>, waker: &Waker) -> bool {
        self.enter(|| match self.step(main, waker) {
            Ok(Poll::Pending) => false,
            Ok(Poll::Ready(_)) | Err(_) => {
                // Closing is all that is left to do.
                let _ = self.end();
                true
            }
        })
    }

    /// The time until the core has work without an event of the network; zero while it has work.
    pub(crate) fn idle_time(&self) -> Option<Duration> {
        let mut sockets = self.sockets();
        match &sockets.table.driver {
            Driver::Sim(sim) if sim.has_reports() => Some(Duration::ZERO),
            _ => self.wait_time(&mut sockets, None),
        }
    }

    /// Drops `main`, closes all sockets and drops all tasks.
    pub(crate) fn close<F>(&self, main: F) {
        self.enter(|| {
            drop(main);
            // Closing is all that is left to do.
            let _ = self.end();
        });
    }

    pub(crate) fn holdings(&self) -> Holdings {
        let sockets = self.sockets();
        Holdings {
            sockets: sockets.table.len() + sockets.table.datagram_sockets(),
            tasks: self.tasks.borrow().len(),
            buffers: self.resources.pool.held(),
            available: self.resources.pool.available(),
        }
    }
}
