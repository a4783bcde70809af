//! What a run does, drawn from its seed.

use std::ops::RangeInclusive;
use std::time::Duration;

use blitz_reactor::simulation::Conditions;

use crate::random::Random;

/// Largest content of a message in bytes.
const CONTENT_MAX: u64 = 300_000;

/// The same for requests that are sent before others are answered.
const PIPELINED_MAX: u64 = 8_000;

/// Everything that a run does. The machine's own chance follows from `seed`.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) cores: usize,
    pub(crate) conditions: Conditions,
    pub(crate) limits: Limits,
    pub(crate) upstreams: Vec<Version>,
    pub(crate) clients: Vec<Client>,
}

/// Limits of the gateway that differ from run to run.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    pub(crate) upstream_connections_max: usize,
    pub(crate) concurrent_streams_max: u32,
    pub(crate) stream_buffer_bytes_max: usize,
    pub(crate) pool_idle_max: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    Http1,
    Http2,
    /// Hand-written HTTP/1.1.
    Raw,
}

/// A connection and its requests: over HTTP/1.1 one after the other, over HTTP/2 as they come.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) version: Version,
    pub(crate) begins: Duration,
    /// Hand-written clients only: FIN follows the last request.
    pub(crate) half_closes: bool,
    pub(crate) requests: Vec<Request>,
}

#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) id: u64,
    /// Wait before it is sent: since the end of the last one, or since the connection is there.
    pub(crate) wait: Duration,
    pub(crate) method: &'static str,
    pub(crate) upstream: usize,
    pub(crate) request: Content,
    pub(crate) answer: Content,
    pub(crate) status: u16,
    pub(crate) order: Order,
    pub(crate) fault: Option<Fault>,
    pub(crate) odd: Option<Odd>,
}

/// Content of a message.
#[derive(Debug, Clone)]
pub(crate) struct Content {
    pub(crate) seed: u64,
    pub(crate) bytes: u64,
    /// Its length is said in the head.
    pub(crate) is_sized: bool,
    /// Most bytes of one piece, and the pause behind some of them.
    pub(crate) piece: u64,
    pub(crate) pause: Option<Duration>,
}

/// When the upstream answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// When the request is complete.
    After,
    /// At once; both contents move at the same time.
    Meanwhile,
}

/// Additional behaviour of a hand-written upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Odd {
    /// Another response follows the answer.
    Surplus,
    /// An answer that has no content (HEAD, 204, 304) announces some, and sends it.
    LateContent,
    /// An interim response comes first.
    Interim,
}

/// What goes wrong on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The client gives up after this time.
    ClientLeaves(Duration),
    /// The upstream gives up, with a reset, after so many bytes of its answer.
    UpstreamResets(u64),
    /// The upstream closes its connection without an answer.
    UpstreamCloses,
}

impl Plan {
    pub(crate) fn new(seed: u64) -> Plan {
        let mut random = Random::new(seed);
        let versions = [Version::Http1, Version::Http2, Version::Raw];
        let upstreams: Vec<Version> = (0..random.within(1..=3))
            .map(|_| random.one_of(&versions))
            .collect();
        let mut limits = Limits::new(&mut random);
        let mut conditions = conditions(&mut random);
        // Surplus must arrive together with the answer, so the network must not cut it off.
        let has_surplus = upstreams.contains(&Version::Raw) && random.chance(300);
        if has_surplus {
            let calm = Conditions::calm();
            conditions = Conditions {
                delay_us: conditions.delay_us,
                backlog: conditions.backlog,
                ..calm
            };
        }
        let mut next_id = 0;
        let clients = (0..random.within(1..=12))
            .map(|_| {
                let version = random.one_of(&versions);
                let half_closes = version == Version::Raw && random.chance(300);
                if half_closes {
                    // A client that has sent FIN and waits for an upstream connection counts as gone.
                    limits.upstream_connections_max = 8_192;
                }
                let requests = (0..random.within(1..=20)).map(|_| {
                    next_id += 1;
                    Request::new(next_id, &mut random, &upstreams, version, has_surplus)
                });
                let requests = requests.collect();
                Client {
                    version,
                    begins: Duration::from_micros(random.within(0..=200_000)),
                    half_closes,
                    requests,
                }
            })
            .collect();
        Plan {
            seed,
            cores: random.within(1..=2) as usize,
            conditions,
            limits,
            upstreams,
            clients,
        }
    }

