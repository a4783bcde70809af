//! Messages in packets that arrive while the service does not read (rule 8): a task waits for bytes
//! only after it has processed all earlier ones.

use std::io::Write;
use std::thread;
use std::time::Duration;

use blitz_testing::{Raw, read, read_head};

use crate::support::{Server, on_each_driver};
use crate::tls_server::start;
use crate::tls_support::{Authority, length};

/// Long enough for the server to receive each packet separately.
const PAUSE: Duration = Duration::from_millis(2);

/// Sends the bytes in this many packets. All arrive before a handler of `/late-*` reads.
fn send_in_packets(client: &mut Raw, bytes: &[u8], packets: usize) {
    for packet in bytes.chunks(bytes.len().div_ceil(packets)) {
        client.send(packet);
        thread::sleep(PAUSE);
    }
}

fn chunked(content: &[u8], chunk_bytes: usize) -> Vec<u8> {
    let mut body = Vec::new();
    for chunk in content.chunks(chunk_bytes) {
        write!(body, "{:x}\r\n", chunk.len()).unwrap();
        body.extend_from_slice(chunk);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"0\r\n\r\n");
    body
}

fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 7 % 251) as u8).collect()
}

#[test]
fn a_chunked_body_in_packets_is_read_to_its_end() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let content = content(20_000);
        for (chunk_bytes, packets) in [(20_000, 10), (1_000, 10), (100, 40), (1, 60), (4_096, 3)] {
            let mut client = server.connect();
            client
                .send("POST /late-whole HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
            let part = &content[..content.len().min(chunk_bytes * 1_000)];
            send_in_packets(&mut client, &chunked(part, chunk_bytes), packets);
            client.head();
            client.expect(part);
        }
    });
}

#[test]
fn a_pipelined_head_in_packets_is_answered_at_once() {
    on_each_driver(|io| {
        let server = Server::start(io);
        for packets in [1, 2, 3, 6, 12, 40] {
            let mut client = server.connect();
            client.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
            let next = b"GET /hello HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n";
            send_in_packets(&mut client, next, packets);
            client.head();
            client.expect("slow").head();
            client.expect("hello");
        }
    });
}

#[test]
fn an_unread_body_in_packets_is_discarded() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        client.send("POST /slow HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        send_in_packets(&mut client, &chunked(&content(200), 3), 60);
        client.head();
        client.expect("slow");
        client.send("GET /hello HTTP/1.1\r\nHost: a\r\n\r\n").head();
        client.expect("hello");
    });
}

#[test]
fn a_chunked_body_in_records_is_read_to_its_end() {
    on_each_driver(|io| {
        let authority = Authority::new();
        let (server, _) = start(io, authority.server());
        for (bytes, chunk_bytes, record_bytes) in
            [(200_000, 16_376, 16_384), (10_000, 100, 300), (500, 1, 20)]
        {
            let content = content(bytes);
            let mut stream = authority.client().connect(server.address);
            stream
                .write_all(
                    b"POST /late-whole HTTP/1.1\r\nHost: localhost\r\n\
                      Transfer-Encoding: chunked\r\n\r\n",
                )
                .unwrap();
            for (i, record) in chunked(&content, chunk_bytes)
                .chunks(record_bytes)
                .enumerate()
            {
                stream.write_all(record).unwrap();
                if i < 40 {
                    thread::sleep(PAUSE);
                }
            }
            let mut got = vec![0; length(&read_head(&mut stream))];
            let mut len = 0;
            while len < got.len() {
                len += read(&mut stream, &mut got[len..]).unwrap();
            }
            assert!(got == content, "{chunk_bytes}");
        }
    });
}

#[test]
fn requests_in_several_records_that_arrived_together_are_all_answered() {
    on_each_driver(|io| {
        let authority = Authority::new();
        let (server, _) = start(io, authority.server());
        for requests in [2, 3, 7] {
            let mut stream = authority.client().connect(server.address);
            stream.conn.complete_io(&mut stream.sock).unwrap();
            let mut records = Vec::new();
            for _ in 0..requests {
                let request = b"GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n";
                stream.conn.writer().write_all(request).unwrap();
                while stream.conn.wants_write() {
                    stream.conn.write_tls(&mut records).unwrap();
                }
            }
            // Split within the second record, so that its rest arrives together with later records.
            let (front, back) = records.split_at(records.len() / requests + 20);
            stream.sock.write_all(front).unwrap();
            thread::sleep(PAUSE);
            stream.sock.write_all(back).unwrap();
            for _ in 0..requests {
                let mut content = vec![0; length(&read_head(&mut stream))];
                let n = read(&mut stream, &mut content).unwrap();
                assert_eq!(&content[..n], b"hello");
            }
        }
    });
}
