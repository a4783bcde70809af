//! Clients over HTTP/3 with `quinn-proto` and `h3`: they send planned requests, compare the responses, move to other
//! addresses, and update their keys.

mod counted;
mod dynamic;
mod quic;
mod streams;

use std::future::{Future, poll_fn};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use blitz_http::Address;
use bytes::{Buf, Bytes};
use h3::client::{RequestStream, SendRequest};
use h3::error::{Code, StreamError};
use http::{HeaderValue, Request, Response};
use http_body::Body;
use quinn_proto::{ClientConfig, MtuDiscoveryConfig, TransportConfig, VarInt};

use self::dynamic::Dynamic;
use self::quic::Quic;
use self::streams::{Receiver, Sender};
use crate::client::{message, refused};
use crate::content::{ID, IncomingContent, OutgoingContent, TRAILER};
use crate::io::{Pauses, within};
use crate::ledger::{Ending, Ledger, Pulse};
use crate::plan::{self, ClientPlan, FIRST_HOST, Fault, RequestPlan};
use crate::tls;

pub(crate) use self::counted::Counted;

/// Handshakes that a client attempts. One may fail where datagrams are lost: the gateway limits its time.
const HANDSHAKES_MAX: u64 = 4;

/// How long the client keeps a connection without packets; the same as the gateway.
const SILENCE_MAX_MS: u32 = 75_000;

/// Time from a move that a client does not notice to its next packet, which shows the gateway the new address.
const UNNOTICED_TIME: Duration = Duration::from_millis(200);

/// Interval of the looks whether all requests have ended.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A connection that requests are sent on.
struct Connection {
    quic: Quic,
    sender: SendRequest<Quic, Bytes>,
    pulse: Pulse,
}

/// Sends all requests of a client, at the same time.
pub(crate) async fn run(ledger: Rc<Ledger>, client: ClientPlan, gateway: Address) {
    let (Address::Tcp(gateway), Some(plan)) = (gateway, client.quic.clone()) else {
        return ledger.violate("a client of HTTP/3 has no plan for it".to_owned());
    };
    ledger.world.sleep(client.begins).await;
    let Some(first) = client.requests.first().map(|request| request.id) else {
        return;
    };
    let config = config(&client, &plan);
    let connected = connect(&ledger, &plan, config, gateway, first).await;
    let Some(Connection {
        quic,
        sender,
        pulse,
    }) = connected
    else {
        let requests = client.requests.iter();
        return requests.for_each(|request| ledger.end(request, &Ending::NotSent));
    };
    ledger
        .world
        .spawn(trouble(Rc::clone(&ledger), quic.clone(), plan.clone()));
    // Each exchange has one of its handles.
    let running = Rc::new(());
    for request in client.requests {
        ledger.world.sleep(request.wait).await;
        ledger.begin(&request, &pulse);
        let (ledger, sender) = (Rc::clone(&ledger), sender.clone());
        let running = Rc::clone(&running);
        let exchanges = exchange(Rc::clone(&ledger), request, sender, quic.clone());
        ledger.world.spawn(async move {
            exchanges.await;
            drop(running);
        });
    }
    while Rc::strong_count(&running) > 1 {
        ledger.world.sleep(LOOK_EVERY).await;
    }
    if plan.vanishes {
        quic.vanish();
    }
    // Without a sender, h3 closes the connection.
    drop(sender);
}

fn config(client: &ClientPlan, plan: &plan::QuicPlan) -> ClientConfig {
    let mut transport = TransportConfig::default();
    transport
        .stream_receive_window(client.windows.stream.into())
        .receive_window(client.windows.connection.into())
        .max_idle_timeout(Some(VarInt::from_u32(SILENCE_MAX_MS).into()))
        .mtu_discovery_config(plan.finds_mtu.then(MtuDiscoveryConfig::default));
    let mut config = tls::quic_client();
    config.transport_config(Arc::new(transport));
    config
}

