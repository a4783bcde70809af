//! The plan of a run, which follows from its seed.

mod http3;
mod reload;

use std::ops::RangeInclusive;
use std::time::Duration;

use blitz_reactor::simulation::Conditions;

use crate::random::Random;

pub(crate) use http3::{FIRST_HOST, Http3, LOSSY_WAIT, Move, QuicPlan};
pub(crate) use reload::{ConfigurationPlan, Reloads};

/// Largest content of a message in bytes.
const CONTENT_MAX: u64 = 300_000;

/// Largest content of a pipelined request.
const PIPELINED_MAX: u64 = 8_000;

/// Largest content with hand-written HTTP/2 peers, which may give credit byte by byte.
const RAW_HTTP2_MAX: u64 = 60_000;

/// Content of requests of one client over HTTP/3 for which it awaits no window: far less than the gateway's.
const UNAWAITED_BYTES_MAX: u64 = 16 * 1024;

/// Runs in which some peers use TLS, of 1,000.
const TLS_PER_MILLE: u64 = 200;

const VERSIONS: [Version; 4] = [
    Version::Http1,
    Version::Http2,
    Version::Raw,
    Version::RawHttp2,
];

/// Everything that a run does. The random numbers of the machine follow from `seed` too.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) cores: usize,
    pub(crate) conditions: Conditions,
    pub(crate) limits: GatewayLimits,
    /// `None` without clients of HTTP/3.
    pub(crate) http3: Option<Http3>,
    /// `None` without reloads.
    pub(crate) reloads: Option<Reloads>,
    pub(crate) upstreams: Vec<UpstreamPlan>,
    pub(crate) clients: Vec<ClientPlan>,
}

/// The servers of one target of the gateway.
#[derive(Debug, Clone)]
pub(crate) struct UpstreamPlan {
    pub(crate) version: Version,
    pub(crate) reach: Reach,
    pub(crate) windows: Windows,
    /// Over TLS; peers of hyper only.
    pub(crate) is_secure: bool,
    /// Hand-written HTTP/2 only: how it refuses requests that it has not processed.
    pub(crate) quits: Option<Quits>,
    /// Whether the gateway forwards the trailers of requests to it.
    pub(crate) gets_trailers: bool,
}

/// How an upstream refuses requests that it has not processed (RFC 9113, section 8.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quits {
    /// It resets some streams with REFUSED_STREAM, at most one per request.
    Refuses,
    /// It sends GOAWAY on one connection after this number of requests.
    GoesAway(u32),
}

/// The addresses of an upstream and how they respond to connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    Direct,
    /// It has two addresses, and the first refuses.
    SecondAfterRefusal,
    /// It has two addresses, and the first never responds.
    SecondAfterSilence,
    /// Its only address refuses.
    Refused,
    /// Its only address never responds.
    Silent,
}

impl Reach {
    /// The number of addresses.
    pub(crate) fn addresses(self) -> u32 {
        match self {
            Reach::SecondAfterRefusal | Reach::SecondAfterSilence => 2,
            Reach::Direct | Reach::Refused | Reach::Silent => 1,
        }
    }
}

/// The initial windows that an HTTP/2 peer announces.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Windows {
    pub(crate) stream: u32,
    pub(crate) connection: u32,
}

/// The limits of the gateway that vary between runs.
#[derive(Debug, Clone)]
pub(crate) struct GatewayLimits {
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
    /// Hand-written HTTP/2.
    RawHttp2,
    /// Clients only, with `quinn-proto` and `h3`.
    Http3,
}

/// A connection and its requests: one after the other over HTTP/1.1, concurrent over HTTP/2 and HTTP/3.
#[derive(Debug, Clone)]
pub(crate) struct ClientPlan {
    pub(crate) version: Version,
    pub(crate) begins: Duration,
    /// Hand-written clients only: the client sends FIN after the last request.
    pub(crate) half_closes: bool,
    pub(crate) windows: Windows,
    /// Over TLS; peers of hyper, and always over HTTP/3.
    pub(crate) is_secure: bool,
    /// Over HTTP/3 only.
    pub(crate) quic: Option<QuicPlan>,
    pub(crate) requests: Vec<RequestPlan>,
}

