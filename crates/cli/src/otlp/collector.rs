//! Requests to a collector, over gRPC or HTTP.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use blitz_host::names::look_up_once;
use blitz_http::{
    Address, BodyLength, ClientOptions, Connection, Fields, Limits, Method, Name, Part, Pool,
    Protocol, RequestHead, Response, Upstream, UpstreamTls, blocking, log_text, timeout,
};

use super::endpoint::{Endpoint, OtlpProtocol};
use super::protobuf::{message_of, number_of};
use super::retry_after;
use super::settings::ExportSettings;
use super::signal::Signal;

/// How long an export may take.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest text of a collector in a warning.
const TEXT_MAX: usize = 512;

/// The most content of a response: it only says how many items were refused.
const RESPONSE_BYTES_MAX: usize = 64 * 1024;

/// The statuses of gRPC that OTLP has clients try again at: CANCELLED, DEADLINE_EXCEEDED, ABORTED, OUT_OF_RANGE,
/// UNAVAILABLE and DATA_LOSS.
const RETRYABLE: [u32; 6] = [1, 4, 10, 11, 14, 15];

/// UNIMPLEMENTED: the collector has no such method.
const UNIMPLEMENTED: u32 = 12;

/// RESOURCE_EXHAUSTED is tried again if the collector says when.
const RESOURCE_EXHAUSTED: u32 = 8;

/// The outcome of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The collector has taken all but so many items; its text may be empty.
    Taken { rejected: u64, text: String },
    /// It may take them later: not before this time, if it says so.
    Retry {
        after: Option<Duration>,
        problem: String,
    },
    /// It never takes them.
    Refused(String),
    /// It takes none of this kind.
    Unsupported(String),
}

/// A collector, with the connections of this core to it.
pub(super) struct Collector {
    settings: Rc<ExportSettings>,
    pool: Pool,
    /// `None` in clear text.
    tls: Option<UpstreamTls>,
    /// Its addresses that were found last, with their connections.
    upstreams: RefCell<Vec<Upstream>>,
}

impl Collector {
    /// # Errors
    /// TLS cannot be used with it.
    pub(super) fn new(settings: &Rc<ExportSettings>) -> Result<Collector, String> {
        let tls = settings.tls()?;
        let options = ClientOptions {
            response_timeout: EXPORT_TIMEOUT,
            // Over HTTP/2 the rest of a response that is too long is at most as long, or the connection is closed.
            limits: Limits {
                stream_window_bytes_max: RESPONSE_BYTES_MAX,
                ..Limits::default()
            },
            ..ClientOptions::default()
        };
        Ok(Collector {
            settings: Rc::clone(settings),
            pool: Pool::new(options),
            tls,
            upstreams: RefCell::default(),
        })
    }

    /// Sends a message.
    pub(super) async fn export(&self, signal: Signal, message: &[u8]) -> Outcome {
        let exported = timeout(EXPORT_TIMEOUT, self.send(signal, message)).await;
        match exported {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(problem)) => retry(problem),
            Err(_) => retry("no response in time".to_owned()),
        }
    }

    async fn send(&self, signal: Signal, message: &[u8]) -> Result<Outcome, String> {
        let connection = self.connect().await?;
        let (path, content) = match self.settings.protocol {
            OtlpProtocol::Grpc => (signal.method().to_owned(), prefixed(message)),
            OtlpProtocol::Http => {
                let path = format!("{}{}", self.settings.endpoint.path, signal.path());
                (path, message.to_vec())
            }
        };
        let head = self.head(&path);
        let length = BodyLength::Known(content.len() as u64);
        let (mut body, stream) = connection.request(&head, length);
        // If it does not take the content, the response says why.
        if body.data(content).await.is_ok() {
            let _ = body.finish(None);
        }
        let response = stream.response().await;
        let response = response.map_err(|error| error.to_string())?;
        let received = Received::of(response).await?;
        Ok(match self.settings.protocol {
            OtlpProtocol::Grpc => received.of_grpc(),
            OtlpProtocol::Http => received.of_http(),
        })
    }

    fn head(&self, path: &str) -> RequestHead {
        let is_grpc = self.settings.protocol == OtlpProtocol::Grpc;
        let mut head = RequestHead::new(Method::Post, path);
        head.set_authority(&self.settings.endpoint.authority);
        let fields = &mut head.fields;
        let content_type = if is_grpc {
            "application/grpc"
        } else {
            "application/x-protobuf"
        };
        fields.append(Name::ContentType, content_type);
        fields.append(
            Name::UserAgent,
            concat!("blitz/", env!("CARGO_PKG_VERSION")),
        );
        if is_grpc {
            fields.append(Name::Te, "trailers");
        }
        for (name, value) in &self.settings.headers {
            // They were checked.
            let _ = fields.try_append(name.as_str(), value);
        }
        head
    }

    /// A connection to one of its addresses, which are looked up again if none can be connected to.
    async fn connect(&self) -> Result<Connection, String> {
        let known = self.upstreams.take();
        if let Ok(connection) = self.connect_to(&known).await {
            self.upstreams.replace(known);
            return Ok(connection);
        }
        let found = look_up(&self.settings.endpoint).await?;
        let found: Vec<_> = found.iter().map(|address| self.upstream(address)).collect();
        let connection = self.connect_to(&found).await;
        self.upstreams.replace(found);
        connection
    }

    fn upstream(&self, address: &Address) -> Upstream {
        match &self.tls {
            Some(tls) => self.pool.upstream_tls(address, tls),
            None if self.settings.protocol == OtlpProtocol::Grpc => {
                self.pool.upstream_with_protocol(address, Protocol::Http2)
            }
            None => self.pool.upstream(address),
        }
    }

    /// A connection to the first of them that one can be made to.
    async fn connect_to(&self, upstreams: &[Upstream]) -> Result<Connection, String> {
        let mut problem = "it has no address".to_owned();
        for upstream in upstreams {
            match self.checkout(upstream).await {
                Ok(connection) => return Ok(connection),
                Err(error) => problem = error,
            }
        }
        Err(problem)
    }

    async fn checkout(&self, upstream: &Upstream) -> Result<Connection, String> {
        let is_grpc = self.settings.protocol == OtlpProtocol::Grpc;
        let connection = upstream
            .checkout()
            .await
            .map_err(|error| error.to_string())?;
        match is_grpc && connection.protocol() != Protocol::Http2 {
            true => Err("over TLS it does not choose HTTP/2, which gRPC needs".to_owned()),
            false => Ok(connection),
        }
    }
}

