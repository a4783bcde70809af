//! One end of a tunnel: it sends and receives the planned contents, each followed by FIN.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use blitz_reactor::simulation::World;
use bytes::Bytes;
use http_body::Body;
use hyper::rt::{Read, ReadBuf, Write};

use crate::content::{IncomingContent, OutgoingContent};
use crate::plan::{ContentPlan, Fault, RequestPlan, Tunnel};
use crate::raw::Broken;

/// Bytes of one read.
const READ_BYTES: usize = 8 * 1024;

/// The end of the client. `early` holds the bytes that arrived together with the response.
pub(crate) async fn as_client(
    stream: impl Read + Write + Unpin,
    early: &[u8],
    request: &RequestPlan,
    world: &World,
) -> Result<(), Broken> {
    let waits = request.tunnel == Some(Tunnel::UpstreamFirst);
    let contents = [&request.request, &request.answer];
    let is_reset = request.request.bytes == 0 && request.tunnel != Some(Tunnel::ClientFirst);
    relay(stream, early, contents, waits, is_reset, world).await
}

/// The end of the upstream.
pub(crate) async fn as_upstream(
    stream: impl Read + Write + Unpin,
    early: &[u8],
    request: &RequestPlan,
    world: &World,
) -> Result<(), Broken> {
    let waits = request.tunnel == Some(Tunnel::ClientFirst);
    let contents = [&request.answer, &request.request];
    let ended = relay(stream, early, contents, waits, false, world).await;
    match (request.fault, ended) {
        // hyper sends FIN when its end of a tunnel is dropped.
        (Some(Fault::ClientLeaves(_)), Err(Broken::Wrong(why))) => Err(Broken::Cut(why)),
        (_, ended) => ended,
    }
}

async fn relay(
    stream: impl Read + Write + Unpin,
    early: &[u8],
    [sent, received]: [&ContentPlan; 2],
    waits: bool,
    is_reset: bool,
    world: &World,
) -> Result<(), Broken> {
    let mut receiving = IncomingContent::new(received);
    receiving.take(early).map_err(Broken::Wrong)?;
    let mut end = TunnelEnd {
        stream,
        sending: OutgoingContent::new(sent, world, None),
        piece: Bytes::new(),
        has_sent_fin: false,
        has_received_fin: false,
        waits,
        is_reset,
    };
    poll_fn(|cx| end.poll(cx, &mut receiving)).await
}

struct TunnelEnd<S> {
    stream: S,
    sending: OutgoingContent,
    /// The part of the content that is written next.
    piece: Bytes,
    has_sent_fin: bool,
    has_received_fin: bool,
    /// Sending starts after FIN was received.
    waits: bool,
    /// The gateway may reset the stream once the other end has sent all: only our FIN is missing then.
    is_reset: bool,
}

impl<S: Read + Write + Unpin> TunnelEnd<S> {
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        receiving: &mut IncomingContent<'_>,
    ) -> Poll<Result<(), Broken>> {
        let received = self.poll_receive(cx, receiving)?;
        if self.waits {
            ready!(received);
        }
        match ready!(self.poll_send(cx)) {
            Err(Broken::Cut(_)) if self.is_reset && received.is_ready() => {}
            sent => sent?,
        }
        received.map(Ok)
    }

    /// Ready once all content and FIN were sent.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        while !self.has_sent_fin {
            if !self.piece.is_empty() {
                let written = Pin::new(&mut self.stream).poll_write(cx, &self.piece);
                let n = ready!(written)?;
                drop(self.piece.split_to(n));
                continue;
            }
            match ready!(Pin::new(&mut self.sending).poll_frame(cx)) {
                Some(Ok(frame)) => self.piece = frame.into_data().unwrap_or_default(),
                Some(Err(_)) | None => {
                    ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
                    self.has_sent_fin = true;
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Ready once all content and FIN were received.
    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        receiving: &mut IncomingContent<'_>,
    ) -> Poll<Result<(), Broken>> {
        while !self.has_received_fin {
            let mut bytes = [0; READ_BYTES];
            let mut buffer = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut self.stream).poll_read(cx, buffer.unfilled()))?;
            if buffer.filled().is_empty() {
                receiving.end().map_err(Broken::Wrong)?;
                self.has_received_fin = true;
            }
            receiving.take(buffer.filled()).map_err(Broken::Wrong)?;
        }
        Poll::Ready(Ok(()))
    }
}