#[derive(Debug, Clone)]
pub(crate) struct RequestPlan {
    pub(crate) id: u64,
    /// Wait before it is sent, from the end of the previous request or from the connect.
    pub(crate) wait: Duration,
    pub(crate) method: &'static str,
    pub(crate) upstream: usize,
    pub(crate) request: ContentPlan,
    pub(crate) answer: ContentPlan,
    pub(crate) status: u16,
    pub(crate) order: ResponseOrder,
    pub(crate) fault: Option<Fault>,
    pub(crate) odd: Option<Odd>,
    /// It opens a WebSocket; both contents are sent after the handshake.
    pub(crate) tunnel: Option<Tunnel>,
    /// It is a gRPC or gRPC-Web call.
    pub(crate) call: Option<Call>,
    /// The pause that both readers make between some pieces of content.
    pub(crate) reading_pause: Option<Duration>,
}

/// Whether an upstream accepts a tunnel, and which end sends first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tunnel {
    Refused,
    /// Both ends send at the same time.
    Both,
    /// The upstream sends after it has received FIN.
    ClientFirst,
    /// The client sends after it has received FIN.
    UpstreamFirst,
}

/// The protocol of the client of a call; upstreams use gRPC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    Grpc,
    Web,
    /// gRPC-Web in base64.
    WebText,
}

/// Content of a message.
#[derive(Debug, Clone)]
pub(crate) struct ContentPlan {
    pub(crate) seed: u64,
    pub(crate) bytes: u64,
    /// The head declares its length.
    pub(crate) is_sized: bool,
    /// Most bytes of one piece, and the pause after some pieces.
    pub(crate) piece: u64,
    pub(crate) pause: Option<Duration>,
    /// Trailers follow the content.
    pub(crate) has_trailers: bool,
}

/// When the upstream sends its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseOrder {
    /// After the request is complete.
    After,
    /// At once; both contents are sent at the same time.
    Meanwhile,
}

/// Additional behaviour of a hand-written upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Odd {
    /// A second response follows the first.
    Surplus,
    /// A response without content (HEAD, 204, 304) declares a length and is followed by content.
    LateContent,
    /// An interim response precedes the final one.
    Interim,
    /// The connection is idle for this time after the response; then this happens.
    Parting(Parting, Duration),
}

/// How an upstream ends an idle connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parting {
    Surplus,
    Fin,
    Reset,
}

/// A planned fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The client cancels the request after this time.
    ClientLeaves(Duration),
    /// The upstream resets after this number of bytes of its response.
    UpstreamResets(u64),
    /// The upstream closes the connection without a response.
    UpstreamCloses,
}

impl Plan {
    pub(crate) fn new(seed: u64) -> Plan {
        let mut random = Random::new(seed);
        let mut upstreams: Vec<UpstreamPlan> = (0..random.within(1..=3))
            .map(|_| UpstreamPlan::new(&mut random))
            .collect();
        let mut limits = GatewayLimits::new(&mut random);
        let mut conditions = conditions(&mut random);
        // Surplus must arrive together with the response, so the network must not separate them.
        let is_raw = |upstream: &UpstreamPlan| upstream.version == Version::Raw;
        let has_surplus = upstreams.iter().any(is_raw) && random.chance(300);
        if has_surplus {
            let calm = Conditions::calm();
            conditions = Conditions {
                delay_us: conditions.delay_us,
                backlog: conditions.backlog,
                ..calm
            };
        }
        let mut requests = RequestPlanner {
            next_id: 0,
            has_surplus,
        };
        let mut clients: Vec<ClientPlan> = (0..random.within(1..=12))
            .map(|_| ClientPlan::new(&mut random, &mut requests, &upstreams))
            .collect();
        if clients.iter().any(|client| client.half_closes) {
            // The gateway cancels a request that waits for an upstream connection after its client sent FIN.
            limits.upstream_connections_max = 8_192;
        }
        let shared = upstreams.len();
        if random.chance(200) {
            upstreams.push(UpstreamPlan::direct(Version::Raw));
            clients.push(ClientPlan::with_pauses(
                &mut random,
                &mut requests,
                &upstreams,
            ));
        }
        choose_tls(seed, &mut upstreams, &mut clients);
        choose_trailers(seed, &mut upstreams);
        let http3 = http3::add(
            seed,
            &mut requests,
            &upstreams[..shared],
            &mut clients,
            &mut conditions,
            limits.concurrent_streams_max,
        );
        let reloads = reload::add(
            seed,
            &mut requests,
            &mut upstreams,
            &mut clients,
            &mut limits,
            http3.as_ref().is_some_and(|http3| http3.drains.is_some()),
        );
        Plan {
            seed,
            cores: random.within(1..=2) as usize,
            conditions,
            limits,
            http3,
            reloads,
            upstreams,
            clients,
        }
    }

