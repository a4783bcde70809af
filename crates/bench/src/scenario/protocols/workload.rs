//! The workloads: those of a comparison of HTTP/2 with HTTP/3 that is often cited, and those that it leaves out.

use std::path::PathBuf;

use crate::not_run::NotRun;
use crate::study::{
    Case, Figure, Length, Load, MEGABYTES_PER_SECOND, P99, Program, REQUESTS_PER_SECOND, Requests,
    Subject, Version, WHOLE_TIME, Watched,
};

/// The requests of a client.
#[derive(Debug, Clone, Copy)]
pub(super) struct Workload {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) paths: Paths,
    /// Requests of a cold run.
    pub(super) requests: u32,
    pub(super) in_flight: u32,
    /// Clients, each with its own connections and requests in flight.
    pub(super) clients: u32,
    /// Connections of HTTP/1.1 of a client, if they are not as many as requests in flight.
    pub(super) http1_connections: Option<u32>,
    /// Other flags of `blitz load`.
    pub(super) flags: &'static [&'static str],
    pub(super) modes: &'static [Mode],
    /// The figure that is compared.
    pub(super) figure: Figure,
    /// The link of a workload that shows a property of links. It runs over this one only.
    pub(super) link: Option<&'static str>,
    /// Broken exchanges are a result.
    pub(super) may_fail: bool,
    /// Whether it runs over links without `--only`.
    pub(super) is_usual_over_links: bool,
    /// The differences over links.
    on_links: OnLinks,
}

/// The clients of workloads with [`OnLinks::shares_loss`] on links that lose packets. Loss leaves each connection so little
/// of the rate that they do not take it from each other, and 100 responses do not take minutes.
const CLIENTS_ON_LOSS: u32 = 16;

/// Less work over links, where a megabyte takes seconds if packets are lost. `None` is as on the loopback.
#[derive(Debug, Clone, Copy)]
struct OnLinks {
    requests: Option<u32>,
    paths: Option<Paths>,
    flags: Option<&'static [&'static str]>,
    /// Whether several clients run at once where packets are lost.
    shares_loss: bool,
}

/// The targets of requests.
#[derive(Debug, Clone, Copy)]
pub(super) enum Paths {
    /// In turn.
    Fixed(&'static [&'static str]),
    /// Contents of these sizes in bytes, each so many times.
    Sizes(&'static [(u32, u32)]),
}

/// How a client uses its connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientKind {
    /// HTTP/1.1 with a connection for each request in flight.
    Http1,
    /// HTTP/2 with one connection.
    Http2,
    /// HTTP/3 with one connection.
    Http3,
    /// HTTP/2 with a connection for each request in flight: a client that does not wait for its first connection dials
    /// so many when it is cold.
    Http2Dialing,
    /// HTTP/2 with Go's net/http, which dials for requests that find no connection.
    GoHttp2,
    /// HTTP/3 with quic-go, which dials once.
    GoHttp3,
}

/// Whether connecting is part of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// A new client and its first requests, handshakes included.
    Cold,
    /// The same client once its rate is steady.
    Warm,
}

/// The text 64 times.
macro_rules! repeated {
    ($text:literal) => {
        concat!(
            repeated!(8 $text), repeated!(8 $text), repeated!(8 $text), repeated!(8 $text),
            repeated!(8 $text), repeated!(8 $text), repeated!(8 $text), repeated!(8 $text),
        )
    };
    (8 $text:literal) => {
        concat!($text, $text, $text, $text, $text, $text, $text, $text)
    };
}

/// Cold and warm, with as many connections of HTTP/1.1 as requests in flight.
const USUAL: Workload = Workload {
    name: "",
    title: "",
    paths: Paths::Fixed(&["/ping"]),
    requests: 100,
    in_flight: 1,
    clients: 1,
    http1_connections: None,
    flags: &[],
    modes: &Mode::ALL,
    figure: REQUESTS_PER_SECOND,
    link: None,
    may_fail: false,
    is_usual_over_links: true,
    on_links: OnLinks {
        requests: None,
        paths: None,
        flags: None,
        shares_loss: false,
    },
};

