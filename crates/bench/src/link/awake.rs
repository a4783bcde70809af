//! Processors that do not sleep while a link exists.
//!
//! A virtual processor that sleeps is woken by its host, which on a shared machine takes a millisecond or more for one
//! timer in a hundred, whatever the priority of the thread that waits. Threads that only run when nothing else wants a
//! processor keep all of them awake; with them, 99 of 100 timers were less than 0.1 ms late on such a machine.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use blitz_http::set_idle_priority;

/// Work between two looks whether it shall end.
const TURNS: u32 = 10_000;

/// A thread for each processor. They end when it is dropped.
#[derive(Debug)]
pub(super) struct Awake {
    ended: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Awake {
    pub(super) fn start() -> Awake {
        let ended = Arc::new(AtomicBool::new(false));
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let threads = (0..processors).filter_map(|_| {
            let ended = Arc::clone(&ended);
            let thread = thread::Builder::new().name("awake".to_owned());
            // Without it the link is later, which its report says.
            thread.spawn(move || stay_awake(&ended)).ok()
        });
        Awake {
            threads: threads.collect(),
            ended,
        }
    }
}

fn stay_awake(ended: &AtomicBool) {
    if set_idle_priority().is_err() {
        return;
    }
    while !ended.load(Ordering::Relaxed) {
        (0..TURNS).for_each(|turn| {
            black_box(turn);
        });
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
