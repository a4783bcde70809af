//! Fields of forwarded messages: hop-by-hop fields are removed, forwarding fields are added
//! (RFC 9110 section 7.6, RFC 7239).
//!
//! Heads are edited in place. `Host`, framing and `Connection` are not touched here: the machine
//! that encodes the head writes them from target, length and its own state. The client's `Host` is
//! kept, because applications build links from it or serve several sites.

mod cdn_loop;
mod connection_options;
mod forwarded;
mod forwarding_headers;
mod presence;
mod proxy_facts;
mod quoted;

use std::net::IpAddr;

use blitz_http::{BodyLength, FieldName, Fields, Name, RequestHead, ResponseHead, Version};

use connection_options::{remove_all_named_by_connection, remove_named_by_connection};
use forwarding_headers::{add_client_certificate, add_forwarding, add_request_id, via};
use presence::{
    FORWARDING, NOT_IN_TRAILERS, OWN, PresenceSet, REQUEST_HOP, RESPONSE_HOP, is_in,
    is_other_forwarding, is_spoofed, set_of,
};
use proxy_facts::{FACTS, add_forwarding_of_proxy};

pub use cdn_loop::{InvalidLoopId, LoopId};
pub(crate) use connection_options::contains_token;
pub(crate) use forwarding_headers::ForwardedClient;
pub(crate) use proxy_facts::{ProxyFacts, told_client};

/// Why a request is not forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotForwarded {
    /// `Connection` names more fields than any legitimate client needs: 400.
    TooManyConnectionOptions,
    /// `CDN-Loop` has this gateway's identifier: 502.
    Loop,
}

/// Prepares a request for its upstream; returns the client that a trusted proxy tells. `scratch` is
/// working memory.
#[inline(never)]
pub(crate) fn edit_request(
    head: &mut RequestHead,
    client: &ForwardedClient<'_>,
    scratch: &mut Vec<u8>,
) -> Result<Option<IpAddr>, NotForwarded> {
    let present = PresenceSet::of(&head.fields);
    // With our own identifier, the request has passed this gateway before (RFC 8586, section 2).
    if present.has(Name::CdnLoop) && client.loop_id.is_in(&head.fields) {
        return Err(NotForwarded::Loop);
    }
    if present.has(Name::Connection) {
        remove_named_by_connection(&mut head.fields, scratch)?;
    }
    let accepts_trailers =
        present.has(Name::Te) && contains_token(&head.fields, Name::Te, "trailers");
    let mut removed = if client.is_trusted {
        REQUEST_HOP
    } else {
        REQUEST_HOP | FORWARDING
    };
    if present.has(Name::Expect) {
        if may_expect(head.version, client.length) {
            // Some servers know the expectation only if it is the whole value, and the only line.
            head.fields.set(Name::Expect, "100-continue");
        } else {
            removed |= set_of(&[Name::Expect]);
        }
    }
    if present.names & removed != 0 || present.has_others {
        head.fields.retain(|name, _| {
            let is_allowed = client.is_trusted || !is_other_forwarding(name);
            !is_in(removed, name) && is_allowed && !is_spoofed(name)
        });
    }
    if let Some(protocol) = client.upgrade {
        head.fields.append(Name::Upgrade, protocol);
    }
    if accepts_trailers {
        head.fields.append(Name::Te, "trailers");
    }
    let left = PresenceSet {
        names: present.names & !removed,
        ..present
    };
    if client.sends_via {
        head.fields.append(Name::Via, via(head.version));
    }
    head.fields.append(Name::CdnLoop, client.loop_id.as_str());
    let told = if left.names & FACTS == 0 {
        add_forwarding(head, client.peer, scratch);
        None
    } else {
        add_forwarding_of_proxy(head, client.peer, client.trusted_proxies)
    };
    // After the forwarding fields, which have the host that the client named, or none.
    if head.authority().is_none_or(str::is_empty) {
        head.set_authority(client.default_authority);
    }
    if client.sends_certificate {
        add_client_certificate(&mut head.fields, client.peer);
    }
    add_request_id(&mut head.fields, client.random, left);
    Ok(told)
}

/// Whether the upstream may get `Expect: 100-continue`, the only expectation that is forwarded.
///
/// RFC 9110, section 10.1.1: "A client MUST NOT generate a 100-continue expectation in a request that
/// does not include content", which some servers would wait for; and "A server that receives a
/// 100-continue expectation in an HTTP/1.0 request MUST ignore that expectation", while the upstream
/// would take it for one of HTTP/1.1.
fn may_expect(version: Version, length: BodyLength) -> bool {
    let has_content = matches!(length, BodyLength::Known(1..) | BodyLength::Unknown);
    has_content && version != Version::Http10
}

/// Whether the gateway writes the field in forwarded requests.
pub(crate) fn is_of_gateway(name: FieldName<'_>) -> bool {
    is_in(FORWARDING | OWN, name)
}

/// Makes sure that a request that ends here has an id that can be told.
pub(crate) fn ensure_request_id(fields: &mut Fields) {
    add_request_id(fields, blitz_http::random_u64, PresenceSet::of(fields));
}

/// Gives a response of the gateway's own the request's id, or a new one.
pub(crate) fn add_request_id_to_response(request: &Fields, response: &mut ResponseHead) {
    let mut id = Fields::new();
    for value in request.get_all(Name::XRequestId) {
        id.append(Name::XRequestId, value);
    }
    ensure_request_id(&mut id);
    if let Some(id) = id.get(Name::XRequestId) {
        response.fields.append(Name::XRequestId, id);
    }
}

/// Prepares a response, final or interim, for the client. `scratch` is working memory.
#[inline(never)]
pub(crate) fn edit_response(head: &mut ResponseHead, sends_via: bool, scratch: &mut Vec<u8>) {
    let present = PresenceSet::of(&head.fields);
    if present.has(Name::Connection)
        && remove_named_by_connection(&mut head.fields, scratch).is_err()
    {
        remove_all_named_by_connection(&mut head.fields);
    }
    if present.names & RESPONSE_HOP != 0 {
        head.fields.retain(|name, _| !is_in(RESPONSE_HOP, name));
    }
    if sends_via && !head.status.is_informational() {
        head.fields.append(Name::Via, via(head.version));
    }
}

/// Prepares trailers of either direction: fields that frame, route or authenticate are not allowed
/// there (RFC 9110 section 6.5.1).
pub(crate) fn edit_trailers(fields: &mut Fields) {
    fields.retain(|name, _| {
        !is_in(NOT_IN_TRAILERS, name) && !is_other_forwarding(name) && !is_spoofed(name)
    });
}

#[cfg(test)]
mod tests;
