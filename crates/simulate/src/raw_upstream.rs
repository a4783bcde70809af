//! Hand-written HTTP/1.1 upstreams: they frame responses in every way, and break the rules of framing.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;

use blitz_http::WebSocketKey;
use blitz_reactor::simulation::Stream;
use http_body::{Body, Frame};

use crate::content::{ID, IncomingContent, OutgoingContent};
use crate::ledger::Ledger;
use crate::plan::{Fault, Odd, Parting, RequestPlan, ResponseOrder};
use crate::raw::{BodyFraming, Broken, Head, Raw};
use crate::reload::Replica;
use crate::tunnel;

/// A response without a request.
const SURPLUS: &str = "HTTP/1.1 200 OK\r\nx-id: 0\r\ncontent-length: 5\r\n\r\nwrong";

/// Serves one connection until it ends.
pub(crate) async fn serve(ledger: Rc<Ledger>, stream: Stream, server: Replica) {
    let mut raw = Raw::new(Rc::new(stream), &ledger.world, ledger.pulse());
    // It has sent bytes without a request.
    let mut has_spoken = false;
    loop {
        let head = match raw.head().await {
            Ok(Some(head)) => head,
            Ok(None) | Err(Broken::Cut(_)) => return,
            Err(Broken::Wrong(why)) => return ledger.violate(format!("at an upstream: {why}")),
        };
        let id = head.get(ID).and_then(|id| id.parse().ok());
        let Some(planned) = id.and_then(|id| ledger.find(id)) else {
            return ledger.violate(format!("a request without a plan: {:?}", head.line));
        };
        ledger.arrive(&planned, server, raw.pulse());
        if has_spoken {
            ledger.violate(format!(
                "request {} came on a connection with surplus bytes",
                planned.id
            ));
        }
        if !head.line.starts_with(&format!("{} /", planned.method)) {
            ledger.violate(format!("request {} is {:?}", planned.id, head.line));
        }
        has_spoken = matches!(planned.odd, Some(Odd::Parting(Parting::Surplus, _)));
        match exchange(&ledger, &mut raw, &planned, &head).await {
            Ok(true) => {}
            Ok(false) => return,
            Err(Broken::Cut(_)) => return raw.reset(),
            Err(Broken::Wrong(why)) => {
                return ledger.violate(format!("request {} at its upstream: {why}", planned.id));
            }
        }
    }
}

/// Reads one request and responds to it. Returns whether the connection can be reused.
async fn exchange(
    ledger: &Ledger,
    raw: &mut Raw,
    planned: &RequestPlan,
    head: &Head,
) -> Result<bool, Broken> {
    let is_tunnel = planned.is_tunnel();
    if planned.order == ResponseOrder::After && !is_tunnel {
        receive(ledger, raw, planned, head).await?;
    }
    if planned.fault == Some(Fault::UpstreamCloses) {
        return Ok(false);
    }
    if is_tunnel {
        switch(raw, planned, head).await?;
        ledger.note_arrived_whole(planned.id);
        return Ok(false);
    }
    let framing = answer_framing(planned);
    answer(ledger, raw, planned, framing).await?;
    if planned.order == ResponseOrder::Meanwhile {
        receive(ledger, raw, planned, head).await?;
    }
    if let Some(Odd::Parting(parting, after)) = planned.odd
        && framing != BodyFraming::Close
    {
        ledger.world.sleep(after).await;
        ledger.world.note(|| format!("{parting:?} of the upstream"));
        match parting {
            Parting::Surplus => raw.write(SURPLUS.as_bytes()).await?,
            Parting::Fin => return Ok(false),
            Parting::Reset => return Err(Broken::Cut("on purpose".to_owned())),
        }
    }
    Ok(framing != BodyFraming::Close)
}

