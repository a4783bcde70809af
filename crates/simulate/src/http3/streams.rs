//! The streams of a connection, as `h3` wants them.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use h3::error::Code;
use h3::quic::{self, ConnectionErrorIncoming, StreamErrorIncoming, StreamId as Number, WriteBuf};
use quinn_proto::{ConnectionError, Dir, ReadError, ReadableError, StreamId, VarInt, WriteError};

use super::quic::Quic;

/// A stream of the client in both directions.
pub(super) struct Both {
    send: Sender,
    receive: Receiver,
}

/// The client's side of a stream, on which it sends. Dropping it resets a message that has not ended.
pub(super) struct Sender {
    quic: Quic,
    id: StreamId,
    writing: Option<Writing>,
    /// Nothing was written before.
    is_fresh: bool,
    has_ended: bool,
}

/// Bytes of `h3`, or a head with a reference to the dynamic table instead.
enum Writing {
    Framed(WriteBuf<Bytes>),
    Bytes(Bytes),
}

impl Writing {
    fn buf(&mut self) -> &mut dyn Buf {
        match self {
            Writing::Framed(framed) => framed,
            Writing::Bytes(bytes) => bytes,
        }
    }
}

/// The gateway's side of a stream. Dropping it stops a message that has not ended.
pub(super) struct Receiver {
    quic: Quic,
    id: StreamId,
    has_ended: bool,
}

impl Both {
    fn new(quic: &Quic, id: StreamId) -> Both {
        Both {
            send: Sender::new(quic, id),
            receive: Receiver::new(quic, id),
        }
    }
}

impl quic::Connection<Bytes> for Quic {
    type RecvStream = Receiver;
    type OpenStreams = Quic;

