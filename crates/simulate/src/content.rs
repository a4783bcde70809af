//! Contents that follow from a seed: sent in pieces with pauses, and compared byte by byte.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use blitz_reactor::simulation::World;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::plan::Content;
use crate::random::Random;

/// Pauses of a content, about.
const PAUSES: u64 = 10;

/// The byte at a place of the content with this seed.
fn byte(seed: u64, at: u64) -> u8 {
    let word = Random::new(seed ^ (at / 8)).next();
    word.to_le_bytes()[(at % 8) as usize]
}

/// All of a content.
pub(crate) fn whole(content: &Content) -> Vec<u8> {
    (0..content.bytes)
        .map(|at| byte(content.seed, at))
        .collect()
}

/// A content on its way out.
pub(crate) struct Sending {
    content: Content,
    at: u64,
    random: Random,
    world: World,
    pause: Option<Pin<Box<dyn Future<Output = ()>>>>,
    /// Where sending fails, if it does.
    fails_at: Option<u64>,
}

/// That a content ends on purpose before it is complete.
#[derive(Debug)]
pub(crate) struct GivenUp;

impl std::fmt::Display for GivenUp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("given up on purpose")
    }
}

impl std::error::Error for GivenUp {}

impl From<Infallible> for GivenUp {
    fn from(never: Infallible) -> GivenUp {
        match never {}
    }
}

impl Sending {
    pub(crate) fn new(content: &Content, world: &World, fails_at: Option<u64>) -> Sending {
        Sending {
            content: content.clone(),
            at: 0,
            random: Random::new(!content.seed),
            world: world.clone(),
            pause: None,
            fails_at,
        }
    }
}

impl Body for Sending {
    type Data = Bytes;
    type Error = GivenUp;

    fn poll_frame(
        self: Pin<&mut Sending>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, GivenUp>>> {
        let this = self.get_mut();
        if let Some(pause) = &mut this.pause {
            std::task::ready!(pause.as_mut().poll(cx));
            this.pause = None;
        }
        let end = this.fails_at.unwrap_or(this.content.bytes);
        if this.at >= end {
            return Poll::Ready(this.fails_at.map(|_| Err(GivenUp)));
        }
        let n = this
            .random
            .within(1..=this.content.piece)
            .min(end - this.at);
        let piece: Vec<u8> = (this.at..this.at + n)
            .map(|at| byte(this.content.seed, at))
            .collect();
        this.at += n;
        if let Some(pause) = this.content.pause
            && this
                .random
                .chance(500 * PAUSES * this.content.piece / this.content.bytes)
        {
            let world = this.world.clone();
            this.pause = Some(Box::pin(async move { world.sleep(pause).await }));
        }
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(piece)))))
    }

    fn is_end_stream(&self) -> bool {
        self.content.bytes == 0 && self.fails_at.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match self.content.is_sized {
            true => SizeHint::with_exact(self.content.bytes - self.at),
            false => SizeHint::default(),
        }
    }
}

/// A content on its way in.
pub(crate) struct Receiving<'a> {
    content: &'a Content,
    at: u64,
}

impl Receiving<'_> {
    pub(crate) fn new(content: &Content) -> Receiving<'_> {
        Receiving { content, at: 0 }
    }

    /// Compares the next bytes.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<(), String> {
        for &got in bytes {
            if self.at >= self.content.bytes {
                return Err(format!("a byte behind all {} of the content", self.at));
            }
            let wanted = byte(self.content.seed, self.at);
            if got != wanted {
                return Err(format!(
                    "byte {} of {} is {got:#04x} and not {wanted:#04x}",
                    self.at, self.content.bytes
                ));
            }
            self.at += 1;
        }
        Ok(())
    }

    pub(crate) fn end(&self) -> Result<(), String> {
        match self.at == self.content.bytes {
            true => Ok(()),
            false => Err(format!(
                "it ends after {} of {} bytes as if it were complete",
                self.at, self.content.bytes
            )),
        }
    }
}