/// A client that opens a connection for each request, with eight of them at a time.
const HANDSHAKES: Workload = Workload {
    in_flight: 8,
    modes: &[Mode::Warm],
    ..USUAL
};

/// The first seven are those of the cited comparison.
pub(super) const WORKLOADS: &[Workload] = &[
    Workload {
        name: "single",
        title: "Single request",
        on_links: OnLinks {
            requests: Some(20),
            ..USUAL.on_links
        },
        ..USUAL
    },
    Workload {
        name: "high",
        title: "High concurrency",
        paths: Paths::Fixed(&["/json"]),
        requests: 500,
        in_flight: 50,
        ..USUAL
    },
    Workload {
        name: "very-high",
        title: "Very high concurrency",
        paths: Paths::Fixed(&["/json"]),
        requests: 1_000,
        in_flight: 100,
        // It shows the same as with 50 in flight there.
        is_usual_over_links: false,
        ..USUAL
    },
    Workload {
        name: "small",
        title: "Many small responses",
        paths: Paths::Fixed(&["/data?size=1024"]),
        requests: 2_000,
        in_flight: 50,
        on_links: OnLinks {
            requests: Some(500),
            ..USUAL.on_links
        },
        ..USUAL
    },
    Workload {
        name: "delay",
        title: "Slow responses of the server",
        paths: Paths::Fixed(&["/delay?ms=50"]),
        requests: 200,
        in_flight: 20,
        ..USUAL
    },
    Workload {
        name: "large",
        title: "Large responses",
        paths: Paths::Fixed(&["/data?size=10485760"]),
        requests: 20,
        on_links: OnLinks {
            requests: Some(2),
            paths: Some(Paths::Fixed(&["/data?size=524288"])),
            shares_loss: true,
            ..USUAL.on_links
        },
        figure: MEGABYTES_PER_SECOND,
        ..USUAL
    },
    Workload {
        name: "mixed",
        title: "Mixed",
        paths: Paths::Fixed(&["/ping", "/json", "/data?size=10240", "/data?size=102400"]),
        requests: 200,
        in_flight: 10,
        on_links: OnLinks {
            requests: Some(40),
            shares_loss: true,
            ..USUAL.on_links
        },
        ..USUAL
    },
    Workload {
        name: "page",
        title: "A page of 70 objects",
        // The document, scripts and styles, images, icons: 1.1 MB.
        paths: Paths::Sizes(&[(61_440, 1), (40_960, 12), (15_360, 25), (4_096, 32)]),
        requests: 70,
        in_flight: 70,
        // As many as browsers open to a host.
        http1_connections: Some(6),
        modes: &[Mode::Cold],
        figure: WHOLE_TIME,
        ..USUAL
    },
    Workload {
        name: "upload",
        title: "Uploads that come back",
        paths: Paths::Fixed(&["/echo/upload"]),
        requests: 20,
        in_flight: 4,
        flags: &["-X", "POST", "--upload", "1m"],
        figure: MEGABYTES_PER_SECOND,
        on_links: OnLinks {
            requests: Some(8),
            flags: Some(&["-X", "POST", "--upload", "128k"]),
            shares_loss: true,
            ..USUAL.on_links
        },
        ..USUAL
    },
    Workload {
        name: "headers",
        title: "Heads of 3 KB",
        requests: 500,
        in_flight: 20,
        flags: HEAVY_HEAD,
        ..USUAL
    },
    Workload {
        name: "handshakes",
        title: "Full handshakes",
        flags: &["--new-connections", "--no-resume"],
        ..HANDSHAKES
    },
    Workload {
        name: "resumption",
        title: "Resumed handshakes",
        flags: &["--new-connections"],
        ..HANDSHAKES
    },
    Workload {
        name: "lost-packet",
        title: "One packet lost each second, 20 streams",
        // Little enough that the congestion window has room for all of it after a loss.
        paths: Paths::Fixed(&["/data?size=2048"]),
        in_flight: 20,
        modes: &[Mode::Warm],
        figure: P99,
        link: Some("rtt=50ms,down:lose-every=1s"),
        ..USUAL
    },
    Workload {
        name: "moving",
        title: "Downloads of 64 KiB by a client that moves",
        paths: Paths::Fixed(&["/data?size=65536"]),
        modes: &[Mode::Warm],
        flags: &["--keep-going", "--timeout", "5s"],
        figure: MEGABYTES_PER_SECOND,
        // A client of TCP waits for 5 s after each move.
        link: Some("rtt=50ms,rate=20mbit,move-every=4s"),
        may_fail: true,
        ..USUAL
    },
];