    fn poll_accept_recv(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Receiver, ConnectionErrorIncoming>> {
        let accepted = ready!(self.poll_accept(Dir::Uni, cx));
        Poll::Ready(accepted.map_err(lost).map(|id| Receiver::new(self, id)))
    }

    fn poll_accept_bidi(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Both, ConnectionErrorIncoming>> {
        let accepted = ready!(self.poll_accept(Dir::Bi, cx));
        Poll::Ready(accepted.map_err(lost).map(|id| Both::new(self, id)))
    }

    fn opener(&self) -> Quic {
        self.clone()
    }
}

impl quic::OpenStreams<Bytes> for Quic {
    type BidiStream = Both;
    type SendStream = Sender;

    fn poll_open_bidi(&mut self, cx: &mut Context<'_>) -> Poll<Result<Both, StreamErrorIncoming>> {
        let opened = ready!(self.poll_open(Dir::Bi, cx));
        Poll::Ready(opened.map_err(lost_with).map(|id| Both::new(self, id)))
    }

    fn poll_open_send(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Sender, StreamErrorIncoming>> {
        let opened = ready!(self.poll_open(Dir::Uni, cx));
        Poll::Ready(opened.map_err(lost_with).map(|id| Sender::new(self, id)))
    }

    fn close(&mut self, code: Code, reason: &[u8]) {
        Quic::close(self, code.value(), reason);
    }
}

impl Quic {
    /// The bytes that are written instead of a request's head.
    fn refer(&self, head: WriteBuf<Bytes>) -> Writing {
        let mut head = Some(head);
        let referring = self.dynamic(|dynamic| Some(dynamic.refer(self, head.take()?)));
        match (referring.flatten(), head) {
            (Some(bytes), _) => Writing::Bytes(bytes.into()),
            (None, Some(head)) => Writing::Framed(head),
            (None, None) => unreachable!("a head that is taken is returned"),
        }
    }
}

impl Sender {
    fn new(quic: &Quic, id: StreamId) -> Sender {
        Sender {
            quic: quic.clone(),
            id,
            writing: None,
            is_fresh: true,
            has_ended: false,
        }
    }

    /// Writes some bytes.
    fn poll_write(
        &mut self,
        cx: &Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize, StreamErrorIncoming>> {
        if let Some(error) = self.quic.lost() {
            return Poll::Ready(Err(lost_with(error)));
        }
        match self
            .quic
            .with(|quic| quic.send_stream(self.id).write(bytes))
        {
            Ok(written) => {
                self.quic.note_written();
                Poll::Ready(Ok(written))
            }
            Err(WriteError::Blocked) => self.quic.await_writable(self.id, cx),
            Err(WriteError::Stopped(code)) => {
                Poll::Ready(Err(StreamErrorIncoming::StreamTerminated {
                    error_code: code.into_inner(),
                }))
            }
            Err(error @ WriteError::ClosedStream) => {
                Poll::Ready(Err(StreamErrorIncoming::Unknown(Box::new(error))))
            }
        }
    }
}

impl quic::SendStream<Bytes> for Sender {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        while let Some(mut writing) = self.writing.take() {
            if !writing.buf().has_remaining() {
                break;
            }
            let polled = self.poll_write(cx, writing.buf().chunk());
            if let Poll::Ready(Ok(written)) = polled {
                writing.buf().advance(written);
            }
            self.writing = Some(writing);
            ready!(polled)?;
        }
        Poll::Ready(Ok(()))
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        assert!(self.writing.is_none(), "h3 awaits `poll_ready`");
        let data = data.into();
        let is_fresh = std::mem::take(&mut self.is_fresh);
        self.writing = Some(match self.id.dir() {
            _ if !is_fresh => Writing::Framed(data),
            Dir::Uni => {
                let id = self.id;
                let first = data.chunk();
                self.quic.dynamic(|dynamic| dynamic.note_stream(id, first));
                Writing::Framed(data)
            }
            Dir::Bi => self.quic.refer(data),
        });
        Ok(())
    }

    fn poll_finish(&mut self, _: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.has_ended = true;
        let finished = self.quic.with(|quic| quic.send_stream(self.id).finish());
        Poll::Ready(finished.map_err(|error| StreamErrorIncoming::Unknown(Box::new(error))))
    }

    fn reset(&mut self, code: u64) {
        self.has_ended = true;
        let code = VarInt::from_u64(code).unwrap_or(VarInt::MAX);
        // A stream that the gateway has stopped or has received completely is not reset.
        let _ = self.quic.with(|quic| quic.send_stream(self.id).reset(code));
    }

    fn send_id(&self) -> Number {
        number(self.id)
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if !self.has_ended {
            quic::SendStream::reset(self, Code::H3_REQUEST_CANCELLED.value());
        }
    }
}

impl Receiver {
    fn new(quic: &Quic, id: StreamId) -> Receiver {
        Receiver {
            quic: quic.clone(),
            id,
            has_ended: false,
        }
    }

    /// The next bytes; `None` at the end.
    fn read(&self) -> Result<Option<Bytes>, ReadError> {
        self.quic.with(|quic| {
            let mut stream = quic.recv_stream(self.id);
            let mut chunks = match stream.read(true) {
                Ok(chunks) => chunks,
                // Its end was read before.
                Err(ReadableError::ClosedStream | ReadableError::IllegalOrderedRead) => {
                    return Ok(None);
                }
            };
            let next = chunks.next(usize::MAX);
            // The connection is driven in any case.
            let _ = chunks.finalize();
            next.map(|chunk| chunk.map(|chunk| chunk.bytes))
        })
    }
}

impl quic::RecvStream for Receiver {
    type Buf = Bytes;

    fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        match self.read() {
            Ok(Some(bytes)) => {
                self.quic.note_read();
                Poll::Ready(Ok(Some(bytes)))
            }
            Ok(None) => {
                self.has_ended = true;
                self.quic.note_read();
                Poll::Ready(Ok(None))
            }
            Err(ReadError::Reset(code)) => {
                self.has_ended = true;
                Poll::Ready(Err(StreamErrorIncoming::StreamTerminated {
                    error_code: code.into_inner(),
                }))
            }
            Err(ReadError::Blocked) => match self.quic.lost() {
                Some(error) => Poll::Ready(Err(lost_with(error))),
                None => self.quic.await_readable(self.id, cx),
            },
        }
    }

    fn stop_sending(&mut self, code: u64) {
        self.has_ended = true;
        let code = VarInt::from_u64(code).unwrap_or(VarInt::MAX);
        // A stream that has ended is not stopped.
        let _ = self.quic.with(|quic| quic.recv_stream(self.id).stop(code));
    }

    fn recv_id(&self) -> Number {
        number(self.id)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        if !self.has_ended {
            quic::RecvStream::stop_sending(self, Code::H3_REQUEST_CANCELLED.value());
        }
    }
}

impl quic::SendStream<Bytes> for Both {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.send.poll_ready(cx)
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        self.send.send_data(data)
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.send.poll_finish(cx)
    }

    fn reset(&mut self, code: u64) {
        self.send.reset(code);
    }

    fn send_id(&self) -> Number {
        self.send.send_id()
    }
}

impl quic::RecvStream for Both {
    type Buf = Bytes;

    fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        self.receive.poll_data(cx)
    }

    fn stop_sending(&mut self, code: u64) {
        self.receive.stop_sending(code);
    }

    fn recv_id(&self) -> Number {
        self.receive.recv_id()
    }
}

impl quic::BidiStream<Bytes> for Both {
    type SendStream = Sender;
    type RecvStream = Receiver;

    fn split(self) -> (Sender, Receiver) {
        (self.send, self.receive)
    }
}

fn number(id: StreamId) -> Number {
    let number = u64::from(id);
    number.try_into().expect("h3 knows all numbers of QUIC")
}

fn lost(error: ConnectionError) -> ConnectionErrorIncoming {
    match error {
        ConnectionError::ApplicationClosed(close) => ConnectionErrorIncoming::ApplicationClose {
            error_code: close.error_code.into_inner(),
        },
        ConnectionError::TimedOut => ConnectionErrorIncoming::Timeout,
        error => ConnectionErrorIncoming::Undefined(Arc::new(error)),
    }
}

fn lost_with(error: ConnectionError) -> StreamErrorIncoming {
    StreamErrorIncoming::ConnectionErrorIncoming {
        connection_error: lost(error),
    }
}
