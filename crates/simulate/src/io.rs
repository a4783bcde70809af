//! Adapters for hyper: streams, an executor and a clock.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use blitz_reactor::simulation::{Stream, World};
use hyper::rt::{Executor, Read, ReadBufCursor, Write};

/// Bytes of one read.
const READ_BYTES: usize = 16 * 1024;

/// Pauses of one reader.
const PAUSES_MAX: u32 = 5;

/// A simulated stream with hyper's traits. Other owners may reset the same stream.
#[derive(Clone)]
pub(crate) struct Io {
    stream: Rc<Stream>,
    /// Called when bytes were read or written.
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

/// The pauses of a reader between some pieces, at most `PAUSES_MAX`.
pub(crate) struct Pauses {
    world: World,
    pause: Option<Duration>,
    left: u32,
}

impl Pauses {
    pub(crate) fn new(world: &World, pause: Option<Duration>) -> Pauses {
        Pauses {
            world: world.clone(),
            pause,
            left: PAUSES_MAX,
        }
    }

    /// Waits if a pause is due.
    pub(crate) async fn take(&mut self) {
        if let Some(pause) = self.pause
            && self.left > 0
        {
            self.left -= 1;
            self.world.sleep(pause).await;
        }
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

/// The output of `future`; `None` if the time limit passes first.
pub(crate) async fn within<F: Future>(
    world: &World,
    limit: Option<Duration>,
    mut future: Pin<&mut F>,
) -> Option<F::Output> {
    let Some(limit) = limit else {
        return Some(future.await);
    };
    let mut over = pin!(world.sleep(limit));
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => over.as_mut().poll(cx).map(|()| None),
    })
    .await
}