async fn connect(
    ledger: &Rc<Ledger>,
    plan: &plan::QuicPlan,
    config: ClientConfig,
    gateway: SocketAddr,
    seed: u64,
) -> Option<Connection> {
    let world = &ledger.world;
    let pulse = ledger.pulse();
    let is_lossless = ledger.plan.conditions.datagram_lost == 0;
    for attempt in 1..=HANDSHAKES_MAX {
        let seed = seed ^ ledger.plan.seed ^ attempt << 48;
        let (config, from) = (config.clone(), host(FIRST_HOST));
        let connected = Quic::connect(world, Rc::clone(&pulse), config, gateway, from, seed).await;
        let quic = match connected {
            Ok(quic) => quic,
            Err(error) if attempt < HANDSHAKES_MAX && !is_lossless => {
                world.note(|| format!("a handshake has failed: {error}"));
                continue;
            }
            Err(_) if ledger.is_draining() => return None,
            Err(error) => {
                ledger.violate(format!("connecting over QUIC failed: {error}"));
                return None;
            }
        };
        if let Some(delay_max) = plan.inserts_within {
            quic.set_dynamic(Dynamic::new(seed, delay_max));
        }
        let mut builder = h3::client::builder();
        // Reserved types and settings come from a random source without a seed.
        let built = builder.send_grease(false).build(quic.clone()).await;
        let (mut connection, sender) = match built {
            Ok(built) => built,
            Err(_) if ledger.is_draining() => return None,
            Err(error) => {
                ledger.violate(format!("HTTP/3 does not start: {error}"));
                return None;
            }
        };
        world.spawn(async move { drop(connection.wait_idle().await) });
        // A draining gateway closes handshakes, and its SETTINGS allow a dynamic table.
        let is_uncertain = !is_lossless || ledger.plan.drains() || plan.inserts_within.is_some();
        if is_uncertain && let Err(error) = quic.await_confirmation().await {
            world.note(|| format!("a handshake has failed: {error}"));
            continue;
        }
        return Some(Connection {
            quic,
            sender,
            pulse,
        });
    }
    if !ledger.is_draining() {
        ledger.violate(format!("{HANDSHAKES_MAX} handshakes have failed"));
    }
    None
}

fn host(number: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, 0, number).into()
}

/// Moves to other addresses and updates keys as planned.
async fn trouble(ledger: Rc<Ledger>, quic: Quic, plan: plan::QuicPlan) {
    let changes_host = plan.changes_host();
    let moves = plan.moves.into_iter().map(|(after, to)| (after, Some(to)));
    let updates = plan.key_updates.into_iter().map(|after| (after, None));
    let mut all: Vec<(Duration, Option<plan::Move>)> = moves.chain(updates).collect();
    all.sort_by_key(|(after, _)| *after);
    // The address may not change before the handshake is complete (RFC 9000, section 9).
    if quic.await_confirmation().await.is_err() {
        return;
    }
    let connected = ledger.world.now();
    for (after, event) in all {
        let passed = ledger.world.now() - connected;
        ledger.world.sleep(after.saturating_sub(passed)).await;
        match event {
            Some(to) => {
                quic.rebind(host(to.host), to.is_noticed);
                if !to.is_noticed {
                    ledger.world.sleep(UNNOTICED_TIME).await;
                }
                match changes_host {
                    true => quic.send_padding(),
                    false => quic.with(quinn_proto::Connection::ping),
                }
            }
            None => {
                // The gateway must have a packet with the present keys (RFC 9001, section 6.1): quinn-proto 0.11.19 does
                // not wait for that.
                quic.with(quinn_proto::Connection::ping);
                let delay = *ledger.plan.conditions.datagram_delay_us.end();
                let delay = Duration::from_micros(delay) + LOOK_EVERY;
                ledger.world.sleep(delay).await;
                quic.with(quinn_proto::Connection::force_key_update);
            }
        }
    }
}

/// Carries out one request.
async fn exchange(
    ledger: Rc<Ledger>,
    request: RequestPlan,
    sender: SendRequest<Quic, Bytes>,
    quic: Quic,
) {
    let leaves = match request.fault {
        Some(Fault::ClientLeaves(after)) => Some(after),
        _ => None,
    };
    let (ending, upload) = {
        let mut judged = pin!(judge(&ledger, &request, sender.clone(), &quic));
        let judged = within(&ledger.world, leaves, judged.as_mut()).await;
        judged.unwrap_or((Ending::Left, None))
    };
    ledger.end(&request, &ending);
    // The content is sent to its end although the response is complete.
    if let Some(upload) = upload {
        upload.await;
    }
    drop(sender);
}

type Upload = Pin<Box<dyn Future<Output = ()>>>;

