//! Forwarding fields of trusted proxies: one set of facts is read, and written to `Forwarded` and
//! `X-Forwarded-*` so that they agree.
//!
//! `Forwarded` is read only without `X-Forwarded-*`: most proxies write some of these, and pass on a
//! `Forwarded` that the client sent. A missing fact comes from the connection. A list is read from the
//! right, up to the first address that is no trusted proxy.

use std::net::{IpAddr, SocketAddr};

use blitz_http::{FieldName, Fields, Name, Peer, RequestHead, Scheme};

use super::forwarded::{CHAIN_MAX, Element, elements, host, node, scheme};
use super::forwarding_headers::{
    port_number, port_of, push_forwarded_for, push_host, push_ip, push_proto,
};
use super::presence::{NameSet, is_in, is_scheme_name, set_of};
use crate::trusted::TrustedProxies;

/// The fields that have the facts.
pub(super) const FACTS: NameSet = X_FORWARDED | set_of(&[Name::Forwarded]);

/// The fields whose presence makes `Forwarded` one of the client.
const X_FORWARDED: NameSet = set_of(&[
    Name::XForwardedFor,
    Name::XForwardedHost,
    Name::XForwardedPort,
    Name::XForwardedProto,
]);

/// The scheme, host and port that a client requested of the outermost trusted proxy.
pub(crate) struct ProxyFacts {
    pub(crate) scheme: Scheme,
    /// As the proxy named it, with or without its port; empty if nobody named one.
    host: String,
    port: u16,
}

impl ProxyFacts {
    /// The facts of a request, if a trusted proxy sent some.
    #[cold]
    pub(crate) fn of(
        head: &RequestHead,
        peer: &Peer,
        trusted: &TrustedProxies,
    ) -> Option<ProxyFacts> {
        let has_facts = head.fields.iter().any(|(name, _)| is_in(FACTS, name));
        let is_told = has_facts && trusted.contains(peer);
        is_told.then(|| Told::read(&head.fields, trusted).facts(head, peer))
    }

    /// Host and port, without a default port that the proxy did not name; empty if no host is known.
    pub(crate) fn authority(&self) -> String {
        match port_of(self.host.as_bytes()) {
            _ if self.host.is_empty() => String::new(),
            None if self.port != self.scheme.default_port() => with_port(&self.host, self.port),
            _ => self.host.clone(),
        }
    }
}

/// The client that a trusted proxy tells with these fields.
#[cold]
pub(crate) fn told_client(
    fields: &Fields,
    remote: Option<SocketAddr>,
    trusted: &TrustedProxies,
) -> Option<IpAddr> {
    let has_facts = || fields.iter().any(|(name, _)| is_in(FACTS, name));
    let is_told = trusted.contains_remote(remote) && has_facts();
    is_told.then(|| Told::read(fields, trusted).client())?
}

/// Writes the forwarding fields of a request that has some of a trusted proxy; returns the client that
/// they tell.
#[cold]
pub(super) fn add_forwarding_of_proxy(
    head: &mut RequestHead,
    peer: &Peer,
    trusted: &TrustedProxies,
) -> Option<IpAddr> {
    let told = Told::read(&head.fields, trusted);
    let client = told.client();
    let facts = told.facts(head, peer);
    let addresses = told.addresses(peer);
    let forwarded = told.forwarded(head, peer, &facts);
    let fields = &mut head.fields;
    if !addresses.is_empty() {
        fields.set(Name::XForwardedFor, addresses);
    }
    fields.set(Name::XForwardedProto, facts.scheme.as_str());
    fields.set(Name::XForwardedPort, facts.port.to_string());
    if facts.host.is_empty() {
        fields.remove(Name::XForwardedHost);
    } else {
        fields.set(Name::XForwardedHost, &facts.host);
    }
    fields.set(Name::Forwarded, forwarded);
    if let (Some(client), true) = (client, fields.contains(Name::XRealIp)) {
        fields.set(Name::XRealIp, client.to_string());
    }
    fields.retain(|name, value| !tells_scheme(name) || told_scheme(value) == Some(facts.scheme));
    client
}

