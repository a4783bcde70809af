//! The core that exports spans and log records, one of its own beside those of the sites.

use std::any::Any;
use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::task::Poll;
use std::time::{Duration, Instant};

use blitz_http::{Config, IoChoice, Pinning, sleep};

use super::collector::{Collector, Outcome};
use super::event;
use super::queue::Queue;
use super::settings::ExportSettings;
use super::signal::Signal;
use super::warnings::Warnings;

/// The first and the longest pause before another try; it doubles each time. The collector may demand a longer one, up
/// to the longest.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// How long the same items are tried again.
const GIVE_UP_AFTER: Duration = Duration::from_secs(60);

/// How long items are dropped after the collector has refused their kind.
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// How long an export that was removed takes items of requests that began before.
const REMOVED_AFTER: Duration = Duration::from_secs(1);

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

    /// Closes it later: requests that began before it was removed have items, too.
    pub(super) fn remove(&self) {
        let closes = Instant::now() + REMOVED_AFTER;
        let ends = closes + END_TIMEOUT;
        self.spans.close_at(closes, ends);
        self.logs.close_at(closes, ends);
    }

    /// Whether it has ended.
    pub(super) fn is_over(&self) -> bool {
        !matches!(self.ended.try_recv(), Err(TryRecvError::Empty))
    }

    /// Waits for its end, for at most as long as the last items may take.
    pub(super) fn wait(&self) {
        // It fails if that took too long.
        let _ = self.ended.recv_timeout(END_TIMEOUT);
    }
}

async fn run(settings: ExportSettings, [spans, logs]: [Arc<Queue>; 2], ended: Sender<()>) {
    event::leave_out_this_thread();
    let settings = Rc::new(settings);
    match Collector::new(&settings) {
        Ok(collector) => {
            let collector = Rc::new(collector);
            let export = |signal, queue| Export {
                signal,
                queue,
                collector: Rc::clone(&collector),
                settings: Rc::clone(&settings),
                warnings: Warnings::new(signal, settings.endpoint.to_string()),
                refused_until: Cell::new(None),
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

/// The export of one kind of items.
struct Export {
    signal: Signal,
    queue: Arc<Queue>,
    collector: Rc<Collector>,
    settings: Rc<ExportSettings>,
    warnings: Warnings,
    /// Until when nothing is sent.
    refused_until: Cell<Option<Instant>>,
}

impl Export {
    async fn run(&self) {
        let resource = self.settings.resource();
        while let Some(items) = self.queue.next().await {
            let count = items.len() as u64;
            if self.is_refused() {
                self.queue.counts.add_dropped(count);
                continue;
            }
            let exported = caught(async {
                let message = self.signal.request(&resource, &items);
                self.export(&message, count).await
            });
            let rejected = exported.await.unwrap_or_else(|panic| {
                let signal = self.signal.name();
                tracing::error!(
                    "the export of {count} {signal} has failed, which is a bug: {panic}"
                );
                None
            });
            let rejected = rejected.unwrap_or(count);
            self.queue.counts.add_exported(count - rejected);
            self.queue.counts.add_dropped(rejected);
            self.warnings.tell_overflow(self.queue.take_overflow());
        }
        self.warnings.end();
    }

    fn is_refused(&self) -> bool {
        let until = self.refused_until.get();
        until.is_some_and(|until| blitz_http::now() < until)
    }

    /// Sends a message of so many items until the collector has taken it. Gives how many it has rejected; `None` if all
    /// are lost.
    async fn export(&self, message: &[u8], count: u64) -> Option<u64> {
        let started = blitz_http::now();
        let mut pause = PAUSE_MIN;
        loop {
            let exported = self
                .until_end(self.collector.export(self.signal, message))
                .await;
            let (after, problem) = match exported? {
                Outcome::Taken { rejected, text } => {
                    let rejected = rejected.min(count);
                    self.tell_taken(count, rejected, &text);
                    return Some(rejected);
                }
                Outcome::Retry { after, problem } => (after, problem),
                Outcome::Refused(problem) => {
                    self.warnings.tell_gone(&problem);
                    return None;
                }
                Outcome::Unsupported(problem) => {
                    let until = blitz_http::now() + REFUSED_FOR;
                    self.refused_until.set(Some(until));
                    self.warnings.tell_gone(&problem);
                    return None;
                }
            };
            self.warnings.tell_gone(&problem);
            // Up to a half more, so that gateways do not come all at once.
            let spread = pause.mul_f64(1.0 + (blitz_http::random_u64() % 512) as f64 / 1024.0);
            let wait = wait(spread, after);
            let elapsed = blitz_http::now().saturating_duration_since(started);
            if elapsed.saturating_add(wait) > GIVE_UP_AFTER {
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

    fn tell_taken(&self, count: u64, rejected: u64, text: &str) {
        if rejected < count {
            let [_, dropped] = self.queue.counts.read();
            self.warnings.tell_back(dropped);
        }
        match rejected {
            0 if text.is_empty() => {}
            0 => self.warnings.tell_advice(text),
            _ => self.warnings.tell_rejected(rejected, text),
        }
    }
}

/// The pause before another try; `demanded` is that of the collector.
fn wait(pause: Duration, demanded: Option<Duration>) -> Duration {
    pause.max(demanded.unwrap_or_default()).min(PAUSE_MAX)
}

/// The output of a future, or the text of its panic.
async fn caught<F: Future>(future: F) -> Result<F::Output, String> {
    let mut future = pin!(future);
    poll_fn(
        |cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(polled) => polled.map(Ok),
            Err(panic) => Poll::Ready(Err(text_of(&*panic))),
        },
    )
    .await
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic").to_owned()
}

#[cfg(test)]
mod tests {
    use blitz_http::block_on;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_collector_can_only_demand_a_longer_pause() {
        for (demanded, expected) in [
            (None, 2 * SECOND),
            (Some(Duration::ZERO), 2 * SECOND),
            (Some(7 * SECOND), 7 * SECOND),
            (Some(Duration::MAX), PAUSE_MAX),
        ] {
            assert_eq!(wait(2 * SECOND, demanded), expected, "{demanded:?}");
        }
    }

    #[test]
    fn a_panic_ends_one_export_only() {
        let run = async {
            let panicked = caught(async {
                sleep(Duration::from_millis(1)).await;
                panic!("a bug of the test");
            });
            let text = panicked.await.map(|()| 0);
            (text, caught(async { 7 }).await)
        };
        let outputs = block_on(&Config::default(), run).unwrap();
        assert_eq!(outputs, (Err("a bug of the test".to_owned()), Ok(7)));
    }
}
