//! From HTTP/1.1 to HTTP/2 on a connection in clear text (RFC 7540, section 3.2; rule 15).

use blitz_proto::h2::UpgradeSettings;
use blitz_proto::{BodyLength, FieldName, Fields, Name, RequestHead};

use super::driver::Driver;
use super::run::Arrived;
use super::server::ServerRole;
use crate::conn::h2::{begins_like_http2, may_begin_like_http2};
use crate::exchange::{Peer, Scheme};
use crate::input::Input;
use crate::options::ServeOptions;
use crate::recycle::Pooled;
use crate::transport::Transport;

/// A connection whose client continues with HTTP/2, and the request that is its stream 1.
pub(crate) struct Switch {
    pub(crate) transport: Transport,
    pub(crate) request: Pooled<RequestHead>,
    pub(crate) settings: UpgradeSettings,
    /// The bytes behind the request.
    pub(crate) input: Input,
}

impl Driver<ServerRole> {
    /// Switches to HTTP/2 if the listener allows it, or has the response sent over HTTP/1.1.
    #[cold]
    pub(super) fn try_switch(
        &mut self,
        mut request: Pooled<RequestHead>,
        length: BodyLength,
    ) -> Arrived {
        let ServerRole { peer, options, .. } = &self.role;
        let is_clear_text = peer.scheme == Scheme::Http && peer.tls.is_none();
        let is_allowed = is_clear_text && allows_h2c(options, peer, &request.fields);
        let is_ending = options.drain.is_triggered() || self.has_fin();
        // Bytes that do not begin like HTTP/2 are a pipelined request of HTTP/1.1, which gets its response
        // there.
        let next = self.input.front();
        let is_foreign =
            next.is_some_and(|next| !begins_like_http2(next) && !may_begin_like_http2(next));
        if !is_allowed || is_ending || is_foreign {
            return Arrived::Request(request, length);
        }
        let Some(settings) = UpgradeSettings::of(&request) else {
            return Arrived::Request(request, length);
        };
        let Some(transport) = self.socket.take() else {
            return Arrived::Request(request, length);
        };
        // `Connection` stays, since it may name other hop-by-hop fields.
        for name in [Name::Upgrade, Name::Http2Settings] {
            request.fields.remove(name);
        }
        self.detach_handles();
        Arrived::Switch(Box::new(Switch {
            transport,
            request,
            settings,
            input: std::mem::take(&mut self.input),
        }))
    }
}

/// Whether the client of this request may switch. A switched connection carries later requests past
/// the access rules of a proxy in front, so a request that a proxy has forwarded never switches, nor
/// does a client of a unix socket, which usually is a proxy.
fn allows_h2c(options: &ServeOptions, peer: &Peer, fields: &Fields) -> bool {
    let is_allowed = options.h2c_upgrade.as_ref();
    peer.remote.is_some()
        && is_allowed.is_some_and(|is_allowed| is_allowed(peer))
        && !fields.iter().any(|(name, _)| is_of_proxy(name))
}

/// Whether a proxy writes this field. `X_Forwarded_For` and `X.Forwarded.For` count as well: some
/// proxies and applications take them for the same name.
fn is_of_proxy(name: FieldName<'_>) -> bool {
    const EXACT: [&[u8]; 4] = [b"via", b"forwarded", b"cdn-loop", b"x-real-ip"];
    const PREFIX: &[u8] = b"x-forwarded";
    let name = name.as_bytes();
    let is_exact = EXACT.iter().any(|exact| is_spelling_of(name, exact));
    is_exact
        || name
            .get(..PREFIX.len())
            .is_some_and(|start| is_spelling_of(start, PREFIX))
}

/// `name` in any case, with dots or underscores for hyphens.
fn is_spelling_of(name: &[u8], plain: &[u8]) -> bool {
    let same = |(&byte, &wanted): (&u8, &u8)| match byte {
        b'.' | b'_' => wanted == b'-',
        byte => byte.eq_ignore_ascii_case(&wanted),
    };
    name.len() == plain.len() && name.iter().zip(plain).all(same)
}
