//! Clients that begin downloads and read nothing of them take no files from others.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::net::TcpStream;

use blitz_testing::h2::{self, Frame, flag, kind};

use crate::files::{Tree, content};
use crate::site_rules::{HOST, ask, gateway};
use crate::support::{Proxy, Upstream, ok};

/// Connections with so many streams stall more files than a core may have open.
const CONNECTIONS: usize = 11;
const STREAMS: usize = 100;

const FILE_BYTES: usize = 150_000;

/// A file without a further name, so that its inode is free when it is removed.
const SOLE: (usize, usize) = (0, STREAMS - 1);

/// A connection whose streams have a window of no byte.
struct Stalled(TcpStream);

impl Stalled {
    fn new(proxy: &Proxy) -> Stalled {
        let mut stream = TcpStream::connect(proxy.address).unwrap();
        // SETTINGS_INITIAL_WINDOW_SIZE.
        let start = [h2::PREFACE, &h2::settings(&[(4, 0)])].concat();
        stream.write_all(&start).unwrap();
        Stalled(stream)
    }

    /// Asks for a file on a stream of its own, up to its head.
    fn ask(&mut self, stream: u32, path: &str) {
        self.send_head(stream, path);
        while self.frame().kind != kind::HEADERS {}
    }

    fn send_head(&mut self, stream: u32, path: &str) {
        let pseudo = [
            (":method", "GET"),
            (":scheme", "http"),
            (":authority", "a.example"),
            (":path", path),
        ];
        let flags = flag::END_STREAM | flag::END_HEADERS;
        let head = h2::frame(kind::HEADERS, flags, stream, h2::literals(pseudo));
        self.0.write_all(&head).unwrap();
    }

    fn frame(&mut self) -> Frame {
        h2::read_frame(&mut self.0).unwrap()
    }

    /// Lets the connection and these streams have all bytes, and reads what they send; `None` for a stream that is reset.
    fn read_on(&mut self, streams: &[u32]) -> HashMap<u32, Option<Vec<u8>>> {
        let credit = |stream, bytes: usize| {
            h2::frame(kind::WINDOW_UPDATE, 0, stream, (bytes as u32).to_be_bytes())
        };
        let mut credits = credit(0, streams.len() * FILE_BYTES);
        for stream in streams {
            credits.extend(credit(*stream, FILE_BYTES));
        }
        self.0.write_all(&credits).unwrap();
        let mut contents: HashMap<u32, Option<Vec<u8>>> = HashMap::new();
        let mut left = streams.len();
        while left > 0 {
            let frame = self.frame();
            match frame.kind {
                kind::DATA => {
                    let content = contents.entry(frame.stream).or_insert(Some(Vec::new()));
                    content.as_mut().unwrap().extend_from_slice(&frame.payload);
                    left -= usize::from(frame.has(flag::END_STREAM));
                }
                kind::RST_STREAM => {
                    contents.insert(frame.stream, None);
                    left -= 1;
                }
                _ => {}
            }
        }
        contents
    }
}

fn stream_of(index: usize) -> u32 {
    index as u32 * 2 + 1
}

scenarios! {
    fn stalled_downloads_take_no_files_from_others_and_go_on(io) {
        let tree = Tree::with(&[]);
        let file = content(FILE_BYTES);
        tree.write("large", &file);
        let upstream = Upstream::scripted(|_, peer| {
            while peer.request().is_some() {
                peer.send(ok("of the upstream"));
            }
        });
        let proxy = gateway(io, &tree.site(&format!("to = \"{}\"", upstream.url())));
        let mut stalled: Vec<Stalled> = (0..CONNECTIONS).map(|_| Stalled::new(&proxy)).collect();
        for (number, connection) in stalled.iter_mut().enumerate() {
            for index in 0..STREAMS {
                // Each has a descriptor of its own.
                let name = format!("{number}-{index}");
                if (number, index) == SOLE {
                    tree.write(&name, &file);
                } else {
                    fs::hard_link(tree.path("large"), tree.path(&name)).unwrap();
                }
                connection.ask(stream_of(index), &format!("/{name}"));
            }
        }
        let mut client = proxy.client();
        for _ in 0..3 {
            let response = ask(&mut client, "GET /large", HOST);
            assert!(response.status == 200 && response.body == file, "{}", response.status);
            assert_eq!(ask(&mut client, "GET /none", HOST).text(), "of the upstream");
        }
        // The first ones were closed meanwhile, and two of them are other files now, one of the same time.
        let sole = format!("{}-{}", SOLE.0, SOLE.1);
        let modified = fs::metadata(tree.path(&sole)).unwrap().modified().unwrap();
        for name in ["0-1", &sole] {
            fs::remove_file(tree.path(name)).unwrap();
            tree.write(name, vec![0; FILE_BYTES]);
        }
        let changed = fs::File::options().write(true).open(tree.path(&sole)).unwrap();
        changed.set_modified(modified).unwrap();
        for (number, connection) in stalled.iter_mut().enumerate().step_by(CONNECTIONS - 1) {
            let streams: Vec<u32> = (0..STREAMS).map(stream_of).collect();
            let contents = connection.read_on(&streams);
            for (index, stream) in streams.iter().enumerate() {
                let expected = ![(0, 1), SOLE].contains(&(number, index));
                let content = contents[stream].as_ref();
                assert_eq!(content.is_some_and(|content| *content == file), expected, "{number}-{index}");
                assert_eq!(content.is_some(), expected, "{number}-{index}");
            }
        }
    }
    fn a_burst_of_requests_without_a_file_reaches_the_upstream(io) {
        let tree = Tree::with(&[]);
        let upstream = Upstream::scripted(|_, peer| {
            while peer.request().is_some() {
                peer.send("HTTP/1.1 204 No Content\r\n\r\n");
            }
        });
        let proxy = gateway(io, &tree.site(&format!("to = \"{}\"", upstream.url())));
        let mut clients: Vec<Stalled> = (0..CONNECTIONS).map(|_| Stalled::new(&proxy)).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            for index in 0..STREAMS {
                client.send_head(stream_of(index), &format!("/{number}/{index}"));
            }
        }
        for client in &mut clients {
            let mut left = STREAMS;
            while left > 0 {
                let frame = client.frame();
                if frame.kind == kind::HEADERS {
                    // `:status: 204` of the static table (RFC 7541, appendix A).
                    assert_eq!(frame.payload[0], 0x89);
                    left -= 1;
                }
            }
        }
    }
}
