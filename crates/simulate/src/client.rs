//! Clients with hyper: they send planned requests and compare the responses.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::time::Duration;

use blitz_http::Address;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::ext::Protocol;

use crate::content::{ID, IncomingContent, OutgoingContent};
use crate::io::{HyperIo, Pauses, Tasks, within};
use crate::ledger::{Ending, Ledger, Pulse};
use crate::plan::{Call, ClientPlan, ContentPlan, Fault, RequestPlan, Version};
use crate::raw::Broken;
use crate::{http3, raw_client, raw_http2, tls, tunnel};

/// Longest time until the SETTINGS of the gateway arrive.
const SETTINGS_MAX: Duration = Duration::from_secs(1);

/// The sender of requests on one connection.
#[derive(Debug)]
enum Sender {
    Http1(hyper::client::conn::http1::SendRequest<OutgoingContent>),
    Http2(hyper::client::conn::http2::SendRequest<OutgoingContent>),
}

type Answered = Pin<Box<dyn Future<Output = hyper::Result<Response<Incoming>>>>>;

impl Sender {
    fn send(&mut self, request: Request<OutgoingContent>) -> Answered {
        match self {
            Sender::Http1(sender) => Box::pin(sender.send_request(request)),
            Sender::Http2(sender) => Box::pin(sender.send_request(request)),
        }
    }

    /// Another handle to the HTTP/2 connection.
    fn another(&self) -> Option<Sender> {
        match self {
            Sender::Http1(_) => None,
            Sender::Http2(sender) => Some(Sender::Http2(sender.clone())),
        }
    }

    async fn is_usable(&mut self) -> bool {
        match self {
            Sender::Http1(sender) => sender.ready().await.is_ok(),
            Sender::Http2(sender) => sender.ready().await.is_ok(),
        }
    }
}

/// Sends all requests of a client.
pub(crate) async fn run(ledger: Rc<Ledger>, mut client: ClientPlan, gateway: Address) {
    match client.version {
        Version::Raw => return raw_client::run(ledger, client, gateway).await,
        Version::RawHttp2 => return raw_http2::run(ledger, client, gateway).await,
        Version::Http3 => return http3::run(ledger, client, gateway).await,
        Version::Http1 | Version::Http2 => {}
    }
    ledger.world.sleep(client.begins).await;
    let mut connection: Option<(Sender, Pulse)> = None;
    for request in std::mem::take(&mut client.requests) {
        ledger.world.sleep(request.wait).await;
        let is_usable = match &mut connection {
            Some((sender, _)) => sender.is_usable().await,
            None => false,
        };
        if !is_usable {
            match connect(&ledger, &gateway, &client).await {
                Ok(connected) => connection = Some(connected),
                Err(error) => {
                    return ledger.violate(format!("connecting failed: {error}"));
                }
            }
        }
        let Some((sender, pulse)) = &mut connection else {
            continue;
        };
        if request.tunnel.is_some() {
            // hyper sends no extended CONNECT before the SETTINGS of the gateway allow it.
            ledger.world.sleep(SETTINGS_MAX).await;
        }
        ledger.begin(&request, pulse);
        let answered = sender.send(message(&ledger, &request, client.is_secure));
        let exchange = exchange(Rc::clone(&ledger), request, answered, Rc::clone(pulse));
        match client.version {
            Version::Http2 => {
                // hyper closes the connection of a tunnel when its sender is dropped.
                let held = sender.another();
                ledger.world.spawn(async move {
                    exchange.await;
                    drop(held);
                });
            }
            Version::Http1 | Version::Raw | Version::RawHttp2 | Version::Http3 => {
                if !exchange.await {
                    connection = None;
                }
            }
        }
    }
}

async fn connect(
    ledger: &Rc<Ledger>,
    gateway: &Address,
    client: &ClientPlan,
) -> io::Result<(Sender, Pulse)> {
    let stream = ledger.world.connect(gateway).await?;
    let pulse = ledger.pulse();
    let (world, moved) = (ledger.world.clone(), Rc::clone(&pulse));
    let mut io = HyperIo::new(Rc::new(stream), move || moved.set(world.now()));
    if client.is_secure {
        io = io.secured(tls::client(client.version)).await?;
    }
    let world = ledger.world.clone();
    let sender = match client.version {
        Version::Http1 | Version::Raw | Version::RawHttp2 | Version::Http3 => {
            let shaken = hyper::client::conn::http1::handshake(io).await;
            let (sender, connection) = shaken.map_err(io::Error::other)?;
            world.spawn(async { drop(connection.await) });
            Sender::Http1(sender)
        }
        Version::Http2 => {
            let tasks = Tasks(world.clone());
            let shaken = hyper::client::conn::http2::Builder::new(tasks)
                // The smallest limit of all plans, until the SETTINGS of the gateway arrive.
                .initial_max_send_streams(3)
                .initial_stream_window_size(client.windows.stream)
                .initial_connection_window_size(client.windows.connection)
                .handshake(io)
                .await;
            let (sender, connection) = shaken.map_err(io::Error::other)?;
            world.spawn(async { drop(connection.await) });
            Sender::Http2(sender)
        }
    };
    Ok((sender, pulse))
}

