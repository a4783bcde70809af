//! The clients of a set: they send one request after the other, and compare the responses.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;

use blitz_http::Address;
use http::header::{COOKIE, SET_COOKIE};
use http::{HeaderValue, Request, Response};
use http_body::Body;
use hyper::body::Incoming;

use super::ledger::{SetEnding, SetLedger};
use super::plan::{SetClient, SetRequest};
use crate::content::{ID, IncomingContent, OutgoingContent};
use crate::io::{HyperIo, Tasks, within};

/// The field that `balance = "hash"` uses.
pub(super) const KEY: &str = "x-key";

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

    async fn is_usable(&mut self) -> bool {
        match self {
            Sender::Http1(sender) => sender.ready().await.is_ok(),
            Sender::Http2(sender) => sender.ready().await.is_ok(),
        }
    }
}

/// Sends all requests of a client.
pub(super) async fn run(ledger: Rc<SetLedger>, client: SetClient, gateway: Address) {
    let mut connection: Option<Sender> = None;
    let mut cookie = None;
    for request in &client.requests {
        let wait = request.at.saturating_sub(ledger.world.now());
        ledger.world.sleep(wait).await;
        let is_usable = match &mut connection {
            Some(sender) => sender.is_usable().await,
            None => false,
        };
        if !is_usable {
            connection = None;
        }
        if connection.is_none() {
            match connect(&ledger, &gateway, client.is_http2).await {
                Ok(sender) => connection = Some(sender),
                Err(error) => {
                    return ledger.violate(format!("connecting failed: {error}"));
                }
            }
        }
        let Some(sender) = &mut connection else {
            continue;
        };
        ledger.begin(request);
        let answered = sender.send(message(&ledger, request, cookie.as_ref()));
        let (ending, set_cookie) = {
            let mut judged = pin!(judge(request, answered));
            let ending = within(&ledger.world, request.leaves, judged.as_mut()).await;
            ending.unwrap_or((SetEnding::Left, None))
        };
        if client.keeps_cookie && set_cookie.is_some() {
            cookie = set_cookie;
        }
        ledger.end(request, &ending);
        let is_whole = matches!(ending, SetEnding::Complete(_) | SetEnding::Refused(_));
        if !is_whole && !client.is_http2 {
            connection = None;
        }
    }
}

async fn connect(ledger: &SetLedger, gateway: &Address, is_http2: bool) -> io::Result<Sender> {
    let stream = ledger.world.connect(gateway).await?;
    let io = HyperIo::new(Rc::new(stream), || {});
    let world = &ledger.world;
    match is_http2 {
        false => {
            let shaken = hyper::client::conn::http1::handshake(io).await;
            let (sender, connection) = shaken.map_err(io::Error::other)?;
            world.spawn(async { drop(connection.await) });
            Ok(Sender::Http1(sender))
        }
        true => {
            let builder = hyper::client::conn::http2::Builder::new(Tasks(world.clone()));
            let shaken = builder.handshake(io).await;
            let (sender, connection) = shaken.map_err(io::Error::other)?;
            world.spawn(async { drop(connection.await) });
            Ok(Sender::Http2(sender))
        }
    }
}

fn message(
    ledger: &SetLedger,
    request: &SetRequest,
    cookie: Option<&HeaderValue>,
) -> Request<OutgoingContent> {
    let mut message = Request::builder()
        .method(request.method)
        .uri(format!("http://gateway/{}", request.id))
        .header("host", "gateway")
        .header(KEY, request.id)
        .header(ID, request.id);
    if let Some(cookie) = cookie {
        message = message.header(COOKIE, cookie);
    }
    let content = OutgoingContent::new(&request.request, &ledger.world, None);
    message.body(content).expect("the plan has valid requests")
}

/// Compares a response with the plan. Returns its cookie, too.
async fn judge(request: &SetRequest, answered: Answered) -> (SetEnding, Option<HeaderValue>) {
    let answer = match answered.await {
        Ok(answer) => answer,
        Err(error) => return (SetEnding::Cut(format!("{error:?}")), None),
    };
    let cookie = answer.headers().get(SET_COOKIE);
    let cookie = cookie.and_then(|cookie| {
        let pair = cookie.as_bytes().split(|&byte| byte == b';').next()?;
        HeaderValue::from_bytes(pair).ok()
    });
    let status = answer.status().as_u16();
    let id = answer.headers().get(ID).cloned();
    let is_ours = id
        .as_ref()
        .is_some_and(|id| id == request.id.to_string().as_str());
    if let Some(id) = id
        && !is_ours
    {
        return (
            SetEnding::Wrong(format!("the answer of request {id:?}")),
            None,
        );
    }
    let mut body = pin!(answer.into_body());
    let mut receiving = IncomingContent::new(&request.answer);
    loop {
        match poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
            Some(Ok(frame)) if is_ours => {
                if let Err(why) = receiving.take_frame(&frame) {
                    return (SetEnding::Wrong(why), cookie);
                }
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => return (SetEnding::Cut(format!("{error:?}")), cookie),
            None if !is_ours => return (SetEnding::Refused(status), cookie),
            None => {
                let ended = receiving.end();
                let ending = ended.map_or_else(SetEnding::Wrong, |()| SetEnding::Complete(status));
                return (ending, cookie);
            }
        }
    }
}
