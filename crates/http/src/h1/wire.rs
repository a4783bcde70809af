use std::rc::Rc;
use std::task::{Context, Poll};

use blitz_proto::{BodyLength, Fields, RequestHead, ResponseHead};
use blitz_reactor::{Chunk, Socket};

use crate::body::{Part, SendBody, Tunnel};
use crate::client::{ClientOptions, ResponseEvent};
use crate::error::{BodyError, ClientError, SendError};
use crate::pool::Upstream;

pub(crate) struct Wire;

impl Wire {
    pub(crate) fn client(
        socket: Socket,
        options: Rc<ClientOptions>,
        upstream: Option<Upstream>,
        reused: bool,
    ) -> Rc<Wire> {
        todo!()
    }

    pub(crate) fn poll_part(
        &self,
        exchange: u32,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Part>, BodyError>> {
        todo!()
    }

    pub(crate) fn drop_recv(&self, exchange: u32) {
        todo!()
    }

    pub(crate) fn poll_room(
        &self,
        exchange: u32,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), SendError>> {
        todo!()
    }

    pub(crate) fn send_data(&self, exchange: u32, chunk: Chunk) -> Result<(), SendError> {
        todo!()
    }

    pub(crate) fn send_end(
        &self,
        exchange: u32,
        trailers: Option<&Fields>,
    ) -> Result<(), SendError> {
        todo!()
    }

    pub(crate) fn drop_send(&self, exchange: u32) {
        todo!()
    }

    pub(crate) fn send_informational(&self, exchange: u32, head: &ResponseHead) {
        todo!()
    }

    pub(crate) fn expects_continue(&self, exchange: u32) -> bool {
        todo!()
    }

    pub(crate) fn upgrade_requested(&self, exchange: u32) -> bool {
        todo!()
    }

    pub(crate) fn start_response(
        wire: Rc<Wire>,
        exchange: u32,
        head: &mut ResponseHead,
        length: BodyLength,
    ) -> SendBody {
        todo!()
    }

    pub(crate) fn send_response(&self, exchange: u32, head: &mut ResponseHead, content: Chunk) {
        todo!()
    }

    pub(crate) fn start_tunnel(wire: Rc<Wire>, exchange: u32, head: &mut ResponseHead) -> Tunnel {
        todo!()
    }

    pub(crate) fn abort(&self, exchange: u32) {
        todo!()
    }

    pub(crate) fn poll_closed(&self, exchange: u32, cx: &mut Context<'_>) -> Poll<()> {
        todo!()
    }

    pub(crate) fn drop_responder(&self, exchange: u32) {
        todo!()
    }

    pub(crate) fn start_request(
        wire: &Rc<Wire>,
        head: &RequestHead,
        length: BodyLength,
    ) -> (SendBody, u32) {
        todo!()
    }

    pub(crate) fn poll_response(
        wire: &Rc<Wire>,
        exchange: u32,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ResponseEvent, ClientError>> {
        todo!()
    }

    pub(crate) fn drop_response_stream(&self, exchange: u32) {
        todo!()
    }
}
