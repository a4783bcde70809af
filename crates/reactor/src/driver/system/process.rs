//! Resources of the whole process: its descriptors and processors.

use std::fs::{self, File};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::Duration;

use super::socket::{check, stream_socket};

/// The initial size of the process's table of descriptors, at 8 bytes each.
const DESCRIPTOR_TABLE_MIN: u64 = 65_536;

/// Makes the kernel enlarge the process's table of descriptors.
///
/// Called before the first core's thread starts. In a process with several threads the kernel waits for
/// all processors each time that the table grows (`synchronize_rcu`): 10 to 40 ms, in which a core that
/// accepts or connects serves no request.
pub(crate) fn enlarge_descriptor_table() {
    let last = nofile()
        .rlim_cur
        .min(DESCRIPTOR_TABLE_MIN)
        .saturating_sub(1);
    let Ok(last) = libc::c_int::try_from(last) else {
        return;
    };
    let Ok(any) = stream_socket(libc::AF_UNIX, false) else {
        return;
    };
    // SAFETY: a plain system call; the descriptor it returns is ours alone. The table stays large.
    unsafe {
        let highest = libc::fcntl(any.as_raw_fd(), libc::F_DUPFD_CLOEXEC, last);
        if highest >= 0 {
            drop(OwnedFd::from_raw_fd(highest));
        }
    }
}

/// Raises the limit of descriptors and makes the kernel enlarge the process's table of them, as starting cores does.
/// It takes microseconds in a process without other threads, and 10 to 40 ms in one that has some, so a program that
/// starts threads of its own calls it before them. Returns the limit.
pub fn prepare_descriptors() -> u64 {
    let limit = raise_descriptor_limit();
    enlarge_descriptor_table();
    limit
}

/// How often the check is repeated, and the pause before: other threads that start hold descriptors for a moment.
const CHECKS_MAX: usize = 20;
const CHECK_PAUSE: Duration = Duration::from_millis(5);

/// Checks that this process can open so many more descriptors.
///
/// # Errors
/// The number of open files that it needs, and that it may have.
pub(crate) fn check_descriptors(more: usize) -> io::Result<()> {
    for _ in 1..CHECKS_MAX {
        if open_at_once(more).is_ok() {
            return Ok(());
        }
        thread::sleep(CHECK_PAUSE);
    }
    open_at_once(more)
}

fn open_at_once(more: usize) -> io::Result<()> {
    let mut opened = Vec::with_capacity(more);
    while opened.len() < more {
        match stream_socket(libc::AF_UNIX, false) {
            Ok(socket) => opened.push(socket),
            Err(error) if error.raw_os_error() == Some(libc::EMFILE) => {
                let limit = nofile().rlim_cur;
                let needed = limit + (more - opened.len()) as u64;
                return Err(io::Error::other(format!(
                    "the limit of open files (nofile) is {limit}, and at least {needed} are needed"
                )));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The number of descriptors that this process has open; those of the start if `/proc` does not tell.
pub(crate) fn open_descriptors() -> usize {
    const AT_START: usize = 16;
    // One of them is that of the list.
    fs::read_dir("/proc/self/fd").map_or(AT_START, |list| list.count().saturating_sub(1))
}

fn nofile() -> libc::rlimit {
    let mut limit = libc::rlimit {
        rlim_cur: 1024,
        rlim_max: 1024,
    };
    // SAFETY: the structure is live, and the call only writes it.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    limit
}

/// Raises the soft limit of descriptors to the hard one and returns it.
pub(crate) fn raise_descriptor_limit() -> u64 {
    let mut limit = nofile();
    let soft = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: the structure is live, and the call only reads it.
    match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } {
        0 => limit.rlim_max,
        _ => soft,
    }
}

/// The processors that this thread may run on.
pub(crate) fn processors() -> Vec<usize> {
    // SAFETY: all zeros is an empty set; the call fills it.
    let set = unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) < 0 {
            return vec![0];
        }
        set
    };
    let all = 0..libc::CPU_SETSIZE as usize;
    // SAFETY: every index is below the size of the set.
    all.filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) })
        .collect()
}

/// The time that a thread has run or waited for a processor.
pub(crate) struct ThreadTime(File);

impl ThreadTime {
    /// Of the calling thread; `None` without procfs.
    pub(crate) fn of_this_thread() -> Option<ThreadTime> {
        File::open("/proc/thread-self/schedstat")
            .ok()
            .map(ThreadTime)
    }

    /// The time since the start of the thread: the first two numbers of the file, in nanoseconds
    /// (`Documentation/scheduler/sched-stats.rst` of Linux).
    pub(crate) fn read(&self) -> Option<Duration> {
        let mut text = [0; 64];
        let length = self.0.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(&text[..length]).ok()?;
        let mut numbers = text.split_ascii_whitespace().map(str::parse::<u64>);
        let (ran, waited) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        Some(Duration::from_nanos(ran + waited))
    }
}

/// Gives the calling thread real-time priority, the lowest of these. It preempts threads without one at once,
/// and they wait while it runs. Threads and processes that it starts do not inherit the priority.
///
/// # Errors
/// `PermissionDenied` without `CAP_SYS_NICE`.
pub fn set_real_time() -> io::Result<()> {
    set_scheduling(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, 1)
}

/// Lets the calling thread run only on processors that no other thread wants. Threads and processes that it starts
/// inherit it.
///
/// # Errors
/// Those of sched_setscheduler(2).
pub fn set_idle_priority() -> io::Result<()> {
    set_scheduling(libc::SCHED_IDLE, 0)
}

fn set_scheduling(policy: i32, level: i32) -> io::Result<()> {
    // SAFETY: a structure of numbers, for which zeros are valid.
    let mut priority: libc::sched_param = unsafe { mem::zeroed() };
    priority.sched_priority = level;
    // SAFETY: the parameters outlive the call.
    check(unsafe { libc::sched_setscheduler(0, policy, &raw const priority) }).map(drop)
}

/// Lets the calling thread run on these processors only.
pub(crate) fn run_on(processors: &[usize]) -> io::Result<()> {
    let inside = |&processor: &usize| processor < libc::CPU_SETSIZE as usize;
    assert!(processors.iter().all(inside), "`processors` returned them");
    // SAFETY: the set is live, and every index is inside it.
    let pinned = unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        processors
            .iter()
            .for_each(|&processor| libc::CPU_SET(processor, &mut set));
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    check(pinned).map(drop)
}
