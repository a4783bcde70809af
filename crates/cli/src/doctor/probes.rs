//! Checks that use the reactor's probes.

use std::path::Path;

use blitz_http::probe;

use super::{Check, files};

/// Whether `--io auto` chooses io_uring.
pub(super) fn io_uring(root: &Path) -> Check {
    const NAME: &str = "io_uring";
    match probe::io_uring() {
        Ok(features) => Check::ok(NAME, features),
        Err(reason) => Check::slow(
            NAME,
            format!("{reason}; Blitz uses epoll"),
            io_uring_advice(root),
        ),
    }
}

/// The sysctl shows whether the kernel forbids io_uring; otherwise a container's seccomp profile is the
/// usual cause.
fn io_uring_advice(root: &Path) -> &'static str {
    match files::read_number(root, "proc/sys/kernel/io_uring_disabled") {
        Some(1 | 2) => "sysctl -w kernel.io_uring_disabled=0",
        _ => "in a container: a seccomp profile that allows io_uring",
    }
}

/// Whether epoll works, which Blitz needs as a fallback.
pub(super) fn epoll() -> Check {
    const NAME: &str = "epoll";
    match probe::epoll() {
        Ok(()) => Check::ok(NAME, "works"),
        Err(reason) => Check::stop(NAME, reason, "raise nofile; Blitz cannot run without epoll"),
    }
}

/// Whether each core can have its own listener on the same port.
pub(super) fn reuseport() -> Check {
    const NAME: &str = "reuseport";
    match probe::reuseport() {
        Ok(()) => Check::ok(NAME, "each core has its own listener"),
        Err(reason) => Check::stop(NAME, reason, "run with --cores 1"),
    }
}

/// Whether one call can send many datagrams. Only HTTP/3 would need it.
pub(super) fn udp_gso() -> Check {
    const NAME: &str = "UDP GSO";
    match probe::udp_gso() {
        Ok(()) => Check::ok(NAME, "one call sends many datagrams"),
        Err(reason) => Check::unknown(NAME, format!("{reason}; Blitz does not use it yet"), ""),
    }
}
