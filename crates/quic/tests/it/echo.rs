//! A protocol that sends back what comes on each stream.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use blitz_quic::quinn_proto::{
    ConnectionError, Dir, FinishError, ReadError, ReadableError, StreamEvent, StreamId, WriteError,
};
use blitz_quic::{Connection, Protocol};
use bytes::Bytes;

pub(crate) struct Echo;

/// The first bytes of a stream whose echo panics, while it works on the connection and outside.
pub(crate) const PANIC: &[u8] = b"panic!";
pub(crate) const PANIC_OUTSIDE: &[u8] = b"panic outside!";

/// The server does nothing else for a while, so that the client sends much before its next turn.
pub(crate) const STOP_A_WHILE: &[u8] = b"stop a while";

/// Events that a connection has at a time: for 256 frames and those of a datagram.
const EVENTS_MAX: usize = 256 + 300;

thread_local! {
    /// Events of the connection that is driven.
    static EVENTS: Cell<usize> = const { Cell::new(0) };
}

/// The request for the client's address.
pub(crate) const ADDRESS: &[u8] = b"my address?";

/// Content of a stream that waits to be sent.
#[derive(Default)]
pub(crate) struct Waiting {
    content: Option<Bytes>,
    has_ended: bool,
}

pub(crate) type Streams = RefCell<HashMap<StreamId, Waiting>>;

impl Protocol for Echo {
    type State = Streams;

    const EXCESSIVE_LOAD: u32 = 1;

    fn connected(&self, _: &Rc<Connection<Echo>>) -> Streams {
        Streams::default()
    }

    fn stream(&self, connection: &Rc<Connection<Echo>>, event: StreamEvent) {
        EVENTS.set(EVENTS.get() + 1);
        match event {
            StreamEvent::Opened { dir } => {
                while let Some(id) = connection.with(|quic| quic.streams().accept(dir)).flatten() {
                    if dir == Dir::Bi {
                        pump(connection, id);
                    }
                }
            }
            StreamEvent::Readable { id } | StreamEvent::Writable { id } => pump(connection, id),
            StreamEvent::Finished { id } | StreamEvent::Stopped { id, .. } => {
                if let Some(streams) = connection.state() {
                    streams.borrow_mut().remove(&id);
                }
            }
            StreamEvent::Available { .. } => {}
        }
    }

    fn before_sending(&self, _: &Rc<Connection<Echo>>) {
        let events = EVENTS.take();
        assert!(events <= EVENTS_MAX, "{events} events");
    }

    fn lost(&self, _: &Rc<Connection<Echo>>, _: &ConnectionError) {}
}

/// Moves content until the stream has none, or no room.
fn pump(connection: &Rc<Connection<Echo>>, id: StreamId) {
    let Some(streams) = connection.state() else {
        return;
    };
    let mut streams = streams.borrow_mut();
    let waiting = streams.entry(id).or_default();
    let remote = connection.remote();
    let mut panics_outside = false;
    connection.with(|quic| {
        loop {
            while let Some(content) = &mut waiting.content {
                match quic
                    .send_stream(id)
                    .write_chunks(std::slice::from_mut(content))
                {
                    Ok(_) if content.is_empty() => waiting.content = None,
                    Ok(_) => {}
                    Err(
                        WriteError::Blocked | WriteError::Stopped(_) | WriteError::ClosedStream,
                    ) => {
                        return;
                    }
                }
            }
            if waiting.has_ended {
                match quic.send_stream(id).finish() {
                    Ok(()) | Err(FinishError::Stopped(_) | FinishError::ClosedStream) => {}
                }
                return;
            }
            let mut stream = quic.recv_stream(id);
            let mut chunks = match stream.read(true) {
                Ok(chunks) => chunks,
                Err(ReadableError::ClosedStream | ReadableError::IllegalOrderedRead) => return,
            };
            let next = chunks.next(64 * 1024);
            let _ = chunks.finalize();
            match next {
                Ok(Some(chunk)) => {
                    assert!(!chunk.bytes.starts_with(PANIC), "as the client wishes");
                    if chunk.bytes.starts_with(STOP_A_WHILE) {
                        std::thread::sleep(Duration::from_millis(300));
                    }
                    panics_outside |= chunk.bytes.starts_with(PANIC_OUTSIDE);
                    waiting.content = Some(match &*chunk.bytes {
                        ADDRESS => Bytes::from(remote.to_string()),
                        _ => chunk.bytes,
                    });
                }
                Ok(None) => waiting.has_ended = true,
                Err(ReadError::Blocked) => return,
                Err(ReadError::Reset(code)) => {
                    let _ = quic.send_stream(id).reset(code);
                    return;
                }
            }
        }
    });
    assert!(!panics_outside, "as the client wishes");
}
