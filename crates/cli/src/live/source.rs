//! Readings of a process.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::clients::CLIENTS_MAX;
use super::{Answers, Reading};
use crate::control_client::{self, Place, ReadError};

/// How long to wait for each response.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// How long clients are watched, in seconds: as long as the process allows.
const WATCH_MIN: u64 = 1;
const WATCH_MAX: u64 = 10;

/// How often the clients are shown anew while the process is followed.
const WATCH_FOLLOWED: Duration = Duration::from_secs(2);

/// Readings that wait for the screen.
const WAITING_MAX: usize = 4;

/// More readings would be load for the process.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// The process that is read.
pub(crate) struct Source {
    /// The first one where a process listens is used.
    places: Vec<Place>,
    started: Instant,
}

impl Source {
    pub(crate) fn new(places: Vec<Place>) -> Source {
        Source {
            places,
            started: Instant::now(),
        }
    }

    /// # Errors
    /// No process answers, or not what Blitz does: the problem with its remedy.
    pub(crate) fn read(&self) -> Result<Reading, ReadError> {
        self.read_with("{}")
    }

    /// The same after this time, in which clients are watched.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn watch(&self, time: Duration) -> Result<Reading, ReadError> {
        let clients = thread::scope(|scope| {
            let watched = scope.spawn(|| self.read_clients(time));
            thread::sleep(time);
            watched.join().unwrap_or_default()
        });
        self.read_with(clients.as_deref().unwrap_or("{}"))
    }

    /// The clients that need the most within a time; `None` if the process does not tell.
    fn read_clients(&self, time: Duration) -> Option<String> {
        let seconds = time.as_secs().clamp(WATCH_MIN, WATCH_MAX);
        let target = format!("/connections?top={CLIENTS_MAX}&seconds={seconds}");
        let timeout = ANSWER_TIMEOUT + Duration::from_secs(seconds);
        control_client::read(&self.places, &target, timeout).ok()
    }

    fn read_with(&self, clients: &str) -> Result<Reading, ReadError> {
        let read = |target| control_client::read(&self.places, target, ANSWER_TIMEOUT);
        let metrics = read("/metrics")?;
        let at = self.started.elapsed();
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default().as_secs_f64();
        let answers = Answers {
            metrics: &metrics,
            upstreams: &read("/upstreams")?,
            certificates: &read("/certificates")?,
            failures: &read("/failures")?,
            clients,
        };
        Reading::new(at, now, answers).map_err(|problem| {
            ReadError::NoProcess(format!(
                "blitz: {problem}\n  \
                 the process is not Blitz, or another version: name its socket or its address with --control"
            ))
        })
    }

    /// A reading each interval, on a thread of its own. It ends with the receiver.
    pub(crate) fn follow(self, interval: Duration) -> Receiver<Result<Reading, String>> {
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let source = Arc::new(self);
        let clients = Arc::clone(&source).follow_clients();
        thread::spawn(move || {
            let mut known = "{}".to_owned();
            loop {
                thread::sleep(interval);
                known = clients.try_iter().last().unwrap_or(known);
                let reading = source.read_with(&known).map_err(ReadError::into_text);
                if sender.send(reading).is_err() {
                    return;
                }
            }
        });
        receiver
    }

    /// The clients, again and again, on a thread of its own.
    fn follow_clients(self: Arc<Self>) -> Receiver<String> {
        let (sender, receiver) = sync_channel(WAITING_MAX);
        thread::spawn(move || {
            loop {
                let begun = Instant::now();
                let clients = self.read_clients(WATCH_FOLLOWED).unwrap_or_default();
                if let Err(TrySendError::Disconnected(_)) = sender.try_send(clients) {
                    return;
                }
                thread::sleep(WATCH_FOLLOWED.saturating_sub(begun.elapsed()));
            }
        });
        receiver
    }
}

/// The time between two readings, from a flag.
///
/// # Errors
/// It is none, or too short: the problem and the remedy.
pub(crate) fn interval(value: &str) -> Result<Duration, String> {
    match blitz_config::parse_duration_sum(value) {
        Ok(duration) if duration >= INTERVAL_MIN => Ok(duration),
        Ok(_) => Err("readings so often would slow the process\n  write 100ms or more".to_owned()),
        Err(_) => Err("this is not a duration\n  write 500ms, 1s or 1min".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_have_a_least_length() {
        assert_eq!(interval("1s"), Ok(Duration::from_secs(1)));
        assert!(interval("1ms").is_err() && interval("0").is_err() && interval("1").is_err());
    }
}
