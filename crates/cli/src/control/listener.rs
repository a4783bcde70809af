//! The address of the control interface.

use std::net::SocketAddr;

use blitz_config::ControlAddress;
use blitz_host::serving::{self, ListenerConfig, NewListeners};
use blitz_http::Address;

use super::{OFF, Places};
use crate::control_client::USUAL_ADDRESS;
use crate::listen::parse_control;

/// Keeps the address. `None` if there is to be none, or if another program has it, which is a warning.
///
/// # Errors
/// It was chosen, and a listener of the sites has it: the problem and the remedy.
pub(super) fn reserve(places: &Places<'_>) -> Result<Option<NewListeners>, String> {
    let chosen = places.address.map(|chosen| &chosen.value);
    let address = match chosen {
        Some(ControlAddress::Off) => return Ok(None),
        Some(ControlAddress::On(written)) => parse_control(written)?,
        None => USUAL_ADDRESS,
    };
    let remedy = format!(
        "choose another address with --control-listen ADDR, or none with --control-listen {OFF}"
    );
    let shared = places.others.iter();
    let shared = shared.filter_map(|other| match other.address {
        Address::Tcp(other) => Some(other),
        Address::Unix(_) => None,
    });
    let mut shared = shared.filter(|other| overlap(*other, address));
    if let Some(other) = shared.next() {
        let problem = format!("the control address {address} is a part of the listener {other}");
        if chosen.is_some() {
            return Err(format!("{problem}\n  {remedy}"));
        }
        tracing::warn!("no control address: {problem}; {remedy}");
        return Ok(None);
    }
    let reserved = serving::try_reserve([ListenerConfig::from(Address::Tcp(address))]);
    if let Err(error) = &reserved {
        tracing::warn!("no control address: {error}; {remedy}");
    }
    Ok(reserved.ok())
}

/// Whether two addresses would share connections. Port 0 becomes another one each time.
fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    let covers = |outer: SocketAddr, inner: SocketAddr| {
        let outer_ip = outer.ip();
        outer_ip == inner.ip()
            || outer_ip.is_unspecified() && (outer_ip.is_ipv6() || inner.is_ipv4())
    };
    a.port() != 0 && a.port() == b.port() && (covers(a, b) || covers(b, a))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_for_all_addresses_has_the_control_address() {
        for (other, expected) in [
            ("127.0.0.1:9180", true),
            ("0.0.0.0:9180", true),
            ("[::]:9180", true),
            ("[::1]:9180", false),
            ("127.0.0.1:9181", false),
        ] {
            let other = other.parse().expect("it is an address");
            assert_eq!(overlap(other, USUAL_ADDRESS), expected, "{other}");
        }
    }
}
