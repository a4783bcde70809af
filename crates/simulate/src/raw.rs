//! A minimal HTTP/1.1 implementation for peers that break rules or use rare forms.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use blitz_reactor::simulation::{Stream, World};

use crate::content::IncomingContent;
use crate::io::HyperIo;
use crate::ledger::Pulse;
use crate::plan::RequestPlan;
use crate::random::Random;

/// One end of a connection.
pub(crate) struct Raw {
    stream: Rc<Stream>,
    world: World,
    pulse: Pulse,
    /// Received and not used.
    buffer: Vec<u8>,
    /// At least one byte of the current response was received.
    is_touched: bool,
}

/// A start line and its fields.
pub(crate) struct Head {
    pub(crate) line: String,
    fields: Vec<(String, String)>,
}

/// The framing of content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyFraming {
    None,
    Length(u64),
    Chunked,
    /// The content ends with the connection.
    Close,
}

/// Why reading failed.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The connection ended, with an error or in the middle of a message.
    Cut(String),
    /// The received bytes are not those that were sent.
    Wrong(String),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Broken {
        Broken::Cut(error.to_string())
    }
}

impl Head {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.iter();
        let field = fields.find(|(known, _)| known.eq_ignore_ascii_case(name));
        field.map(|(_, value)| value.as_str())
    }

    /// How the content of this message ends, if that of a response may end with the connection.
    pub(crate) fn framing(&self, is_response: bool) -> Result<BodyFraming, Broken> {
        if self.get("transfer-encoding") == Some("chunked") {
            return Ok(BodyFraming::Chunked);
        }
        match self.get("content-length") {
            Some(length) => match length.parse() {
                Ok(length) => Ok(BodyFraming::Length(length)),
                Err(_) => Err(Broken::Wrong(format!("Content-Length: {length}"))),
            },
            None if is_response => Ok(BodyFraming::Close),
            None => Ok(BodyFraming::None),
        }
    }

    /// The status of a response.
    pub(crate) fn status(&self) -> Result<u16, Broken> {
        let status = self
            .line
            .split(' ')
            .nth(1)
            .and_then(|text| text.parse().ok());
        status.ok_or_else(|| Broken::Wrong(format!("status line {:?}", self.line)))
    }
}

impl Raw {
    pub(crate) fn new(stream: Rc<Stream>, world: &World, pulse: Pulse) -> Raw {
        Raw {
            stream,
            world: world.clone(),
            pulse,
            buffer: Vec::new(),
            is_touched: false,
        }
    }

    pub(crate) fn pulse(&self) -> &Pulse {
        &self.pulse
    }

    /// Notes whether a part of the present response was received.
    pub(crate) fn touch(&mut self, is_touched: bool) {
        self.is_touched = is_touched;
    }

    pub(crate) fn is_untouched(&self) -> bool {
        !self.is_touched && self.buffer.is_empty()
    }

    /// Receives more; `false` after FIN.
    async fn fill(&mut self) -> io::Result<bool> {
        let mut piece = [0; 4_096];
        let n = poll_fn(|cx| self.stream.poll_read(cx, &mut piece)).await?;
        self.buffer.extend_from_slice(&piece[..n]);
        self.pulse.set(self.world.now());
        Ok(n > 0)
    }

