//! A reverse proxy as simple as one can be: blocking calls, one backend, and a connection for each request.
//!
//! It parses and writes heads with the code of the gateway, and is its opposite in how it waits: `blitz bench models`
//! compares the two. With one thread, the default, a client waits until the response to the client before is complete.
//!
//! ```text
//! blocking_proxy --listen ADDR --to ADDR [--threads N]
//! ```

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::time::Duration;
use std::{env, thread};

use blitz_proto::h1::{Client, Event, Server, Step};
use blitz_proto::{
    BodyLength, Error, Fields, Limits, Method, Name, RequestHead, ResponseHead, Status,
};

/// The longest silence of either side.
const TIMEOUT: Duration = Duration::from_secs(30);

fn main() -> Result<(), String> {
    let flag = |name: &str| env::args().skip_while(|word| word != name).nth(1);
    let address = |name: &str| {
        let value = flag(name).ok_or(format!("{name} is missing"))?;
        let parsed = value.parse::<SocketAddr>();
        parsed.map_err(|error| format!("{name} {value}: {error}"))
    };
    let (listen, to) = (address("--listen")?, address("--to")?);
    let threads = flag("--threads").unwrap_or_else(|| "1".to_owned());
    let threads: u16 = threads.parse().map_err(|_| "--threads needs a number")?;
    let listener = TcpListener::bind(listen).map_err(|error| format!("{listen}: {error}"))?;
    // Every thread accepts for itself; the kernel wakes one of them for each connection.
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| accept(&listener, to));
        }
    });
    Ok(())
}

