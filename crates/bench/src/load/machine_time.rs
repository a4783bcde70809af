//! CPU time and context switches of the generator's own threads.

use std::fs;
use std::time::Instant;

/// The CPU time and the context switches of the threads of this process so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Usage {
    at: Option<Instant>,
    threads: Vec<ThreadUsage>,
}

#[derive(Debug, Clone, Default)]
struct ThreadUsage {
    id: u32,
    is_core: bool,
    run_ns: u64,
    wait_ns: u64,
    voluntary: u64,
    forced: u64,
}

/// The usage of the threads between two moments.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct UsageSince {
    /// Of all threads, in seconds.
    pub(super) cpu_s: f64,
    /// The share of the time in which the busiest core ran, and in which it was ready and had no processor.
    pub(super) busiest_core: f64,
    pub(super) busiest_core_waited: f64,
    /// Voluntary and forced.
    pub(super) context_switches: (u64, u64),
}

impl Usage {
    /// Reads the counters of the kernel.
    pub(super) fn now() -> Usage {
        let tasks = fs::read_dir("/proc/self/task").into_iter().flatten();
        let threads = tasks.flatten().filter_map(|task| {
            let id = task.file_name().to_str()?.parse().ok()?;
            let read = |file: &str| fs::read_to_string(task.path().join(file)).unwrap_or_default();
            let schedule = read("schedstat");
            let mut times = schedule
                .split_whitespace()
                .map(|word| word.parse().unwrap_or(0));
            let status = read("status");
            Some(ThreadUsage {
                id,
                is_core: read("comm").starts_with("blitz-core"),
                run_ns: times.next()?,
                wait_ns: times.next()?,
                voluntary: switches(&status, "voluntary_ctxt_switches:"),
                forced: switches(&status, "nonvoluntary_ctxt_switches:"),
            })
        });
        Usage {
            at: Some(Instant::now()),
            threads: threads.collect(),
        }
    }

    /// The usage since `earlier`.
    pub(super) fn since(&self, earlier: &Usage) -> UsageSince {
        let length = match (self.at, earlier.at) {
            (Some(now), Some(then)) => now.saturating_duration_since(then).as_nanos() as f64,
            _ => return UsageSince::default(),
        };
        let mut sum = UsageSince::default();
        for thread in &self.threads {
            let before = earlier.threads.iter().find(|before| before.id == thread.id);
            let before = before.cloned().unwrap_or_default();
            let run = thread.run_ns.saturating_sub(before.run_ns) as f64;
            let waited = thread.wait_ns.saturating_sub(before.wait_ns) as f64;
            sum.cpu_s += run / 1e9;
            sum.context_switches.0 += thread.voluntary.saturating_sub(before.voluntary);
            sum.context_switches.1 += thread.forced.saturating_sub(before.forced);
            if thread.is_core && length > 0.0 {
                sum.busiest_core = sum.busiest_core.max(run / length);
                sum.busiest_core_waited = sum.busiest_core_waited.max(waited / length);
            }
        }
        sum
    }
}

fn switches(status: &str, name: &str) -> u64 {
    let value = status.lines().find_map(|line| line.strip_prefix(name));
    value
        .and_then(|value| value.trim().parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn work_of_a_thread_is_counted() {
        let before = Usage::now();
        let start = Instant::now();
        let mut sum = 0_u64;
        while start.elapsed() < Duration::from_millis(60) {
            sum = sum.wrapping_mul(31).wrapping_add(7);
        }
        std::hint::black_box(sum);
        let used = Usage::now().since(&before);
        assert!(used.cpu_s > 0.01, "{used:?}");
        assert!(used.context_switches.1 < 10_000, "{used:?}");
    }

    #[test]
    fn switches_of_both_kinds_are_told_apart() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n";
        assert_eq!(switches(status, "voluntary_ctxt_switches:"), 12);
        assert_eq!(switches(status, "nonvoluntary_ctxt_switches:"), 3);
    }
}
