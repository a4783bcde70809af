//! Streams that wait to be used again, so that steady traffic allocates none.

use std::cell::RefCell;

use super::stream::Stream;

/// Most streams kept for use by the next.
const SPARE_MAX: usize = 1_024;

#[derive(Default)]
pub(in crate::conn) struct SpareStreams {
    #[allow(
        clippy::vec_box,
        reason = "a box moves from here to its connection and back"
    )]
    streams: RefCell<Vec<Box<Stream>>>,
}

impl SpareStreams {
    /// A stream without any state of its earlier use.
    pub(in crate::conn) fn take(&self) -> Box<Stream> {
        match self.streams.borrow_mut().pop() {
            Some(mut stream) => {
                stream.renew();
                stream
            }
            None => Stream::new(),
        }
    }

    /// Keeps the memory of a finished stream, without content.
    pub(in crate::conn) fn keep(&self, mut stream: Box<Stream>) {
        let mut streams = self.streams.borrow_mut();
        if streams.len() < SPARE_MAX && stream.fits_pool() {
            stream.drop_content();
            streams.push(stream);
        }
    }
}
