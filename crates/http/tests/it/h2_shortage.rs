//! Clients that send content that the service does not read (rule 4).

use std::io::{ErrorKind, Write};
use std::thread;
use std::time::{Duration, Instant};

use blitz_http::{BodyLength, Method};
use blitz_proto::h2::StreamId;

use crate::h2_client::Client;
use crate::support::{IS_LATER, Server, on_each_driver};

/// Together the clients send more than a core may hold.
const CONNECTIONS: usize = 300;
const STREAMS: usize = 4;
const BYTES: usize = 60_000;

/// A core that could receive nothing for this long would shed.
const PATIENCE: Duration = Duration::from_millis(2_500);

#[test]
fn unread_uploads_leave_memory_for_others() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let content = vec![b'x'; BYTES];
        let mut clients: Vec<_> = (0..CONNECTIONS).map(|_| Upload::open(&server)).collect();
        clients.iter_mut().for_each(|upload| upload.queue(&content));
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            clients.iter_mut().for_each(Upload::write_some);
            thread::sleep(Duration::from_millis(20));
        }
        // A quarter of the memory is a reserve outside of all shares.
        let free = server.ask(blitz_reactor::fair_share) * 768;
        assert!(free > 2 << 20, "{free} bytes are free beside the reserve");
        let held = (45 << 20) - free;
        assert!(held > 20 << 20, "only {held} bytes are held");
        // A new client is served as usual, with the minimum window.
        let mut late = Upload::open(&server);
        assert_eq!(late.client.get("/hello").content, b"hello");
        late.queue(&content);
        let queued: usize = late.streams.iter().map(|(_, queued)| queued).sum();
        assert_eq!(queued, 65_535, "RFC 9113, section 6.9.2");
        clients.push(late);
        let mut other = server.connect();
        other.send("GET /hello HTTP/1.1\r\nHost: a\r\n\r\n").head();
        assert_eq!(server.ask(|| blitz_reactor::counters().shed), 0);
        server.ask(|| IS_LATER.set(true));
        for Upload { client, streams } in &mut clients {
            client.stream.set_nonblocking(false).expect("sets");
            for (stream, sent) in std::mem::take(streams) {
                client.send(stream, &content[sent..], true);
                let answer = client.answer(stream);
                assert_eq!(answer.content, BYTES.to_string().as_bytes());
            }
        }
        let counters = server.counters();
        assert_eq!((counters.body_timeouts, counters.cancelled), (0, 0));
        assert!(counters.held_back > 0, "no connection had to wait");
        assert_eq!(server.ask(|| blitz_reactor::counters().shed), 0);
    });
}

#[test]
fn unread_uploads_do_not_stop_another_on_their_connection() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let content = vec![b'x'; BYTES];
        let mut client = Client::connect(server.address);
        assert_eq!(
            client.get("/hello").content,
            b"hello",
            "with the server's windows"
        );
        let length = BodyLength::Known(BYTES as u64);
        let unread: Vec<_> = (0..6)
            .map(|_| {
                let stream = client.request(Method::Post, "/later", length);
                let queued = client.queue(stream, &content);
                client.flush();
                (stream, queued)
            })
            .collect();
        let queued: usize = unread.iter().map(|(_, queued)| queued).sum();
        assert!(queued < 6 * BYTES, "the connection's window is used up");
        // Other streams are read meanwhile, also if their readers wait before the window is closed.
        for _ in 0..3 {
            let read = client.request(Method::Post, "/echo", length);
            let begun = Instant::now();
            client.send(read, &content, true);
            assert_eq!(client.answer(read).content, content);
            assert!(begun.elapsed() < Duration::from_secs(3), "it was starved");
        }
        server.ask(|| IS_LATER.set(true));
        for (stream, queued) in unread {
            client.send(stream, &content[queued..], true);
            let answer = client.answer(stream);
            assert_eq!(answer.content, BYTES.to_string().as_bytes());
        }
        assert_eq!(server.counters().body_timeouts, 0);
    });
}

/// A client with its requests, and the number of queued bytes of each.
struct Upload {
    client: Client,
    streams: Vec<(StreamId, usize)>,
}

impl Upload {
    /// Opens requests, with the windows of the server.
    fn open(server: &Server) -> Upload {
        let mut client = Client::connect(server.address);
        let length = BodyLength::Known(BYTES as u64);
        let streams = (0..STREAMS)
            .map(|_| (client.request(Method::Post, "/later", length), 0))
            .collect();
        client.flush();
        assert!(client.receive());
        Upload { client, streams }
    }

    /// Queues as much as the windows allow.
    fn queue(&mut self, content: &[u8]) {
        for (stream, queued) in &mut self.streams {
            *queued = self.client.queue(*stream, content);
        }
        self.client.stream.set_nonblocking(true).expect("sets");
        self.write_some();
    }

    fn write_some(&mut self) {
        let Client { stream, out, .. } = &mut self.client;
        while !out.is_empty() {
            match stream.write(out) {
                Ok(written) => drop(out.drain(..written)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => panic!("{error}"),
            }
        }
    }
}
