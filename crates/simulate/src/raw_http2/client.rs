//! Hand-written clients of HTTP/2.

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;

use blitz_http::Address;

use super::{CANCEL, Connection, Fields, Lost, REFUSED_STREAM};
use crate::content::{ID, IncomingContent, OutgoingContent, TRAILER};
use crate::io::{Pauses, within};
use crate::ledger::{Ending, Ledger};
use crate::plan::{ClientPlan, Fault, RequestPlan};

/// Sends all requests of a client without waiting for responses.
pub(crate) async fn run(ledger: Rc<Ledger>, client: ClientPlan, gateway: Address) {
    ledger.world.sleep(client.begins).await;
    let mut connection: Option<Connection> = None;
    let running = Rc::new(Cell::new(0));
    for request in client.requests {
        ledger.world.sleep(request.wait).await;
        let usable = connection.take().filter(Connection::is_usable);
        let open = match usable {
            Some(open) => open,
            None => match ledger.world.connect(&gateway).await {
                Ok(stream) => {
                    let seed = ledger.plan.seed ^ request.id;
                    Connection::start(&ledger, stream, true, seed)
                }
                Err(error) => return ledger.violate(format!("connecting failed: {error}")),
            },
        };
        ledger.begin(&request, open.pulse());
        let exchange = exchange(Rc::clone(&ledger), open.clone(), request);
        let counted = Rc::clone(&running);
        counted.set(counted.get() + 1);
        ledger.world.spawn(async move {
            exchange.await;
            counted.set(counted.get() - 1);
        });
        connection = Some(open);
    }
    if let Some(connection) = connection {
        // For the gateway, FIN ends all streams.
        while running.get() > 0 {
            ledger.world.sleep(super::LOOK_EVERY).await;
        }
        connection.finish();
    }
}

async fn exchange(ledger: Rc<Ledger>, connection: Connection, request: RequestPlan) {
    let leaves = match request.fault {
        Some(Fault::ClientLeaves(after)) => Some(after),
        _ => None,
    };
    let opened = connection.open(&head(&request), request.is_empty()).await;
    let ending = match opened {
        Err(lost) => Ending::Broken(format!("{lost:?} before it was sent")),
        Ok(id) => {
            if !request.is_empty() {
                let content = OutgoingContent::new(&request.request, &ledger.world, None);
                let sender = connection.clone();
                let sending = async move {
                    // The response shows why it ended.
                    let _ = sender.send_content(id, content).await;
                };
                ledger.world.spawn(sending);
            }
            let mut judged = pin!(judge(&ledger, &connection, id, &request));
            let ending = within(&ledger.world, leaves, judged.as_mut()).await;
            if ending.is_none() {
                connection.reset(id, CANCEL);
            }
            connection.forget(id);
            ending.unwrap_or(Ending::Left)
        }
    };
    ledger.end(&request, &ending);
}

fn head(request: &RequestPlan) -> Vec<(&'static str, String)> {
    let mut fields = vec![
        (":method", request.method.to_owned()),
        (":scheme", "http".to_owned()),
        (":authority", "gateway".to_owned()),
        (":path", format!("/{}/{}", request.upstream, request.id)),
        (ID, request.id.to_string()),
    ];
    if request.request.is_sized && !request.is_empty() {
        fields.push(("content-length", request.request.bytes.to_string()));
    }
    fields
}

/// Compares a response with the plan.
async fn judge(ledger: &Ledger, connection: &Connection, id: u32, request: &RequestPlan) -> Ending {
    match answer(ledger, connection, id, request).await {
        Ok(ending) => ending,
        Err(Lost::Reset(REFUSED_STREAM)) => Ending::RefusedStream,
        Err(lost) => Ending::Broken(format!("{lost:?}")),
    }
}

async fn answer(
    ledger: &Ledger,
    connection: &Connection,
    id: u32,
    request: &RequestPlan,
) -> Result<Ending, Lost> {
    let (head, status) = loop {
        let head = connection.head(id).await?;
        let status = get(&head, ":status").and_then(|status| status.parse().ok());
        match status {
            Some(100..200) => {}
            Some(status) => break (head, status),
            None => return Ok(Ending::Wrong(format!("a head without status: {head:?}"))),
        }
    };
    let Some(answered) = get(&head, ID) else {
        while connection.content(id).await?.is_some() {}
        return Ok(Ending::Refused(status));
    };
    if answered != request.id.to_string() {
        return Ok(Ending::Wrong(format!("the answer of request {answered}")));
    }
    if status != request.status {
        return Ok(Ending::Wrong(format!("status {status}")));
    }
    let mut receiving = IncomingContent::new(&request.answer);
    let mut pauses = Pauses::new(&ledger.world, request.reading_pause);
    while let Some(piece) = connection.content(id).await? {
        if let Err(why) = receiving.take(&piece) {
            return Ok(Ending::Wrong(why));
        }
        pauses.take().await;
    }
    let checked = match connection.trailers(id) {
        Some(fields) => receiving.take_trailer(get(&fields, TRAILER).map(str::as_bytes)),
        None => Ok(()),
    };
    let checked = checked.and_then(|()| receiving.end());
    Ok(checked.map_or_else(Ending::Wrong, |()| Ending::Complete))
}

pub(super) fn get<'a>(fields: &'a Fields, name: &str) -> Option<&'a str> {
    let mut fields = fields.iter();
    let field = fields.find(|(known, _)| known == name);
    field.map(|(_, value)| &value[..])
}