/// The cookies, tokens and client hints of a large application; the last one differs in each request.
const HEAVY_HEAD: &[&str] = &[
    "-H",
    concat!(
        "cookie: session=",
        repeated!("0123456789abcdef"),
        "; theme=dark"
    ),
    "-H",
    concat!("authorization: Bearer ", repeated!("eyJhbGciOiJFUzI1")),
    "-H",
    concat!("baggage: ", repeated!("tenant=4711,role")),
    "-H",
    "accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "-H",
    "accept-language: de-CH,de;q=0.9,en;q=0.8",
    "-H",
    "user-agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    "-H",
    "referer: https://shop.example/category/shoes?page=2&sort=price",
    "-H",
    "x-request-id: {{uuid}}",
];

impl Workload {
    /// The workload as it is over links.
    pub(super) fn over_a_link(self, loses_packets: bool) -> Workload {
        let OnLinks {
            requests,
            paths,
            flags,
            shares_loss,
        } = self.on_links;
        let clients = match loses_packets && shares_loss {
            true => CLIENTS_ON_LOSS,
            false => self.clients,
        };
        Workload {
            clients,
            requests: requests.unwrap_or(self.requests) * clients,
            paths: paths.unwrap_or(self.paths),
            flags: flags.unwrap_or(self.flags),
            ..self
        }
    }

    /// The load, in words.
    fn describe(&self, mode: Mode) -> String {
        let paths = match self.paths {
            Paths::Fixed(paths) => paths.join(", "),
            Paths::Sizes(sizes) => {
                let sizes = sizes
                    .iter()
                    .map(|(bytes, count)| format!("{count} × {bytes} bytes"));
                sizes.collect::<Vec<_>>().join(", ")
            }
        };
        let mut flags = self.flags.iter();
        let upload = flags
            .find(|flag| **flag == "--upload")
            .and_then(|_| flags.next());
        let upload = upload.map_or(String::new(), |size| format!(" with {size} of content"));
        let each = match self.clients {
            1 => String::new(),
            clients => format!(" of each of {clients} clients"),
        };
        let in_flight = format!("{paths}{upload}: {} in flight{each}", self.in_flight);
        match mode {
            Mode::Cold => format!("{in_flight}, {} requests", self.requests),
            Mode::Warm => in_flight,
        }
    }

    fn requests(&self) -> Requests {
        match self.paths {
            Paths::Fixed([path]) => Requests::Path((*path).to_owned()),
            Paths::Fixed(paths) => {
                Requests::Mix(paths.iter().map(|&path| path.to_owned()).collect())
            }
            Paths::Sizes(sizes) => {
                let lines = sizes.iter().flat_map(|&(bytes, count)| {
                    (0..count).map(move |number| format!("/data?size={bytes}&object={number}"))
                });
                Requests::Mix(lines.collect())
            }
        }
    }

    /// The name within a sentence.
    pub(super) fn subject(&self) -> String {
        let mut letters = self.title.chars();
        let first = letters.next().map(|first| first.to_ascii_lowercase());
        first.into_iter().chain(letters).collect()
    }

