//! The thread between the two devices. It takes packets from each, and delivers them to the other when its
//! model says.

use std::io::{self, PipeReader};
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use blitz_http::set_real_time;
use hdrhistogram::Histogram;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::thread::set_current_timer_slack;
use rustix::time::{ClockId, clock_gettime};

use super::counters::LinkCounters;
use super::device::Device;
use super::model::LinkDirection;
use super::moves::Moves;

/// Packets of one direction that are delivered before the other direction has its turn, and that are read before the thread
/// looks whether it is stopped.
const BATCH: usize = 16;

/// The thread wakes up this much before a packet is due at most, and polls for the rest of the time.
const EARLY_MAX: Duration = Duration::from_micros(50);

/// IP has no longer packets.
const BUFFER_BYTES: usize = 65_536;

/// Both devices, and the model of each direction.
pub(super) struct Emulator {
    server: Device,
    client: Device,
    down: LinkDirection,
    up: LinkDirection,
    moves: Moves,
    /// Its writer is dropped to end the thread.
    stop: PipeReader,
    /// The counters for other threads.
    counters: Arc<Mutex<LinkCounters>>,
    clock: Clock,
    wake_up: WakeUp,
    lateness: Lateness,
    buffer: Vec<u8>,
}

/// How an emulator has done its work.
#[derive(Debug)]
pub(super) struct LinkSummary {
    pub(super) elapsed: Duration,
    pub(super) cpu_time: Duration,
    pub(super) lateness_p99: Duration,
    /// Whether it had real-time priority.
    pub(super) is_real_time: bool,
    /// Why it ended early.
    pub(super) failure: Option<io::Error>,
}

impl Emulator {
    /// `down` has the packets of the server, `up` those of the client.
    pub(super) fn new(
        [server, client]: [Device; 2],
        [down, up]: [LinkDirection; 2],
        moves: Moves,
        stop: PipeReader,
        counters: Arc<Mutex<LinkCounters>>,
    ) -> Emulator {
        Emulator {
            server,
            client,
            down,
            up,
            moves,
            stop,
            counters,
            clock: Clock(Instant::now()),
            wake_up: WakeUp::default(),
            lateness: Lateness::new(),
            buffer: vec![0; BUFFER_BYTES],
        }
    }

    /// Works until the writer of `stop` is dropped, or a device fails.
    pub(super) fn run(mut self) -> LinkSummary {
        // A real network does not wait for a processor either.
        let is_real_time = set_real_time().is_ok();
        // By default the kernel delays wakeups by up to 50 µs.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        let failure = self.work().err();
        self.publish();
        let cpu_time = clock_gettime(ClockId::ThreadCPUTime);
        LinkSummary {
            elapsed: self.clock.now(),
            cpu_time: cpu_time.try_into().unwrap_or_default(),
            lateness_p99: self.lateness.p99(),
            is_real_time,
            failure,
        }
    }

    fn work(&mut self) -> io::Result<()> {
        loop {
            let mut ready = self.wait()?;
            if ready.stop {
                return Ok(());
            }
            // Due packets do not wait until a batch was read.
            for _ in 0..BATCH {
                self.receive(&mut ready)?;
                self.deliver_due()?;
                if !ready.server && !ready.client {
                    break;
                }
            }
            self.publish();
        }
    }

    /// Reads a packet of each device that is ready; one without a packet is so no longer.
    fn receive(&mut self, ready: &mut ReadyWork) -> io::Result<()> {
        let Emulator { clock, moves, .. } = self;
        let buffer = &mut self.buffer;
        let leave = |now, packet: &mut [u8]| moves.leave(now, packet);
        ready.server =
            ready.server && receive(&self.server, &mut self.down, *clock, buffer, |_, _| ())?;
        ready.client = ready.client && receive(&self.client, &mut self.up, *clock, buffer, leave)?;
        Ok(())
    }

    fn deliver_due(&mut self) -> io::Result<()> {
        let Emulator {
            clock,
            moves,
            lateness,
            ..
        } = self;
        let arrive = |now, packet: &mut [u8]| moves.arrive(now, packet);
        deliver(&mut self.down, &self.client, *clock, lateness, arrive)?;
        deliver(&mut self.up, &self.server, *clock, lateness, |_, _| true)
    }

