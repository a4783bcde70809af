//! A response to a client that is still sending arrives (rule 16).

use std::io::{Read, Write};

use crate::support::{Server, on_each_driver};
use crate::tls_support::Authority;

/// More than the buffers of the kernel hold.
const BODY_BYTES: usize = 20 << 20;

/// Sends a whole request before it reads, as many clients do.
fn upload(mut stream: impl Read + Write, framing: &str) -> std::io::Result<String> {
    let head = format!("POST /hello HTTP/1.1\r\nHost: localhost\r\n{framing}\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    // The response is sent long before the body.
    std::thread::sleep(std::time::Duration::from_millis(100));
    let is_chunked = framing.starts_with("Transfer-Encoding");
    for _ in 0..BODY_BYTES >> 16 {
        match is_chunked {
            true => stream.write_all(&[b"10000\r\n", &[b'x'; 1 << 16][..], b"\r\n"].concat())?,
            false => stream.write_all(&[b'x'; 1 << 16])?,
        }
    }
    if is_chunked {
        stream.write_all(b"0\r\n\r\n")?;
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn a_response_to_a_large_upload_arrives() {
    on_each_driver(|io| {
        let server = Server::start(io);
        for framing in [
            format!("Content-Length: {BODY_BYTES}"),
            "Transfer-Encoding: chunked".to_owned(),
        ] {
            let answer = upload(server.connect().0, &framing);
            let answer = answer.unwrap_or_else(|error| panic!("{framing}: {error}"));
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        }
        server.until("closed", |counters| counters.connections == 0);
    });
}

#[test]
fn a_response_to_a_large_upload_arrives_over_tls() {
    on_each_driver(|io| {
        let authority = Authority::new();
        let (server, _) = crate::tls_server::start(io, authority.server());
        let stream = authority.client().connect(server.address);
        let answer = upload(stream, &format!("Content-Length: {BODY_BYTES}"));
        let answer = answer.expect("the response arrives");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    });
}

#[test]
fn the_refusal_of_a_large_upload_arrives() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let framing = format!("Content-Length: {BODY_BYTES}\r\nExpect: nothing");
        let answer = upload(server.connect().0, &framing).expect("the refusal arrives");
        assert!(answer.starts_with("HTTP/1.1 417 "), "{answer}");
    });
}