/// The scheme that such a field tells.
fn told_scheme(value: &[u8]) -> Option<Scheme> {
    const HTTPS: [&[u8]; 6] = [b"https", b"wss", b"ssl", b"on", b"1", b"true"];
    const HTTP: [&[u8]; 5] = [b"http", b"ws", b"off", b"0", b"false"];
    let is = |text: &&[u8]| value.eq_ignore_ascii_case(text);
    match () {
        () if HTTPS.iter().any(is) => Some(Scheme::Https),
        () if HTTP.iter().any(is) => Some(Scheme::Http),
        () => None,
    }
}

/// Whether a field tells the scheme in yet another way. Proxies that do not know it pass on the
/// client's.
fn tells_scheme(name: FieldName<'_>) -> bool {
    const NAMES: [&str; 3] = [
        "x-forwarded-ssl",
        "x-forwarded-scheme",
        "x-forwarded-protocol",
    ];
    let text = name.as_bytes();
    let is = |known: &&str| text.eq_ignore_ascii_case(known.as_bytes());
    name.known() == Name::Other && (is_scheme_name(text) || NAMES.iter().any(is))
}

/// The content of the forwarding fields.
struct Told<'a> {
    /// Members of `X-Forwarded-For`, as they are and as addresses.
    addresses: Vec<(&'a [u8], Option<IpAddr>)>,
    /// Elements of `Forwarded`, without any of the other fields.
    elements: Vec<Element>,
    /// Which element, or else which address, is that of the client.
    client: usize,
    scheme: Option<Scheme>,
    host: Option<String>,
    port: Option<u16>,
}

