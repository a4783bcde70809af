//! Hand-written HTTP/1.1 clients: they pipeline requests, cut into pieces at random bytes.

use std::collections::VecDeque;
use std::rc::Rc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use blitz_http::{Address, WebSocketKey};

use crate::content::{ID, IncomingContent, whole};
use crate::ledger::{Ending, Ledger};
use crate::plan::{ClientPlan, Fault, RequestPlan};
use crate::random::Random;
use crate::raw::{BodyFraming, Broken, Head, Raw, write_pieces};
use crate::tunnel;

/// Sends all requests of a client; unanswered requests are sent again on another connection.
pub(crate) async fn run(ledger: Rc<Ledger>, client: ClientPlan, gateway: Address) {
    ledger.world.sleep(client.begins).await;
    let mut left: VecDeque<RequestPlan> = client.requests.into();
    let mut connections = 0;
    while !left.is_empty() {
        connections += 1;
        // A full backlog may refuse several SYNs, and each waits longer than the one before.
        left.iter().for_each(|request| ledger.withdraw(request));
        let stream = match ledger.world.connect(&gateway).await {
            Ok(stream) => Rc::new(stream),
            Err(error) => return ledger.violate(format!("connecting failed: {error}")),
        };
        let pulse = ledger.pulse();
        let mut bytes = Vec::new();
        for request in &left {
            ledger.begin(request, &pulse);
            bytes.extend(message(request));
        }
        let seed = left[0].id ^ ledger.plan.seed ^ connections;
        let writing = write_pieces(
            Rc::clone(&stream),
            ledger.world.clone(),
            Rc::clone(&pulse),
            bytes,
            seed,
            client.half_closes,
        );
        ledger.world.spawn(writing);
        let mut raw = Raw::new(stream, &ledger.world, pulse);
        let mut is_open = true;
        let before = left.len();
        while is_open && let Some(request) = left.pop_front() {
            let received = match receive(&mut raw, &request).await {
                Ok(None) => {
                    let goes_on = false;
                    let tunnel = raw.tunnel(&request, tunnel::as_client).await;
                    tunnel.map(|()| (Ending::Complete, goes_on))
                }
                Ok(Some(received)) => Ok(received),
                Err(broken) => Err(broken),
            };
            let (ending, goes_on) = match received {
                Ok(received) => received,
                // The connection ended before this request was processed; a reset can also discard the
                // head of a response that its upstream has reset.
                Err(Broken::Cut(_))
                    if left.len() + 1 < before
                        && raw.is_untouched()
                        && !client.half_closes
                        && !matches!(request.fault, Some(Fault::UpstreamResets(_))) =>
                {
                    left.push_front(request);
                    break;
                }
                Err(Broken::Cut(why)) => (Ending::Broken(why), false),
                Err(Broken::Wrong(why)) => (Ending::Wrong(why), false),
            };
            ledger.end(&request, &ending);
            is_open = goes_on;
        }
    }
}

/// Reads a response. Returns whether the connection can be reused; `None` if it became a tunnel.
async fn receive(raw: &mut Raw, request: &RequestPlan) -> Result<Option<(Ending, bool)>, Broken> {
    raw.touch(false);
    let head = loop {
        let Some(head) = raw.head().await? else {
            return Err(Broken::Cut("FIN before an answer".to_owned()));
        };
        raw.touch(true);
        if !(100..200).contains(&head.status()?) || head.status()? == 101 {
            break head;
        }
    };
    let status = head.status()?;
    if status == 101 {
        return switched(&head, request).map(|()| None);
    }
    let is_empty = request.method == "HEAD" || matches!(status, 204 | 304);
    let framing = match is_empty {
        true => BodyFraming::None,
        false => head.framing(true)?,
    };
    let goes_on = head.get("connection") != Some("close") && framing != BodyFraming::Close;
    let Some(id) = head.get(ID) else {
        raw.content(framing, None).await?;
        return Ok(Some((Ending::Refused(status), goes_on)));
    };
    if id != request.id.to_string() {
        return Err(Broken::Wrong(format!("the answer of request {id}")));
    }
    if status != request.status {
        return Err(Broken::Wrong(format!("status {status}")));
    }
    let mut receiving = IncomingContent::new(&request.answer);
    raw.content(framing, Some(&mut receiving)).await?;
    Ok(Some((Ending::Complete, goes_on)))
}

/// Compares the head of a 101.
fn switched(head: &Head, request: &RequestPlan) -> Result<(), Broken> {
    let is_wanted = request.is_tunnel();
    if !is_wanted || head.get("upgrade") != Some("websocket") {
        return Err(Broken::Wrong(head.line.clone()));
    }
    if head.get(ID) != Some(request.id.to_string().as_str()) {
        return Err(Broken::Wrong(format!("a tunnel of {:?}", head.get(ID))));
    }
    match head.get("sec-websocket-accept") {
        Some(accept) if accept == key(request).accept() => Ok(()),
        accept => Err(Broken::Wrong(format!("Sec-WebSocket-Accept: {accept:?}"))),
    }
}

/// The key of a handshake (RFC 6455, section 4.1).
fn key(request: &RequestPlan) -> WebSocketKey {
    let nonce = u128::from(request.id).to_be_bytes();
    let key = WebSocketKey::parse(BASE64_STANDARD.encode(nonce).as_bytes());
    key.expect("16 bytes in base64 are a key")
}

fn message(request: &RequestPlan) -> Vec<u8> {
    let content = whole(&request.request);
    let mut head = format!(
        "{} /{}/{} HTTP/1.1\r\nhost: gateway\r\n{ID}: {}\r\n",
        request.method, request.upstream, request.id, request.id
    );
    if request.tunnel.is_some() {
        let key = key(request);
        let key = String::from_utf8_lossy(key.as_bytes());
        head += "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n";
        head += &format!("sec-websocket-key: {key}\r\n");
    }
    let has_content = !matches!(request.method, "GET" | "HEAD");
    if !has_content {
        head += "\r\n";
        return head.into_bytes();
    }
    if request.request.is_sized {
        head += &format!("content-length: {}\r\n\r\n", content.len());
        return [head.as_bytes(), &content].concat();
    }
    head += "transfer-encoding: chunked\r\n\r\n";
    let mut message = head.into_bytes();
    let mut random = Random::new(request.request.seed);
    let mut left = &content[..];
    while !left.is_empty() {
        let n = random.within(1..=left.len() as u64) as usize;
        message.extend(format!("{n:X};extension=1\r\n").into_bytes());
        message.extend_from_slice(&left[..n]);
        message.extend(b"\r\n");
        left = &left[n..];
    }
    message.extend(b"0\r\n\r\n");
    message
}
