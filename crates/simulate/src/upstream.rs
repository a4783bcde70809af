//! Upstreams with hyper: they send the planned responses.

use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use blitz_reactor::simulation::{Acceptor, Stream};
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::ext::Protocol;
use hyper::service::service_fn;
use rustls::{ServerConfig, ServerConnection};

use crate::content::{DYNAMIC, GivenUp, ID, IncomingContent, OutgoingContent};
use crate::io::{HyperIo, Pauses, SettingsWatch, Tasks};
use crate::ledger::{Ledger, Pulse};
use crate::plan::{ContentPlan, Fault, RequestPlan, ResponseOrder, UpstreamPlan, Version};
use crate::raw::Broken;
use crate::reload::Replica;
use crate::{raw_http2, raw_upstream, tls, tunnel};

/// A client's window for each stream until it knows better (RFC 9113, section 6.9.2).
const INITIAL_WINDOW_BYTES: u32 = 65_535;

/// Interval of the looks for the acknowledgement of a smaller one.
const SETTINGS_LOOK_EVERY: Duration = Duration::from_millis(1);

/// Accepts and serves connections until the run ends.
pub(crate) async fn serve(
    ledger: Rc<Ledger>,
    acceptor: Acceptor,
    upstream: UpstreamPlan,
    server: Replica,
) {
    let shared = Rc::new(raw_http2::UpstreamState::new(upstream.quits));
    let tls = upstream.is_secure.then(|| tls::server(upstream.version));
    let mut connections = 0;
    loop {
        let stream = acceptor.accept().await;
        let theirs = Rc::clone(&ledger);
        ledger.observed.accept(server);
        connections += 1;
        let seed = ledger.plan.seed ^ (connections << 32);
        match upstream.version {
            Version::Raw => ledger
                .world
                .spawn(raw_upstream::serve(theirs, stream, server)),
            Version::RawHttp2 => {
                let serving = raw_http2::serve(theirs, stream, server, Rc::clone(&shared), seed);
                ledger.world.spawn(serving);
            }
            Version::Http1 | Version::Http2 | Version::Http3 => {
                let serving =
                    serve_connection(theirs, stream, server, upstream.clone(), tls.clone());
                ledger.world.spawn(serving);
            }
        }
    }
}

async fn serve_connection(
    ledger: Rc<Ledger>,
    stream: Stream,
    server: Replica,
    upstream: UpstreamPlan,
    tls: Option<Arc<ServerConfig>>,
) {
    let pulse = ledger.pulse();
    let (world, moved) = (ledger.world.clone(), Rc::clone(&pulse));
    let mut io = HyperIo::new(Rc::new(stream), move || moved.set(world.now()));
    if let Some(tls) = tls {
        let session = ServerConnection::new(tls).expect("the settings are valid");
        // The gateway notices a handshake that fails.
        let Ok(secured) = io.secured(session.into()).await else {
            return;
        };
        io = secured;
    }
    let tasks = Tasks(ledger.world.clone());
    let settings = (upstream.version == Version::Http2
        && upstream.windows.stream < INITIAL_WINDOW_BYTES)
        .then(|| Rc::new(SettingsWatch::new()));
    if let Some(settings) = &settings {
        io = io.watched_by(Rc::clone(settings));
    }
    let service = service_fn(move |request| {
        let (ledger, pulse, settings) = (Rc::clone(&ledger), Rc::clone(&pulse), settings.clone());
        async move {
            if let Some(settings) = settings {
                while !settings.is_acknowledged() {
                    ledger.world.sleep(SETTINGS_LOOK_EVERY).await;
                }
            }
            answer(ledger, server, pulse, request).await
        }
    });
    // The clients notice how the connection ends.
    match upstream.version {
        Version::Http1 | Version::Raw | Version::RawHttp2 | Version::Http3 => {
            let mut builder = hyper::server::conn::http1::Builder::new();
            // The date would come from the clock of the real machine.
            builder.auto_date_header(false);
            let _ = builder.serve_connection(io, service).await;
        }
        Version::Http2 => {
            let mut builder = hyper::server::conn::http2::Builder::new(tasks);
            builder
                .auto_date_header(false)
                .enable_connect_protocol()
                .initial_stream_window_size(upstream.windows.stream)
                .initial_connection_window_size(upstream.windows.connection);
            let _ = builder.serve_connection(io, service).await;
        }
    }
}

