//! A peer that reads messages of HTTP/1.1 piece by piece.

use std::fmt::Debug;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use socket2::SockRef;

use crate::IO_TIMEOUT;
use crate::raw::set_timeouts;

/// A blocking connection: TCP, a unix socket, or TLS.
pub trait PeerStream: Read + Write + Send + Debug {
    /// Limits each read and write.
    fn set_timeouts(&mut self);

    /// Limits each read.
    fn set_read_timeout(&mut self, timeout: Option<Duration>);

    /// Sends FIN; reading continues.
    ///
    /// # Errors
    /// The connection is closed already.
    fn fin(&mut self) -> io::Result<()>;

    /// The socket, if the stream is one of TCP without TLS.
    fn as_tcp(&self) -> Option<&TcpStream> {
        None
    }
}

/// A received head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The first line.
    pub line: String,
    /// Names in lower case, and values.
    pub fields: Vec<(String, String)>,
}

/// One end of a connection, with a limit for every wait.
#[derive(Debug)]
pub struct H1Peer {
    reader: BufReader<Box<dyn PeerStream>>,
    heads: Option<Arc<Mutex<Vec<Head>>>>,
}

impl Head {
    /// The only field of that name (lower case).
    ///
    /// # Panics
    /// When there are several.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut values = self
            .fields
            .iter()
            .filter(|(other, _)| other == name)
            .map(|(_, value)| value.as_str());
        let value = values.next();
        assert_eq!(values.next(), None, "{name} twice in {self:?}");
        value
    }
}

impl H1Peer {
    /// The end of an open connection.
    pub fn new(mut stream: impl PeerStream + 'static) -> H1Peer {
        stream.set_timeouts();
        H1Peer {
            reader: BufReader::new(Box::new(stream)),
            heads: None,
        }
    }

    /// Adds each head that it reads to this list.
    #[must_use]
    pub fn recording(self, heads: Arc<Mutex<Vec<Head>>>) -> H1Peer {
        H1Peer {
            heads: Some(heads),
            ..self
        }
    }

