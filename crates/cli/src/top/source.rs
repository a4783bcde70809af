//! Readings of a process.

use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::control_client::{self, Place};
use crate::live::Reading;

/// How long to wait for each response.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Readings that wait for the screen.
const WAITING_MAX: usize = 4;

/// The process that is read.
pub(super) struct Source {
    /// The first one where a process listens is used.
    places: Vec<Place>,
    started: Instant,
}

impl Source {
    pub(super) fn new(places: Vec<Place>) -> Source {
        Source {
            places,
            started: Instant::now(),
        }
    }

    /// # Errors
    /// No process answers, or not what Blitz does: the problem with its remedy.
    pub(super) fn read(&self) -> Result<Reading, String> {
        let read = |target| control_client::read(&self.places, target, ANSWER_TIMEOUT);
        let metrics = read("/metrics")?;
        let at = self.started.elapsed();
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default().as_secs_f64();
        let reading = Reading::new(
            at,
            now,
            &metrics,
            &read("/upstreams")?,
            &read("/certificates")?,
        );
        reading.map_err(|problem| {
            format!(
                "blitz: {problem}\n  \
                 the process is not Blitz, or another version: name its socket or its address with --control"
            )
        })
    }

    /// A reading each interval, on a thread of its own. It ends with the receiver.
    pub(super) fn follow(self, interval: Duration) -> Receiver<Result<Reading, String>> {
        let (sender, receiver) = sync_channel(WAITING_MAX);
        thread::spawn(move || {
            loop {
                thread::sleep(interval);
                if sender.send(self.read()).is_err() {
                    return;
                }
            }
        });
        receiver
    }
}
