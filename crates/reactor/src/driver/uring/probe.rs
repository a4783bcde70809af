//! The features of this kernel. They are probed, not derived from its version.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use io_uring::{IoUring, opcode};

use super::operation::{Operation, capped_multishot_receive};
use crate::driver::survives_io_uring;

/// Whether the kernel has io_uring and this process may use it.
pub(super) fn is_permitted() -> bool {
    IoUring::new(2).is_ok()
}

/// Explains an error of opening a ring, with the remedy.
pub(super) fn explain(error: &io::Error) -> io::Error {
    let why = match error.raw_os_error() {
        Some(libc::ENOSYS) => "the kernel has no io_uring",
        Some(libc::EPERM) => {
            "io_uring is forbidden here (a container's seccomp profile, or \
             the sysctl kernel.io_uring_disabled)"
        }
        Some(libc::ENOMEM) => "too little lockable memory for a ring (raise ulimit -l)",
        Some(libc::EINVAL) => "the kernel is too old for the ring features that Blitz needs (6.1)",
        _ => return io::Error::new(error.kind(), format!("io_uring cannot be opened: {error}")),
    };
    io::Error::new(error.kind(), why)
}

/// Tries a receive with a total limit on a pair of sockets (rule 1): kernels before 6.17 return EINVAL.
/// Its completion is consumed here.
pub(super) fn capped_multishot(ring: &IoUring, group: u16) -> io::Result<bool> {
    let (ours, theirs) = UnixStream::pair()?;
    drop(theirs);
    let entry = capped_multishot_receive(ours.as_raw_fd(), group, 1);
    let entry = entry.user_data(Operation::Ignored.pack());
    // SAFETY: nothing else uses the ring yet, and the descriptor outlives the wait below. The other end
    // is closed, so the receive completes immediately without a buffer.
    let result = unsafe {
        ring.submission_shared()
            .push(&entry)
            .map_err(io::Error::other)?;
        ring.submit_and_wait(1)?;
        ring.completion_shared()
            .next()
            .map(|completion| completion.result())
    };
    Ok(result.is_some_and(|result| result >= 0))
}

/// The features of io_uring as a list for `blitz doctor`.
///
/// # Errors
/// The reason why it cannot be used, with the remedy.
pub(crate) fn probe() -> Result<String, String> {
    survives_io_uring().map_err(|error| error.to_string())?;
    let ring = super::build(8, 16).map_err(|error| explain(&error).to_string())?;
    let mut kernel = io_uring::Probe::new();
    ring.submitter()
        .register_probe(&mut kernel)
        .map_err(|error| error.to_string())?;
    let mut features = vec!["single issuer", "deferred task work"];
    if kernel.is_supported(opcode::MsgRingData::CODE) {
        features.push("ring messages");
    }
    if ring.params().is_feature_recvsend_bundle() {
        features.push("bundles");
    }
    if ring.params().is_feature_min_timeout() {
        features.push("minimum wait");
    }
    if kernel.is_supported(opcode::SendZc::CODE) {
        features.push("zero-copy send");
    }
    Ok(features.join(", "))
}
