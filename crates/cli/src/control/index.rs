//! The list of what can be asked, and the answer to everything else.

use blitz::extract::Headers;
use blitz::{Request, Response, Status};

use super::negotiation::prefers_html;
use super::page;

/// Method, path and meaning.
const ENTRIES: [(&str, &str, &str); 18] = [
    ("GET", "/livez", "whether the process answers"),
    (
        "GET",
        "/readyz",
        "whether it takes requests: 503 while it starts and drains",
    ),
    ("GET", "/metrics", "metrics for Prometheus and OpenMetrics"),
    ("GET", "/config", "the configuration in use"),
    (
        "GET",
        "/config/diff",
        "the changes that a reload would make",
    ),
    (
        "GET",
        "/explain",
        "what becomes of a request: ?method=GET&url=URL, or ?routes=HOST",
    ),
    (
        "GET",
        "/upstreams",
        "upstreams with their addresses and connections",
    ),
    (
        "POST",
        "/upstreams/drain",
        "no new requests for ?server=URL but those with its cookie; over the socket only",
    ),
    (
        "POST",
        "/upstreams/undrain",
        "requests again for ?server=URL; over the socket only",
    ),
    ("GET", "/certificates", "certificates in use"),
    (
        "GET",
        "/connections",
        "connections and requests of each core; ?top=10: the clients that need the most",
    ),
    (
        "GET",
        "/failures",
        "the failures of late by cause and route",
    ),
    (
        "GET",
        "/tail",
        "a line for each request that ends: ?status=5xx; over the socket only",
    ),
    ("GET", "/log-level", "the least level of the log"),
    (
        "POST",
        "/log-level",
        "another one: ?level=debug; over the socket only",
    ),
    (
        "POST",
        "/reload",
        "reads the configuration again; over the socket only",
    ),
    (
        "POST",
        "/drain",
        "ends the process, as TERM does; over the socket only",
    ),
    ("GET", "/healthz", "the same as /readyz"),
];

pub(super) async fn index(headers: Headers) -> Response {
    let response = match prefers_html(&headers) {
        true => page::response(),
        false => Response::text(text()),
    };
    response.header("Vary", "Accept")
}

pub(super) async fn not_found(request: Request) -> Response {
    let path = request.path();
    let text = format!("there is no {path} here\n  GET / lists what there is\n");
    Response::text(text).with_status(Status::NOT_FOUND)
}

/// The answer before the gateway has started.
pub(super) fn starting() -> Response {
    let text = "the process starts, and has no state yet\n  ask again in a second\n";
    Response::text(text).with_status(Status::SERVICE_UNAVAILABLE)
}

fn text() -> String {
    let mut text = "Blitz\n\n".to_owned();
    for (method, path, meaning) in ENTRIES {
        text += &format!("{method:4} {path:18}  {meaning}\n");
    }
    text
}
