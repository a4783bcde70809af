//! Seccomp filters that kill a process for its system calls: a child process tries them first.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::socket::check;

/// The longest wait for the child; it needs less than a millisecond.
const TRIAL_MS: libc::c_int = 1_000;

/// `struct io_uring_params`, which the child passes as zeros.
type RingParameters = [u32; 30];

/// Whether this process may try io_uring: no seccomp filter kills it for that.
///
/// Without a filter this is one system call. With a filter, as in most containers, a child process makes
/// the three system calls of io_uring.
///
/// # Errors
/// The reason why this process must not try.
pub(crate) fn survives_io_uring() -> io::Result<()> {
    if !is_filtered() {
        return Ok(());
    }
    let _blocked = BlockedSignals::block();
    let mut descriptor: RawFd = -1;
    // SAFETY: without CLONE_VM this is fork. The child has a copy of the memory, in which other threads
    // may have held locks; it makes plain system calls only and ends inside `run_child`. Without an exit
    // signal, neither handlers of SIGCHLD nor waits of the program see it.
    let child = unsafe {
        libc::syscall(
            libc::SYS_clone,
            libc::c_long::from(libc::CLONE_PIDFD),
            0_usize,
            &raw mut descriptor,
            0_usize,
            0_usize,
        )
    };
    match child {
        0 => run_child(),
        // Some filters allow no processes; such a filter seldom kills for io_uring.
        -1 => Ok(()),
        _ => {
            // SAFETY: the kernel has just opened it for us.
            let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
            outcome_of(child as libc::pid_t, &descriptor)
        }
    }
}

fn is_filtered() -> bool {
    // SAFETY: a plain system call.
    let mode = unsafe { libc::prctl(libc::PR_GET_SECCOMP) };
    mode > 0
}

/// The child: makes the system calls, whatever they return.
fn run_child() -> ! {
    let mut parameters: RingParameters = [0; 30];
    // SAFETY: plain system calls with live memory; the process ends here without running anything else.
    unsafe {
        // No core dump.
        libc::prctl(libc::PR_SET_DUMPABLE, 0_usize);
        let ring = libc::syscall(
            libc::SYS_io_uring_setup,
            2_usize,
            parameters.as_mut_ptr().cast::<libc::c_void>(),
        );
        libc::syscall(libc::SYS_io_uring_register, ring, 0_usize, 0_usize, 0_usize);
        libc::syscall(
            libc::SYS_io_uring_enter,
            ring,
            0_usize,
            0_usize,
            0_usize,
            0_usize,
            0_usize,
        );
        loop {
            libc::syscall(libc::SYS_exit_group, 0_usize);
        }
    }
}

fn outcome_of(child: libc::pid_t, descriptor: &OwnedFd) -> io::Result<()> {
    let mut ended = libc::pollfd {
        fd: descriptor.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: the structure is live.
    let is_over = unsafe { libc::poll(&raw mut ended, 1, TRIAL_MS) } == 1;
    let mut status = 0;
    // SAFETY: plain system calls; nobody else has waited for the child, so its id is still its own.
    let waited = unsafe {
        if !is_over {
            libc::kill(child, libc::SIGKILL);
        }
        check(libc::waitpid(child, &raw mut status, libc::__WALL))
    };
    if !is_over {
        return Err(refused(
            "a trial of io_uring in a child process did not end",
        ));
    }
    match waited {
        Ok(_) if libc::WIFEXITED(status) => Ok(()),
        Ok(_) => Err(refused(
            "a seccomp filter kills processes that use io_uring; allow io_uring in the seccomp profile",
        )),
        Err(_) => Err(refused("the outcome of a trial of io_uring is unknown")),
    }
}

fn refused(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, reason)
}

/// Blocks all signals of this thread, so that no handler runs in the child.
struct BlockedSignals(libc::sigset_t);

impl BlockedSignals {
    fn block() -> BlockedSignals {
        // SAFETY: both sets are live; `sigfillset` and `pthread_sigmask` fill them.
        unsafe {
            let mut all: libc::sigset_t = mem::zeroed();
            let mut before: libc::sigset_t = mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            BlockedSignals(before)
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the set is live.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut())
        };
    }
}
