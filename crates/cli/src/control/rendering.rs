//! One rendering of metrics at a time, which all requests share that came before it began. So each response is newer than
//! its request, and many requests cost no more than a few.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use blitz::blocking;
use bytes::Bytes;
use tokio::sync::oneshot;

/// After a rendering, requests over the address wait this many times as long as it took, so that they use at most a
/// fifth of a thread.
const PAUSE_FACTOR: u32 = 4;
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The renderings of one form.
#[derive(Clone, Default)]
pub(super) struct Rendering(Arc<Mutex<Shared>>);

#[derive(Default)]
struct Shared {
    /// The requests of the next rendering.
    waiting: Vec<oneshot::Sender<Bytes>>,
    /// Whether a task renders, or waits before it renders again.
    is_running: bool,
}

/// Whether a pause follows each rendering.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    Paused,
    Immediate,
}

impl Rendering {
    /// The next one; `None` if it has failed. It continues when the client leaves.
    pub(super) async fn next(
        &self,
        pace: Pace,
        render: impl Fn() -> Vec<u8> + Clone + Send + 'static,
    ) -> Option<Bytes> {
        let (sender, rendered) = oneshot::channel();
        let must_start = {
            let mut shared = self.lock();
            shared.waiting.push(sender);
            !std::mem::replace(&mut shared.is_running, true)
        };
        if must_start {
            blitz::spawn(Runner(self.clone()).run(pace, render));
        }
        rendered.await.ok()
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task that renders. All requests are of its core, so that none comes between its last look and its end.
struct Runner(Rendering);

impl Runner {
    async fn run(self, pace: Pace, render: impl Fn() -> Vec<u8> + Clone + Send + 'static) {
        loop {
            let mut waiting = std::mem::take(&mut self.0.lock().waiting);
            waiting.retain(|request| !request.is_closed());
            if waiting.is_empty() {
                return;
            }
            let began = Instant::now();
            let content = Bytes::from(blocking(render.clone()).await);
            for request in waiting {
                // Its client may have left.
                let _ = request.send(content.clone());
            }
            drop(content);
            if pace == Pace::Paused {
                blitz::sleep((began.elapsed() * PAUSE_FACTOR).min(PAUSE_MAX)).await;
            }
        }
    }
}

/// Also after a panic: then the waiting requests fail, and the next one starts another task.
impl Drop for Runner {
    fn drop(&mut self) {
        *self.0.lock() = Shared::default();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::sync::atomic::{AtomicU8, Ordering};

    use blitz_http::{Config, block_on};

    use super::*;

    const TIME: Duration = Duration::from_millis(50);

    #[test]
    fn requests_of_the_same_time_share_a_rendering_that_began_after_them() {
        let begun = Arc::new(AtomicU8::new(0));
        let render = {
            let begun = Arc::clone(&begun);
            move || {
                let number = begun.fetch_add(1, Ordering::Relaxed) + 1;
                std::thread::sleep(TIME);
                vec![number]
            }
        };
        let numbers = Rc::new(RefCell::new(Vec::new()));
        let requested = block_on(&Config::default(), async {
            let rendering = Rendering::default();
            for round in 0..2 {
                for _ in 0..50 {
                    let (rendering, render) = (rendering.clone(), render.clone());
                    let numbers = Rc::clone(&numbers);
                    blitz::spawn(async move {
                        let content = rendering.next(Pace::Immediate, render).await.unwrap();
                        numbers.borrow_mut().push((round, content[0]));
                    });
                }
                blitz::sleep(TIME / 2).await;
            }
            // One whose client leaves.
            let leaving = rendering.next(Pace::Immediate, render.clone());
            assert!(blitz::timeout(TIME / 5, leaving).await.is_err());
            while numbers.borrow().len() < 100 {
                blitz::sleep(TIME / 5).await;
            }
            blitz::sleep(TIME).await;
        });
        requested.unwrap();
        let expected = [[(0, 1); 50], [(1, 2); 50]].concat();
        assert_eq!(*numbers.borrow(), expected);
        assert_eq!(begun.load(Ordering::Relaxed), 2, "none for nobody");
    }

    #[test]
    fn a_rendering_that_panics_is_followed_by_another() {
        let contents = block_on(&Config::default(), async {
            let rendering = Rendering::default();
            let failed = rendering.next(Pace::Paused, || panic!("on purpose"));
            let failed = failed.await;
            (failed, rendering.next(Pace::Paused, || vec![1]).await)
        });
        assert_eq!(contents.unwrap(), (None, Some(Bytes::from_static(&[1]))));
    }
}