    /// Sends `bytes` unchanged; false if the other side has closed.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.reader.get_mut().write_all(bytes.as_ref()).is_ok()
    }

    /// The next head; `None` if the other side closes first.
    ///
    /// # Panics
    /// When a field has no colon.
    pub fn head(&mut self) -> Option<Head> {
        let head = Head {
            line: self.line()?,
            fields: self.fields()?,
        };
        if let Some(heads) = &self.heads {
            heads
                .lock()
                .expect("no test panics here")
                .push(head.clone());
        }
        Some(head)
    }

    /// The fields of a head or of trailers, with the empty line behind them.
    pub(crate) fn fields(&mut self) -> Option<Vec<(String, String)>> {
        let mut fields = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Some(fields);
            }
            let (name, value) = line.split_once(':').expect("a field has a colon");
            let value = value.strip_prefix(' ').unwrap_or(value);
            fields.push((name.to_ascii_lowercase(), value.to_owned()));
        }
    }

    /// The next request and its content; `None` if the other side closes first.
    ///
    /// # Panics
    /// When it is malformed.
    pub fn request(&mut self) -> Option<(Head, Vec<u8>)> {
        let head = self.head()?;
        let content = match head.field("content-length") {
            Some(length) => self.exactly(length.parse().expect("a length is a number"))?,
            None if head.field("transfer-encoding").is_some() => self.chunks()?,
            None => Vec::new(),
        };
        Some((head, content))
    }

    /// Chunked content; trailers are dropped.
    ///
    /// # Panics
    /// When it is malformed.
    pub fn chunks(&mut self) -> Option<Vec<u8>> {
        let mut content = Vec::new();
        loop {
            let size = usize::from_str_radix(&self.line()?, 16);
            let size = size.expect("a chunk begins with its size");
            if size == 0 {
                self.fields()?;
                return Some(content);
            }
            content.extend(self.exactly(size)?);
            assert_eq!(self.line()?, "", "a chunk ends with CRLF");
        }
    }

    /// So many bytes; `None` if the other side closes before.
    pub fn exactly(&mut self, length: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.reader.read_exact(&mut bytes).ok()?;
        Some(bytes)
    }

    /// The available bytes, or the next ones; `None` at the end.
    pub fn some(&mut self) -> Option<Vec<u8>> {
        let bytes = self.reader.fill_buf().ok()?.to_vec();
        self.reader.consume(bytes.len());
        (!bytes.is_empty()).then_some(bytes)
    }

    /// All bytes until the other side closes, and whether it closed with FIN.
    pub fn rest(&mut self) -> (Vec<u8>, bool) {
        let mut bytes = Vec::new();
        let clean = self.reader.read_to_end(&mut bytes).is_ok();
        (bytes, clean)
    }

    /// The next line without CRLF; `None` if the other side closes first.
    pub fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        self.reader.read_line(&mut line).ok()?;
        line.strip_suffix("\r\n").map(str::to_owned)
    }

    /// Whether the other side closes, with FIN or RST, without another byte.
    pub fn is_closed_by_peer(&mut self) -> bool {
        match self.reader.read(&mut [0]) {
            Ok(length) => length == 0,
            Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        }
    }

    /// Whether more bytes, or the end, come within this time.
    pub fn has_more_within(&mut self, time: Duration) -> bool {
        self.reader.get_mut().set_read_timeout(Some(time));
        let has_more = self.reader.fill_buf().is_ok();
        self.reader.get_mut().set_read_timeout(Some(IO_TIMEOUT));
        has_more
    }

    /// Reads wait without a limit.
    pub(crate) fn wait_forever(&mut self) {
        self.reader.get_mut().set_read_timeout(None);
    }

    /// Sends FIN; reading continues.
    ///
    /// # Panics
    /// When the connection is closed already.
    pub fn finish(&mut self) {
        let closed = self.reader.get_mut().fin();
        closed.expect("the connection is open");
    }

    /// Another handle to send with, while this one reads.
    ///
    /// # Panics
    /// When the stream is not one of TCP.
    pub fn writer(&self) -> TcpStream {
        self.tcp().try_clone().expect("a descriptor is free")
    }

    /// Closes with RST.
    ///
    /// # Panics
    /// When the stream is not one of TCP.
    pub fn reset(self) {
        let lingers = SockRef::from(self.tcp()).set_linger(Some(Duration::ZERO));
        lingers.expect("it closes with RST");
    }

    fn tcp(&self) -> &TcpStream {
        let tcp = self.reader.get_ref().as_tcp();
        tcp.expect("a stream of TCP")
    }
}

impl PeerStream for TcpStream {
    fn set_timeouts(&mut self) {
        set_timeouts(self);
    }

    fn set_read_timeout(&mut self, timeout: Option<Duration>) {
        TcpStream::set_read_timeout(self, timeout).expect("it has a timeout");
    }

    fn fin(&mut self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }

    fn as_tcp(&self) -> Option<&TcpStream> {
        Some(self)
    }
}

impl PeerStream for UnixStream {
    fn set_timeouts(&mut self) {
        PeerStream::set_read_timeout(self, Some(IO_TIMEOUT));
        let limited = self.set_write_timeout(Some(IO_TIMEOUT));
        limited.expect("it has a timeout");
    }

    fn set_read_timeout(&mut self, timeout: Option<Duration>) {
        UnixStream::set_read_timeout(self, timeout).expect("it has a timeout");
    }

    fn fin(&mut self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

#[cfg(feature = "quic")]
impl PeerStream for rustls::StreamOwned<rustls::ServerConnection, TcpStream> {
    fn set_timeouts(&mut self) {
        set_timeouts(&self.sock);
    }

    fn set_read_timeout(&mut self, timeout: Option<Duration>) {
        PeerStream::set_read_timeout(&mut self.sock, timeout);
    }

    /// Also tells the end within TLS.
    fn fin(&mut self) -> io::Result<()> {
        self.conn.send_close_notify();
        self.flush()?;
        self.sock.fin()
    }
}
