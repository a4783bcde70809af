//! Upstreams: hyper's servers, which answer as the plan says.

use std::pin::pin;
use std::rc::Rc;

use blitz_reactor::simulation::{Acceptor, Stream};
use http::{Request as HttpRequest, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::service::service_fn;

use crate::content::{GivenUp, Receiving, Sending};
use crate::io::{Io, Tasks};
use crate::ledger::{Ledger, Pulse};
use crate::plan::{Fault, Order, Request, Version};
use crate::raw_upstream;

/// The field that carries the number of a request there and back.
pub(crate) const ID: &str = "x-id";

/// Accepts connections and serves them, for ever.
pub(crate) async fn serve(ledger: Rc<Ledger>, acceptor: Acceptor, version: Version) {
    loop {
        let stream = acceptor.accept().await;
        let theirs = Rc::clone(&ledger);
        match version {
            Version::Raw => ledger.world.spawn(raw_upstream::serve(theirs, stream)),
            _ => ledger
                .world
                .spawn(serve_connection(theirs, stream, version)),
        }
    }
}

async fn serve_connection(ledger: Rc<Ledger>, stream: Stream, version: Version) {
    let pulse = ledger.pulse();
    let (world, moved) = (ledger.world.clone(), Rc::clone(&pulse));
    let io = Io::new(Rc::new(stream), move || moved.set(world.now()));
    let tasks = Tasks(ledger.world.clone());
    let service = service_fn(move |request| answer(Rc::clone(&ledger), Rc::clone(&pulse), request));
    // How a connection ends shows in its requests.
    match version {
        Version::Http1 | Version::Raw => {
            let mut builder = hyper::server::conn::http1::Builder::new();
            // It would be that of another clock.
            builder.auto_date_header(false);
            let _ = builder.serve_connection(io, service).await;
        }
        Version::Http2 => {
            let mut builder = hyper::server::conn::http2::Builder::new(tasks);
            builder.auto_date_header(false);
            let _ = builder.serve_connection(io, service).await;
        }
    }
}

async fn answer(
    ledger: Rc<Ledger>,
    pulse: Pulse,
    request: HttpRequest<Incoming>,
) -> Result<Response<Sending>, GivenUp> {
    let id = request.headers().get(ID);
    let id = id.and_then(|id| id.to_str().ok()?.parse().ok());
    let Some(planned) = id.and_then(|id| ledger.find(id)) else {
        ledger.violate(format!("a request without a plan: {:?}", request.headers()));
        return Err(GivenUp);
    };
    ledger.arrive(&planned, &pulse);
    if request.method().as_str() != planned.method {
        ledger.violate(format!(
            "request {} has method {}",
            planned.id,
            request.method()
        ));
    }
    let body = request.into_body();
    match planned.order {
        Order::After => receive(&ledger, &planned, body).await,
        Order::Meanwhile => {
            let (theirs, planned) = (Rc::clone(&ledger), planned.clone());
            ledger
                .world
                .spawn(async move { receive(&theirs, &planned, body).await });
        }
    }
    if planned.fault == Some(Fault::UpstreamCloses) {
        return Err(GivenUp);
    }
    let fails_at = match planned.fault {
        Some(Fault::UpstreamResets(at)) => Some(at),
        _ => None,
    };
    let answer = Response::builder()
        .status(planned.status)
        .header(ID, planned.id)
        .body(Sending::new(&planned.answer, &ledger.world, fails_at));
    Ok(answer.expect("the plan has valid statuses"))
}

/// Compares the content of a request with what was sent.
async fn receive(ledger: &Ledger, planned: &Request, body: Incoming) {
    let mut body = pin!(body);
    let mut receiving = Receiving::new(&planned.request);
    loop {
        let frame = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await;
        let checked = match frame {
            Some(Ok(frame)) => receiving.take(frame.data_ref().map_or(&[], |data| data)),
            // It is cut off, which is for the client to judge.
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
