//! Content that follows from a seed: sent in pieces with pauses, and compared byte by byte.

use std::convert::Infallible;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use blitz_reactor::simulation::World;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use http_body::{Body, Frame, SizeHint};

use crate::plan::{Call, ContentPlan};
use crate::random::Random;

/// Average number of pauses of one content.
const PAUSES: u64 = 10;

const WORD_BYTES: u64 = 8;

/// The field with the number of a request, in the request and in its response.
pub(crate) const ID: &str = "x-id";

/// A field with the same number, from QPACK's dynamic table.
pub(crate) const DYNAMIC: &str = "x-dynamic";

/// The trailer field with the seed of the content.
pub(crate) const TRAILER: &str = "x-trailer";

/// The status of a call.
const GRPC_STATUS: &str = "grpc-status";

/// The prefix of gRPC messages and of gRPC-Web trailers: a flag and a length.
const FRAME_HEADER_BYTES: usize = 5;

/// The flag of trailers.
const TRAILERS_FLAG: u8 = 0x80;

/// These bytes of the content with this seed: a random word for every eight.
fn part(seed: u64, range: Range<u64>) -> Bytes {
    let words = range.start / WORD_BYTES..range.end.div_ceil(WORD_BYTES);
    let skip = (range.start % WORD_BYTES) as usize;
    let length = (range.end - range.start) as usize;
    let mut bytes = Vec::with_capacity(skip + length + WORD_BYTES as usize);
    for at in words {
        bytes.extend_from_slice(&Random::new(seed ^ at).next().to_le_bytes());
    }
    Bytes::from(bytes).slice(skip..skip + length)
}

/// All of a content.
pub(crate) fn whole(content: &ContentPlan) -> Bytes {
    part(content.seed, 0..content.bytes)
}

