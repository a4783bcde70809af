//! A client that writes the frames and field sections of HTTP/3 byte by byte.

use quinn::{RecvStream, SendStream};

use crate::h3_support::{Quic, QuicServer, soon};

pub(crate) use blitz_testing::h3::kind::{DATA, HEADERS, SETTINGS};
pub(crate) use blitz_testing::h3::{frame, integer};

/// Types of streams.
pub(crate) const CONTROL: u64 = 0x0;
pub(crate) const ENCODER: u64 = 0x2;
pub(crate) const DECODER: u64 = 0x3;

pub(crate) fn data(content: impl AsRef<[u8]>) -> Vec<u8> {
    frame(DATA, content)
}

/// HEADERS with literal fields.
pub(crate) fn headers(fields: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, section(fields))
}

/// A field section of literals (RFC 9204, section 4.5.6), which refers to no table.
pub(crate) fn section(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut section = vec![0, 0];
    for (name, value) in fields {
        string(0x20, 3, name, &mut section);
        string(0, 7, value, &mut section);
    }
    section
}

/// An integer of QPACK behind the bits of `first`.
pub(crate) fn prefixed(first: u8, bits: u32, mut value: usize, out: &mut Vec<u8>) {
    let max = (1 << bits) - 1;
    if value < max {
        return out.push(first | value as u8);
    }
    out.push(first | max as u8);
    value -= max;
    while value >= 128 {
        out.push(value as u8 | 128);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(crate) fn string(first: u8, bits: u32, text: &str, out: &mut Vec<u8>) {
    prefixed(first, bits, text.len(), out);
    out.extend_from_slice(text.as_bytes());
}

/// HEADERS of a request.
pub(crate) fn request(method: &str, path: &str) -> Vec<u8> {
    request_with(method, path, &[])
}

pub(crate) fn request_with(method: &str, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let fields = [
        (":method", method),
        (":scheme", "https"),
        (":authority", "localhost"),
        (":path", path),
    ];
    headers(&[&fields, more].concat())
}

/// How a stream of the server has ended.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(crate) enum End {
    Fin,
    Reset(u64),
    /// The connection was closed with this code.
    Closed(u64),
}

/// A response as frames.
#[derive(Debug)]
pub(crate) struct Response {
    /// The final status is the last; a status of `None` belongs to trailers.
    pub(crate) heads: Vec<Option<u16>>,
    pub(crate) content: Vec<u8>,
    pub(crate) end: End,
}

impl Response {
    #[track_caller]
    pub(crate) fn expect(&self, status: u16, content: impl AsRef<[u8]>) {
        assert_eq!(self.end, End::Fin, "{self:?}");
        assert_eq!(self.heads.first(), Some(&Some(status)), "{self:?}");
        assert!(self.content == content.as_ref(), "{self:?}");
    }
}

/// A stream with a request.
pub(crate) struct Exchange {
    pub(crate) send: SendStream,
    pub(crate) recv: RecvStream,
    arrived: Vec<u8>,
}

/// A client with its control stream open.
pub(crate) struct RawClient {
    pub(crate) quic: Quic,
    /// It would end with its handle.
    _control: SendStream,
}

impl RawClient {
    pub(crate) async fn connect(server: &QuicServer) -> RawClient {
        RawClient::begin(server.quic().await).await
    }

    /// Opens the control stream.
    pub(crate) async fn begin(quic: Quic) -> RawClient {
        let mut control = quic.stream(CONTROL).await;
        control.write_all(&frame(SETTINGS, [])).await.unwrap();
        RawClient::over(quic, control)
    }

    /// On a connection with such a control stream.
    pub(crate) fn over(quic: Quic, control: SendStream) -> RawClient {
        RawClient {
            quic,
            _control: control,
        }
    }

    pub(crate) async fn exchange(&self, bytes: impl AsRef<[u8]>) -> Exchange {
        self.quic.exchange(bytes).await
    }

    /// A complete request and its response.
    pub(crate) async fn ask(&self, bytes: impl AsRef<[u8]>) -> Response {
        let mut exchange = self.exchange(bytes).await;
        exchange.send.finish().unwrap();
        exchange.response().await
    }

    /// Nothing that came before has harmed the connection.
    pub(crate) async fn hello(&self) {
        self.ask(request("GET", "/hello"))
            .await
            .expect(200, "hello");
    }
}

impl Quic {
    /// Opens a stream in one direction.
    pub(crate) async fn stream(&self, kind: u64) -> SendStream {
        let mut stream = soon(self.connection.open_uni()).await.unwrap();
        stream.write_all(&integer(kind)).await.unwrap();
        stream
    }

    /// Opens a stream with a request, and does not end it.
    pub(crate) async fn exchange(&self, bytes: impl AsRef<[u8]>) -> Exchange {
        let (mut send, recv) = soon(self.connection.open_bi()).await.unwrap();
        send.write_all(bytes.as_ref()).await.unwrap();
        Exchange {
            send,
            recv,
            arrived: Vec::new(),
        }
    }

    /// Accepts the server's stream of this type.
    pub(crate) async fn accept(&self, wanted: u64) -> RecvStream {
        loop {
            let mut stream = soon(self.connection.accept_uni()).await.unwrap();
            let mut kind = [0];
            soon(stream.read_exact(&mut kind)).await.unwrap();
            if u64::from(kind[0]) == wanted {
                return stream;
            }
        }
    }
}

impl Exchange {
    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        soon(self.send.write_all(bytes.as_ref())).await.unwrap();
    }

    /// Writes bytes that leave at once.
    pub(crate) async fn write_alone(&mut self, bytes: impl AsRef<[u8]>) {
        self.write(bytes).await;
        crate::h3_support::pause(2).await;
    }

    /// The next frame, or how the stream has ended.
    pub(crate) async fn frame(&mut self) -> Result<(u64, Vec<u8>), End> {
        next_frame(&mut self.recv, &mut self.arrived).await
    }

    /// The next frame, which carries content.
    pub(crate) async fn content(&mut self) -> Vec<u8> {
        match self.frame().await {
            Ok((DATA, content)) => content,
            other => panic!("no DATA: {other:?}"),
        }
    }

    pub(crate) async fn response(&mut self) -> Response {
        let (mut heads, mut content) = (Vec::new(), Vec::new());
        let end = loop {
            match self.frame().await {
                Ok((HEADERS, section)) => heads.push(status(&section)),
                Ok((DATA, piece)) => content.extend_from_slice(&piece),
                Ok((kind, _)) => panic!("frame of type {kind:#x}"),
                Err(end) => break end,
            }
        };
        Response {
            heads,
            content,
            end,
        }
    }

    /// The code with which the server resets its direction.
    pub(crate) async fn reset_code(&mut self) -> u64 {
        let response = self.response().await;
        match response.end {
            End::Reset(code) => code,
            _ => panic!("{response:?}"),
        }
    }

    /// The code with which the server stops ours.
    pub(crate) async fn stop_code(&mut self) -> Option<u64> {
        let stopped = soon(self.send.stopped()).await.unwrap();
        stopped.map(quinn::VarInt::into_inner)
    }
}

