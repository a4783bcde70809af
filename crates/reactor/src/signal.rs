//! Signals: handlers for the whole process, and one thread that waits for them.
//!
//! The kernel delivers a signal to any thread that does not block it, and a program may have started
//! threads before it serves. A signal mask of the calling thread would leave the default action, which
//! ends the process, in the other threads. So each signal has a handler that records it and wakes the
//! waiting thread.

use std::io;
use std::mem;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// The signals that a server handles.
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

impl Signal {
    /// Hands this signal to the thread that waits for signals, as if the process had received it. Without [`Signals`]
    /// nothing happens.
    pub fn raise(self) {
        if let Some(at) = ALL.iter().position(|(_, known)| *known == self) {
            record(at);
        }
    }
}

/// By urgency: a burst of HUP must not delay the shutdown.
const ALL: [(libc::c_int, Signal); 6] = [
    (libc::SIGINT, Signal::Interrupt),
    (libc::SIGTERM, Signal::Terminate),
    (libc::SIGQUIT, Signal::Quit),
    (libc::SIGHUP, Signal::Hangup),
    (libc::SIGUSR1, Signal::User1),
    (libc::SIGUSR2, Signal::User2),
];

/// Signals that [`Signals::wait`] has not returned yet: one bit each, in the order of [`ALL`].
static PENDING: AtomicU32 = AtomicU32::new(0);

/// The eventfd that wakes the waiting thread. It is never closed, because a handler may run on any
/// thread at any time.
static WAKE: AtomicI32 = AtomicI32::new(-1);

/// The previous handlers of the process, while a [`Signals`] exists.
static INSTALLED: Mutex<Installed> = Mutex::new(Installed {
    users: 0,
    previous: None,
});

struct Installed {
    users: usize,
    previous: Option<[libc::sigaction; ALL.len()]>,
}

/// Handles the signals of this process. Dropping the last `Signals` restores the previous handlers.
#[derive(Debug)]
pub struct Signals(());

impl Signals {
    /// Installs handlers for the whole process and all of its threads, so that signals arrive through
    /// [`Signals::wait`] only. Handlers of the program are not called until they are restored. The
    /// calling thread unblocks the signals; other threads keep their masks.
    ///
    /// # Errors
    /// The error of `eventfd(2)` or `sigaction(2)`.
    pub fn install() -> io::Result<Signals> {
        let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
        if installed.users == 0 {
            open_wake()?;
            PENDING.store(0, Ordering::Release);
            installed.previous = Some(install_handlers()?);
        }
        installed.users += 1;
        // At least one thread has to receive them; the parent process may have blocked them.
        change_mask(libc::SIG_UNBLOCK);
        Ok(Signals(()))
    }

    /// Wall-clock time for the thread that waits for signals. Cores use their own
    /// [clock](crate::wall_clock).
    #[must_use]
    pub fn wall_clock(&self) -> SystemTime {
        SystemTime::now()
    }

    /// The next signal, or `None` after `timeout` or a spurious wake. Equal signals that arrive before
    /// the first of them is returned count as one.
    ///
    /// # Errors
    /// The error of `ppoll(2)`.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<Option<Signal>> {
        if let Some(signal) = take() {
            return Ok(Some(signal));
        }
        let timeout = timeout.map(|timeout| libc::timespec {
            tv_sec: timeout.as_secs() as libc::time_t,
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let timeout = timeout
            .as_ref()
            .map_or(std::ptr::null(), std::ptr::from_ref);
        let wake = WAKE.load(Ordering::Acquire);
        let mut wanted = libc::pollfd {
            fd: wake,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: the entry is live and the only one; the timeout is null or live.
        let ready = unsafe { libc::ppoll(&raw mut wanted, 1, timeout, std::ptr::null()) };
        if ready < 0 {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::EINTR) => Ok(take()),
                _ => Err(error),
            };
        }
        let mut count = 0u64;
        // SAFETY: the descriptor stays open, and the value is live and has this length. Reading an
        // empty counter is an error, which is ignored.
        unsafe { libc::read(wake, (&raw mut count).cast(), size_of::<u64>()) };
        Ok(take())
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
        installed.users -= 1;
        if installed.users == 0
            && let Some(previous) = installed.previous.take()
        {
            restore_handlers(&previous);
        }
    }
}

