//! The servers of a set: they work, or fail as planned.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use blitz_http::Address;
use blitz_reactor::simulation::{Acceptor, Stream, World};
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::service::service_fn;

use super::ledger::SetLedger;
use super::plan::{MemberFault, SetRequest};
use crate::content::{GivenUp, ID, IncomingContent, OutgoingContent};
use crate::io::{HyperIo, Tasks};

/// Ends the connections of a server that is gone.
#[derive(Default)]
struct Life {
    deaths: Cell<u64>,
    wakers: RefCell<Vec<Waker>>,
}

impl Life {
    fn end(&self) {
        self.deaths.set(self.deaths.get() + 1);
        self.wakers.take().into_iter().for_each(Waker::wake);
    }

    /// Polls `future` until the server is gone. Returns whether the future has ended before.
    async fn within(&self, future: impl Future) -> bool {
        let deaths = self.deaths.get();
        let mut future = pin!(future);
        poll_fn(|cx| {
            if self.deaths.get() != deaths {
                return Poll::Ready(false);
            }
            if future.as_mut().poll(cx).is_ready() {
                return Poll::Ready(true);
            }
            let mut wakers = self.wakers.borrow_mut();
            if !wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
                wakers.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await
    }
}

/// Runs a server: it listens, except while it refuses connections.
pub(super) async fn run(ledger: Rc<SetLedger>, member: usize, address: Address) {
    let life = Rc::new(Life::default());
    let world = ledger.world.clone();
    let mut listening = Some(listen(&ledger, member, &address, &life));
    for window in ledger.plan.members[member].clone() {
        sleep_until(&world, window.time.start).await;
        world.note(|| format!("server {member} fails: {:?}", window.fault));
        match window.fault {
            MemberFault::Refuses => {
                if let Some(listening) = listening.take() {
                    listening.end();
                }
                life.end();
            }
            MemberFault::BlackHole => world.add_black_hole(&address),
            _ => {}
        }
        sleep_until(&world, window.time.end).await;
        world.note(|| format!("server {member} works"));
        world.remove_black_hole(&address);
        if listening.is_none() {
            listening = Some(listen(&ledger, member, &address, &life));
        }
    }
}

async fn sleep_until(world: &World, time: Duration) {
    world.sleep(time.saturating_sub(world.now())).await;
}

/// Ends a task that accepts connections.
struct Listening(Rc<Life>);

impl Listening {
    fn end(self) {
        self.0.end();
    }
}

fn listen(ledger: &Rc<SetLedger>, member: usize, address: &Address, life: &Rc<Life>) -> Listening {
    let acceptor = ledger.world.listen(address).expect("the address is free");
    let own = Rc::new(Life::default());
    let (theirs, life, ledger) = (Rc::clone(&own), Rc::clone(life), Rc::clone(ledger));
    ledger.world.clone().spawn(async move {
        theirs.within(accept(ledger, acceptor, member, life)).await;
    });
    Listening(own)
}

async fn accept(ledger: Rc<SetLedger>, acceptor: Acceptor, member: usize, life: Rc<Life>) {
    loop {
        let stream = Rc::new(acceptor.accept().await);
        let (life, ledger) = (Rc::clone(&life), Rc::clone(&ledger));
        ledger.world.clone().spawn(async move {
            let serving = serve(ledger, member, Rc::clone(&stream));
            if !life.within(serving).await {
                stream.reset_on_close();
            }
        });
    }
}

async fn serve(ledger: Rc<SetLedger>, member: usize, stream: Rc<Stream>) {
    let is_http2 = ledger.plan.is_http2;
    let io = HyperIo::new(stream, || {});
    let tasks = Tasks(ledger.world.clone());
    let service = service_fn(move |request| answer(Rc::clone(&ledger), member, request));
    // The clients notice how the connection ends.
    match is_http2 {
        false => {
            let mut builder = hyper::server::conn::http1::Builder::new();
            // The date would come from the clock of the real machine.
            builder.auto_date_header(false);
            let _ = builder.serve_connection(io, service).await;
        }
        true => {
            let mut builder = hyper::server::conn::http2::Builder::new(tasks);
            builder.auto_date_header(false);
            let _ = builder.serve_connection(io, service).await;
        }
    }
}

async fn answer(
    ledger: Rc<SetLedger>,
    member: usize,
    request: Request<Incoming>,
) -> Result<Response<OutgoingContent>, GivenUp> {
    let id = request.headers().get(ID);
    let id = id.and_then(|id| id.to_str().ok()?.parse().ok());
    let Some(planned) = id.and_then(|id| ledger.find(id)) else {
        ledger.violate(format!("a request without a plan: {:?}", request.headers()));
        return Err(GivenUp);
    };
    if request.method().as_str() != planned.method {
        ledger.violate(format!(
            "request {} has method {}",
            planned.id,
            request.method()
        ));
    }
    let attempt = ledger.arrive(&planned, member);
    let window = ledger.plan.fault_at(member, ledger.world.now()).cloned();
    receive(&ledger, &planned, request.into_body()).await?;
    if let Some(window) = &window
        && matches!(window.fault, MemberFault::Hangs | MemberFault::BlackHole)
    {
        sleep_until(&ledger.world, window.time.end).await;
    }
    ledger.world.sleep(planned.work).await;
    attempt.answer();
    let fault = window.map(|window| window.fault);
    let status = match fault {
        Some(MemberFault::Closes) => return Err(GivenUp),
        Some(MemberFault::Status(status)) => status,
        _ => planned.status,
    };
    let fails_at = (fault == Some(MemberFault::Resets)).then_some(planned.answer.bytes / 2);
    let content = OutgoingContent::new(&planned.answer, &ledger.world, fails_at);
    let answer = Response::builder().status(status).header(ID, planned.id);
    Ok(answer.body(content).expect("the plan has valid statuses"))
}

/// Compares the content of a request with the one that was sent.
async fn receive(ledger: &SetLedger, planned: &SetRequest, body: Incoming) -> Result<(), GivenUp> {
    let mut body = pin!(body);
    let mut receiving = IncomingContent::new(&planned.request);
    loop {
        let frame = poll_fn(|cx| body.as_mut().poll_frame(cx)).await;
        let checked = match frame {
            Some(Ok(frame)) => receiving.take_frame(&frame),
            Some(Err(_)) => return Err(GivenUp),
            None => match receiving.end() {
                Ok(()) => return Ok(()),
                wrong => wrong,
            },
        };
        if let Err(why) = checked {
            ledger.violate(format!("request {} at its server: {why}", planned.id));
            return Err(GivenUp);
        }
    }
}