impl<'a> Told<'a> {
    fn read(fields: &'a Fields, trusted: &TrustedProxies) -> Told<'a> {
        match fields.iter().any(|(name, _)| is_in(X_FORWARDED, name)) {
            true => Told::read_x_forwarded(fields, trusted),
            false => Told::read_forwarded(fields, trusted),
        }
    }

    fn read_x_forwarded(fields: &'a Fields, trusted: &TrustedProxies) -> Told<'a> {
        let mut addresses: Vec<_> = members(fields, Name::XForwardedFor)
            .map(|text| (text, text_of(text).and_then(node)))
            .collect();
        addresses.drain(..addresses.len().saturating_sub(CHAIN_MAX));
        let client = client_of(addresses.iter().map(|(_, node)| *node), trusted);
        // The trusted proxies behind the outermost one, which may have added to each list.
        let hops = addresses.len().saturating_sub(client + 1);
        let member = |name| member_of_hop(fields, name, hops);
        let host = member(Name::XForwardedHost).and_then(host);
        let port = member(Name::XForwardedPort).and_then(|port| port.parse().ok());
        Told {
            addresses,
            elements: Vec::new(),
            client,
            scheme: member(Name::XForwardedProto).and_then(scheme),
            host: host.map(str::to_owned),
            port: port.filter(|&port| port > 0),
        }
    }

    fn read_forwarded(fields: &Fields, trusted: &TrustedProxies) -> Told<'a> {
        let elements = elements(fields);
        let client = client_of(elements.iter().map(|element| element.node), trusted);
        let of_proxies = &elements[client..];
        Told {
            addresses: Vec::new(),
            client,
            scheme: of_proxies.iter().find_map(|element| element.scheme),
            host: of_proxies.iter().find_map(|element| element.host.clone()),
            port: None,
            elements,
        }
    }

    /// The address of the client, if it is told.
    fn client(&self) -> Option<IpAddr> {
        match self.elements.get(self.client) {
            Some(element) => element.node,
            None => self.addresses.get(self.client)?.1,
        }
    }

    fn facts(&self, head: &RequestHead, peer: &Peer) -> ProxyFacts {
        let scheme = self.scheme.unwrap_or(peer.scheme);
        // The port of a listener behind a proxy that ended TLS, or of one that began it.
        let other = match scheme {
            Scheme::Http => Scheme::Https,
            Scheme::Https => Scheme::Http,
        };
        let told_port = self.port.filter(|&port| port != other.default_port());
        let own = head.authority().unwrap_or_default();
        let host = match (&self.host, told_port) {
            (Some(host), _) => host.clone(),
            // The proxy replaced `Host`.
            (None, Some(port)) if port_number(own).is_some_and(|own| own != port) => {
                match port == scheme.default_port() {
                    true => without_port(own).to_owned(),
                    false => with_port(without_port(own), port),
                }
            }
            (None, _) => own.to_owned(),
        };
        let named_port = port_number(&host);
        let host = match named_port {
            // Port 0 is none.
            None => without_port(&host).to_owned(),
            Some(_) => host,
        };
        let port = named_port.or(told_port).unwrap_or(scheme.default_port());
        ProxyFacts { scheme, host, port }
    }

    /// Value of `X-Forwarded-For`; empty if no address is known.
    fn addresses(&self, peer: &Peer) -> Vec<u8> {
        let mut list = Vec::new();
        for (text, _) in &self.addresses {
            list.extend_from_slice(text);
            list.extend_from_slice(b", ");
        }
        if self.addresses.is_empty() {
            for element in &self.elements {
                match element.node {
                    Some(ip) => push_ip(&mut list, ip),
                    None => list.extend_from_slice(b"unknown"),
                }
                list.extend_from_slice(b", ");
            }
        }
        match peer.remote {
            Some(remote) => push_ip(&mut list, remote.ip()),
            None => list.truncate(list.len().saturating_sub(2)),
        }
        list
    }

    /// Value of `Forwarded`.
    fn forwarded(&self, head: &RequestHead, peer: &Peer, facts: &ProxyFacts) -> Vec<u8> {
        let mut list = Vec::new();
        let hops: Vec<_> = match self.elements.is_empty() {
            true => self.addresses.iter().map(|&(_, it)| (it, None)).collect(),
            false => self.elements.iter().map(|it| (it.node, Some(it))).collect(),
        };
        for (at, (node, element)) in hops.into_iter().enumerate() {
            push_forwarded_for(&mut list, node);
            // The rest of the client's address was written by the client.
            if at == self.client {
                push_host(&mut list, &facts.authority());
                push_proto(&mut list, facts.scheme);
            } else if let Some(element) = element.filter(|_| at > self.client) {
                if let Some(host) = &element.host {
                    push_host(&mut list, host);
                }
                if let Some(scheme) = element.scheme {
                    push_proto(&mut list, scheme);
                }
            }
            list.extend_from_slice(b", ");
        }
        let is_only_element = list.is_empty();
        push_forwarded_for(&mut list, peer.remote.map(|remote| remote.ip()));
        if is_only_element {
            // The proxy's client is unknown, but not what it requested.
            push_host(&mut list, &facts.authority());
            push_proto(&mut list, facts.scheme);
        } else {
            push_host(&mut list, head.authority().unwrap_or_default());
            push_proto(&mut list, peer.scheme);
        }
        list
    }
}

/// The rightmost address that is not a trusted proxy's, or the first one.
fn client_of(
    nodes: impl DoubleEndedIterator<Item = Option<IpAddr>> + ExactSizeIterator,
    trusted: &TrustedProxies,
) -> usize {
    let last = nodes.len().saturating_sub(1);
    let is_proxy = |node: &Option<IpAddr>| node.is_some_and(|ip| trusted.contains_address(ip));
    last - nodes.rev().take_while(is_proxy).count().min(last)
}

/// Members of a list without quoted strings.
fn members(fields: &Fields, name: Name) -> impl Iterator<Item = &[u8]> {
    let values = fields.get_all(name);
    values
        .flat_map(|value| value.split(|&byte| byte == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|member| !member.is_empty())
}

/// The member that was written so many hops before the last one, or the first: many proxies keep the
/// value of the outermost one.
fn member_of_hop(fields: &Fields, name: Name, hops: usize) -> Option<&str> {
    let members: Vec<_> = members(fields, name).collect();
    let at = members.len().saturating_sub(hops + 1);
    members.get(at).copied().and_then(text_of)
}

fn text_of(member: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(member).ok()?;
    let inner = text.strip_prefix('"');
    Some(
        inner
            .and_then(|rest| rest.strip_suffix('"'))
            .unwrap_or(text),
    )
}

/// The authority without its port; an IPv6 address keeps its brackets.
fn without_port(authority: &str) -> &str {
    let port_len = port_of(authority.as_bytes()).map_or(0, <[u8]>::len);
    let host = &authority[..authority.len() - port_len];
    host.strip_suffix(':').unwrap_or(host)
}

fn with_port(host: &str, port: u16) -> String {
    format!("{}:{port}", without_port(host))
}

#[cfg(test)]
mod tests;
