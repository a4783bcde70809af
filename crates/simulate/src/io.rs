//! What hyper needs of a machine: streams, an executor and a clock.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use blitz_reactor::simulation::{Stream, World};
use hyper::rt::{Executor, Read, ReadBufCursor, Write};

/// Bytes of one read.
const READ_BYTES: usize = 16 * 1024;

/// A stream of the simulation as hyper reads and writes it. Others may reset the same stream.
#[derive(Clone)]
pub(crate) struct Io {
    stream: Rc<Stream>,
    /// Called when bytes have moved.
    moved: Rc<dyn Fn()>,
}

impl Io {
    pub(crate) fn new(stream: Rc<Stream>, moved: impl Fn() + 'static) -> Io {
        Io {
            stream,
            moved: Rc::new(moved),
        }
    }
}

impl Read for Io {
    fn poll_read(
        self: Pin<&mut Io>,
        cx: &mut Context<'_>,
        mut into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut buffer = [0; READ_BYTES];
        let room = into.remaining().min(READ_BYTES);
        let read = self.stream.poll_read(cx, &mut buffer[..room]);
        read.map_ok(|n| {
            if n > 0 {
                (self.moved)();
            }
            into.put_slice(&buffer[..n]);
        })
    }
}

impl Write for Io {
    fn poll_write(
        self: Pin<&mut Io>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = self.stream.poll_write(cx, bytes);
        if matches!(written, Poll::Ready(Ok(_))) {
            (self.moved)();
        }
        written
    }

    fn poll_flush(self: Pin<&mut Io>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Io>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.shutdown_write();
        Poll::Ready(Ok(()))
    }
}

/// Runs hyper's tasks as peers of the simulation.
#[derive(Clone)]
pub(crate) struct Tasks(pub(crate) World);

impl<F> Executor<F> for Tasks
where
    F: Future + 'static,
{
    fn execute(&self, future: F) {
        self.0.spawn(async move {
            future.await;
        });
    }
}
