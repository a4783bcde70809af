//! Header compression towards upstreams, whose tables all clients of a core share.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::mpsc::channel;
use std::thread;

use blitz_proto::h2::hpack::{Decoder, Encoder};
use blitz_testing::h2::{Frame, PREFACE, frame, read_frame};

use crate::support::{Proxy, SOON};

/// A received field: name, value, and whether it is never indexed.
type Field = (String, String, bool);

scenarios! {
    fn secret_fields_stay_out_of_the_shared_hpack_table(io) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = format!("h2c://{}", listener.local_addr().unwrap());
        let (sender, receiver) = channel::<Vec<Field>>();
        thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            stream.set_read_timeout(Some(SOON)).unwrap();
            let mut preface = [0; PREFACE.len()];
            stream.read_exact(&mut preface).unwrap();
            stream.write_all(&frame(4, 0, 0, [])).unwrap();
            let mut decoder = Decoder::new(4096);
            while let Ok(Frame { kind, stream: number, payload, .. }) = read_frame(&mut stream) {
                match kind {
                    1 => {
                        let mut fields = Vec::new();
                        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                        let note = |name: &[u8], value: &[u8], never| {
                            fields.push((text(name), text(value), never));
                        };
                        decoder.decode(&payload, note).unwrap();
                        sender.send(fields).unwrap();
                        // 204.
                        stream.write_all(&frame(1, 5, number, [0x89])).unwrap();
                    }
                    4 if payload.is_empty() => {}
                    4 => stream.write_all(&frame(4, 1, 0, [])).unwrap(),
                    _ => {}
                }
            }
        });
        let proxy = Proxy::to(io, &[&url]);
        let mut client = proxy.peer();
        client.send(PREFACE);
        client.send(frame(4, 0, 0, []));
        let mut encoder = Encoder::new(4096);
        for number in [1, 3, 5, 7] {
            let mut block = Vec::new();
            for (name, value, never) in [
                (":method", "GET", false),
                (":scheme", "http", false),
                (":path", "/", false),
                (":authority", "a", false),
                ("x-pin", "1234", true),
                ("user-agent", "marked", true),
                ("authorization", "Basic YTpi", false),
                ("cookie", "id=1", false),
                ("proxy-authorization", "Basic YTpi", false),
                ("x-plain", "plain", false),
            ] {
                encoder.encode(name.as_bytes(), value.as_bytes(), never, &mut block);
            }
            client.send(frame(1, 5, number, &block));
            let fields = receiver.recv_timeout(SOON).unwrap();
            let never = |name: &str| {
                let found = fields.iter().find(|(other, _, _)| other == name);
                found.map(|(_, _, never)| *never)
            };
            for secret in ["x-pin", "user-agent", "authorization", "cookie"] {
                assert_eq!(never(secret), Some(true), "{secret} in {fields:?}");
            }
            assert_eq!(never("x-plain"), Some(false));
            assert_eq!(never("proxy-authorization"), None, "the field is for this hop only");
        }
    }
}
