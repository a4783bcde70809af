//! An upstream with responses of the test, and a thread per connection.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use crate::peer::H1Peer;

/// A listening upstream; it accepts until the test process ends.
#[derive(Debug)]
pub struct Upstream {
    address: SocketAddr,
}

/// A request as the upstream received it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The request line, without its line end.
    pub line: String,
    /// Names in lower case, values trimmed, in order.
    pub fields: Vec<(String, String)>,
    /// The content, for requests with `Content-Length`.
    pub body: Vec<u8>,
}

impl Upstream {
    /// Starts an upstream that sends the bytes that `answer` returns for each request.
    ///
    /// # Panics
    /// When no port is free.
    pub fn start(answer: impl Fn(&Request) -> Vec<u8> + Send + Sync + 'static) -> Upstream {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let address = listener.local_addr().expect("the listener has an address");
        let answer = Arc::new(answer);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let answer = Arc::clone(&answer);
                thread::spawn(move || serve(stream, answer.as_ref()));
            }
        });
        Upstream { address }
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The value for `--to`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Request {
    /// The first field of that name (lower case).
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields
            .iter()
            .find(|(found, _)| found == name)
            .map(|(_, value)| value.as_str())
    }
}

fn serve(stream: TcpStream, answer: &dyn Fn(&Request) -> Vec<u8>) {
    let mut peer = H1Peer::new(stream);
    peer.wait_forever();
    while let Some(request) = read_request(&mut peer) {
        if !peer.send(answer(&request)) {
            return;
        }
    }
}

/// The next request, or `None` when the peer has closed.
fn read_request(peer: &mut H1Peer) -> Option<Request> {
    let head = peer.head()?;
    let trimmed = |(name, value): (String, String)| (name, value.trim().to_owned());
    let mut request = Request {
        line: head.line,
        fields: head.fields.into_iter().map(trimmed).collect(),
        body: Vec::new(),
    };
    let length = request
        .field("content-length")
        .and_then(|length| length.parse().ok());
    request.body = peer.exactly(length.unwrap_or(0))?;
    Some(request)
}