    /// A measure of the plan for shrinking; smaller is simpler.
    pub(crate) fn size(&self) -> u64 {
        let requests = self.requests().map(|request| {
            let contents = [&request.request, &request.answer];
            let pauses = contents.iter().filter(|content| content.pause.is_some());
            let bytes: u64 = contents.iter().map(|content| content.bytes).sum();
            1 + u64::from(request.fault.is_some()) + pauses.count() as u64 + bytes
        });
        let reloads = self
            .reloads
            .iter()
            .map(|reloads| 1 + reloads.then.len() as u64);
        self.clients.len() as u64 + requests.sum::<u64>() + reloads.sum::<u64>()
    }

    /// How long a request of this client may additionally be silent.
    pub(crate) fn silence_of(&self, client: &ClientPlan) -> Duration {
        match (client.version, &self.http3) {
            (Version::Http3, Some(http3)) => http3::silence_max(http3, &self.conditions),
            _ => Duration::ZERO,
        }
    }

    /// Whether a draining gateway may reject a request of this client, which has not learnt of it when it sends.
    pub(crate) fn may_reject(&self, client: &ClientPlan) -> bool {
        let moves = client
            .quic
            .as_ref()
            .is_some_and(|quic| !quic.moves.is_empty());
        // A request that waits for a stream, or for the window of the connection, may be sent at any time.
        let sizes = client.requests.iter().map(|request| request.request.bytes);
        let waits = client.requests.len() > self.limits.concurrent_streams_max as usize
            || sizes.sum::<u64>() > UNAWAITED_BYTES_MAX;
        let http3 = self.http3.as_ref();
        moves || waits || http3.is_some_and(|http3| !http3::is_prompt(http3, &self.conditions))
    }

    /// Whether the gateway drains during the run.
    pub(crate) fn drains(&self) -> bool {
        let http3 = self.http3.as_ref();
        http3.is_some_and(|http3| http3.drains.is_some())
    }

    /// The content of a request as its upstream gets it.
    pub(crate) fn forwarded(&self, request: &RequestPlan) -> ContentPlan {
        let gets_trailers = self.upstreams[request.upstream].gets_trailers;
        ContentPlan {
            has_trailers: request.request.has_trailers && gets_trailers,
            ..request.request.clone()
        }
    }

    pub(crate) fn requests(&self) -> impl Iterator<Item = &RequestPlan> {
        self.clients.iter().flat_map(|client| &client.requests)
    }
}

/// Gives some peers TLS. The seed's other choices do not depend on it.
fn choose_tls(seed: u64, upstreams: &mut [UpstreamPlan], clients: &mut [ClientPlan]) {
    let mut random = Random::new(!seed);
    if !random.chance(TLS_PER_MILLE) {
        return;
    }
    for upstream in upstreams {
        upstream.is_secure = upstream.version.is_hyper() && random.chance(500);
    }
    for client in clients {
        client.is_secure = client.version.is_hyper() && random.chance(500);
    }
}

/// Lets half of the upstreams have the trailers of requests. The seed's other choices do not depend on it.
fn choose_trailers(seed: u64, upstreams: &mut [UpstreamPlan]) {
    let mut random = Random::new(seed.rotate_left(32));
    for upstream in upstreams {
        upstream.gets_trailers = random.chance(500);
    }
}