/// Accepts a WebSocket and runs its end.
async fn switch(raw: &mut Raw, planned: &RequestPlan, head: &Head) -> Result<(), Broken> {
    let key = head.get("sec-websocket-key").unwrap_or_default();
    let Some(key) = WebSocketKey::parse(key.as_bytes()) else {
        return Err(Broken::Wrong(format!("Sec-WebSocket-Key: {key}")));
    };
    if head.get("upgrade") != Some("websocket") {
        return Err(Broken::Wrong(format!("Upgrade: {:?}", head.get("upgrade"))));
    }
    let answer = format!(
        "HTTP/1.1 101 Odd\r\n{ID}: {}\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-accept: {}\r\n\r\n",
        planned.id,
        key.accept()
    );
    raw.write(answer.as_bytes()).await?;
    raw.tunnel(planned, tunnel::as_upstream).await
}

async fn receive(
    ledger: &Ledger,
    raw: &mut Raw,
    planned: &RequestPlan,
    head: &Head,
) -> Result<(), Broken> {
    let mut receiving = IncomingContent::new(&planned.request);
    raw.content(head.framing(false)?, Some(&mut receiving))
        .await?;
    ledger.note_arrived_whole(planned.id);
    Ok(())
}

fn answer_framing(planned: &RequestPlan) -> BodyFraming {
    let is_empty = planned.method == "HEAD" || matches!(planned.status, 204 | 304);
    match planned.answer.is_sized {
        _ if is_empty => BodyFraming::None,
        true => BodyFraming::Length(planned.answer.bytes),
        false if planned.answer.seed.is_multiple_of(2) => BodyFraming::Chunked,
        false => BodyFraming::Close,
    }
}

async fn answer(
    ledger: &Ledger,
    raw: &Raw,
    planned: &RequestPlan,
    framing: BodyFraming,
) -> Result<(), Broken> {
    let mut head = String::new();
    if planned.odd == Some(Odd::Interim) {
        head += "HTTP/1.1 103 Early Hints\r\nlink: </a>; rel=preload\r\n\r\n";
    }
    head += &format!(
        "HTTP/1.1 {} Odd\r\n{ID}: {}\r\n",
        planned.status, planned.id
    );
    if matches!(planned.fault, Some(Fault::UpstreamResets(_))) {
        // The reset may follow a complete response, and must not reach the next request.
        head += "connection: close\r\n";
    }
    head += &match framing {
        BodyFraming::None if planned.odd == Some(Odd::LateContent) => {
            format!("content-length: {}\r\n\r\n{SURPLUS}", SURPLUS.len())
        }
        BodyFraming::None => "\r\n".to_owned(),
        BodyFraming::Length(length) => format!("content-length: {length}\r\n\r\n"),
        BodyFraming::Chunked => "transfer-encoding: chunked\r\n\r\n".to_owned(),
        BodyFraming::Close => "connection: close\r\n\r\n".to_owned(),
    };
    // After content that ends with the connection, surplus would be content.
    let has_surplus = planned.odd == Some(Odd::Surplus) && framing != BodyFraming::Close;
    let fails_at = match planned.fault {
        Some(Fault::UpstreamResets(at)) => Some(at),
        _ => None,
    };
    let mut sending = OutgoingContent::new(&planned.answer, &ledger.world, fails_at);
    let mut out = head.into_bytes();
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut sending).poll_frame(cx)).await {
        let Ok(Ok(data)) = frame.map(Frame::into_data) else {
            raw.write(&out).await?;
            return Err(Broken::Cut("on purpose".to_owned()));
        };
        match framing {
            BodyFraming::Chunked => {
                out.extend(format!("{:x}\r\n", data.len()).into_bytes());
                out.extend_from_slice(&data);
                out.extend(b"\r\n");
            }
            _ => out.extend_from_slice(&data),
        }
        if !has_surplus {
            raw.write(&out).await?;
            out.clear();
        }
    }
    if framing == BodyFraming::Chunked {
        out.extend(b"0\r\n\r\n");
    }
    if has_surplus {
        out.extend(SURPLUS.as_bytes());
    }
    raw.write(&out).await?;
    Ok(())
}
