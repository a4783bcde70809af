//! As many connections as there are descriptors.

use std::net::{SocketAddr, TcpStream};

use crate::descriptors;
use crate::output;
use crate::probe;
use crate::process::ServerProcess;
use crate::system::System;

/// The most connections.
pub(super) const COUNT_MAX: u32 = 20_000;
/// The most connections of a quick run.
const COUNT_MAX_QUICK: u32 = 2_000;

/// Descriptors of a process beside its connections.
const SPARE: u64 = 200;

/// How many connections a server has accepted.
pub(super) struct Accepted {
    pub(super) name: &'static str,
    pub(super) connections: u32,
    /// Why there were no more than these.
    pub(super) error: Option<String>,
}

/// The limits of this process before the first run.
pub(super) struct DescriptorLimits {
    pub(super) soft: Option<u64>,
    pub(super) hard: Option<u64>,
    /// Connections that they allow.
    pub(super) wanted: u32,
}

/// The limits, and what the servers accept within them.
pub(super) struct Connections {
    pub(super) limits: DescriptorLimits,
    pub(super) accepted: Vec<Accepted>,
}

impl DescriptorLimits {
    /// Raises the soft limit, before the servers start and inherit it.
    pub(super) fn raise(is_quick: bool) -> DescriptorLimits {
        let (soft, hard) = descriptors::limits();
        let wanted = match is_quick {
            true => wanted(hard).min(COUNT_MAX_QUICK),
            false => wanted(hard),
        };
        // If it cannot be raised, the result is what it allows.
        let _ = descriptors::allow(u64::from(wanted) + SPARE);
        DescriptorLimits { soft, hard, wanted }
    }

    /// Connects to one server after the other.
    pub(super) fn measure(self, running: &[(&'static System, ServerProcess)]) -> Connections {
        let accepted = running.iter().map(|(system, server)| {
            output::message(&format!("{}: {} connections …", system.name, self.wanted));
            let (connections, error) = connect(server.address, self.wanted);
            Accepted {
                name: system.name,
                connections,
                error,
            }
        });
        Connections {
            accepted: accepted.collect(),
            limits: self,
        }
    }
}

fn wanted(hard: Option<u64>) -> u32 {
    let allowed = hard.map_or(u64::from(COUNT_MAX), |hard| hard.saturating_sub(SPARE));
    allowed.min(u64::from(COUNT_MAX)) as u32
}

/// Opens connections until one fails; each has one request. All are closed at the end.
fn connect(address: SocketAddr, wanted: u32) -> (u32, Option<String>) {
    let mut clients = Vec::new();
    while clients.len() < wanted as usize {
        let client = TcpStream::connect(address).map_err(|error| error.to_string());
        let answered = client.and_then(|client| {
            probe::request_on(&client, address)?;
            Ok(client)
        });
        match answered {
            Ok(client) => clients.push(client),
            Err(error) => return (clients.len() as u32, Some(error)),
        }
    }
    (clients.len() as u32, None)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn descriptors_of_the_process_itself_are_left() {
        assert_eq!(wanted(Some(20_000)), 19_800);
        assert_eq!(wanted(Some(100)), 0);
        assert_eq!(wanted(Some(1_000_000)), COUNT_MAX);
        assert_eq!(wanted(None), COUNT_MAX);
    }

    #[test]
    fn a_server_that_does_not_answer_is_named_with_its_error() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let (connections, error) = connect(address, 10);
        assert!(connections == 0 && error.is_some());
    }
}