impl GatewayLimits {
    fn new(random: &mut Random) -> GatewayLimits {
        GatewayLimits {
            upstream_connections_max: random.one_of(&[2, 8, 8_192, 8_192, 8_192, 8_192]),
            concurrent_streams_max: random.one_of(&[3, 100]),
            stream_buffer_bytes_max: random.one_of(&[16 * 1024, 64 * 1024, 256 * 1024]),
            pool_idle_max: random.one_of(&[0, 1, 64]),
        }
    }
}

impl UpstreamPlan {
    fn new(random: &mut Random) -> UpstreamPlan {
        let reach = match random.within(0..=19) {
            0 => Reach::SecondAfterRefusal,
            1 => Reach::SecondAfterSilence,
            2 => Reach::Refused,
            3 => Reach::Silent,
            _ => Reach::Direct,
        };
        let version = random.one_of(&VERSIONS);
        let quits = match random.within(0..=3) {
            0 => Some(Quits::Refuses),
            1 => Some(Quits::GoesAway(random.within(0..=20) as u32)),
            _ => None,
        };
        UpstreamPlan {
            version,
            reach,
            windows: Windows::new(random),
            is_secure: false,
            quits: quits.filter(|_| version == Version::RawHttp2),
            gets_trailers: false,
        }
    }

    fn direct(version: Version) -> UpstreamPlan {
        UpstreamPlan {
            version,
            reach: Reach::Direct,
            windows: Windows::DEFAULT,
            is_secure: false,
            quits: None,
            gets_trailers: false,
        }
    }

    /// Whether it accepts connections at any of its addresses.
    pub(crate) fn is_reachable(&self) -> bool {
        !matches!(self.reach, Reach::Refused | Reach::Silent)
    }
}

impl Version {
    /// Whether hyper is the peer.
    pub(crate) fn is_hyper(self) -> bool {
        matches!(self, Version::Http1 | Version::Http2)
    }

    pub(crate) fn is_http2(self) -> bool {
        matches!(self, Version::Http2 | Version::RawHttp2)
    }

    /// Whether messages may have trailers.
    fn has_trailers(self) -> bool {
        self.is_http2() || self == Version::Http3
    }
}

impl Windows {
    /// Those of hyper.
    const DEFAULT: Windows = Windows {
        stream: 1 << 20,
        connection: 1 << 20,
    };

    fn new(random: &mut Random) -> Windows {
        match random.chance(500) {
            true => Windows::DEFAULT,
            false => Windows {
                stream: random.one_of(&[2_000, 16_384, 65_535, 200_000]),
                connection: random.one_of(&[65_535, 65_535, 150_000]),
            },
        }
    }
}

impl ClientPlan {
    fn new(
        random: &mut Random,
        requests: &mut RequestPlanner,
        upstreams: &[UpstreamPlan],
    ) -> ClientPlan {
        let version = random.one_of(&VERSIONS);
        let half_closes = version == Version::Raw && random.chance(300);
        let count = random.within(1..=20);
        let mut all: Vec<RequestPlan> = (0..count)
            .map(|_| requests.next(random, upstreams, version))
            .collect();
        // Behind a tunnel a connection of HTTP/1.1 carries nothing.
        if version == Version::Raw && !half_closes && random.chance(300) {
            let last = all
                .last_mut()
                .filter(|request| upstreams[request.upstream].version != Version::RawHttp2);
            last.into_iter()
                .for_each(|request| request.ask_for_tunnel(random, upstreams, version));
        }
        ClientPlan {
            version,
            begins: Duration::from_micros(random.within(0..=200_000)),
            half_closes,
            windows: Windows::new(random),
            is_secure: false,
            quic: None,
            requests: all,
        }
    }