/// The addresses of a name.
async fn look_up(endpoint: &Endpoint) -> Result<Vec<Address>, String> {
    let (host, port) = (endpoint.host.clone(), endpoint.port);
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![Address::Tcp(SocketAddr::new(ip, port))]);
    }
    let found = blocking(move || look_up_once(&host, port)).await?;
    Ok(found.into_iter().map(Address::Tcp).collect())
}

/// A message of gRPC, without compression.
fn prefixed(message: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len() + 5);
    out.push(0);
    out.extend_from_slice(&(message.len() as u32).to_be_bytes());
    out.extend_from_slice(message);
    out
}

fn retry(problem: String) -> Outcome {
    Outcome::Retry {
        after: None,
        problem,
    }
}

/// A whole response.
#[derive(Debug, Default)]
struct Received {
    status: u16,
    fields: Fields,
    content: Vec<u8>,
    trailers: Fields,
}

impl Received {
    async fn of(mut response: Response) -> Result<Received, String> {
        let mut received = Received {
            status: response.head.status.code(),
            fields: response.head.fields.clone(),
            ..Received::default()
        };
        loop {
            match response.body.next().await {
                Ok(Some(Part::Data(slice))) => {
                    if received.content.len() + slice.len() > RESPONSE_BYTES_MAX {
                        return Err("its response is too long".to_owned());
                    }
                    received.content.extend_from_slice(&slice);
                }
                Ok(Some(Part::Trailers(trailers))) => received.trailers = Fields::clone(&trailers),
                Ok(None) => return Ok(received),
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    fn of_http(&self) -> Outcome {
        let problem = || format!("it responds with status {}", self.status);
        match self.status {
            200..=299 => taken(&self.content),
            429 | 502..=504 => Outcome::Retry {
                after: self.retry_after(),
                problem: problem(),
            },
            404 => Outcome::Unsupported(problem()),
            _ => Outcome::Refused(problem()),
        }
    }

    fn of_grpc(&self) -> Outcome {
        if self.status != 200 {
            return self.of_http_in_place_of_grpc();
        }
        // Without content the head may be the trailers, too.
        let has_status = |fields: &&Fields| fields.contains("grpc-status");
        let fields = [&self.trailers, &self.fields];
        let Some(fields) = fields.into_iter().find(has_status) else {
            return retry("its response has no status of gRPC".to_owned());
        };
        let status = fields
            .get_str("grpc-status")
            .and_then(|status| status.parse().ok());
        let text = fields.get("grpc-message").unwrap_or_default();
        let text = shown(text);
        let separator = if text.is_empty() { "" } else { ": " };
        match status {
            Some(0) => taken(self.content.get(5..).unwrap_or_default()),
            Some(status) => {
                let problem =
                    format!("it responds with the status {status} of gRPC{separator}{text}");
                let after = retry_after::of_grpc(fields);
                match status {
                    UNIMPLEMENTED => Outcome::Unsupported(problem),
                    RESOURCE_EXHAUSTED if after.is_some() => Outcome::Retry { after, problem },
                    status if RETRYABLE.contains(&status) => Outcome::Retry { after, problem },
                    _ => Outcome::Refused(problem),
                }
            }
            None => retry("its status of gRPC is no number".to_owned()),
        }
    }

    /// A proxy before the collector has responded.
    fn of_http_in_place_of_grpc(&self) -> Outcome {
        match self.of_http() {
            Outcome::Taken { .. } => retry(format!("it responds with status {}", self.status)),
            other => other,
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        let value = self.fields.get_str(Name::RetryAfter)?;
        retry_after::of_http(value, SystemTime::now())
    }
}

/// A text of the collector for the log: its start, with control characters and marks that turn the direction escaped.
fn shown(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    log_text::start_of(&text, TEXT_MAX)
        .escape_debug()
        .to_string()
}

/// The outcome of a response, whose `partial_success` tells how many items were rejected, and why.
fn taken(response: &[u8]) -> Outcome {
    let partial = message_of(response, 1).unwrap_or_default();
    Outcome::Taken {
        rejected: number_of(partial, 1).unwrap_or(0),
        text: shown(message_of(partial, 2).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL_TAKEN: Outcome = Outcome::Taken {
        rejected: 0,
        text: String::new(),
    };

    fn received(status: u16, trailers: &[(&str, &str)]) -> Received {
        let mut received = Received {
            status,
            ..Received::default()
        };
        for (name, value) in trailers {
            received.trailers.append(*name, value);
        }
        received
    }

    #[test]
    fn statuses_of_http_are_taken_tried_again_or_refused() {
        let outcome = |status| received(status, &[]).of_http();
        for status in [200, 202] {
            assert_eq!(outcome(status), ALL_TAKEN);
        }
        for status in [429, 502, 503, 504] {
            assert!(
                matches!(outcome(status), Outcome::Retry { after: None, .. }),
                "{status}"
            );
        }
        for status in [301, 400, 401, 413, 500, 501] {
            assert!(matches!(outcome(status), Outcome::Refused(_)), "{status}");
        }
        assert!(matches!(outcome(404), Outcome::Unsupported(_)));
        let mut busy = received(503, &[]);
        busy.fields.append(Name::RetryAfter, "7");
        let after = Some(Duration::from_secs(7));
        assert!(matches!(busy.of_http(), Outcome::Retry { after: found, .. } if found == after));
    }

    #[test]
    fn statuses_of_grpc_are_taken_tried_again_or_refused() {
        let outcome = |status: &str| received(200, &[("grpc-status", status)]).of_grpc();
        assert_eq!(outcome("0"), ALL_TAKEN);
        for status in ["1", "4", "10", "11", "14", "15", "x"] {
            assert!(matches!(outcome(status), Outcome::Retry { .. }), "{status}");
        }
        for status in ["2", "3", "7", "8", "13", "16"] {
            assert!(matches!(outcome(status), Outcome::Refused(_)), "{status}");
        }
        assert!(matches!(outcome("12"), Outcome::Unsupported(_)));
        assert!(matches!(
            received(200, &[]).of_grpc(),
            Outcome::Retry { .. }
        ));
        assert!(matches!(
            received(503, &[]).of_grpc(),
            Outcome::Retry { .. }
        ));
        assert!(matches!(
            received(404, &[]).of_grpc(),
            Outcome::Unsupported(_)
        ));
    }

    #[test]
    fn an_exhausted_collector_says_when_to_try_again() {
        let details = "CAgaMgoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIGCgQIBxAA";
        let fields = [("grpc-status", "8"), ("grpc-status-details-bin", details)];
        let outcome = received(200, &fields).of_grpc();
        let expected = Some(Duration::from_secs(7));
        assert!(
            matches!(&outcome, Outcome::Retry { after, .. } if *after == expected),
            "{outcome:?}"
        );
    }

    #[test]
    fn texts_of_a_collector_are_escaped_and_cut() {
        assert_eq!(
            shown("a\n\u{202e}b\u{9b}".as_bytes()),
            r"a\n\u{202e}b\u{9b}"
        );
        assert_eq!(shown(b"\xff\x1b"), "\u{fffd}\\u{1b}");
        assert_eq!(shown(&[b'a'; 7000]).len(), TEXT_MAX);
    }

    #[test]
    fn rejected_items_are_counted_and_have_a_reason() {
        // partial_success { rejected_spans: 3, error_message: "a\n" }
        let partial = [0x0a, 6, 0x08, 3, 0x12, 2, b'a', b'\n'];
        let rejected = |rejected, text: &str| Outcome::Taken {
            rejected,
            text: text.to_owned(),
        };
        assert_eq!(taken(&partial), rejected(3, "a\\n"));
        assert_eq!(taken(&[0x0a, 2, 0x08, 3]), rejected(3, ""));
        assert_eq!(taken(&[]), ALL_TAKEN);
        assert_eq!(taken(&[0x0a, 9]), ALL_TAKEN);
        let mut of_grpc = received(200, &[("grpc-status", "0")]);
        of_grpc.content = [&[0, 0, 0, 0, 8][..], &partial].concat();
        assert_eq!(of_grpc.of_grpc(), rejected(3, "a\\n"));
    }

    #[test]
    fn messages_of_grpc_have_a_prefix() {
        assert_eq!(prefixed(b"abc"), b"\0\0\0\0\x03abc");
    }
}
