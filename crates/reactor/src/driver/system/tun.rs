//! TUN devices: network interfaces whose packets a program reads and writes.

use std::fs::{File, OpenOptions};
use std::io;
use std::mem;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use super::socket::check;

/// Makes the TUN device `name` in the network namespace of the calling thread. Each read gives one IP packet,
/// each write delivers one, and neither waits. The device is removed when the file is closed.
///
/// The device has no offloads, so the kernel cuts segments to the MTU and computes checksums before.
///
/// # Errors
/// `NotFound` if the kernel has no TUN devices, `PermissionDenied` without `CAP_NET_ADMIN` or without the
/// permission to open `/dev/net/tun`, `InvalidInput` for a name of more than 15 bytes.
pub fn open_tun(name: &str) -> io::Result<File> {
    // SAFETY: all zeroes are a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    // The last byte ends the name.
    if name.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (target, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *target = byte as libc::c_char;
    }
    let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_TUN_EXCL;
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/net/tun")?;
    // SAFETY: the kernel reads and writes an `ifreq` that outlives the call.
    check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) })?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_too_long_is_refused() {
        let error = open_tun("sixteen-bytes-xx").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