/// The next frame of a stream; `arrived` keeps what came behind it.
pub(crate) async fn next_frame(
    stream: &mut RecvStream,
    arrived: &mut Vec<u8>,
) -> Result<(u64, Vec<u8>), End> {
    loop {
        if let Some((kind, len, at)) = header(arrived)
            && arrived.len() >= at + len
        {
            let payload = arrived[at..at + len].to_vec();
            arrived.drain(..at + len);
            return Ok((kind, payload));
        }
        match soon(stream.read_chunk(usize::MAX, true)).await {
            Ok(Some(chunk)) => arrived.extend_from_slice(&chunk.bytes),
            Ok(None) => {
                assert!(arrived.is_empty(), "an incomplete frame: {arrived:?}");
                return Err(End::Fin);
            }
            Err(quinn::ReadError::Reset(code)) => return Err(End::Reset(code.into_inner())),
            Err(quinn::ReadError::ConnectionLost(quinn::ConnectionError::ApplicationClosed(
                close,
            ))) => return Err(End::Closed(close.error_code.into_inner())),
            Err(other) => panic!("{other}"),
        }
    }
}

/// Type and length of the first frame, and where its payload begins.
fn header(bytes: &[u8]) -> Option<(u64, usize, usize)> {
    let (kind, first) = read_integer(bytes)?;
    let (len, second) = read_integer(&bytes[first..])?;
    Some((kind, len as usize, first + second))
}

/// An integer of QUIC and the number of its bytes.
pub(crate) fn read_integer(bytes: &[u8]) -> Option<(u64, usize)> {
    let len = 1 << (bytes.first()? >> 6);
    let mut value = u64::from(bytes[0] & 0x3f);
    for byte in bytes.get(1..len)? {
        value = value << 8 | u64::from(*byte);
    }
    Some((value, len))
}

/// `:status`, if it is the first line of a section.
fn status(section: &[u8]) -> Option<u16> {
    assert_eq!(section[..2], [0, 0], "there is no dynamic table");
    let line = &section[2..];
    let index = match line {
        // An indexed line of the static table.
        [first, ..] if first & 0xC0 == 0xC0 && first & 0x3f != 0x3f => u64::from(first & 0x3f),
        [0xff, second, ..] => 63 + u64::from(*second),
        // A literal with a name of the static table: 24 or later is `:status`.
        [0x5f, index, length, value @ ..]
            if (9..14).contains(index) || (48..57).contains(index) =>
        {
            let len = usize::from(length & 0x7f);
            return Some(digits(&value[..len], length & 0x80 != 0));
        }
        _ => return None,
    };
    let statuses = [(24..29, &[103, 200, 304, 404, 503][..]), (63..72, LATE)];
    let found = statuses.iter().find(|(range, _)| range.contains(&index))?;
    Some(found.1[(index - found.0.start) as usize])
}

/// Statuses from 63 on in the static table (RFC 9204, appendix A).
const LATE: &[u16] = &[100, 204, 206, 302, 400, 403, 421, 425, 500];

/// Three digits, in Huffman code or not.
fn digits(value: &[u8], is_coded: bool) -> u16 {
    if !is_coded {
        return std::str::from_utf8(value).unwrap().parse().unwrap();
    }
    let bits = value
        .iter()
        .flat_map(|byte| (0..8).rev().map(move |at| byte >> at & 1));
    let (mut number, mut code, mut len, mut count) = (0, 0, 0, 0);
    for bit in bits {
        (code, len) = (code << 1 | u16::from(bit), len + 1);
        let digit = match (len, code) {
            (5, 0..=2) => code,
            (6, 25..=31) => code - 22,
            _ => continue,
        };
        (number, code, len, count) = (number * 10 + digit, 0, 0, count + 1);
        if count == 3 {
            break;
        }
    }
    assert_eq!(count, 3, "three digits: {value:x?}");
    number
}