    /// The only client of the last upstream, whose connections are in the pool when it leaves them.
    fn with_pauses(
        random: &mut Random,
        requests: &mut RequestPlanner,
        upstreams: &[UpstreamPlan],
    ) -> ClientPlan {
        let count = random.within(2..=6);
        let all = (0..count).map(|_| {
            let mut request = requests.next(random, upstreams, Version::Http1);
            let parting = random.one_of(&[Parting::Surplus, Parting::Fin, Parting::Reset]);
            let mut after = Duration::from_micros(random.within(0..=100_000));
            if parting == Parting::Reset {
                // It must not overtake the response.
                request.answer.bytes = request.answer.bytes.min(2_000);
                after += Duration::from_millis(100);
            }
            request.upstream = upstreams.len() - 1;
            request.wait = Duration::from_millis(500);
            request.order = ResponseOrder::After;
            request.fault = None;
            request.call = None;
            request.odd = random.chance(600).then_some(Odd::Parting(parting, after));
            request.request.has_trailers = false;
            request.answer.has_trailers = false;
            request
        });
        ClientPlan {
            version: Version::Http1,
            begins: Duration::ZERO,
            half_closes: false,
            windows: Windows::DEFAULT,
            is_secure: false,
            quic: None,
            requests: all.collect(),
        }
    }
}

/// Draws requests.
struct RequestPlanner {
    next_id: u64,
    has_surplus: bool,
}

impl RequestPlanner {
    fn next(
        &mut self,
        random: &mut Random,
        upstreams: &[UpstreamPlan],
        client: Version,
    ) -> RequestPlan {
        self.next_id += 1;
        let mut request =
            RequestPlan::new(self.next_id, random, upstreams, client, self.has_surplus);
        let upstream = upstreams[request.upstream].version;
        let may_call = matches!(client, Version::Http1 | Version::Http2 | Version::Http3);
        if client == Version::Http2 && upstream != Version::RawHttp2 && random.chance(60) {
            request.ask_for_tunnel(random, upstreams, client);
        } else if upstream.is_http2() && may_call && random.chance(100) {
            request.call(random, client);
        }
        if upstream.is_http2() && client.has_trailers() && request.tunnel.is_none() {
            request.add_trailers(random);
        }
        if [client, upstream].contains(&Version::RawHttp2) {
            for content in [&mut request.request, &mut request.answer] {
                content.bytes = content.bytes.min(RAW_HTTP2_MAX);
            }
            if let Some(Fault::UpstreamResets(at)) = &mut request.fault {
                *at = request.answer.bytes.min(*at);
            }
        }
        request
    }
}

impl RequestPlan {
    fn new(
        id: u64,
        random: &mut Random,
        upstreams: &[UpstreamPlan],
        client: Version,
        has_surplus: bool,
    ) -> RequestPlan {
        let upstream = random.within(0..=upstreams.len() as u64 - 1) as usize;
        let method = random.one_of(&["GET", "GET", "POST", "PUT", "HEAD", "DELETE"]);
        let mut request = match method {
            "GET" | "HEAD" => ContentPlan::none(),
            _ => ContentPlan::new(random),
        };
        if client == Version::Raw {
            request.bytes = request.bytes.min(PIPELINED_MAX);
        }
        let status = random.one_of(&[200, 200, 200, 200, 204, 304, 404, 500]);
        let is_empty = method == "HEAD" || matches!(status, 204 | 304);
        let answer = match is_empty {
            true => ContentPlan::none(),
            false => ContentPlan::new(random),
        };
        let odd = random.chance(400).then(|| match random.within(0..=2) {
            0 if has_surplus => Some(Odd::Surplus),
            1 if is_empty => Some(Odd::LateContent),
            _ => Some(Odd::Interim),
        });
        let odd = odd
            .flatten()
            .filter(|odd| match upstreams[upstream].version {
                Version::Raw => true,
                Version::RawHttp2 => *odd == Odd::Interim,
                Version::Http1 | Version::Http2 | Version::Http3 => false,
            });
        // Hand-written clients do not cancel.
        let first = if client == Version::Raw { 1 } else { 0 };
        let fault = random.chance(150).then(|| match random.within(first..=2) {
            0 => Fault::ClientLeaves(Duration::from_micros(random.within(0..=300_000))),
            1 => Fault::UpstreamResets(random.within(0..=answer.bytes)),
            _ => Fault::UpstreamCloses,
        });
        let reads_slowly = client != Version::Raw && random.chance(100);
        RequestPlan {
            id,
            wait: Duration::from_micros(random.one_of(&[0, 0, 100, 50_000])),
            method,
            upstream,
            request,
            answer,
            status,
            order: random.one_of(&[
                ResponseOrder::After,
                ResponseOrder::After,
                ResponseOrder::Meanwhile,
            ]),
            fault,
            odd,
            tunnel: None,
            call: None,
            reading_pause: reads_slowly
                .then(|| Duration::from_micros(random.within(1_000..=300_000))),
        }
    }

