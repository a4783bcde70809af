//! A client and a server of this crate: random exchanges in random order, over a network that cuts the
//! bytes into random pieces. Every message must be received as it was sent.

use std::collections::BTreeMap;

use blitz_proto::h2::{Code, StreamId};
use blitz_proto::{Fields, Limits, Method, Name, RequestHead, ResponseHead, Status};

use crate::h2_support::{End, Message};

#[test]
fn random_exchanges_are_received_as_sent() {
    let first: u64 = std::env::var("SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(1);
    let count = if std::env::var("SEED").is_ok() { 1 } else { 60 };
    for seed in first..first + count {
        println!("seed {seed}");
        World::new(seed).run();
    }
}

/// A random number generator: a minimal PCG.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % bound
    }

    fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }

    fn bytes(&mut self, bound: usize) -> Vec<u8> {
        let len = self.below(bound);
        (0..len).map(|at| (at % 253) as u8 ^ self.0 as u8).collect()
    }
}

struct World {
    random: Random,
    client: End,
    server: End,
    /// Bytes in flight.
    to_server: Vec<u8>,
    to_client: Vec<u8>,
    /// The sent messages, by stream.
    requests: BTreeMap<StreamId, Message>,
    responses: BTreeMap<StreamId, Message>,
    cancelled: Vec<StreamId>,
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random(seed);
        let stream_window_bytes = [1, 100, 65_536][random.below(3)];
        let limits = Limits {
            stream_buffer_bytes_max: stream_window_bytes,
            stream_window_bytes,
            connection_buffer_bytes_max: [65_535, 100_000, 262_144][random.below(3)],
            concurrent_streams_max: [1, 5, 100][random.below(3)],
            hpack_table_bytes_max: [0, 200, 4096][random.below(3)],
            window_updates_max: u32::MAX,
            pings_max: u32::MAX,
            small_data_frames_max: u32::MAX,
            resets_max: u32::MAX,
            ..Limits::default()
        };
        World {
            random,
            client: End::client(&limits),
            server: End::server(&limits),
            to_server: Vec::new(),
            to_client: Vec::new(),
            requests: BTreeMap::new(),
            responses: BTreeMap::new(),
            cancelled: Vec::new(),
        }
    }

    fn run(&mut self) {
        for _ in 0..600 {
            match self.random.below(8) {
                0 => self.request(),
                1 => self.respond(),
                2 => self.cancel(),
                3 => drop(self.client.send_frame()),
                4 => drop(self.server.send_frame()),
                5 | 6 => self.deliver(),
                _ => self.client.connection.ping(&mut self.client.out),
            }
        }
        loop {
            while !self.server.complete.is_empty() {
                self.respond();
            }
            self.client.send();
            self.server.send();
            let waiting = [
                &self.to_server,
                &self.to_client,
                &self.client.out,
                &self.server.out,
            ];
            if waiting.iter().all(|bytes| bytes.is_empty()) {
                break;
            }
            self.deliver();
        }
        self.check();
    }

    fn fields(&mut self) -> Fields {
        let mut fields = Fields::new();
        for _ in 0..self.random.below(5) {
            let name = ["x-a", "x-b", "accept", "server", "authorization"][self.random.below(5)];
            let value = ["", "1", "a value", "another value that is a little longer"];
            fields.append(name, value[self.random.below(4)]);
        }
        fields
    }

    fn trailers(&mut self) -> Option<Fields> {
        let mut fields = Fields::new();
        fields.append("x-trailer", "value");
        self.random.one_in(4).then_some(fields)
    }

    fn request(&mut self) {
        let path = ["/", "/a", "/a/b?c"][self.random.below(3)];
        let mut head = RequestHead::new([Method::Get, Method::Post][self.random.below(2)], path);
        head.set_authority(["example.org", "a.test:8443"][self.random.below(2)]);
        head.fields = self.fields();
        if self.random.one_in(3) {
            head.fields
                .append(Name::Priority, ["u=0", "i", "u=7, i"][self.random.below(3)]);
        }
        let bound = [1, 100, 50_000][self.random.below(3)];
        let content = self.random.bytes(bound);
        let trailers = self.trailers();
        let message = sent(&head.fields, &content, trailers.as_ref());
        if let Some(stream) = self.client.request(&head, content, trailers) {
            let start = format!(
                "{} {path} @{} https",
                head.method_str(),
                head.authority().unwrap_or("")
            );
            self.requests.insert(stream, Message { start, ..message });
        }
    }

    fn respond(&mut self) {
        let Some(stream) = self.server.complete.pop() else {
            return;
        };
        let status = Status::new([200, 404, 418][self.random.below(3)]).expect("a status");
        let mut head = ResponseHead::new(status);
        head.fields = self.fields();
        let bound = [1, 100, 50_000][self.random.below(3)];
        let content = self.random.bytes(bound);
        let trailers = self.trailers();
        let message = sent(&head.fields, &content, trailers.as_ref());
        self.responses.insert(
            stream,
            Message {
                start: status.to_string(),
                ..message
            },
        );
        self.server.respond(stream, &head, content, trailers);
    }

    fn cancel(&mut self) {
        let open: Vec<_> = self.client.connection.streams().collect();
        if !open.is_empty() && self.random.one_in(4) {
            let stream = open[self.random.below(open.len())];
            self.client
                .connection
                .reset(stream, Code::CANCEL, &mut self.client.out);
            self.cancelled.push(stream);
        }
    }

    /// Delivers a piece of the bytes in flight to each side.
    fn deliver(&mut self) {
        self.to_server.append(&mut self.client.out);
        self.to_client.append(&mut self.server.out);
        for (bytes, end) in [
            (&mut self.to_server, &mut self.server),
            (&mut self.to_client, &mut self.client),
        ] {
            let len = match self.random.below(3) {
                0 => self.random.below(12),
                1 => self.random.below(2_000),
                _ => bytes.len(),
            };
            let piece: Vec<u8> = bytes.drain(..len.min(bytes.len())).collect();
            end.receive(&piece);
            assert!(end.failure.is_none(), "{:?}", end.failure);
        }
    }

    fn check(&self) {
        let is_kept = |stream: &StreamId| !self.cancelled.contains(stream);
        let known = |end: &End, stream: &StreamId| {
            let mut message = end.messages.get(stream).cloned().unwrap_or_default();
            message.fields.retain(|(name, _)| name != "content-length");
            message
        };
        for (stream, request) in self.requests.iter().filter(|(stream, _)| is_kept(stream)) {
            let seen = known(&self.server, stream);
            if seen.reset == Some("stream-limit") {
                continue;
            }
            assert!(
                seen == *request,
                "{stream}: {} instead of {}",
                brief(&seen),
                brief(request)
            );
            let response = &self.responses[stream];
            let seen = known(&self.client, stream);
            assert!(
                seen == *response,
                "{stream}: {} instead of {}",
                brief(&seen),
                brief(response)
            );
        }
        for end in [&self.client, &self.server] {
            assert!(
                end.connection.is_idle(),
                "{} streams left",
                end.connection.stream_count()
            );
            assert_eq!(end.connection.held(), 0);
        }
    }
}

fn sent(fields: &Fields, content: &[u8], trailers: Option<&Fields>) -> Message {
    let lines = |fields: &Fields| {
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        let line = |(name, value): (blitz_proto::FieldName<'_>, &[u8])| {
            (name.as_str().to_ascii_lowercase(), text(value))
        };
        fields.iter().map(line).collect()
    };
    Message {
        fields: lines(fields),
        content: content.to_vec(),
        trailers: trailers.map(lines).unwrap_or_default(),
        is_complete: true,
        ..Message::default()
    }
}

/// A message without its content, for reading.
fn brief(message: &Message) -> String {
    let Message {
        start,
        fields,
        content,
        trailers,
        is_complete,
        reset,
    } = message;
    let len = content.len();
    format!("{start} {fields:?} {len} bytes, {trailers:?}, complete {is_complete}, reset {reset:?}")
}
