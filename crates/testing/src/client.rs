//! A client that sends bytes unchanged and reads one response at a time.

use std::net::{SocketAddr, TcpStream};

use crate::IO_TIMEOUT;
use crate::peer::H1Peer;

/// One connection.
#[derive(Debug)]
pub struct Client {
    peer: H1Peer,
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
        Client {
            peer: H1Peer::new(stream),
        }
    }

    /// Sends `bytes` unchanged.
    ///
    /// # Panics
    /// When they cannot be sent.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        assert!(self.peer.send(bytes), "the bytes can be sent");
    }

    /// Sends FIN; the response can still be read.
    ///
    /// # Panics
    /// When the connection is closed already.
    pub fn finish(&mut self) {
        self.peer.finish();
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
        let first = self.peer.line().expect("a line arrives");
        let status = first
            .strip_prefix("HTTP/1.1 ")
            .and_then(|rest| rest.get(..3));
        let status = status.and_then(|code| code.parse().ok());
        let status = status.unwrap_or_else(|| panic!("not a status line: {first:?}"));
        let fields = self.peer.fields().expect("the head is complete");
        let trimmed = |(name, value): (String, String)| (name, value.trim().to_owned());
        let mut response = Response {
            status,
            fields: fields.into_iter().map(trimmed).collect(),
            body: Vec::new(),
        };
        response.body = self.body(&response);
        response
    }

    /// Reads until the peer closes or resets the connection.
    pub fn rest(&mut self) -> Vec<u8> {
        self.peer.rest().0
    }

    fn body(&mut self, response: &Response) -> Vec<u8> {
        if response.status < 200 || matches!(response.status, 204 | 304) {
            return Vec::new();
        }
        if response.field("transfer-encoding") == Some("chunked") {
            return self.peer.chunks().expect("the chunks are complete");
        }
        let Some(length) = response.field("content-length") else {
            return self.rest();
        };
        let content = self
            .peer
            .exactly(length.parse().expect("a length is a number"));
        content.expect("the body has the declared length")
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

    /// All fields of that name (lower case).
    pub fn all(&self, name: &str) -> Vec<&str> {
        let fields = self.fields.iter().filter(|(found, _)| found == name);
        fields.map(|(_, value)| value.as_str()).collect()
    }

    /// The content as text.
    ///
    /// # Panics
    /// When it is not UTF-8.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the body is text")
    }
}
