//! Requests with clients that use no code of Blitz: hyper for HTTP/1.1 and HTTP/2, h3 over quinn for HTTP/3.

use std::borrow::Cow;
use std::future::{Future, poll_fn};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use blitz_testing::IO_TIMEOUT;
use bytes::{Buf, Bytes};
use http::{HeaderMap, Request, Uri};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use quinn::crypto::rustls::QuicClientConfig;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::table::Row;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    Http1,
    Http2,
    Http3,
}

/// The listeners, and whom clients trust.
pub(super) struct Place {
    pub(super) plain: SocketAddr,
    /// Whether connections in clear text begin with a PROXY header.
    pub(super) is_proxied: bool,
    pub(super) secure: Option<(SocketAddr, Arc<ClientConfig>)>,
}

/// A whole response.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    fields: HeaderMap,
    pub(super) text: String,
}

/// The request as an upstream received it.
pub(super) struct Received<'t> {
    /// Its URL with the path and the query.
    pub(super) to: String,
    lines: Vec<&'t str>,
}

impl Place {
    /// A text with the port of the listener for TLS.
    pub(super) fn with_port<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match &self.secure {
            Some((address, _)) => text.replace(":TLS", &format!(":{}", address.port())).into(),
            None => text.into(),
        }
    }
}

impl Answer {
    async fn of<B>(response: http::Response<B>) -> Answer
    where
        B: hyper::body::Body + Unpin,
        B::Error: std::fmt::Debug,
    {
        let (head, body) = response.into_parts();
        let content = body.collect().await.unwrap().to_bytes();
        Answer::with(head, &content)
    }

    fn with(head: http::response::Parts, content: &[u8]) -> Answer {
        Answer {
            status: head.status.as_u16(),
            fields: head.headers,
            text: String::from_utf8_lossy(content).into_owned(),
        }
    }

    /// All values of a field.
    pub(super) fn field(&self, name: &str) -> Option<String> {
        let values: Vec<_> = self
            .fields
            .get_all(name)
            .iter()
            .map(|value| value.to_str().unwrap())
            .collect();
        (!values.is_empty()).then(|| values.join(" | "))
    }

    /// `None` if no upstream has answered.
    pub(super) fn received(&self) -> Option<Received<'_>> {
        let mut lines = self.text.lines();
        let mut words = lines.next()?.strip_suffix(" HTTP/1.1")?.split(' ');
        let (url, _method, path) = (words.next()?, words.next()?, words.next()?);
        Some(Received {
            to: format!("{url}{path}"),
            lines: lines.collect(),
        })
    }
}

impl Received<'_> {
    /// All values of a field.
    pub(super) fn field(&self, name: &str) -> Option<String> {
        let values = self.lines.iter().filter_map(|line| {
            let (known, value) = line.split_once(": ")?;
            (known == name).then_some(value)
        });
        let values: Vec<_> = values.collect();
        (!values.is_empty()).then(|| values.join(" | "))
    }
}

/// Runs a client, with a time limit.
pub(super) fn block_on<F: Future>(client: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let within = async { tokio::time::timeout(IO_TIMEOUT, client).await };
    runtime
        .unwrap()
        .block_on(within)
        .expect("an answer in time")
}

/// Sends the request of a row on a connection of its own.
pub(super) async fn ask(place: &Place, version: Version, row: &Row) -> Answer {
    let host = row.url.host().unwrap();
    if row.url.scheme_str() != Some("https") {
        let mut stream = TcpStream::connect(place.plain).await.unwrap();
        if place.is_proxied {
            let client = row.option("from").unwrap_or("192.0.2.1");
            let header = format!("PROXY TCP4 {client} 192.0.2.2 4660 80\r\n");
            stream.write_all(header.as_bytes()).await.unwrap();
        }
        return over_stream(stream, version, request(row, version)).await;
    }
    let (address, config) = place.secure.as_ref().expect("a listener with TLS");
    let mut config = ClientConfig::clone(config);
    config.alpn_protocols = match version {
        Version::Http1 => vec![b"http/1.1".to_vec()],
        Version::Http2 => vec![b"h2".to_vec()],
        Version::Http3 => vec![b"h3".to_vec()],
    };
    // Another name than the host in the request, with the same connection.
    let name = row.option("server-name").unwrap_or(host).to_owned();
    if version == Version::Http3 {
        return over_quic(*address, config, &name, request(row, version)).await;
    }
    let stream = TcpStream::connect(address).await.unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    let name = ServerName::try_from(name).unwrap();
    let stream = connector.connect(name, stream).await.unwrap();
    over_stream(stream, version, request(row, version)).await
}

/// The request of a row. Over HTTP/1.1 its target is a path.
fn request(row: &Row, version: Version) -> Request<Full<Bytes>> {
    let authority = row.url.authority().unwrap().as_str();
    let path = row.url.path_and_query().unwrap();
    let mut request = Request::builder().method(row.method.as_str());
    request = match version {
        Version::Http1 => request
            .uri(Uri::from(path.clone()))
            .header("host", authority),
        _ => request.uri(row.url.clone()),
    };
    let mut content = Bytes::new();
    for (name, value) in &row.fields {
        match name.as_str() {
            "server-name" => {}
            "from" => request = request.header("x-forwarded-for", value),
            "content" => content = vec![b'x'; value.parse().unwrap()].into(),
            name => request = request.header(name, value),
        }
    }
    request.body(Full::new(content)).unwrap()
}

async fn over_stream<S>(stream: S, version: Version, request: Request<Full<Bytes>>) -> Answer
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let io = TokioIo::new(stream);
    if version == Version::Http1 {
        let (mut sender, connection) = http1::handshake(io).await.unwrap();
        // An error of the connection is one of the response as well.
        tokio::spawn(async { drop(connection.await) });
        return Answer::of(sender.send_request(request).await.unwrap()).await;
    }
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(async { drop(connection.await) });
    Answer::of(sender.send_request(request).await.unwrap()).await
}

async fn over_quic(
    address: SocketAddr,
    config: ClientConfig,
    name: &str,
    request: Request<Full<Bytes>>,
) -> Answer {
    let endpoint = quinn::Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(config).unwrap()));
    let connecting = endpoint.connect_with(config, address, name).unwrap();
    let connection = h3_quinn::Connection::new(connecting.await.unwrap());
    let (mut driver, mut sender) = h3::client::new(connection).await.unwrap();
    tokio::spawn(async move { drop(poll_fn(|cx| driver.poll_close(cx)).await) });
    let (head, body) = request.into_parts();
    let content = body.collect().await.unwrap().to_bytes();
    let mut stream = sender
        .send_request(Request::from_parts(head, ()))
        .await
        .unwrap();
    if !content.is_empty() {
        // A server may answer before it has all of it.
        let _ = stream.send_data(content).await;
    }
    let _ = stream.finish().await;
    let (head, ()) = stream.recv_response().await.unwrap().into_parts();
    let mut content = Vec::new();
    while let Some(mut piece) = stream.recv_data().await.unwrap() {
        content.extend_from_slice(&piece.copy_to_bytes(piece.remaining()));
    }
    Answer::with(head, &content)
}
