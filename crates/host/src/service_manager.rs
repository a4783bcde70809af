//! Messages to the service manager that has started Blitz, such as systemd: sd_notify(3).
//!
//! Without `NOTIFY_SOCKET` nothing is sent.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use sd_notify::NotifyState;

/// Every listener accepts connections, or a reload has ended.
pub fn ready() {
    notify(&[NotifyState::Ready]);
}

/// A reload has begun; [`ready`] ends it.
pub fn reloading() {
    let mut states = vec![NotifyState::Reloading];
    // `Type=notify-reload` distinguishes reloads by their time.
    states.extend(NotifyState::monotonic_usec_now());
    notify(&states);
}

/// A signal ends Blitz; running requests may continue.
pub fn stopping() {
    notify(&[NotifyState::Stopping]);
}

fn notify(states: &[NotifyState<'_>]) {
    let Some(address) = env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let lines: Vec<_> = states.iter().map(NotifyState::to_string).collect();
    if let Err(error) = send(&address, &lines.join("\n")) {
        let address = address.display();
        tracing::warn!("the service manager gets no message at NOTIFY_SOCKET={address}: {error}");
    }
}

/// `sd_notify::notify` does not know abstract sockets, which begin with `@`.
fn send(address: &OsStr, message: &str) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    // A service manager that reads nothing must not hold up signals.
    socket.set_nonblocking(true)?;
    match address.as_bytes().strip_prefix(b"@") {
        Some(name) => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        None => socket.connect(address)?,
    }
    socket.send(message.as_bytes())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_manager_that_reads_nothing_blocks_nothing() {
        let name = format!("blitz-silent-manager-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let _silent = UnixDatagram::bind_addr(&address).unwrap();
        let address = format!("@{name}");
        let mut sent = (0..100_000).map(|_| send(OsStr::new(&address), "READY=1"));
        let error = sent.find_map(Result::err).unwrap();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}
