//! Names that have no address, as the failure of a request.

use blitz_host::names::NameFailure;
use blitz_site::Failure;

/// The failure of a request whose upstream has such a name.
pub(crate) fn failure_of_name(failure: NameFailure) -> Failure {
    match failure {
        NameFailure::NoSuchName => Failure::DnsNoSuchName,
        NameFailure::NoAddress => Failure::DnsNoAddress,
        NameFailure::ServerFailed => Failure::DnsServerFailed,
        NameFailure::ServerRefused => Failure::DnsServerRefused,
        NameFailure::Unreachable => Failure::DnsUnreachable,
        NameFailure::Error => Failure::DnsError,
        NameFailure::Timeout => Failure::DnsTimeout,
    }
}
