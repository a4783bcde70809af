//! The built-in endpoints of a server without configuration, written as an ordinary app.

mod protected;

use std::time::{Duration, UNIX_EPOCH};

use blitz_http::{BodyLength, Name, sleep, wall_clock};
use serde::{Deserialize, Serialize};

use crate::body::ContentError;
use crate::extract::Query;
use crate::{App, Json, Method, Problem, Request, Response, Status};

/// Most bytes that `/data` sends.
const DATA_BYTES_MAX: u64 = 10 * 1024 * 1024 * 1024;
/// Longest wait of `/delay`.
const DELAY_MS_MAX: u64 = 60_000;
/// The block that `/data` repeats. It is sent as one segment, with the head before it.
static BLOCK: [u8; BLOCK_BYTES] = block();
const BLOCK_BYTES: usize = 60 * 1024;

/// An app with the built-in endpoints.
pub fn app() -> App {
    App::new()
        .get("/", welcome)
        .get("/health", || Json(Health { status: "ok" }))
        .get("/livez", || "ok\n")
        .get("/readyz", ready)
        .get("/healthz", ready)
        .get("/hello", || "Hello, World!")
        .get("/ping", || "pong")
        .get("/json", json)
        .any("/echo", echo)
        .any("/echo/{rest...}", echo)
        .get("/data", data)
        .get("/delay", delay)
}

/// The same, and `/api/json` and `/api/echo` for requests with a token that is signed with this secret, by HS256.
pub fn app_with_secret(secret: &[u8]) -> App {
    let api = App::new()
        .get("/json", json)
        .any("/echo", echo)
        .any("/echo/{rest...}", echo);
    app().nest("/api", protected::protect(api, secret))
}

#[derive(Serialize)]
struct Health {
    status: &'static str,
}

/// The list of endpoints: HTML for browsers, text for other clients.
#[allow(clippy::needless_pass_by_value)] // the signature of a handler
fn welcome(request: Request) -> Response {
    let accept = request.fields().get_str(Name::Accept).unwrap_or_default();
    if accept.contains("text/html") {
        Response::html(include_str!("builtin/welcome.html"))
    } else {
        let text = include_str!("builtin/welcome.txt");
        Response::text(text.replace("{origin}", &origin(&request)))
    }
}

/// Where the client has reached this server. The text is for a shell, so the host is used only if it has
/// no character that a shell knows.
fn origin(request: &Request) -> String {
    let is_plain = |host: &&str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
        let inner = host.strip_prefix('[').map(|host| host.replacen(']', "", 1));
        let inner = inner.as_deref().unwrap_or(host);
        !inner.is_empty() && inner.bytes().all(is_plain)
    };
    let peer = request.peer();
    let host = request.head().authority().filter(is_plain);
    let host = host.map(str::to_owned).or_else(|| {
        let address = peer.listener?;
        Some(match address.ip().is_unspecified() {
            true => format!("localhost:{}", address.port()),
            false => address.to_string(),
        })
    });
    let host = host.unwrap_or_else(|| "localhost".to_owned());
    format!("{}://{host}", peer.scheme.as_str())
}

/// The readiness probe: 503 while the server drains.
fn ready() -> Response {
    if crate::is_draining() {
        let problem = Problem::new(Status::SERVICE_UNAVAILABLE);
        return crate::IntoResponse::into_response(problem.detail("draining"));
    }
    Response::text("ok\n")
}

#[derive(Serialize)]
struct Stamp {
    message: &'static str,
    timestamp: f64,
}

/// A message and the time in seconds since 1970, with the precision of the event loop.
fn json() -> Json<Stamp> {
    let since = wall_clock().duration_since(UNIX_EPOCH).unwrap_or_default();
    let timestamp = since.as_millis() as f64 / 1000.0;
    Json(Stamp {
        message: "Hello, World!",
        timestamp,
    })
}

/// Sends content back as it arrives; a request without content gets its path.
async fn echo(mut request: Request) -> Result<Response, ContentError> {
    let body = request
        .take_body()
        .filter(|body| body.length() != BodyLength::Empty);
    let Some(mut body) = body.filter(|_| request.method() != Method::Get) else {
        return Ok(Response::text(format!("{}\n", request.path())));
    };
    let length = body.length();
    // A client that expects 100 Continue would take an early final response for a refusal.
    let mut next = body.chunk().await?;
    let send_back = async move |writer: &mut crate::Writer| {
        while let Some(chunk) = next {
            writer.send(chunk).await?;
            next = body.chunk().await?;
        }
        Ok(())
    };
    let response = match length {
        BodyLength::Known(length) => Response::stream_sized(length, send_back),
        BodyLength::NothingButTrailers => Response::stream_sized(0, send_back),
        BodyLength::Unknown | BodyLength::Empty => Response::stream(send_back),
    };
    Ok(match request.fields().get_str(Name::ContentType) {
        Some(kind) => response.content_type(kind),
        None => response,
    })
}

#[derive(Deserialize)]
struct Size {
    size: u64,
}

/// Exactly `size` bytes, of which at most a few blocks are in memory.
fn data(Query(Size { size }): Query<Size>) -> Result<Response, Problem> {
    if size > DATA_BYTES_MAX {
        return Err(Problem::bad_request(format!(
            "size may be at most {DATA_BYTES_MAX}"
        )));
    }
    Ok(Response::stream_sized(size, async move |writer| {
        let mut left = size;
        while left > 0 {
            let block = &BLOCK[..BLOCK
                .len()
                .min(usize::try_from(left).unwrap_or(BLOCK.len()))];
            writer.send(block).await?;
            left -= block.len() as u64;
        }
        Ok(())
    }))
}

#[derive(Deserialize)]
struct Delay {
    ms: u64,
}

/// Responds after `ms` milliseconds.
async fn delay(Query(Delay { ms }): Query<Delay>) -> Result<String, Problem> {
    if ms > DELAY_MS_MAX {
        return Err(Problem::bad_request(format!(
            "ms may be at most {DELAY_MS_MAX}"
        )));
    }
    sleep(Duration::from_millis(ms)).await;
    Ok(format!("waited {ms} ms\n"))
}

/// Lines of 64 bytes, which are readable in a terminal.
const fn block() -> [u8; BLOCK_BYTES] {
    let mut block = [0; BLOCK_BYTES];
    let mut at = 0;
    while at < block.len() {
        block[at] = match at % 64 {
            63 => b'\n',
            column => b'0' + (column % 10) as u8,
        };
        at += 1;
    }
    block
}