/// The request as hyper's clients and those of HTTP/3 send it.
pub(crate) fn message(
    ledger: &Ledger,
    request: &RequestPlan,
    is_secure: bool,
) -> Request<OutgoingContent> {
    let scheme = if is_secure { "https" } else { "http" };
    let message = Request::builder()
        .method(request.method)
        .uri(format!(
            "{scheme}://gateway/{}/{}",
            request.upstream, request.id
        ))
        .header("host", "gateway")
        .header(ID, request.id);
    let message = match request.call {
        None => message,
        Some(Call::Grpc) => message
            .header("content-type", "application/grpc+proto")
            .header("te", "trailers"),
        Some(Call::Web) => message.header("content-type", "application/grpc-web+proto"),
        Some(Call::WebText) => message.header("content-type", "application/grpc-web-text+proto"),
    };
    let message = match request.tunnel {
        None => message
            .body(OutgoingContent::new(&request.request, &ledger.world, None).called(request.call)),
        Some(_) => message
            .method("CONNECT")
            .extension(Protocol::from_static("websocket"))
            .body(OutgoingContent::new(
                &ContentPlan::none(),
                &ledger.world,
                None,
            )),
    };
    message.expect("the plan has valid requests")
}

/// Carries out one request. Returns whether the connection can be reused.
async fn exchange(
    ledger: Rc<Ledger>,
    request: RequestPlan,
    answered: Answered,
    pulse: Pulse,
) -> bool {
    let leaves = match request.fault {
        Some(Fault::ClientLeaves(after)) => Some(after),
        _ => None,
    };
    let ending = {
        let mut judged = pin!(judge(&ledger, &request, answered));
        within(&ledger.world, leaves, judged.as_mut()).await
    };
    drop(pulse);
    let ending = ending.unwrap_or(Ending::Left);
    ledger.end(&request, &ending);
    matches!(ending, Ending::Complete | Ending::Refused(_))
}

/// Compares a response with the plan.
async fn judge(ledger: &Ledger, request: &RequestPlan, answered: Answered) -> Ending {
    let answer = match answered.await {
        Ok(answer) => answer,
        Err(error) if is_refusal(&error) => return Ending::RefusedStream,
        Err(error) => return Ending::Cut(format!("{error:?}")),
    };
    let status = answer.status().as_u16();
    let id = answer.headers().get(ID).cloned();
    let is_ours = id
        .as_ref()
        .is_some_and(|id| id == request.id.to_string().as_str());
    if !is_ours {
        return match id {
            Some(id) => Ending::Wrong(format!("the answer of request {id:?}")),
            None => drain(refused(request, &answer), answer.into_body()).await,
        };
    }
    if status != request.status {
        return Ending::Wrong(format!("status {status}"));
    }
    if request.is_tunnel() {
        return judge_tunnel(ledger, request, answer).await;
    }
    let mut body = pin!(answer.into_body());
    let mut receiving = IncomingContent::new(&request.answer).called(request.call);
    let mut pauses = Pauses::new(&ledger.world, request.reading_pause);
    loop {
        match poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
            Some(Ok(frame)) => {
                if let Err(why) = receiving.take_frame(&frame) {
                    return Ending::Wrong(why);
                }
                pauses.take().await;
            }
            Some(Err(error)) => return Ending::Cut(format!("{error:?}")),
            None => {
                return receiving
                    .end()
                    .map_or_else(Ending::Wrong, |()| Ending::Complete);
            }
        }
    }
}

async fn judge_tunnel(
    ledger: &Ledger,
    request: &RequestPlan,
    answer: Response<Incoming>,
) -> Ending {
    let mut stream = match hyper::upgrade::on(answer).await {
        Ok(stream) => stream,
        Err(error) => return Ending::Cut(format!("{error:?}")),
    };
    match tunnel::as_client(&mut stream, &[], request, &ledger.world).await {
        Ok(()) => {
            ledger.await_arrival(request.id).await;
            Ending::Complete
        }
        Err(Broken::Cut(why)) => Ending::Broken(why),
        Err(Broken::Wrong(why)) => Ending::Wrong(why),
    }
}

/// The status of a response that the gateway generated; a gRPC status is a field.
pub(crate) fn refused<B>(request: &RequestPlan, answer: &Response<B>) -> u16 {
    let status = answer.status().as_u16();
    match request.call {
        Some(_) if status == 200 => 502,
        _ => status,
    }
}

fn is_refusal(error: &hyper::Error) -> bool {
    let cause = std::error::Error::source(error);
    let reason = cause.and_then(|cause| cause.downcast_ref::<h2::Error>()?.reason());
    reason == Some(h2::Reason::REFUSED_STREAM)
}

/// Reads a response of the gateway to its end.
async fn drain(status: u16, body: Incoming) -> Ending {
    let mut body = pin!(body);
    loop {
        match poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
            Some(Ok(_)) => {}
            Some(Err(error)) => return Ending::Cut(format!("{error:?}")),
            None => return Ending::Refused(status),
        }
    }
}