    /// A measure of how much it does.
    pub(crate) fn size(&self) -> u64 {
        let requests = self.requests().map(|request| {
            let contents = [&request.request, &request.answer];
            let pauses = contents.iter().filter(|content| content.pause.is_some());
            let bytes: u64 = contents.iter().map(|content| content.bytes).sum();
            1 + u64::from(request.fault.is_some()) + pauses.count() as u64 + bytes
        });
        self.clients.len() as u64 + requests.sum::<u64>()
    }

    pub(crate) fn requests(&self) -> impl Iterator<Item = &Request> {
        self.clients.iter().flat_map(|client| &client.requests)
    }
}

impl Limits {
    fn new(random: &mut Random) -> Limits {
        Limits {
            upstream_connections_max: random.one_of(&[2, 8, 8_192, 8_192, 8_192, 8_192]),
            concurrent_streams_max: random.one_of(&[3, 100]),
            stream_buffer_bytes_max: random.one_of(&[16 * 1024, 64 * 1024, 256 * 1024]),
            pool_idle_max: random.one_of(&[0, 1, 64]),
        }
    }
}

impl Request {
    fn new(
        id: u64,
        random: &mut Random,
        upstreams: &[Version],
        client: Version,
        has_surplus: bool,
    ) -> Request {
        let upstream = random.within(0..=upstreams.len() as u64 - 1) as usize;
        let method = random.one_of(&["GET", "GET", "POST", "PUT", "HEAD", "DELETE"]);
        let mut request = match method {
            "GET" | "HEAD" => Content::none(),
            _ => Content::new(random),
        };
        if client == Version::Raw {
            request.bytes = request.bytes.min(PIPELINED_MAX);
        }
        let status = random.one_of(&[200, 200, 200, 200, 204, 304, 404, 500]);
        let answer = match (method, status) {
            ("HEAD", _) | (_, 204 | 304) => Content::none(),
            _ => Content::new(random),
        };
        let is_empty = method == "HEAD" || matches!(status, 204 | 304);
        let odd = random.chance(400).then(|| match random.within(0..=2) {
            0 if has_surplus => Some(Odd::Surplus),
            1 if is_empty => Some(Odd::LateContent),
            _ => Some(Odd::Interim),
        });
        let odd = odd
            .flatten()
            .filter(|_| upstreams[upstream] == Version::Raw);
        // Hand-written clients do not leave.
        let first = if client == Version::Raw { 1 } else { 0 };
        let fault = random.chance(150).then(|| match random.within(first..=2) {
            0 => Fault::ClientLeaves(Duration::from_micros(random.within(0..=300_000))),
            1 => Fault::UpstreamResets(random.within(0..=answer.bytes)),
            _ => Fault::UpstreamCloses,
        });
        Request {
            id,
            wait: Duration::from_micros(random.one_of(&[0, 0, 100, 50_000])),
            method,
            upstream,
            request,
            answer,
            status,
            order: random.one_of(&[Order::After, Order::After, Order::Meanwhile]),
            fault,
            odd,
        }
    }

    /// Whether it may be sent a second time (RFC 9110, section 9.2.2).
    pub(crate) fn is_idempotent(&self) -> bool {
        self.method != "POST"
    }
}

impl Content {
    pub(crate) fn none() -> Content {
        Content {
            seed: 0,
            bytes: 0,
            is_sized: true,
            piece: 1,
            pause: None,
        }
    }

    fn new(random: &mut Random) -> Content {
        let pauses = random.chance(200);
        Content {
            seed: random.next(),
            bytes: random.length(CONTENT_MAX),
            is_sized: random.chance(500),
            piece: random.one_of(&[1_000, 4_096, 16_384, 70_000]),
            pause: pauses.then(|| Duration::from_micros(random.within(1..=100_000))),
        }
    }
}

fn conditions(random: &mut Random) -> Conditions {
    let per_mille = |random: &mut Random, max: u64| match random.chance(500) {
        true => random.within(0..=max) as u16,
        false => 0,
    };
    let range = |random: &mut Random, within: RangeInclusive<u64>| {
        let (low, high) = (random.within(within.clone()), random.within(within));
        low.min(high)..=low.max(high)
    };
    Conditions {
        delay_us: range(random, 10..=40_000),
        bytes_per_ms: range(random, 2_000..=1_000_000),
        segment_bytes: match random.chance(200) {
            true => 1..=1_460,
            false => range(random, 500..=65_536),
        },
        buffer_bytes: range(random, 2_048..=262_144),
        turn_us: 1..=random.within(2..=200),
        backlog: random.one_of(&[1, 4, 4_096]),
        late: per_mille(random, 300),
        short: per_mille(random, 300),
        receive_ends: per_mille(random, 300),
        no_buffers: per_mille(random, 20),
        cancel_loses: per_mille(random, 500),
        accept_fails: per_mille(random, 50),
    }
}
