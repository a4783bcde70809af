//! The reasons why a name has no address.

use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;

/// Why a name has no address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameFailure {
    /// The name does not exist: NXDOMAIN.
    NoSuchName,
    /// The name exists and has no address.
    NoAddress,
    /// A name server failed: SERVFAIL.
    ServerFailed,
    /// A name server refuses the query: REFUSED.
    ServerRefused,
    /// No name server can be reached, because nothing listens there or there is no route.
    Unreachable,
    /// Another error.
    Error,
    /// No name server answered in time.
    Timeout,
}

impl NameFailure {
    pub(super) fn of(error: &NetError) -> NameFailure {
        match error {
            NetError::Timeout => NameFailure::Timeout,
            NetError::Io(_) | NetError::NoConnections => NameFailure::Unreachable,
            NetError::Dns(DnsError::NoRecordsFound(none)) => match none.response_code {
                ResponseCode::NXDomain => NameFailure::NoSuchName,
                ResponseCode::NoError => NameFailure::NoAddress,
                code => failure_of_code(code),
            },
            NetError::Dns(DnsError::ResponseCode(code)) => failure_of_code(*code),
            _ => NameFailure::Error,
        }
    }
}

fn failure_of_code(code: ResponseCode) -> NameFailure {
    match code {
        ResponseCode::ServFail => NameFailure::ServerFailed,
        ResponseCode::Refused => NameFailure::ServerRefused,
        _ => NameFailure::Error,
    }
}
