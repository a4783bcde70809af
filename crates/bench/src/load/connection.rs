//! A slot for a connection, which is opened again when the server closes it.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};
use std::time::Duration;

use blitz_http::{ClientConnection, sleep, timeout};

use super::control::Progress;
use super::recorder::ConnectTimes;
use super::turns::Turns;
use super::worker::Worker;

/// The wait after the first failure to connect; it doubles with each further one.
const RETRY_FIRST: Duration = Duration::from_millis(5);
const RETRIES_DOUBLED_MAX: u32 = 7;

/// A slot for a connection, and the streams that wait for it.
pub(super) struct ConnectionSlot {
    state: RefCell<SlotState>,
    waiting: RefCell<Vec<Waker>>,
    /// Streams that wait until the server allows a request.
    turns: Turns,
    /// Failures to connect since the last success.
    failures: Cell<u32>,
}

/// The result for a stream that wants to send a request.
pub(super) enum Attempt {
    /// `has_waited` if it was not there at once.
    Ready {
        connection: ClientConnection,
        has_waited: bool,
    },
    /// There is no connection, and this counts as one of a limited number of requests.
    Failed,
    /// The run is over.
    Over,
}

enum SlotState {
    Closed,
    Connecting,
    Open(ClientConnection),
}

/// The next step of a stream towards a connection.
enum ConnectionStep {
    Use(ClientConnection),
    /// `has_ended` if the server has closed the connection that was there.
    Connect {
        has_ended: bool,
    },
}

impl ConnectionSlot {
    pub(super) fn new() -> ConnectionSlot {
        ConnectionSlot {
            state: RefCell::new(SlotState::Closed),
            waiting: RefCell::default(),
            turns: Turns::default(),
            failures: Cell::new(0),
        }
    }

    /// A connection that takes a request now.
    pub(super) async fn connection(&self, worker: &Worker) -> Attempt {
        let is_counted = worker.plan.request_count.is_some();
        let mut has_waited = false;
        let mut turn = None;
        while !worker.control.is_stopped() {
            let has_failed = match self.next_step(&mut has_waited).await {
                ConnectionStep::Connect { has_ended } => {
                    Progress::subtract(&worker.progress().connections, has_ended.into());
                    !self.connect(worker).await
                }
                ConnectionStep::Use(connection)
                    if (turn.is_some() || self.turns.is_free())
                        && connection.requests_available() > 0 =>
                {
                    if turn.is_some() {
                        self.turns.give(connection.requests_available());
                    }
                    return Attempt::Ready {
                        connection,
                        has_waited,
                    };
                }
                ConnectionStep::Use(_) if turn.is_none() => {
                    worker.queued();
                    turn = Some(self.turns.take().await);
                    false
                }
                // If none will be taken, the connection is no longer open, and another one follows.
                ConnectionStep::Use(connection) => {
                    let ready = timeout(worker.plan.timeout, connection.ready()).await;
                    if ready.is_err() {
                        let error = "the server allowed no request on its connection in time";
                        worker.failed_to_connect(error.to_owned());
                    }
                    ready.is_err()
                }
            };
            has_waited = true;
            if has_failed && is_counted {
                return Attempt::Failed;
            }
        }
        Attempt::Over
    }

    /// Closes the connection; the next request has another one.
    pub(super) fn close(&self, worker: &Worker) {
        if let SlotState::Open(connection) = self.state.replace(SlotState::Closed) {
            Progress::subtract(&worker.progress().connections, 1);
            connection.close();
        }
    }

    /// One of the streams connects, the others wait.
    async fn next_step(&self, has_waited: &mut bool) -> ConnectionStep {
        poll_fn(|cx| {
            let mut state = self.state.borrow_mut();
            match &*state {
                SlotState::Open(connection) if connection.is_open() => {
                    Poll::Ready(ConnectionStep::Use(connection.clone()))
                }
                SlotState::Open(_) | SlotState::Closed => {
                    let before = std::mem::replace(&mut *state, SlotState::Connecting);
                    let has_ended = matches!(before, SlotState::Open(_));
                    Poll::Ready(ConnectionStep::Connect { has_ended })
                }
                SlotState::Connecting => {
                    *has_waited = true;
                    self.waiting.borrow_mut().push(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Whether there is a connection now.
    async fn connect(&self, worker: &Worker) -> bool {
        let connect = &worker.connect_options;
        let connected = ClientConnection::connect(&worker.plan.address, connect).await;
        let state = match connected {
            Ok(connection) => {
                self.failures.set(0);
                worker.connected(&ConnectTimes::of(&connection));
                SlotState::Open(connection)
            }
            Err(error) => {
                worker.failed_to_connect(error.to_string());
                let failures = self.failures.get();
                self.failures.set(failures + 1);
                let doubled = failures.min(RETRIES_DOUBLED_MAX);
                sleep(RETRY_FIRST * 2_u32.pow(doubled)).await;
                SlotState::Closed
            }
        };
        let is_open = matches!(state, SlotState::Open(_));
        self.state.replace(state);
        for waiting in self.waiting.take() {
            waiting.wake();
        }
        is_open
    }
}
