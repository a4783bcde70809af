//! Adapters for hyper: streams, an executor and a clock.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use blitz_reactor::simulation::{Stream, World};
use hyper::rt::{Executor, Read, ReadBufCursor, Write};

use crate::tls::{self, Carrier, Session};

/// Bytes of one read.
const READ_BYTES: usize = 16 * 1024;

/// Pauses of one reader.
const PAUSES_MAX: u32 = 5;

/// The connection preface of a client and the header of a frame (RFC 9113, sections 3.4 and 4.1).
const PREFACE_BYTES: usize = 24;
const FRAME_HEADER_BYTES: usize = 9;

/// Type and flags of the frame that acknowledges SETTINGS.
const SETTINGS_ACK: [u8; 2] = [0x4, 0x1];

/// A simulated stream with hyper's traits. Other owners may reset the same stream.
#[derive(Clone)]
pub(crate) struct HyperIo {
    stream: Rc<Stream>,
    /// Called when bytes were read or written.
    moved: Rc<dyn Fn()>,
    settings: Option<Rc<SettingsWatch>>,
    session: Option<Rc<RefCell<Session>>>,
    /// Kept, since clearing it for every read would be a tenth of a run.
    buffer: Rc<RefCell<[u8; READ_BYTES]>>,
}

impl HyperIo {
    pub(crate) fn new(stream: Rc<Stream>, moved: impl Fn() + 'static) -> HyperIo {
        HyperIo {
            stream,
            moved: Rc::new(moved),
            settings: None,
            session: None,
            buffer: Rc::new(RefCell::new([0; READ_BYTES])),
        }
    }

    /// Shows what a server of HTTP/2 reads to `settings`.
    pub(crate) fn watched_by(mut self, settings: Rc<SettingsWatch>) -> HyperIo {
        self.settings = Some(settings);
        self
    }

    /// Completes a TLS handshake; from then on the stream carries ciphertext.
    ///
    /// # Errors
    /// The handshake fails, or the stream ends before it is complete.
    pub(crate) async fn secured(mut self, mut session: Session) -> io::Result<HyperIo> {
        poll_fn(|cx| tls::poll_handshake(&mut session, &self, cx)).await?;
        self.session = Some(Rc::new(RefCell::new(session)));
        Ok(self)
    }
}

impl Carrier for HyperIo {
    fn poll_receive(&self, cx: &Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let read = self.stream.poll_read(cx, into);
        if matches!(read, Poll::Ready(Ok(1..))) {
            (self.moved)();
        }
        read
    }

    fn poll_send(&self, cx: &Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = self.stream.poll_write(cx, bytes);
        if matches!(written, Poll::Ready(Ok(_))) {
            (self.moved)();
        }
        written
    }
}

/// Finds the acknowledgement of SETTINGS in the bytes that a client of HTTP/2 sends.
///
/// hyper's server never grants a window again that its handler has released before the client
/// acknowledged a smaller initial window (h2 0.4.20), and the upload stops for good.
pub(crate) struct SettingsWatch {
    is_acknowledged: Cell<bool>,
    /// Bytes to skip before the next frame begins.
    skip: Cell<usize>,
    header: RefCell<Vec<u8>>,
}

impl SettingsWatch {
    pub(crate) fn new() -> SettingsWatch {
        SettingsWatch {
            is_acknowledged: Cell::new(false),
            skip: Cell::new(PREFACE_BYTES),
            header: RefCell::default(),
        }
    }

    pub(crate) fn is_acknowledged(&self) -> bool {
        self.is_acknowledged.get()
    }

    fn take(&self, mut bytes: &[u8]) {
        let mut header = self.header.borrow_mut();
        while !self.is_acknowledged() {
            let skipped = self.skip.get().min(bytes.len());
            self.skip.set(self.skip.get() - skipped);
            bytes = &bytes[skipped..];
            let taken = (FRAME_HEADER_BYTES - header.len()).min(bytes.len());
            header.extend(&bytes[..taken]);
            bytes = &bytes[taken..];
            let &[high, middle, low, kind, flags, ..] = header.as_slice() else {
                return;
            };
            if header.len() < FRAME_HEADER_BYTES {
                return;
            }
            self.is_acknowledged.set([kind, flags] == SETTINGS_ACK);
            self.skip
                .set(u32::from_be_bytes([0, high, middle, low]) as usize);
            header.clear();
        }
    }
}

impl Read for HyperIo {
    fn poll_read(
        self: Pin<&mut HyperIo>,
        cx: &mut Context<'_>,
        mut into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut buffer = self.buffer.borrow_mut();
        let room = into.remaining().min(READ_BYTES);
        let read = match &self.session {
            None => self.poll_receive(cx, &mut buffer[..room]),
            Some(session) => {
                tls::poll_read(&mut session.borrow_mut(), &*self, cx, &mut buffer[..room])
            }
        };
        read.map_ok(|n| {
            if let Some(settings) = &self.settings {
                settings.take(&buffer[..n]);
            }
            into.put_slice(&buffer[..n]);
        })
    }
}

impl Write for HyperIo {
    fn poll_write(
        self: Pin<&mut HyperIo>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &self.session {
            None => self.poll_send(cx, bytes),
            Some(session) => tls::poll_write(&mut session.borrow_mut(), &*self, cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut HyperIo>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.session {
            None => Poll::Ready(Ok(())),
            Some(session) => tls::poll_flush(&mut session.borrow_mut(), &*self, cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut HyperIo>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(session) = &self.session {
            session.borrow_mut().close();
            ready!(tls::poll_flush(&mut session.borrow_mut(), &*self, cx))?;
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acknowledgement_is_found_wherever_reads_end() {
        let mut sent = blitz_testing::h2::PREFACE.to_vec();
        // SETTINGS with one parameter, DATA that looks like an acknowledgement, and then the real one.
        sent.extend([0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 64, 0]);
        sent.extend([0, 0, 9, 0, 0, 0, 0, 0, 1, 0, 0, 0, 4, 1, 0, 0, 0, 0]);
        sent.extend([0, 0, 0, 4, 1, 0, 0, 0, 0]);
        for size in 1..=sent.len() {
            let watch = SettingsWatch::new();
            let (last, rest) = sent.split_last().expect("it is not empty");
            rest.chunks(size).for_each(|piece| watch.take(piece));
            assert!(!watch.is_acknowledged(), "in pieces of {size}");
            watch.take(&[*last]);
            assert!(watch.is_acknowledged(), "in pieces of {size}");
        }
    }
}
