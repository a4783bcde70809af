//! Signals: handled for the whole process, waited for by one thread.
//!
//! The kernel delivers a signal to any thread that does not block it, and a program may have started
//! threads before it serves. A mask of the calling thread would leave those with the default action,
//! which ends the process. So each signal has a handler, which notes it and wakes the waiting thread.

use std::io;
use std::mem;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
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

/// The most urgent first: a burst of HUP must not delay the end.
const ALL: [(libc::c_int, Signal); 6] = [
    (libc::SIGINT, Signal::Interrupt),
    (libc::SIGTERM, Signal::Terminate),
    (libc::SIGQUIT, Signal::Quit),
    (libc::SIGHUP, Signal::Hangup),
    (libc::SIGUSR1, Signal::User1),
    (libc::SIGUSR2, Signal::User2),
];

/// Signals that have arrived and were not taken: one bit each, in the order of [`ALL`].
static ARRIVED: AtomicU32 = AtomicU32::new(0);

/// The eventfd that wakes the waiting thread. Once made, it stays open, because a handler may be
/// running on any thread at any time.
static WAKE: AtomicI32 = AtomicI32::new(-1);

/// How the process handled the signals before, while a [`Signals`] exists.
static INSTALLED: Mutex<Installed> = Mutex::new(Installed {
    users: 0,
    previous: None,
});

struct Installed {
    users: usize,
    previous: Option<[libc::sigaction; ALL.len()]>,
}

/// The signals of this process, to wait for. They are handled as before once the last one is
/// dropped.
#[derive(Debug)]
pub struct Signals(());

impl Signals {
    /// Handles the signals of the whole process from now on, whichever threads it has, so that they
    /// come only through [`Signals::wait`]. A handler that the program had installed is not called
    /// meanwhile; threads that block a signal go on blocking it, but for the calling one.
    ///
    /// # Errors
    /// What `eventfd(2)` or `sigaction(2)` report.
    pub fn install() -> io::Result<Signals> {
        let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
        if installed.users == 0 {
            open_wake()?;
            ARRIVED.store(0, Ordering::Release);
            installed.previous = Some(install_handlers()?);
        }
        installed.users += 1;
        // Some thread has to take them, and whoever started the process may have blocked them.
        change_mask(libc::SIG_UNBLOCK);
        Ok(Signals(()))
    }

    /// The time of day, for the thread that waits for signals: it is no core, which has a
    /// [clock](crate::wall_clock) of its own.
    #[must_use]
    pub fn wall_clock(&self) -> SystemTime {
        SystemTime::now()
    }

    /// The next signal, or `None` after `timeout`, or before if nothing came. Signals of one kind
    /// that arrive before the first of them is taken count as one.
    ///
    /// # Errors
    /// What `ppoll(2)` reports.
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
        // SAFETY: the descriptor stays open, and the value is live and as long as it says. There may
        // be nothing to read, which is an error that does not matter.
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

/// Keeps the signals from interrupting this thread, which has better things to do; others take them.
pub(crate) fn block_in_thread() {
    change_mask(libc::SIG_BLOCK);
}

/// The most urgent signal that has arrived.
fn take() -> Option<Signal> {
    let arrived = ARRIVED.load(Ordering::Acquire);
    let (_, signal) = ALL.get(arrived.trailing_zeros() as usize)?;
    ARRIVED.fetch_and(!(arrived & arrived.wrapping_neg()), Ordering::AcqRel);
    Some(*signal)
}

/// The handler. It may interrupt any code of any thread, so it does only what signal-safety(7)
/// allows, and leaves `errno` as it was.
extern "C" fn note(number: libc::c_int) {
    // SAFETY: the address is that of this thread's `errno`, which lives as long as the thread.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    if let Some(at) = ALL.iter().position(|(known, _)| *known == number) {
        ARRIVED.fetch_or(1 << at, Ordering::AcqRel);
        let one = 1u64;
        let wake = WAKE.load(Ordering::Acquire);
        // SAFETY: the descriptor stays open, and the value is live and as long as it says. It does
        // not block; if the counter is full, the thread is being woken anyway.
        unsafe { libc::write(wake, (&raw const one).cast(), size_of::<u64>()) };
    }
    // SAFETY: as above.
    unsafe { *errno = before };
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
    // SAFETY: the descriptor is new and ours alone.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    WAKE.store(fd.into_raw_fd(), Ordering::Release);
    Ok(())
}

/// Installs the handler for each signal; gives what was there before.
fn install_handlers() -> io::Result<[libc::sigaction; ALL.len()]> {
    // SAFETY: all zeros is a valid action, the default one.
    let mut previous: [libc::sigaction; ALL.len()] = unsafe { mem::zeroed() };
    for (at, (number, _)) in ALL.iter().enumerate() {
        // SAFETY: as above.
        let mut action: libc::sigaction = unsafe { mem::zeroed() };
        action.sa_sigaction = note as extern "C" fn(libc::c_int) as libc::sighandler_t;
        // Calls of other threads that can go on do so.
        action.sa_flags = libc::SA_RESTART;
        // SAFETY: both actions are live; the mask is initialised before it is used; the handler does
        // only what is allowed while anything else is interrupted.
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

/// Puts back what was there before, unless somebody else has put something there since.
fn restore_handlers(previous: &[libc::sigaction]) {
    let ours = note as extern "C" fn(libc::c_int) as libc::sighandler_t;
    for ((number, _), previous) in ALL.iter().zip(previous) {
        // SAFETY: all zeros is a valid action; all of them are live; what is put back is what the
        // kernel has given.
        unsafe {
            let mut current: libc::sigaction = mem::zeroed();
            let known = libc::sigaction(*number, std::ptr::null(), &raw mut current) == 0;
            if known && current.sa_sigaction == ours {
                libc::sigaction(*number, previous, std::ptr::null_mut());
            }
        }
    }
}

/// Blocks or unblocks the signals in this thread and in those that it starts from now on.
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
