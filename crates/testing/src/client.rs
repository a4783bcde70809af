//! A client that sends bytes unchanged and reads one response at a time.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use crate::IO_TIMEOUT;

/// One connection.
#[derive(Debug)]
pub struct Client {
    reader: BufReader<TcpStream>,
}

/// A complete response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// Names in lower case, values trimmed, in order.
    pub fields: Vec<(String, String)>,
    /// The content, without chunked coding.
    pub body: Vec<u8>,
}

impl Client {
    /// Connects.
    ///
    /// # Panics
    /// When the connection is not accepted.
    pub fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect_timeout(&address, IO_TIMEOUT).expect("a server listens");
        stream
            .set_read_timeout(Some(IO_TIMEOUT))
            .expect("a timeout can be set");
        stream
            .set_write_timeout(Some(IO_TIMEOUT))
            .expect("a timeout can be set");
        stream.set_nodelay(true).expect("nodelay can be set");
        Client {
            reader: BufReader::new(stream),
        }
    }

    /// Sends `bytes` unchanged.
    ///
    /// # Panics
    /// When they cannot be sent.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.reader
            .get_mut()
            .write_all(bytes.as_ref())
            .expect("the bytes can be sent");
    }

    /// Sends FIN; the response can still be read.
    ///
    /// # Panics
    /// When the connection is closed already.
    pub fn finish(&mut self) {
        self.reader
            .get_ref()
            .shutdown(Shutdown::Write)
            .expect("the connection is open");
    }

    /// Sends a GET request for `path` and reads the response.
    pub fn get(&mut self, path: &str) -> Response {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n"));
        self.response()
    }

    /// Reads the next response, which may be informational.
    ///
    /// # Panics
    /// When the response is malformed or incomplete.
    pub fn response(&mut self) -> Response {
        let first = self.line();
        let status = first
            .strip_prefix("HTTP/1.1 ")
            .and_then(|rest| rest.get(..3));
        let status = status.and_then(|code| code.parse().ok());
        let status = status.unwrap_or_else(|| panic!("not a status line: {first:?}"));
        let mut response = Response {
            status,
            fields: self.fields(),
            body: Vec::new(),
        };
        response.body = self.body(&response);
        response
    }

    /// Reads until the peer closes or resets the connection.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // An error is a reset; the bytes before it were received.
        let _ = self.reader.read_to_end(&mut bytes);
        bytes
    }

    fn body(&mut self, response: &Response) -> Vec<u8> {
        if response.status < 200 || matches!(response.status, 204 | 304) {
            return Vec::new();
        }
        if response.field("transfer-encoding") == Some("chunked") {
            return self.chunks();
        }
        match response.field("content-length") {
            Some(length) => self.exactly(length.parse().expect("a length is a number")),
            None => self.rest(),
        }
    }

    fn chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let line = self.line();
            let size = usize::from_str_radix(&line, 16).expect("a chunk begins with its size");
            if size == 0 {
                self.fields();
                return body;
            }
            body.extend(self.exactly(size));
            assert_eq!(self.line(), "", "a chunk ends with CRLF");
        }
    }

    fn exactly(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.reader
            .read_exact(&mut bytes)
            .expect("the body has the declared length");
        bytes
    }

    fn fields(&mut self) -> Vec<(String, String)> {
        let mut fields = Vec::new();
        loop {
            let line = self.line();
            if line.is_empty() {
                return fields;
            }
            let (name, value) = line.split_once(':').expect("a field has a colon");
            fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).expect("a line arrives");
        assert!(line.ends_with("\r\n"), "a line ends with CRLF: {line:?}");
        line.truncate(line.len() - 2);
        line
    }
}

impl Response {
    /// The first field of that name (lower case).
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields
            .iter()
            .find(|(found, _)| found == name)
            .map(|(_, value)| value.as_str())
    }

    /// The content as text.
    ///
    /// # Panics
    /// When it is not UTF-8.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the body is text")
    }
}
