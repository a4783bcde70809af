//! Signals, taken by a thread that waits for them.

use std::io;
use std::time::{Duration, SystemTime};

/// The signals that a server obeys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// HUP: reload.
    Hangup,
    /// TERM: stop gracefully.
    Terminate,
    /// QUIT: stop gracefully.
    Quit,
    /// INT: stop fast.
    Interrupt,
    /// USR1: reopen logs.
    User1,
    /// USR2: upgrade the binary.
    User2,
}

const ALL: [(libc::c_int, Signal); 6] = [
    (libc::SIGHUP, Signal::Hangup),
    (libc::SIGTERM, Signal::Terminate),
    (libc::SIGQUIT, Signal::Quit),
    (libc::SIGINT, Signal::Interrupt),
    (libc::SIGUSR1, Signal::User1),
    (libc::SIGUSR2, Signal::User2),
];

/// The right to wait for signals.
#[derive(Debug)]
pub struct Signals {
    set: libc::sigset_t,
}

impl Signals {
    /// Blocks the signals in this thread and in those that it starts from now on, so that they
    /// come only through [`Signals::wait`].
    ///
    /// # Errors
    /// What `pthread_sigmask(3)` reports.
    pub fn block() -> io::Result<Signals> {
        // SAFETY: the set is initialised by `sigemptyset`, the numbers are valid signals, and
        // the mask changes this thread only.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for (number, _) in ALL {
                libc::sigaddset(&raw mut set, number);
            }
            match libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) {
                0 => Ok(Signals { set }),
                error => Err(io::Error::from_raw_os_error(error)),
            }
        }
    }

    /// The time of day, for the thread that waits for signals: it is no core, which has a
    /// [clock](crate::wall_clock) of its own.
    #[must_use]
    pub fn wall_clock(&self) -> SystemTime {
        SystemTime::now()
    }

    /// The next signal, or `None` after `timeout`.
    ///
    /// # Errors
    /// What `sigtimedwait(2)` reports.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<Option<Signal>> {
        let timeout = timeout.map(|timeout| libc::timespec {
            tv_sec: timeout.as_secs() as libc::time_t,
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let timeout = timeout
            .as_ref()
            .map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the set is initialised, the timeout is null or live.
        let number =
            unsafe { libc::sigtimedwait(&raw const self.set, std::ptr::null_mut(), timeout) };
        if number < 0 {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR) => Ok(None),
                _ => Err(error),
            };
        }
        Ok(ALL
            .iter()
            .find(|(n, _)| *n == number)
            .map(|(_, signal)| *signal))
    }
}
