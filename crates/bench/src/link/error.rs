//! Why a link cannot be made, and what to do.

use std::fmt;
use std::io;

/// Why a link cannot be made. The machine or its permissions are at fault; a repetition changes nothing.
#[derive(Debug)]
pub enum LinkError {
    /// The process may not make network namespaces.
    NoPrivilege(io::Error),
    /// `/dev/net/tun` is missing, or the process may not open it.
    NoTunDevice(io::Error),
    /// A step failed that a privileged process can do.
    Failed {
        /// The step.
        step: &'static str,
        /// The error of the kernel.
        error: io::Error,
    },
}

impl LinkError {
    /// The failure of a step of [`LinkError::Failed`].
    pub(super) fn failed(step: &'static str) -> impl Fn(io::Error) -> LinkError {
        move |error| LinkError::Failed { step, error }
    }
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkError::NoPrivilege(error) => write!(
                f,
                "an emulated link needs permission to make network namespaces: {error}; run as root, in a \
                 container with --cap-add SYS_ADMIN --cap-add NET_ADMIN, or in a user namespace: \
                 unshare --user --map-root-user COMMAND"
            ),
            LinkError::NoTunDevice(error) if error.kind() == io::ErrorKind::NotFound => write!(
                f,
                "an emulated link needs /dev/net/tun, which is missing; load it with modprobe tun, or start \
                 the container with --device /dev/net/tun"
            ),
            LinkError::NoTunDevice(error) => write!(
                f,
                "an emulated link needs /dev/net/tun, which cannot be opened: {error}; run as root, or permit \
                 it to everybody, as most distributions do: chmod 666 /dev/net/tun"
            ),
            LinkError::Failed { step, error } => {
                write!(f, "an emulated link failed to {step}: {error}")
            }
        }
    }
}

impl std::error::Error for LinkError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LinkError::NoPrivilege(error)
            | LinkError::NoTunDevice(error)
            | LinkError::Failed { error, .. } => Some(error),
        }
    }
}