async fn answer(
    ledger: Rc<Ledger>,
    server: Replica,
    pulse: Pulse,
    mut request: Request<Incoming>,
) -> Result<Response<OutgoingContent>, GivenUp> {
    let id = request.headers().get(ID);
    let id = id.and_then(|id| id.to_str().ok()?.parse().ok());
    let Some(planned) = id.and_then(|id| ledger.find(id)) else {
        ledger.violate(format!("a request without a plan: {:?}", request.headers()));
        return Err(GivenUp);
    };
    ledger.arrive(&planned, server, &pulse);
    let method = match request.extensions().get::<Protocol>() {
        Some(_) => "CONNECT",
        None => planned.method,
    };
    if request.method().as_str() != method {
        ledger.violate(format!(
            "request {} has method {}",
            planned.id,
            request.method()
        ));
    }
    if ledger.refers_to_table(planned.id) {
        let field = request.headers().get(DYNAMIC).cloned();
        let is_right = field
            .as_ref()
            .is_some_and(|field| field == planned.id.to_string().as_str());
        if !is_right {
            ledger.violate(format!("request {} has {DYNAMIC}: {field:?}", planned.id));
        }
    }
    let is_tunnel = planned.is_tunnel();
    if planned.fault == Some(Fault::UpstreamCloses) {
        if planned.order == ResponseOrder::After && !is_tunnel {
            receive(&ledger, &planned, request.into_body()).await;
        }
        return Err(GivenUp);
    }
    if is_tunnel {
        let upgraded = hyper::upgrade::on(&mut request);
        ledger
            .world
            .spawn(tunnel(Rc::clone(&ledger), planned.clone(), upgraded));
        let content = OutgoingContent::new(&ContentPlan::none(), &ledger.world, None);
        let answer = head(&planned).body(content);
        return Ok(answer.expect("the plan has valid statuses"));
    }
    let body = request.into_body();
    match planned.order {
        ResponseOrder::After => receive(&ledger, &planned, body).await,
        ResponseOrder::Meanwhile => {
            let (theirs, planned) = (Rc::clone(&ledger), planned.clone());
            ledger
                .world
                .spawn(async move { receive(&theirs, &planned, body).await });
        }
    }
    let fails_at = match planned.fault {
        Some(Fault::UpstreamResets(at)) => Some(at),
        _ => None,
    };
    let content = OutgoingContent::new(&planned.answer, &ledger.world, fails_at);
    let answer = head(&planned).body(content);
    Ok(answer.expect("the plan has valid statuses"))
}

fn head(planned: &RequestPlan) -> http::response::Builder {
    let head = Response::builder()
        .status(planned.status)
        .header(ID, planned.id);
    match planned.call {
        Some(_) => head.header("content-type", "application/grpc+proto"),
        None => head,
    }
}

/// The end of a tunnel.
async fn tunnel(ledger: Rc<Ledger>, planned: RequestPlan, upgraded: hyper::upgrade::OnUpgrade) {
    // The client reports a tunnel that is not opened or is aborted.
    let Ok(stream) = upgraded.await else { return };
    match tunnel::as_upstream(stream, &[], &planned, &ledger.world).await {
        Ok(()) => ledger.note_arrived_whole(planned.id),
        Err(Broken::Cut(_)) => {}
        Err(Broken::Wrong(why)) => {
            ledger.violate(format!("request {} at its upstream: {why}", planned.id));
        }
    }
}

/// Compares the content of a request with what was sent.
async fn receive(ledger: &Ledger, planned: &RequestPlan, body: Incoming) {
    let mut body = pin!(body);
    let content = ledger.plan.forwarded(planned);
    let mut receiving = IncomingContent::new(&content);
    let mut pauses = Pauses::new(&ledger.world, planned.reading_pause);
    loop {
        let frame = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await;
        let checked = match frame {
            Some(Ok(frame)) => {
                pauses.take().await;
                receiving.take_frame(&frame)
            }
            // The client reports content that is aborted.
            Some(Err(_)) => return,
            None => {
                let checked = receiving.end();
                if checked.is_ok() {
                    ledger.note_arrived_whole(planned.id);
                }
                if let Err(why) = checked {
                    ledger.violate(format!("request {} at its upstream: {why}", planned.id));
                }
                return;
            }
        };
        if let Err(why) = checked {
            return ledger.violate(format!("request {} at its upstream: {why}", planned.id));
        }
    }
}
