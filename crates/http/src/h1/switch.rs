//! From HTTP/1.1 to HTTP/2 on a connection in clear text (RFC 7540, section 3.2; rule 15).

use blitz_proto::h2::UpgradeSettings;
use blitz_proto::{BodyLength, Name, RequestHead};

use super::exchange::Arrived;
use super::wire::State;
use crate::exchange::Scheme;
use crate::h2::begins_like_http2;
use crate::input::Input;
use crate::recycle::Pooled;
use crate::transport::Transport;

/// A connection whose client may go on with HTTP/2, and the request that is its stream 1.
pub(crate) struct Switch {
    pub(crate) transport: Transport,
    pub(crate) request: Pooled<RequestHead>,
    pub(crate) settings: UpgradeSettings,
    /// What came after the request.
    pub(crate) input: Input,
}

impl State {
    /// Grants the request's wish for h2c, or has it answered as if there were none: the client has
    /// to be content with either.
    #[cold]
    pub(super) fn try_switch(
        &mut self,
        mut request: Pooled<RequestHead>,
        length: BodyLength,
    ) -> Arrived {
        let side = self.side.server();
        let is_clear_text = side.peer.scheme == Scheme::Http && side.peer.tls.is_none();
        let is_ending = side.options.drain.is_triggered() || self.inbound.has_fin();
        // A client has nothing to say in HTTP/2 before it has read the 101; one that has said
        // something in HTTP/1.1 wants that answered.
        let next = self.inbound.input.front();
        let is_foreign = next.is_some_and(|next| !begins_like_http2(next));
        if !is_clear_text || is_ending || is_foreign {
            return Arrived::Request(request, length);
        }
        let Some(settings) = UpgradeSettings::of(&request) else {
            return Arrived::Request(request, length);
        };
        let Some(transport) = self.socket.take() else {
            return Arrived::Request(request, length);
        };
        // The wish is granted. `Connection` stays, since it may name other fields that concern
        // nobody but us.
        for name in [Name::Upgrade, Name::Http2Settings] {
            request.fields.remove(name);
        }
        self.cut_handles();
        Arrived::Switch(Box::new(Switch {
            transport,
            request,
            settings,
            input: std::mem::take(&mut self.inbound.input),
        }))
    }
}