/// Sends a request and compares its response with the plan. Returns also what is left of its content.
async fn judge(
    ledger: &Rc<Ledger>,
    request: &RequestPlan,
    mut sender: SendRequest<Quic, Bytes>,
    quic: &Quic,
) -> (Ending, Option<Upload>) {
    let (head, content) = message(ledger, request, true).into_parts();
    let head = Request::from_parts(head, ());
    // Its stream is opened at once: such clients have as many as they need.
    quic.dynamic(|dynamic| dynamic.expect(request.id));
    let stream = match sender.send_request(head).await {
        Ok(stream) => stream,
        Err(error) => return (cut(&error), None),
    };
    let (send, receive) = stream.split();
    let mut upload: Option<Upload> = Some(Box::pin(upload(send, content)));
    let mut judged = pin!(judge_response(ledger, request, receive));
    let ending = poll_fn(|cx| {
        if let Some(running) = &mut upload
            && running.as_mut().poll(cx).is_ready()
        {
            upload = None;
        }
        judged.as_mut().poll(cx)
    })
    .await;
    (ending, upload)
}

/// Sends content. Errors show in the response.
async fn upload(mut send: RequestStream<Sender, Bytes>, content: OutgoingContent) {
    let mut content = pin!(content);
    while let Some(frame) = poll_fn(|cx| content.as_mut().poll_frame(cx)).await {
        let Ok(frame) = frame else { return };
        let sent = match frame.into_data() {
            Ok(bytes) => send.send_data(bytes).await,
            Err(frame) => match frame.into_trailers() {
                Ok(fields) => send.send_trailers(fields).await,
                Err(_) => return,
            },
        };
        if sent.is_err() {
            return;
        }
    }
    // The gateway may have stopped it.
    let _ = send.finish().await;
}

async fn judge_response(
    ledger: &Ledger,
    request: &RequestPlan,
    mut receive: RequestStream<Receiver, Bytes>,
) -> Ending {
    let answer = loop {
        match receive.recv_response().await {
            Ok(answer) if answer.status().is_informational() => {}
            Ok(answer) => break answer,
            Err(error) => return cut(&error),
        }
    };
    if answer.headers().get(ID).is_none() {
        return drain(refused(request, &answer), receive).await;
    }
    if let Err(why) = compare_head(request, &answer) {
        return Ending::Wrong(why);
    }
    let mut receiving = IncomingContent::new(&request.answer).called(request.call);
    let mut pauses = Pauses::new(&ledger.world, request.reading_pause);
    loop {
        match receive.recv_data().await {
            Ok(Some(mut bytes)) => {
                let bytes = bytes.copy_to_bytes(bytes.remaining());
                if let Err(why) = receiving.take(&bytes) {
                    return Ending::Wrong(why);
                }
                pauses.take().await;
            }
            Ok(None) => break,
            Err(error) => return cut(&error),
        }
    }
    match receive.recv_trailers().await {
        Ok(Some(fields)) => {
            let field = fields.get(TRAILER).map(HeaderValue::as_bytes);
            if let Err(why) = receiving.take_trailer(field) {
                return Ending::Wrong(why);
            }
        }
        Ok(None) => {}
        Err(error) => return cut(&error),
    }
    let ended = receiving.end();
    ended.map_or_else(Ending::Wrong, |()| Ending::Complete)
}

fn compare_head(request: &RequestPlan, answer: &Response<()>) -> Result<(), String> {
    let id = answer.headers().get(ID);
    if id.is_none_or(|id| id != request.id.to_string().as_str()) {
        return Err(format!("the answer of request {id:?}"));
    }
    match answer.status().as_u16() {
        status if status == request.status => Ok(()),
        status => Err(format!("status {status}")),
    }
}

/// Reads a response of the gateway to its end.
async fn drain(status: u16, mut receive: RequestStream<Receiver, Bytes>) -> Ending {
    loop {
        match poll_fn(|cx| receive.poll_recv_data(cx).map_ok(|bytes| bytes.is_some())).await {
            Ok(true) => {}
            Ok(false) => return Ending::Refused(status),
            Err(error) => return cut(&error),
        }
    }
}

/// How an aborted exchange ended.
fn cut(error: &StreamError) -> Ending {
    match error {
        StreamError::RemoteClosing { .. } => Ending::NotSent,
        StreamError::RemoteTerminate {
            code: Code::H3_REQUEST_REJECTED,
            ..
        } => Ending::RefusedStream,
        error => Ending::Cut(format!("{error:?}")),
    }
}
