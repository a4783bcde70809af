//! The task of an exchange: it drives the service, and then watches the client and the deadlines.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::exchange::{
    Exchange, ExchangeOutcome, Framing, Link, ServerFraming, Service, poll_outcome,
};

/// A driver whose exchanges have tasks.
pub(in crate::conn) trait WithTasks: ServerFraming {
    /// Ends an exchange with its task.
    fn conclude(&mut self, id: Self::Id, outcome: ExchangeOutcome);
}

type Id<C> = <<C as Link>::Framing as Framing>::Id;

/// Runs an exchange; there is none if the request has a response already.
pub(in crate::conn) async fn run<C, S>(
    conn: Rc<C>,
    service: Rc<S>,
    id: Id<C>,
    exchange: Option<Exchange>,
) where
    C: Link<Framing: WithTasks>,
    S: Service,
{
    let mut guard = Guard {
        conn: &*conn,
        id,
        outcome: ExchangeOutcome::Cut,
    };
    let call = pin!(exchange.map(|exchange| service.call(exchange)));
    let mut call = call;
    guard.outcome = poll_fn(|cx| poll_exchange(&*conn, id, call.as_mut(), cx)).await;
}

fn poll_exchange<C: Link<Framing: WithTasks>, F: Future<Output = ()>>(
    conn: &C,
    id: Id<C>,
    mut call: Pin<&mut Option<F>>,
    cx: &mut Context<'_>,
) -> Poll<ExchangeOutcome> {
    if let Some(future) = call.as_mut().as_pin_mut()
        && future.poll(cx).is_ready()
    {
        call.set(None);
    }
    let is_done = call.is_none();
    conn.look(|framing| poll_outcome(framing, id, is_done, cx))
}

/// Ends the exchange with its task, also when that is aborted or panics.
struct Guard<'a, C: Link<Framing: WithTasks>> {
    conn: &'a C,
    id: Id<C>,
    outcome: ExchangeOutcome,
}

impl<C: Link<Framing: WithTasks>> Drop for Guard<'_, C> {
    fn drop(&mut self) {
        self.conn
            .with(|framing| framing.conclude(self.id, self.outcome));
    }
}
