//! Hand-written HTTP/1.1 clients: they pipeline requests, cut into pieces at random bytes.

use std::collections::VecDeque;
use std::rc::Rc;

use blitz_http::Address;

use crate::content::{Receiving, whole};
use crate::ledger::{Ending, Ledger};
use crate::plan::{Client, Request};
use crate::random::Random;
use crate::raw::{Broken, Framing, Raw, write_pieces};
use crate::upstream::ID;

/// Sends all requests of a client; on another connection what one did not answer.
pub(crate) async fn run(ledger: Rc<Ledger>, client: Client, gateway: Address) {
    ledger.world.sleep(client.begins).await;
    let mut left: VecDeque<Request> = client.requests.into();
    let mut connections = 0;
    while !left.is_empty() {
        connections += 1;
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
            let (ending, goes_on) = match receive(&mut raw, &request).await {
                Ok(received) => received,
                // The connection has ended before this request was looked at.
                Err(Broken::Cut(_))
                    if left.len() + 1 < before && raw.is_untouched() && !client.half_closes =>
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

/// The answer of a request, and whether the connection goes on.
async fn receive(raw: &mut Raw, request: &Request) -> Result<(Ending, bool), Broken> {
    raw.touch(false);
    let head = loop {
        let Some(head) = raw.head().await? else {
            return Err(Broken::Cut("FIN before an answer".to_owned()));
        };
        raw.touch(true);
        if !(100..200).contains(&head.status()?) {
            break head;
        }
    };
    let status = head.status()?;
    let is_empty = request.method == "HEAD" || matches!(status, 204 | 304);
    let framing = match is_empty {
        true => Framing::None,
        false => head.framing(true)?,
    };
    let goes_on = head.get("connection") != Some("close") && framing != Framing::Close;
    let Some(id) = head.get(ID) else {
        raw.content(framing, None).await?;
        return Ok((Ending::Refused(status), goes_on));
    };
    if id != request.id.to_string() {
        return Err(Broken::Wrong(format!("the answer of request {id}")));
    }
    if status != request.status {
        return Err(Broken::Wrong(format!("status {status}")));
    }
    let mut receiving = Receiving::new(&request.answer);
    raw.content(framing, Some(&mut receiving)).await?;
    Ok((Ending::Complete, goes_on))
}

fn message(request: &Request) -> Vec<u8> {
    let content = whole(&request.request);
    let mut head = format!(
        "{} /{}/{} HTTP/1.1\r\nhost: gateway\r\n{ID}: {}\r\n",
        request.method, request.upstream, request.id, request.id
    );
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