/// Blocks the signals in this thread, so that they do not interrupt its waits; other threads receive
/// them.
pub(crate) fn block_in_thread() {
    change_mask(libc::SIG_BLOCK);
}

/// Takes the most urgent pending signal.
fn take() -> Option<Signal> {
    let pending = PENDING.load(Ordering::Acquire);
    let (_, signal) = ALL.get(pending.trailing_zeros() as usize)?;
    PENDING.fetch_and(!(pending & pending.wrapping_neg()), Ordering::AcqRel);
    Some(*signal)
}

/// The handler. It may interrupt any code of any thread, so it makes only calls that signal-safety(7)
/// allows, and restores `errno`.
extern "C" fn handle_signal(number: libc::c_int) {
    // SAFETY: the address of this thread's `errno`, which lives as long as the thread.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    if let Some(at) = ALL.iter().position(|(known, _)| *known == number) {
        record(at);
    }
    // SAFETY: as above.
    unsafe { *errno = before };
}

/// Records the signal with this index in [`ALL`] and wakes the waiting thread. Signal handlers may call it.
fn record(at: usize) {
    PENDING.fetch_or(1 << at, Ordering::AcqRel);
    let one = 1u64;
    let wake = WAKE.load(Ordering::Acquire);
    // SAFETY: the descriptor stays open or is -1, and the value is live and has this length. The call does
    // not block; a full counter wakes the thread as well.
    unsafe { libc::write(wake, (&raw const one).cast(), size_of::<u64>()) };
}

fn open_wake() -> io::Result<()> {
    if WAKE.load(Ordering::Acquire) >= 0 {
        return Ok(());
    }
    // SAFETY: a plain system call.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, and nothing else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    WAKE.store(fd.into_raw_fd(), Ordering::Release);
    Ok(())
}

/// Installs the handler for each signal; returns the previous actions.
fn install_handlers() -> io::Result<[libc::sigaction; ALL.len()]> {
    // SAFETY: all zeros is a valid action, the default one.
    let mut previous: [libc::sigaction; ALL.len()] = unsafe { mem::zeroed() };
    for (at, (number, _)) in ALL.iter().enumerate() {
        // SAFETY: as above.
        let mut action: libc::sigaction = unsafe { mem::zeroed() };
        action.sa_sigaction = handle_signal as extern "C" fn(libc::c_int) as libc::sighandler_t;
        // Interrupted system calls of other threads are restarted.
        action.sa_flags = libc::SA_RESTART;
        // SAFETY: both actions are live; the mask is initialised before it is used; the handler makes
        // only async-signal-safe calls.
        let set = unsafe {
            libc::sigemptyset(&raw mut action.sa_mask);
            libc::sigaction(*number, &raw const action, &raw mut previous[at])
        };
        if set < 0 {
            let error = io::Error::last_os_error();
            restore_handlers(&previous[..at]);
            return Err(error);
        }
    }
    Ok(previous)
}

/// Restores the previous actions, except where the program has installed another handler meanwhile.
fn restore_handlers(previous: &[libc::sigaction]) {
    let ours = handle_signal as extern "C" fn(libc::c_int) as libc::sighandler_t;
    for ((number, _), previous) in ALL.iter().zip(previous) {
        // SAFETY: all zeros is a valid action; all of them are live; the kernel has returned the
        // previous actions.
        unsafe {
            let mut current: libc::sigaction = mem::zeroed();
            let is_read = libc::sigaction(*number, std::ptr::null(), &raw mut current) == 0;
            if is_read && current.sa_sigaction == ours {
                libc::sigaction(*number, previous, std::ptr::null_mut());
            }
        }
    }
}

/// Blocks or unblocks the signals in this thread and in threads that it starts later.
fn change_mask(how: libc::c_int) {
    // SAFETY: the set is initialised by `sigemptyset`, the numbers are valid signals, and the mask
    // is that of this thread only. It cannot fail with a valid `how`.
    unsafe {
        let mut set = mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for (number, _) in ALL {
            libc::sigaddset(&raw mut set, number);
        }
        libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut());
    }
}
