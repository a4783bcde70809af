//! Network namespaces of our own.

use std::fs::{self, File};
use std::io;
use std::panic;
use std::thread;

use rustix::fd::AsFd;
use rustix::process::{getegid, geteuid};
use rustix::thread::{
    CapabilitySet, LinkNameSpaceType, UnshareFlags, capabilities, move_into_link_name_space,
};

use super::error::LinkError;

/// A network namespace. It exists until it is dropped and its processes and sockets are gone.
#[derive(Debug)]
pub(super) struct Namespace {
    file: File,
}

impl Namespace {
    /// Makes a namespace, and calls `set_up` on a thread in it.
    pub(super) fn new<T: Send>(
        set_up: impl FnOnce() -> Result<T, LinkError> + Send,
    ) -> Result<(Namespace, T), LinkError> {
        on_a_thread(|| {
            unshare(UnshareFlags::NEWNET).map_err(LinkError::NoPrivilege)?;
            let file = File::open("/proc/thread-self/ns/net")
                .map_err(LinkError::failed("open its network namespace"))?;
            Ok((Namespace { file }, set_up()?))
        })
    }

    /// Calls `work` on a thread in the namespace. Processes that it starts and sockets that it makes stay in
    /// the namespace.
    pub(super) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        on_a_thread(|| {
            move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(work())
        })
    }
}

/// Lets a process without privileges make links, if the kernel permits that: moves it to a user namespace, in
/// which it has the privileges of root over networks that it makes. Its user and group stay the same. A
/// process that has the privileges already stays where it is.
///
/// Call it before the program starts a thread.
///
/// # Errors
/// The kernel does not permit it, or the process has several threads.
pub fn enter_user_namespace() -> Result<(), LinkError> {
    let has = capabilities(None).map_err(|errno| LinkError::NoPrivilege(errno.into()))?;
    if has
        .effective
        .contains(CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN)
    {
        return Ok(());
    }
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    unshare(UnshareFlags::NEWUSER).map_err(LinkError::NoPrivilege)?;
    // A process without privileges may map its group after it has given up setgroups(2).
    let maps = [
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("{user} {user} 1")),
        ("/proc/self/gid_map", format!("{group} {group} 1")),
    ];
    for (path, content) in maps {
        fs::write(path, content).map_err(LinkError::NoPrivilege)?;
    }
    Ok(())
}

fn unshare(flags: UnshareFlags) -> io::Result<()> {
    #[expect(
        deprecated,
        reason = "unsharing the table of descriptors is unsafe, which nobody here does"
    )]
    Ok(rustix::thread::unshare(flags)?)
}

/// The namespace of a thread is its own. It ends with the thread, so nothing has to be restored.
fn on_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(work).join())
        .unwrap_or_else(|payload| panic::resume_unwind(payload))
}
