//! Hand-written upstreams of HTTP/2.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use blitz_reactor::simulation::Stream;

use super::client::get;
use super::{Connection, INTERNAL_ERROR, Lost, REFUSED_STREAM};
use crate::content::{ID, IncomingContent, OutgoingContent, TRAILER};
use crate::io::Pauses;
use crate::ledger::Ledger;
use crate::plan::{Fault, Odd, Quits, RequestPlan, ResponseOrder};
use crate::reload::Replica;

/// Refusals per thousand streams.
const REFUSED: u64 = 300;

/// The state that the connections of an upstream share.
pub(crate) struct UpstreamState {
    quits: Option<Quits>,
    /// Requests that were refused, each once.
    refused: RefCell<BTreeSet<u64>>,
    /// Requests until GOAWAY.
    until_goaway: Cell<u32>,
}

impl UpstreamState {
    pub(crate) fn new(quits: Option<Quits>) -> UpstreamState {
        UpstreamState {
            quits,
            refused: RefCell::default(),
            until_goaway: Cell::new(match quits {
                Some(Quits::GoesAway(after)) => after,
                _ => u32::MAX,
            }),
        }
    }

    /// Whether this request is refused; at most once.
    fn refuses(&self, id: u64, connection: &Connection) -> bool {
        self.quits == Some(Quits::Refuses)
            && connection.state.borrow_mut().random.chance(REFUSED)
            && self.refused.borrow_mut().insert(id)
    }

    /// Whether the connection sends GOAWAY instead of processing this request; once.
    fn goes_away(&self) -> bool {
        let left = self.until_goaway.get();
        if left != u32::MAX {
            self.until_goaway
                .set(left.checked_sub(1).unwrap_or(u32::MAX));
        }
        left == 0
    }
}

/// Serves one connection until it ends.
pub(crate) async fn serve(
    ledger: Rc<Ledger>,
    stream: Stream,
    server: Replica,
    shared: Rc<UpstreamState>,
    seed: u64,
) {
    let connection = Connection::start(&ledger, stream, false, seed);
    let mut has_gone_away = false;
    while let Some(id) = connection.accept().await {
        if !has_gone_away && shared.goes_away() {
            has_gone_away = true;
            connection.go_away(id.saturating_sub(2));
        }
        if has_gone_away {
            connection.ignore(id);
            continue;
        }
        let exchange = exchange(
            Rc::clone(&ledger),
            connection.clone(),
            id,
            server,
            Rc::clone(&shared),
        );
        ledger.world.spawn(exchange);
    }
}

async fn exchange(
    ledger: Rc<Ledger>,
    connection: Connection,
    id: u32,
    server: Replica,
    shared: Rc<UpstreamState>,
) {
    let Ok(head) = connection.head(id).await else {
        return;
    };
    let number = get(&head, ID).and_then(|id| id.parse().ok());
    let Some(planned) = number.and_then(|number| ledger.find(number)) else {
        return ledger.violate(format!("a request without a plan: {head:?}"));
    };
    if shared.refuses(planned.id, &connection) {
        return connection.reset(id, REFUSED_STREAM);
    }
    ledger.arrive(&planned, server, connection.pulse());
    if get(&head, ":method") != Some(planned.method) {
        ledger.violate(format!("request {} has head {head:?}", planned.id));
    }
    match answer(&ledger, &connection, id, &planned).await {
        // The client reports responses that are aborted.
        Ok(()) | Err(Lost::Reset(_) | Lost::Closed) => connection.forget(id),
        Err(Lost::GivenUp) => connection.reset(id, INTERNAL_ERROR),
    }
}

async fn answer(
    ledger: &Rc<Ledger>,
    connection: &Connection,
    id: u32,
    planned: &RequestPlan,
) -> Result<(), Lost> {
    match planned.order {
        ResponseOrder::After => receive(ledger, connection, id, planned).await?,
        ResponseOrder::Meanwhile => {
            let (theirs, there, planned) = (Rc::clone(ledger), connection.clone(), planned.clone());
            ledger.world.spawn(async move {
                if receive(&theirs, &there, id, &planned).await.is_ok() {
                    there.forget(id);
                }
            });
        }
    }
    if planned.fault == Some(Fault::UpstreamCloses) {
        return Err(Lost::GivenUp);
    }
    let number = planned.id.to_string();
    if planned.odd == Some(Odd::Interim) {
        let hints = (":status", "103".to_owned());
        connection.send_head(
            id,
            &[hints, ("link", "</a>; rel=preload".to_owned())],
            false,
        );
    }
    let fails_at = match planned.fault {
        Some(Fault::UpstreamResets(at)) => Some(at),
        _ => None,
    };
    let is_empty = planned.method == "HEAD" || matches!(planned.status, 204 | 304);
    let mut head = vec![(":status", planned.status.to_string()), (ID, number)];
    if planned.answer.is_sized && !is_empty {
        head.push(("content-length", planned.answer.bytes.to_string()));
    }
    if planned.call.is_some() {
        head.push(("content-type", "application/grpc+proto".to_owned()));
    }
    let has_ended = is_empty && fails_at.is_none();
    connection.send_head(id, &head, has_ended);
    if has_ended {
        return Ok(());
    }
    let content = OutgoingContent::new(&planned.answer, &ledger.world, fails_at);
    connection.send_content(id, content).await
}

async fn receive(
    ledger: &Ledger,
    connection: &Connection,
    id: u32,
    planned: &RequestPlan,
) -> Result<(), Lost> {
    let content = ledger.plan.forwarded(planned);
    let mut receiving = IncomingContent::new(&content);
    let mut pauses = Pauses::new(&ledger.world, planned.reading_pause);
    let wrong = |why: String| {
        ledger.violate(format!("request {} at its upstream: {why}", planned.id));
    };
    while let Some(piece) = connection.content(id).await? {
        pauses.take().await;
        if let Err(why) = receiving.take(&piece) {
            wrong(why);
            return Ok(());
        }
    }
    let checked = match connection.trailers(id) {
        Some(fields) => receiving.take_trailer(get(&fields, TRAILER).map(str::as_bytes)),
        None => Ok(()),
    };
    match checked.and_then(|()| receiving.end()) {
        Ok(()) => ledger.note_arrived_whole(planned.id),
        Err(why) => wrong(why),
    }
    Ok(())
}
