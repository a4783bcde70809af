//! The core that exports spans and log records, one of its own beside those of the sites.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::Poll;
use std::time::{Duration, Instant};

use blitz_http::{Config, IoChoice, Pinning, sleep};

use super::collector::{Collector, Outcome};
use super::queue::Queue;
use super::settings::ExportSettings;
use super::signal::Signal;

/// The first and the longest pause before another try; it doubles each time.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// How long the same items are tried again.
const GIVE_UP_AFTER: Duration = Duration::from_secs(60);

/// How long the last items may take.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// A running export.
#[derive(Debug)]
pub(super) struct Exporter {
    pub(super) spans: Arc<Queue>,
    pub(super) logs: Arc<Queue>,
    ended: Receiver<()>,
}

impl Exporter {
    /// Starts its core.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn start(
        settings: &ExportSettings,
        spans: Arc<Queue>,
        logs: Arc<Queue>,
    ) -> io::Result<Exporter> {
        // It waits most of the time, and a ring would be memory for nothing.
        let config = Config {
            io: IoChoice::Epoll,
            cores: 1,
            pin: Pinning::Off,
            ..Config::default()
        };
        let (sender, ended) = channel();
        let (settings, queues) = (settings.clone(), [Arc::clone(&spans), Arc::clone(&logs)]);
        blitz_http::start(&config, move |_| {
            run(settings.clone(), queues.clone(), sender.clone())
        })?;
        Ok(Exporter { spans, logs, ended })
    }

    /// No item follows; those that wait are exported if that takes little time.
    pub(super) fn close(&self) {
        let end = Instant::now() + END_TIMEOUT;
        self.spans.close(end);
        self.logs.close(end);
    }

    /// The same, and waits for it.
    pub(super) fn finish(&self) {
        self.close();
        // It fails if that took too long.
        let _ = self.ended.recv_timeout(END_TIMEOUT);
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.close();
    }
}

async fn run(settings: ExportSettings, [spans, logs]: [Arc<Queue>; 2], ended: Sender<()>) {
    let settings = Rc::new(settings);
    match Collector::new(&settings) {
        Ok(collector) => {
            let collector = Rc::new(collector);
            let state = Rc::<State>::default();
            let export = |signal, queue| Export {
                signal,
                queue,
                collector: Rc::clone(&collector),
                settings: Rc::clone(&settings),
                state: Rc::clone(&state),
            };
            let (spans, logs) = (export(Signal::Spans, spans), export(Signal::Logs, logs));
            both(spans.run(), logs.run()).await;
        }
        Err(problem) => {
            tracing::warn!("no traces are exported to {}: {problem}", settings.endpoint);
            for queue in [&spans, &logs] {
                queue.closed().await;
                queue.clear();
            }
        }
    }
    // It fails if nobody waits.
    let _ = ended.send(());
}

/// Runs two futures to their ends.
async fn both(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    let mut are_running = (true, true);
    poll_fn(|cx| {
        are_running.0 = are_running.0 && one.as_mut().poll(cx).is_pending();
        are_running.1 = are_running.1 && other.as_mut().poll(cx).is_pending();
        match are_running {
            (false, false) => Poll::Ready(()),
            _ => Poll::Pending,
        }
    })
    .await;
}

/// Whether the collector takes items.
#[derive(Default)]
struct State {
    is_gone: Cell<bool>,
}

/// The export of one kind of items.
struct Export {
    signal: Signal,
    queue: Arc<Queue>,
    collector: Rc<Collector>,
    settings: Rc<ExportSettings>,
    state: Rc<State>,
}

impl Export {
    async fn run(&self) {
        let resource = self.settings.resource();
        while let Some(items) = self.queue.next().await {
            let message = self.signal.request(&resource, &items);
            let count = items.len() as u64;
            match self.export(&message).await {
                Some(rejected) => {
                    let rejected = rejected.min(count);
                    self.queue.counts.add_exported(count - rejected);
                    self.queue.counts.add_dropped(rejected);
                }
                None => self.queue.counts.add_dropped(count),
            }
        }
    }

    /// Sends a message until the collector has taken it. Gives how many items it has refused; `None` if all are lost.
    async fn export(&self, message: &[u8]) -> Option<u64> {
        let started = blitz_http::now();
        let mut pause = PAUSE_MIN;
        loop {
            let exported = self
                .until_end(self.collector.export(self.signal, message))
                .await;
            let (after, problem) = match exported? {
                Outcome::Taken { rejected } => {
                    self.is_back();
                    return Some(rejected);
                }
                Outcome::Retry { after, problem } => (after, problem),
                Outcome::Refused(problem) => {
                    self.is_gone(&problem);
                    return None;
                }
            };
            self.is_gone(&problem);
            // A quarter more or less, so that gateways do not come all at once.
            let spread = pause.mul_f64(0.75 + (blitz_http::random_u64() % 512) as f64 / 1024.0);
            let wait = after.unwrap_or(spread);
            let elapsed = blitz_http::now().saturating_duration_since(started);
            if elapsed + wait > GIVE_UP_AFTER {
                return None;
            }
            self.until_end(sleep(wait)).await?;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// The output of a future; `None` if the time for the last items is over before.
    async fn until_end<F: Future>(&self, future: F) -> Option<F::Output> {
        let mut future = pin!(future);
        let mut closed = pin!(async {
            self.queue.closed().await;
            let end = self.queue.end();
            let left = end.map_or(Duration::ZERO, |end| {
                end.saturating_duration_since(blitz_http::read_clock())
            });
            sleep(left).await;
        });
        poll_fn(|cx| {
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
            closed.as_mut().poll(cx).map(|()| None)
        })
        .await
    }

    fn is_gone(&self, problem: &str) {
        if !self.state.is_gone.replace(true) {
            let (signal, endpoint) = (self.signal.name(), &self.settings.endpoint);
            tracing::warn!("the collector {endpoint} does not take {signal}: {problem}");
        }
    }

    fn is_back(&self) {
        if self.state.is_gone.replace(false) {
            let [_, dropped] = self.queue.counts.read();
            let (signal, endpoint) = (self.signal.name(), &self.settings.endpoint);
            tracing::warn!("the collector {endpoint} takes {signal} again; {dropped} were dropped");
        }
    }
}