    /// Waits until a device has a packet, a packet is nearly due, or the link is stopped.
    fn wait(&mut self) -> io::Result<ReadyWork> {
        let deadlines = [self.down.next_deadline(), self.up.next_deadline()];
        let now = self.clock.now();
        let time = deadlines
            .into_iter()
            .flatten()
            .min()
            .map(|due| due.saturating_sub(now + self.wake_up.early));
        let mut polled = [
            self.server.readable(),
            self.client.readable(),
            PollFd::new(&self.stop, PollFlags::empty()),
        ];
        let timeout = time.map(Timespec::try_from).transpose();
        match poll(&mut polled, timeout.unwrap_or_default().as_ref()) {
            Ok(0) => {
                let slept = self.clock.now() - now;
                self.wake_up.record(time.unwrap_or_default(), slept);
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let [server, client, stop] = polled.map(|polled| !polled.revents().is_empty());
        Ok(ReadyWork {
            server,
            client,
            stop,
        })
    }

    fn publish(&self) {
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        *counters = LinkCounters {
            down: self.down.counters(),
            up: self.up.counters(),
            lateness_max: self.lateness.max,
        };
    }
}

/// The work that is ready.
struct ReadyWork {
    server: bool,
    client: bool,
    stop: bool,
}

/// Gives a packet of a device to the model, after it was changed; whether there was one.
fn receive(
    device: &Device,
    model: &mut LinkDirection,
    clock: Clock,
    buffer: &mut [u8],
    change: impl Fn(Duration, &mut [u8]),
) -> io::Result<bool> {
    let Some(length) = device.receive(buffer)? else {
        return Ok(false);
    };
    let now = clock.now();
    change(now, &mut buffer[..length]);
    model.handle_packet(now, buffer[..length].into());
    Ok(true)
}

/// Gives packets that are due to the other device, unless it refuses them.
fn deliver(
    model: &mut LinkDirection,
    device: &Device,
    clock: Clock,
    lateness: &mut Lateness,
    is_accepted: impl Fn(Duration, &mut [u8]) -> bool,
) -> io::Result<()> {
    for _ in 0..BATCH {
        let now = clock.now();
        let Some(mut delivery) = model.poll_delivery(now) else {
            break;
        };
        lateness.record(now - delivery.due);
        if is_accepted(now, &mut delivery.packet) {
            device.send(&delivery.packet)?;
        }
    }
    Ok(())
}

/// The time since the start of the link.
#[derive(Debug, Clone, Copy)]
struct Clock(Instant);

impl Clock {
    fn now(self) -> Duration {
        self.0.elapsed()
    }
}

/// How much earlier than a packet is due the thread should wake up.
#[derive(Debug, Default)]
struct WakeUp {
    early: Duration,
}

impl WakeUp {
    /// The thread slept `slept` instead of `wanted`. The moving average of the difference is the time that
    /// the machine needs to wake a thread.
    fn record(&mut self, wanted: Duration, slept: Duration) {
        // A thread that has not slept has not been woken.
        if !wanted.is_zero() {
            let late = slept.saturating_sub(wanted).min(EARLY_MAX);
            self.early = (self.early * 7 + late) / 8;
        }
    }
}

/// How late packets are delivered.
#[derive(Debug)]
struct Lateness {
    histogram: Histogram<u64>,
    max: Duration,
}

impl Lateness {
    fn new() -> Lateness {
        Lateness {
            // From 1 ns to 60 s, with two digits.
            histogram: Histogram::new_with_max(60_000_000_000, 2).expect("valid bounds"),
            max: Duration::ZERO,
        }
    }

    fn record(&mut self, late: Duration) {
        self.histogram.saturating_record(late.as_nanos() as u64);
        self.max = self.max.max(late);
    }

    fn p99(&self) -> Duration {
        Duration::from_nanos(self.histogram.value_at_quantile(0.99))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_to_wake_up_follows_the_machine() {
        let mut wake_up = WakeUp::default();
        let wanted = Duration::from_millis(1);
        for _ in 0..50 {
            wake_up.record(wanted, wanted + Duration::from_micros(20));
        }
        let early = wake_up.early.as_micros();
        assert!((19..=20).contains(&early), "{early}");
        // Neither a poll without a wait nor a pause of the whole machine counts.
        wake_up.record(Duration::ZERO, Duration::from_millis(5));
        assert_eq!(wake_up.early.as_micros(), early);
        for _ in 0..50 {
            wake_up.record(wanted, wanted * 2);
        }
        assert!(wake_up.early <= EARLY_MAX);
    }
}