/// The trailers that follow a content.
pub(crate) fn trailers(content: &ContentPlan) -> [(&'static str, String); 2] {
    [
        (GRPC_STATUS, "0".to_owned()),
        (TRAILER, content.seed.to_string()),
    ]
}

/// Content that is being sent.
pub(crate) struct OutgoingContent {
    content: ContentPlan,
    /// The encoded content, which is sent instead.
    encoded: Option<Vec<u8>>,
    at: u64,
    has_sent_trailers: bool,
    random: Random,
    world: World,
    pause: Option<Pin<Box<dyn Future<Output = ()>>>>,
    /// The offset at which sending fails as planned.
    fails_at: Option<u64>,
}

/// The error of content that ends early as planned.
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

impl OutgoingContent {
    pub(crate) fn new(
        content: &ContentPlan,
        world: &World,
        fails_at: Option<u64>,
    ) -> OutgoingContent {
        OutgoingContent {
            content: content.clone(),
            encoded: None,
            at: 0,
            has_sent_trailers: false,
            random: Random::new(!content.seed),
            world: world.clone(),
            pause: None,
            fails_at,
        }
    }

    /// As the client of a call sends it.
    pub(crate) fn called(mut self, call: Option<Call>) -> OutgoingContent {
        if call == Some(Call::WebText) {
            self.encoded = Some(BASE64_STANDARD.encode(whole(&self.content)).into_bytes());
        }
        self
    }

    fn len(&self) -> u64 {
        let encoded = self.encoded.as_ref();
        encoded.map_or(self.content.bytes, |encoded| encoded.len() as u64)
    }

    fn piece(&self, range: Range<u64>) -> Bytes {
        match &self.encoded {
            Some(encoded) => {
                Bytes::copy_from_slice(&encoded[range.start as usize..range.end as usize])
            }
            None => part(self.content.seed, range),
        }
    }

    /// The end of the content: an error, trailers, or nothing.
    fn end(&mut self) -> Option<Result<Frame<Bytes>, GivenUp>> {
        if self.fails_at.is_some() {
            return Some(Err(GivenUp));
        }
        let is_due = self.content.has_trailers && !self.has_sent_trailers;
        self.has_sent_trailers = true;
        is_due.then(|| {
            let fields = trailers(&self.content).map(|(name, value)| {
                let value = HeaderValue::try_from(value).expect("digits are a valid value");
                (http::HeaderName::from_static(name), value)
            });
            Ok(Frame::trailers(HeaderMap::from_iter(fields)))
        })
    }
}

impl Body for OutgoingContent {
    type Data = Bytes;
    type Error = GivenUp;

    fn poll_frame(
        self: Pin<&mut OutgoingContent>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, GivenUp>>> {
        let this = self.get_mut();
        if let Some(pause) = &mut this.pause {
            std::task::ready!(pause.as_mut().poll(cx));
            this.pause = None;
        }
        let end = this.fails_at.unwrap_or(this.len());
        if this.at >= end {
            return Poll::Ready(this.end());
        }
        let n = this
            .random
            .within(1..=this.content.piece)
            .min(end - this.at);
        let piece = this.piece(this.at..this.at + n);
        this.at += n;
        // A shortened plan may have no content left, and still send some before its fault.
        let chance = (500 * PAUSES * this.content.piece).checked_div(this.content.bytes);
        if let Some(pause) = this.content.pause
            && this.random.chance(chance.unwrap_or(0))
        {
            let world = this.world.clone();
            this.pause = Some(Box::pin(async move { world.sleep(pause).await }));
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.content.bytes == 0 && self.fails_at.is_none() && !self.content.has_trailers
    }

    fn size_hint(&self) -> SizeHint {
        match self.content.is_sized {
            true => SizeHint::with_exact(self.len() - self.at),
            false => SizeHint::default(),
        }
    }
}

/// Content that is being received.
pub(crate) struct IncomingContent<'a> {
    content: &'a ContentPlan,
    at: u64,
    has_trailers: bool,
    /// A gRPC-Web response, which is compared when it is complete.
    web: Option<Web>,
}

struct Web {
    is_text: bool,
    received: Vec<u8>,
}

impl IncomingContent<'_> {
    pub(crate) fn new(content: &ContentPlan) -> IncomingContent<'_> {
        IncomingContent {
            content,
            at: 0,
            has_trailers: false,
            web: None,
        }
    }

    /// The response to a call, as its client receives it.
    pub(crate) fn called(mut self, call: Option<Call>) -> Self {
        if let Some(Call::Web | Call::WebText) = call {
            self.web = Some(Web {
                is_text: call == Some(Call::WebText),
                received: Vec::new(),
            });
        }
        self
    }

    /// Compares the next frame.
    pub(crate) fn take_frame(&mut self, frame: &Frame<Bytes>) -> Result<(), String> {
        if let Some(bytes) = frame.data_ref() {
            return self.take(bytes);
        }
        let Some(fields) = frame.trailers_ref() else {
            return Ok(());
        };
        let field = fields.get(TRAILER).map(HeaderValue::as_bytes);
        self.take_trailer(field)
    }

    /// Compares the trailer with the seed of the content.
    pub(crate) fn take_trailer(&mut self, field: Option<&[u8]>) -> Result<(), String> {
        if field != Some(self.content.seed.to_string().as_bytes()) {
            return Err(format!("the trailer is {field:?}"));
        }
        self.has_trailers = true;
        Ok(())
    }

    /// Compares the next bytes.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<(), String> {
        if let Some(web) = &mut self.web {
            web.received.extend_from_slice(bytes);
            return Ok(());
        }
        let end = self.content.bytes.min(self.at + bytes.len() as u64);
        let wanted = part(self.content.seed, self.at..end);
        let differs = |(got, wanted)| got != wanted;
        if let Some(place) = bytes.iter().zip(&wanted).position(differs) {
            return Err(format!(
                "byte {} of {} is {:#04x} and not {:#04x}",
                self.at + place as u64,
                self.content.bytes,
                bytes[place],
                wanted[place]
            ));
        }
        self.at = end;
        match bytes.len() > wanted.len() {
            true => Err(format!("a byte behind all {end} of the content")),
            false => Ok(()),
        }
    }

    pub(crate) fn end(&mut self) -> Result<(), String> {
        if let Some(web) = self.web.take() {
            self.end_web(web)?;
        }
        if self.at != self.content.bytes {
            return Err(format!(
                "it ends after {} of {} bytes as if it were complete",
                self.at, self.content.bytes
            ));
        }
        match self.content.has_trailers == self.has_trailers {
            true => Ok(()),
            false => Err(format!("trailers: {}", self.has_trailers)),
        }
    }

    /// Splits a gRPC-Web response into content and a frame of trailers.
    fn end_web(&mut self, web: Web) -> Result<(), String> {
        let mut bytes = web.received;
        if web.is_text {
            // Every piece is encoded by itself, so that padding may stand in the middle.
            let mut decoded = Vec::with_capacity(bytes.len());
            for quad in bytes.chunks(4) {
                let three = BASE64_STANDARD.decode(quad);
                decoded.extend(three.map_err(|error| format!("base64: {error}"))?);
            }
            bytes = decoded;
        }
        let content = (self.content.bytes as usize).min(bytes.len());
        let frame = bytes.split_off(content);
        self.take(&bytes)?;
        let Some(([flag, length @ ..], lines)) = frame.split_first_chunk::<FRAME_HEADER_BYTES>()
        else {
            return Err(format!("no trailers behind {content} bytes"));
        };
        if *flag != TRAILERS_FLAG || u32::from_be_bytes(*length) as usize != lines.len() {
            return Err(format!("frame {flag} {length:?} of {} bytes", lines.len()));
        }
        let mut lines = lines.split(|&byte| byte == b'\n');
        let field = lines.find_map(|line| {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            line.strip_prefix(TRAILER.as_bytes())?.strip_prefix(b":")
        });
        self.take_trailer(field)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::rc::Rc;
    use std::time::Duration;

    use blitz_reactor::simulation::Conditions;

    use super::*;

    /// Shrinking halves the bytes of a response down to none, and its fault may stay behind them.
    #[test]
    fn an_empty_content_may_pause_and_fail_later() {
        let content = ContentPlan {
            pause: Some(Duration::from_millis(1)),
            ..ContentPlan::none()
        };
        let world = World::new(1, Conditions::calm());
        let sent = Rc::new(std::cell::Cell::new(None));
        let mut sending = OutgoingContent::new(&content, &world, Some(3));
        let result = Rc::clone(&sent);
        world.spawn(async move {
            let mut bytes = 0;
            while let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut sending).poll_frame(cx)).await {
                bytes += frame.data_ref().map_or(0, Bytes::len);
            }
            result.set(Some(bytes));
        });
        world.run(Duration::from_secs(1), || sent.get().is_some());
        world.close();
        assert_eq!(sent.get(), Some(3));
    }
}
