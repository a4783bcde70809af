//! The fields of a message as they go on: what ends at the gateway is removed, what the gateway
//! has to say about the client is added (RFC 9110 section 7.6, RFC 7239).
//!
//! Heads are edited where they lie. `Host`, framing and `Connection` are not touched here: the
//! machine that encodes the head writes them from the target, the length and its own state. The
//! client's `Host` is kept, as applications expect that build links or serve several sites.

mod adding;
mod connection;
mod names;
mod websocket;

pub(crate) use websocket::{NoKey, WebSocket};

use blitz_http::{Fields, Name, Peer, RequestHead, ResponseHead};

use adding::{add_client_certificate, add_forwarding, add_request_id, via};
use connection::{TooManyConnectionOptions, contains_token, remove_named_by_connection};
use names::{
    CLAIMS, NOT_IN_TRAILERS, REQUEST_HOP, RESPONSE_HOP, Survey, is_claim, is_imitation, is_in,
};

/// What is added to a request, and on whose word.
pub(crate) struct Client<'a> {
    /// The connection the request came in on.
    pub(crate) peer: &'a Peer,
    /// Whether the client is a proxy whose forwarding fields are believed.
    pub(crate) trusted: bool,
    /// Whether the request [is for a WebSocket](WebSocket::wanted) and may have it.
    pub(crate) websocket: bool,
    /// Host and port to ask for if the client named none.
    pub(crate) default_authority: &'a str,
    /// Whether the upstream is told who the client has proved to be.
    pub(crate) client_cert: bool,
    /// Numbers nobody can guess, for the request's id.
    pub(crate) random: fn() -> u64,
}

/// Prepares a request for its upstream. `scratch` is working memory.
pub(crate) fn edit_request(
    head: &mut RequestHead,
    client: &Client<'_>,
    scratch: &mut Vec<u8>,
) -> Result<(), TooManyConnectionOptions> {
    let seen = Survey::of(&head.fields);
    if seen.has(Name::Connection) {
        remove_named_by_connection(&mut head.fields, scratch)?;
    }
    let wants_trailers = seen.has(Name::Te) && contains_token(&head.fields, Name::Te, "trailers");
    let removed = if client.trusted {
        REQUEST_HOP
    } else {
        REQUEST_HOP | CLAIMS
    };
    if seen.names & removed != 0 || seen.claims {
        head.fields.retain(|name, _| {
            let believed = client.trusted || !is_claim(name);
            !is_in(removed, name) && believed && !is_imitation(name)
        });
    }
    if client.websocket {
        head.fields.append(Name::Upgrade, "websocket");
    }
    if wants_trailers {
        head.fields.append(Name::Te, "trailers");
    }
    if head.authority().is_none_or(str::is_empty) {
        head.set_authority(client.default_authority);
    }
    let left = Survey {
        names: seen.names & !removed,
        ..seen
    };
    add_forwarding(head, client, left, scratch);
    if client.client_cert {
        add_client_certificate(&mut head.fields, client.peer);
    }
    add_request_id(&mut head.fields, client.random, left);
    Ok(())
}

/// Prepares a response, final or informational, for the client. `scratch` is working memory.
pub(crate) fn edit_response(head: &mut ResponseHead, scratch: &mut Vec<u8>) {
    let seen = Survey::of(&head.fields);
    if seen.has(Name::Connection) {
        // There is nobody to refuse a response to: what is named beyond the bound stays.
        let _ = remove_named_by_connection(&mut head.fields, scratch);
    }
    if seen.names & RESPONSE_HOP != 0 {
        head.fields.retain(|name, _| !is_in(RESPONSE_HOP, name));
    }
    if !head.status.is_informational() {
        head.fields.append(Name::Via, via(head.version));
    }
}

/// Prepares trailers of either direction: fields that frame, route or authenticate have no
/// business there (RFC 9110 section 6.5.1).
pub(crate) fn edit_trailers(fields: &mut Fields) {
    fields
        .retain(|name, _| !is_in(NOT_IN_TRAILERS, name) && !is_claim(name) && !is_imitation(name));
}

#[cfg(test)]
mod tests;
