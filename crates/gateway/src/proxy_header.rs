//! The header of the PROXY protocol that tells an upstream the client of a request.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use blitz_http::{Peer, ProxiedAddresses, ProxyHeader, ProxyVersion, RequestHead};
use blitz_site::ClientAddress;

use crate::rules::client_of;
use crate::trusted::TrustedProxies;

/// The header for a request as the client has sent it. A client that a trusted proxy tells in a field has no port there, so
/// its port is 0.
#[cold]
pub(crate) fn proxy_header(
    version: ProxyVersion,
    head: &RequestHead,
    peer: &Peer,
    trusted: &TrustedProxies,
) -> Box<ProxyHeader> {
    let source = match client_of(&head.fields, peer, trusted) {
        ClientAddress::Address(ip) => {
            let own = peer.remote.filter(|remote| remote.ip() == ip);
            Some(own.unwrap_or(SocketAddr::new(ip, 0)))
        }
        ClientAddress::Unix | ClientAddress::Unknown => None,
    };
    let addresses = source.map(|source| ProxiedAddresses {
        source,
        destination: destination(source.ip(), peer.listener),
    });
    Box::new(ProxyHeader { version, addresses })
}

/// The address of the listener. Its IP may be unspecified, and then is that of the client's family.
fn destination(client: IpAddr, listener: Option<SocketAddr>) -> SocketAddr {
    match listener {
        Some(listener) if !listener.ip().is_unspecified() => listener,
        unspecified => {
            let ip: IpAddr = match client.to_canonical() {
                IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
            };
            SocketAddr::new(ip, unspecified.map_or(0, |listener| listener.port()))
        }
    }
}

#[cfg(test)]
mod tests {
    use blitz_http::{Name, Scheme};

    use super::*;

    /// Source and destination for a client of this address, and with this `X-Forwarded-For`.
    fn told(remote: Option<&str>, listener: &str, forwarded: Option<&str>) -> Option<String> {
        let mut head = RequestHead::default();
        if let Some(forwarded) = forwarded {
            head.fields.append(Name::XForwardedFor, forwarded);
        }
        let peer = Peer {
            remote: remote.map(|address| address.parse().unwrap()),
            listener: listener.parse().ok(),
            scheme: Scheme::Http,
            tls: None,
        };
        let trusted: TrustedProxies = ["10.0.0.0/8", "unix"]
            .iter()
            .map(|text| text.parse().unwrap())
            .collect();
        let header = proxy_header(ProxyVersion::V1, &head, &peer, &trusted);
        let addresses = header.addresses?;
        Some(format!("{} {}", addresses.source, addresses.destination))
    }

    #[test]
    fn the_client_and_the_listener_are_told() {
        let told = |remote, listener, forwarded| {
            told(remote, listener, forwarded).unwrap_or("unknown".to_owned())
        };
        let (client, proxy) = (Some("192.0.2.7:1234"), Some("10.0.0.1:1234"));
        for (remote, listener, forwarded, expected) in [
            (client, "10.0.0.9:80", None, "192.0.2.7:1234 10.0.0.9:80"),
            (client, "[::]:80", None, "192.0.2.7:1234 0.0.0.0:80"),
            (
                Some("[2001:db8::7]:1234"),
                "[::]:80",
                None,
                "[2001:db8::7]:1234 [::]:80",
            ),
            (
                client,
                "[::]:80",
                Some("198.51.100.1"),
                "192.0.2.7:1234 0.0.0.0:80",
            ),
            (
                proxy,
                "[::]:80",
                Some("198.51.100.1"),
                "198.51.100.1:0 0.0.0.0:80",
            ),
            (proxy, "[::]:80", None, "10.0.0.1:1234 0.0.0.0:80"),
            (proxy, "[::]:80", Some("unknown"), "unknown"),
            (None, "", None, "unknown"),
            (None, "", Some("198.51.100.1"), "198.51.100.1:0 0.0.0.0:0"),
        ] {
            assert_eq!(told(remote, listener, forwarded), expected);
        }
    }
}