    /// Moves the reset of the upstream back into a response that has become shorter.
    pub(crate) fn limit_fault(&mut self) {
        if let Some(Fault::UpstreamResets(at)) = &mut self.fault {
            *at = (*at).min(self.answer.bytes);
        }
    }

    fn ask_for_tunnel(&mut self, random: &mut Random, upstreams: &[UpstreamPlan], client: Version) {
        let tunnels = [Tunnel::Both, Tunnel::ClientFirst, Tunnel::UpstreamFirst];
        let is_refused = match upstreams[self.upstream].version {
            Version::Http1 => true,
            Version::Raw | Version::Http2 | Version::RawHttp2 | Version::Http3 => {
                random.chance(200)
            }
        };
        let tunnel = match is_refused {
            true => Tunnel::Refused,
            false => random.one_of(&tunnels),
        };
        self.method = "GET";
        self.tunnel = Some(tunnel);
        self.odd = None;
        if matches!(self.fault, Some(Fault::UpstreamResets(_))) {
            self.fault = None;
        }
        self.order = match tunnel {
            Tunnel::ClientFirst => ResponseOrder::After,
            _ => ResponseOrder::Meanwhile,
        };
        self.answer = ContentPlan::new(random);
        (self.request, self.status) = match tunnel {
            Tunnel::Refused => (ContentPlan::none(), random.one_of(&[403, 404, 500])),
            // Bytes on a stream after the upstream's end are discarded.
            Tunnel::Both | Tunnel::UpstreamFirst if client == Version::Http2 => {
                (ContentPlan::none(), 200)
            }
            _ => (ContentPlan::new(random), 200),
        };
    }

    fn call(&mut self, random: &mut Random, client: Version) {
        let call = match client {
            Version::Http2 | Version::Http3 => {
                random.one_of(&[Call::Grpc, Call::Grpc, Call::Web, Call::WebText])
            }
            _ => random.one_of(&[Call::Web, Call::WebText]),
        };
        self.method = "POST";
        self.status = 200;
        self.call = Some(call);
        self.odd = None;
        self.fault = self
            .fault
            .filter(|fault| matches!(fault, Fault::ClientLeaves(_)));
        self.request = ContentPlan::new(random);
        self.answer = ContentPlan {
            is_sized: false,
            has_trailers: true,
            ..ContentPlan::new(random)
        };
    }

    fn add_trailers(&mut self, random: &mut Random) {
        let has_content = |content: &ContentPlan| content.bytes > 0;
        self.request.has_trailers = has_content(&self.request) && random.chance(200);
        self.answer.has_trailers |= has_content(&self.answer) && random.chance(200);
    }

    /// Whether it ends with its head.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self.method, "GET" | "HEAD")
    }

    /// Whether its upstream agrees to a tunnel.
    pub(crate) fn is_tunnel(&self) -> bool {
        self.tunnel.is_some_and(|tunnel| tunnel != Tunnel::Refused)
    }

    /// Whether it may be sent a second time (RFC 9110, section 9.2.2).
    pub(crate) fn is_idempotent(&self) -> bool {
        self.method != "POST"
    }
}

impl ContentPlan {
    pub(crate) fn none() -> ContentPlan {
        ContentPlan {
            seed: 0,
            bytes: 0,
            is_sized: true,
            piece: 1,
            pause: None,
            has_trailers: false,
        }
    }

    fn new(random: &mut Random) -> ContentPlan {
        let pauses = random.chance(200);
        ContentPlan {
            seed: random.next(),
            bytes: random.length(CONTENT_MAX),
            is_sized: random.chance(500),
            piece: random.one_of(&[1_000, 4_096, 16_384, 70_000]),
            pause: pauses.then(|| Duration::from_micros(random.within(1..=100_000))),
            has_trailers: false,
        }
    }
}

pub(crate) fn conditions(random: &mut Random) -> Conditions {
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
        no_descriptors: 0,
        ..Conditions::calm()
    }
}