fn accept(listener: &TcpListener, to: SocketAddr) {
    loop {
        match listener.accept() {
            // The client of a failed exchange sees the end of its connection; the next one is served.
            Ok((client, _)) => drop(serve(client, to)),
            // Mostly too many descriptors, which take a while to be closed.
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// One request and its response. A failure before the response becomes its status.
fn serve(client: TcpStream, to: SocketAddr) -> io::Result<()> {
    let limits = Limits::default();
    let mut exchange = Exchange {
        client: Peer::new(client)?,
        server: Server::new(&limits),
        upstream: Client::new(&limits),
        trailers: Fields::new(),
    };
    exchange.server.drain();
    exchange.upstream.drain();
    let mut request = RequestHead::default();
    let result = exchange.receive_head(&mut request);
    let result = result.and_then(|length| {
        let connected = TcpStream::connect_timeout(&to, TIMEOUT).and_then(Peer::new);
        let mut backend = connected.map_err(|_| Status::BAD_GATEWAY)?;
        exchange.send_request(&mut backend, &mut request, length)?;
        exchange.relay_response(&mut backend)
    });
    if let Err(status) = result
        && !exchange.server.response_started()
    {
        let (head, out) = (ResponseHead::new(status), &mut exchange.client.out);
        exchange.server.send_head(&head, BodyLength::Empty, out);
        exchange.client.socket.write_all(out)?;
    }
    Ok(())
}

struct Exchange {
    client: Peer,
    server: Server,
    upstream: Client,
    trailers: Fields,
}

impl Exchange {
    fn receive_head(&mut self, head: &mut RequestHead) -> Result<BodyLength, Status> {
        loop {
            match self.request_event(head)? {
                Event::NeedMore => self.client.receive()?,
                Event::Head(_) if head.method == Method::Connect => {
                    return Err(Status::NOT_IMPLEMENTED);
                }
                Event::Head(length) => return Ok(length),
                _ => return Err(Status::BAD_REQUEST),
            }
        }
    }

    /// The whole content is sent before the proxy reads the response.
    fn send_request(
        &mut self,
        backend: &mut Peer,
        head: &mut RequestHead,
        length: BodyLength,
    ) -> Result<(), Status> {
        if self.server.expects_continue() {
            let interim = ResponseHead::new(Status::CONTINUE);
            self.server
                .send_informational(&interim, &mut self.client.out);
            self.client.send()?;
        }
        remove_hop_by_hop(&mut head.fields);
        self.upstream.send_request(head, length, &mut backend.out);
        loop {
            match self.request_event(head)? {
                Event::NeedMore => self.client.receive()?,
                Event::Data(range) => {
                    let data = &self.client.buffer[range];
                    let sent = self.upstream.send_data_prefix(data.len(), &mut backend.out);
                    sent.map_err(Error::status)?;
                    backend.out.extend_from_slice(data);
                    self.upstream.send_data_suffix(&mut backend.out);
                    backend.send()?;
                }
                Event::End => {
                    let ended = self
                        .upstream
                        .send_end(Some(&self.trailers), &mut backend.out);
                    ended.map_err(Error::status)?;
                    return backend.send();
                }
                _ => {}
            }
        }
    }

    fn relay_response(&mut self, backend: &mut Peer) -> Result<(), Status> {
        let mut head = ResponseHead::default();
        self.trailers.clear();
        loop {
            let (upstream, trailers) = (&mut self.upstream, &mut self.trailers);
            let mut event =
                backend.step(|input| upstream.handle_input(input, &mut head, trailers))?;
            if event == Event::NeedMore {
                self.client.send()?;
                match backend.receive() {
                    Ok(()) => continue,
                    Err(_) => event = upstream.handle_eof().map_err(Error::status)?,
                }
            }
            let out = &mut self.client.out;
            match event {
                Event::Head(_) if head.status.is_informational() => {
                    self.server.send_informational(&head, out);
                }
                Event::Head(length) => {
                    remove_hop_by_hop(&mut head.fields);
                    self.server.send_head(&head, length, out);
                }
                Event::Data(range) => {
                    let data = &backend.buffer[range];
                    let sent = self.server.send_data_prefix(data.len(), out);
                    sent.map_err(Error::status)?;
                    out.extend_from_slice(data);
                    self.server.send_data_suffix(out);
                }
                Event::End | Event::NeedMore | Event::Paused => {
                    let ended = self.server.send_end(Some(&self.trailers), out);
                    ended.map_err(Error::status)?;
                    return self.client.send();
                }
                Event::Trailers => {}
            }
        }
    }

    fn request_event(&mut self, head: &mut RequestHead) -> Result<Event, Status> {
        let (server, trailers) = (&mut self.server, &mut self.trailers);
        self.client
            .step(|input| server.handle_input(input, head, trailers))
    }
}

/// The connection to one side: bytes that were received and not yet handled, and bytes to send.
struct Peer {
    socket: TcpStream,
    buffer: Vec<u8>,
    pending: Range<usize>,
    out: Vec<u8>,
}

impl Peer {
    fn new(socket: TcpStream) -> io::Result<Peer> {
        socket.set_read_timeout(Some(TIMEOUT))?;
        socket.set_write_timeout(Some(TIMEOUT))?;
        socket.set_nodelay(true)?;
        Ok(Peer {
            socket,
            buffer: vec![0; 64 * 1024],
            pending: 0..0,
            out: Vec::new(),
        })
    }

    /// One step of a machine. The range of data refers to the whole buffer.
    fn step(&mut self, handle: impl FnOnce(&[u8]) -> Result<Step, Error>) -> Result<Event, Status> {
        let begin = self.pending.start;
        let step = handle(&self.buffer[self.pending.clone()]).map_err(Error::status)?;
        self.pending.start += step.consumed;
        Ok(match step.event {
            Event::Data(range) => Event::Data(begin + range.start..begin + range.end),
            event => event,
        })
    }

    /// At least one more byte. The machines keep what they have seen of a head.
    fn receive(&mut self) -> Result<(), Status> {
        match self.socket.read(&mut self.buffer) {
            Ok(bytes @ 1..) => self.pending = 0..bytes,
            Ok(0) | Err(_) => return Err(Status::REQUEST_TIMEOUT),
        }
        Ok(())
    }

    fn send(&mut self) -> Result<(), Status> {
        self.socket
            .write_all(&self.out)
            .map_err(|_| Status::BAD_GATEWAY)?;
        self.out.clear();
        Ok(())
    }
}

/// Removes the fields of one hop that the machines would forward: `Upgrade`, `TE`, and those that `Connection` names
/// (RFC 9110, section 7.6.1).
fn remove_hop_by_hop(fields: &mut Fields) {
    let options: Vec<&[u8]> = fields.get_all(Name::Connection).collect();
    let options = options.join(&b',');
    fields.retain(|name, _| {
        let mut options = options.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
        let is_named = options.any(|option| option.eq_ignore_ascii_case(name.as_bytes()));
        !is_named && !matches!(name.known(), Name::Upgrade | Name::Te | Name::Expect)
    });
}