    /// The workload in one mode, on the server at `base`. `warm` is the length of a warm run.
    /// `go` is the program with Go's clients, or the reason why there is none.
    pub(super) fn case(
        &self,
        mode: Mode,
        (base, watched): (&str, &Watched),
        go: &Result<PathBuf, String>,
        warm: Length,
    ) -> Case {
        let length = match mode {
            Mode::Cold => Length::Requests(self.requests),
            Mode::Warm => warm,
        };
        let mut clients = self.clients(mode);
        let mut not_run = Vec::new();
        if let Err(reason) = go {
            clients.retain(|client| {
                let is_go = client.is_go();
                if is_go {
                    let name = client.name().to_owned();
                    let reason = reason.clone();
                    not_run.push(NotRun { name, reason });
                }
                !is_go
            });
        }
        let subjects = clients.into_iter().map(|client| {
            let (connections, streams) = self.connections(client);
            let mut load = Load::new(base, self.requests(), client.version(), length);
            if let (true, Ok(program)) = (client.is_go(), go) {
                load.program = Program::Go(program.clone());
            }
            load.flags
                .extend(self.flags.iter().map(|&flag| flag.to_owned()));
            Subject {
                name: client.name().to_owned(),
                load: load.with(connections, streams),
                watched: watched.clone(),
                may_fail: self.may_fail,
            }
        });
        Case {
            title: self.title.to_owned(),
            load: self.describe(mode),
            subjects: subjects.collect(),
            base: Some(ClientKind::Http2.name().to_owned()),
            not_run,
        }
    }

    /// A client that dials differs from one with a single connection when it is cold.
    fn clients(&self, mode: Mode) -> Vec<ClientKind> {
        let mut clients = vec![ClientKind::Http1, ClientKind::Http2, ClientKind::Http3];
        if mode == Mode::Cold && self.in_flight > 1 && self.http1_connections.is_none() {
            clients.push(ClientKind::Http2Dialing);
        }
        // Those of the cited comparison, where it says that HTTP/3 is several times as fast.
        if mode == Mode::Cold && self.in_flight >= GO_FROM && self.has_one_path() {
            clients.extend([ClientKind::GoHttp2, ClientKind::GoHttp3]);
        }
        clients
    }

    /// Whether Go's clients support it: one path and no flags.
    fn has_one_path(&self) -> bool {
        self.flags.is_empty() && matches!(self.paths, Paths::Fixed([_]))
    }

    /// Connections, and streams on each. New connections have one request each.
    fn connections(&self, client: ClientKind) -> (u32, u32) {
        let is_new = self.flags.contains(&"--new-connections");
        let (connections, streams) = match client {
            ClientKind::Http1 => (self.http1_connections.unwrap_or(self.in_flight), 1),
            ClientKind::Http2Dialing => (self.in_flight, 1),
            ClientKind::Http2 | ClientKind::Http3 if is_new => (self.in_flight, 1),
            ClientKind::Http2 | ClientKind::Http3 | ClientKind::GoHttp2 | ClientKind::GoHttp3 => {
                (1, self.in_flight)
            }
        };
        (connections * self.clients, streams)
    }
}

/// From so many requests in flight on, cold runs have Go's clients as well.
const GO_FROM: u32 = 50;

impl ClientKind {
    /// Whether it is a client of Go.
    fn is_go(self) -> bool {
        matches!(self, ClientKind::GoHttp2 | ClientKind::GoHttp3)
    }

    pub(super) const ALL: [ClientKind; 6] = [
        ClientKind::Http1,
        ClientKind::Http2,
        ClientKind::Http3,
        ClientKind::Http2Dialing,
        ClientKind::GoHttp2,
        ClientKind::GoHttp3,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            ClientKind::Http1 => "HTTP/1.1",
            ClientKind::Http2 => "HTTP/2",
            ClientKind::Http3 => "HTTP/3",
            ClientKind::Http2Dialing => "HTTP/2, dialing",
            ClientKind::GoHttp2 => "HTTP/2, Go",
            ClientKind::GoHttp3 => "HTTP/3, Go",
        }
    }

    pub(super) fn version(self) -> Version {
        match self {
            ClientKind::Http1 => Version::Http1,
            ClientKind::Http2 | ClientKind::Http2Dialing | ClientKind::GoHttp2 => Version::Http2,
            ClientKind::Http3 | ClientKind::GoHttp3 => Version::Http3,
        }
    }
}

impl Mode {
    pub(super) const ALL: [Mode; 2] = [Mode::Cold, Mode::Warm];

    pub(super) fn name(self) -> &'static str {
        match self {
            Mode::Cold => "cold",
            Mode::Warm => "warm",
        }
    }
}