    /// The next line, without its end.
    async fn line(&mut self) -> Result<String, Broken> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\r\n") {
                let line = String::from_utf8_lossy(&self.buffer[..end]).into_owned();
                self.buffer.drain(..end + 2);
                return Ok(line);
            }
            if !self.fill().await? {
                return Err(Broken::Cut("FIN within a line".to_owned()));
            }
        }
    }

    /// The next head; `None` if the peer sent FIN before it.
    pub(crate) async fn head(&mut self) -> Result<Option<Head>, Broken> {
        while self.buffer.is_empty() {
            if !self.fill().await? {
                return Ok(None);
            }
        }
        let line = self.line().await?;
        let mut fields = Vec::new();
        loop {
            let field = self.line().await?;
            if field.is_empty() {
                return Ok(Some(Head { line, fields }));
            }
            let Some((name, value)) = field.split_once(':') else {
                return Err(Broken::Wrong(format!("field line {field:?}")));
            };
            fields.push((name.to_owned(), value.trim().to_owned()));
        }
    }

    /// Reads content, and compares it if an expected content is given.
    pub(crate) async fn content(
        &mut self,
        framing: BodyFraming,
        mut compared: Option<&mut IncomingContent<'_>>,
    ) -> Result<(), Broken> {
        match framing {
            BodyFraming::None => {}
            BodyFraming::Length(length) => self.bytes(length, &mut compared).await?,
            BodyFraming::Chunked => loop {
                let size = self.line().await?;
                let size = u64::from_str_radix(&size, 16)
                    .map_err(|_| Broken::Wrong(format!("chunk size {size:?}")))?;
                if size == 0 {
                    // No trailers are sent in these runs.
                    self.line().await?;
                    break;
                }
                self.bytes(size, &mut compared).await?;
                self.line().await?;
            },
            BodyFraming::Close => loop {
                let all = self.buffer.len() as u64;
                self.bytes(all, &mut compared).await?;
                if !self.fill().await? {
                    break;
                }
            },
        }
        match compared {
            Some(receiving) => receiving.end().map_err(Broken::Wrong),
            None => Ok(()),
        }
    }

    async fn bytes(
        &mut self,
        length: u64,
        compared: &mut Option<&mut IncomingContent<'_>>,
    ) -> Result<(), Broken> {
        let mut left = length;
        while left > 0 {
            if self.buffer.is_empty() && !self.fill().await? {
                return Err(Broken::Cut(format!("FIN before {left} bytes of {length}")));
            }
            let n = left.min(self.buffer.len() as u64) as usize;
            if let Some(receiving) = compared {
                receiving.take(&self.buffer[..n]).map_err(Broken::Wrong)?;
            }
            self.buffer.drain(..n);
            left -= n as u64;
        }
        Ok(())
    }

    pub(crate) async fn write(&self, bytes: &[u8]) -> io::Result<()> {
        write(&self.stream, bytes).await?;
        self.pulse.set(self.world.now());
        Ok(())
    }

    /// Runs the planned tunnel.
    pub(crate) async fn tunnel(
        &mut self,
        request: &RequestPlan,
        end: impl AsyncFnOnce(HyperIo, &[u8], &RequestPlan, &World) -> Result<(), Broken>,
    ) -> Result<(), Broken> {
        let (world, pulse) = (self.world.clone(), Rc::clone(&self.pulse));
        let io = HyperIo::new(Rc::clone(&self.stream), move || pulse.set(world.now()));
        let early = std::mem::take(&mut self.buffer);
        end(io, &early, request, &self.world).await
    }

    /// Resets the connection.
    pub(crate) fn reset(self) {
        self.stream.reset_on_close();
    }
}

async fn write(stream: &Stream, bytes: &[u8]) -> io::Result<()> {
    let mut left = bytes;
    while !left.is_empty() {
        let n = poll_fn(|cx| stream.poll_write(cx, left)).await?;
        left = &left[n..];
    }
    Ok(())
}

/// Writes in pieces of random lengths with pauses, then FIN if `half_closes`. Errors show in what the reader receives.
pub(crate) async fn write_pieces(
    stream: Rc<Stream>,
    world: World,
    pulse: Pulse,
    bytes: Vec<u8>,
    seed: u64,
    half_closes: bool,
) {
    let mut random = Random::new(seed);
    let piece_max = random.one_of(&[3, 40, 1_000, 100_000]);
    let mut left = &bytes[..];
    while !left.is_empty() {
        let n = random.within(1..=piece_max).min(left.len() as u64) as usize;
        if write(&stream, &left[..n]).await.is_err() {
            return;
        }
        pulse.set(world.now());
        left = &left[n..];
        if random.chance(30) {
            world
                .sleep(Duration::from_micros(random.within(1..=30_000)))
                .await;
        }
    }
    if half_closes {
        stream.shutdown_write();
    }
}
