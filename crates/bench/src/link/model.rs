//! One direction of a link: which packets arrive, and when. It has no socket, clock or thread.
//!
//! A packet passes these stages:
//!
//! 1. the queue, which drops what does not fit,
//! 2. the transmitter, which needs the length divided by the rate, one packet after the other,
//! 3. loss (a lost packet has used the transmitter),
//! 4. the propagation delay with its jitter, in order,
//! 5. reordering: a packet that others overtake waits for them at the end.
//!
//! Methods are of three kinds: `handle_packet` takes a packet, `poll_delivery` gives those that are due,
//! and getters say when the next one is due and what has happened. **After `handle_packet`, and when the
//! deadline has passed, call `poll_delivery` until it gives nothing.** Times are durations since the start
//! of the link, and never decrease.

use std::collections::VecDeque;
use std::time::Duration;

use super::counters::DirectionCounters;
use super::jitter::Jitter;
use super::loss::LossProcess;
use super::random::Random;
use super::spec::{Bottleneck, DirectionSpec, IN_FLIGHT_BYTES_MAX, QueueLimit};

/// An IP packet.
pub(super) type Packet = Box<[u8]>;

/// A packet that reordering holds back is delivered after this time even if too few packets follow.
const HOLD_MAX: Duration = Duration::from_millis(50);

/// Streams of random numbers, one for each purpose.
const LOSS: u64 = 1;
const JITTER: u64 = 2;
const REORDERING: u64 = 3;
const DUPLICATES: u64 = 4;

/// The machine of one direction.
#[derive(Debug)]
pub(super) struct LinkDirection {
    spec: DirectionSpec,
    transmitter: Transmitter,
    loss: LossProcess,
    jitter: Jitter,
    reordering: Random,
    duplicates: Random,
    /// In the order of their deliveries.
    in_flight: VecDeque<InFlight>,
    /// Packets that were due, and are held back until others have overtaken them.
    held: VecDeque<HeldPacket>,
    /// The bytes of both.
    in_flight_bytes: u64,
    last_due: Duration,
    counters: DirectionCounters,
}

/// A packet that is to be delivered now.
#[derive(Debug, PartialEq)]
pub(super) struct Delivery {
    pub(super) packet: Packet,
    /// When it was due: at most the `now` of the call.
    pub(super) due: Duration,
}

impl LinkDirection {
    /// The same seed and packets give the same deliveries.
    pub(super) fn new(spec: DirectionSpec, seed: u64) -> LinkDirection {
        LinkDirection {
            transmitter: Transmitter::new(spec.bottleneck),
            loss: LossProcess::new(spec.loss, Random::new(seed, LOSS)),
            jitter: Jitter::new(spec.jitter, Random::new(seed, JITTER)),
            reordering: Random::new(seed, REORDERING),
            duplicates: Random::new(seed, DUPLICATES),
            in_flight: VecDeque::new(),
            held: VecDeque::new(),
            in_flight_bytes: 0,
            last_due: Duration::ZERO,
            counters: DirectionCounters::default(),
            spec,
        }
    }

    /// Takes a packet that arrived at `now`.
    pub(super) fn handle_packet(&mut self, now: Duration, packet: Packet) {
        let length = packet.len() as u64;
        self.counters.packets += 1;
        self.counters.bytes += length;
        self.counters.packet_bytes_max = self.counters.packet_bytes_max.max(length);
        if self.in_flight_bytes + length > IN_FLIGHT_BYTES_MAX {
            self.counters.dropped += 1;
            return;
        }
        let Some(sent) = self.transmitter.transmit(now, length) else {
            self.counters.dropped += 1;
            return;
        };
        if self.loss.next(sent, length) {
            self.counters.lost += 1;
            return;
        }
        if self.duplicates.chance(self.spec.duplicates) {
            self.counters.duplicated += 1;
            self.launch(sent, packet.clone());
        }
        self.launch(sent, packet);
    }

    /// Gives the next packet that is due at `now`, if there is one.
    pub(super) fn poll_delivery(&mut self, now: Duration) -> Option<Delivery> {
        loop {
            if let Some(delivery) = self.release(now) {
                return Some(self.deliver(delivery));
            }
            let next = pop_if(&mut self.in_flight, |next| next.due <= now)?;
            if next.is_overtaken {
                self.held.push_back(HeldPacket {
                    due: next.due + HOLD_MAX,
                    packet: next.packet,
                    overtaken_by: 0,
                });
                continue;
            }
            self.overtake(next.due);
            return Some(self.deliver(Delivery {
                packet: next.packet,
                due: next.due,
            }));
        }
    }

    /// When the next packet is due.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        let next = self.in_flight.front().map(|next| next.due);
        let held = self.held.front().map(|held| held.due);
        next.into_iter().chain(held).min()
    }

    pub(super) fn counters(&self) -> DirectionCounters {
        self.counters
    }

    /// A packet leaves the transmitter at `sent`.
    fn launch(&mut self, sent: Duration, packet: Packet) {
        let arrival = sent + self.jitter.vary(self.spec.delay, sent);
        self.last_due = self.last_due.max(arrival);
        self.in_flight_bytes += packet.len() as u64;
        self.in_flight.push_back(InFlight {
            due: self.last_due,
            is_overtaken: self.reordering.chance(self.spec.reordering.probability),
            packet,
        });
    }

    /// The oldest packet that is no longer held back.
    fn release(&mut self, now: Duration) -> Option<Delivery> {
        let held = pop_if(&mut self.held, |held| held.due <= now)?;
        if held.overtaken_by > 0 {
            self.counters.reordered += 1;
        }
        Some(Delivery {
            packet: held.packet,
            due: held.due,
        })
    }

    /// A packet that is due overtakes those that are held back. They become due with it once enough packets
    /// have overtaken them: the oldest first, because it was overtaken most often.
    fn overtake(&mut self, due: Duration) {
        for held in &mut self.held {
            held.overtaken_by += 1;
            if held.overtaken_by >= self.spec.reordering.gap {
                held.due = held.due.min(due);
            }
        }
    }

    fn deliver(&mut self, delivery: Delivery) -> Delivery {
        let length = delivery.packet.len() as u64;
        self.in_flight_bytes -= length;
        self.counters.delivered += 1;
        self.counters.delivered_bytes += length;
        delivery
    }
}

#[derive(Debug)]
struct InFlight {
    due: Duration,
    is_overtaken: bool,
    packet: Packet,
}

#[derive(Debug)]
struct HeldPacket {
    due: Duration,
    packet: Packet,
    /// How many packets have overtaken it.
    overtaken_by: u32,
}

/// A queue and the transmitter that empties it.
#[derive(Debug)]
struct Transmitter {
    bottleneck: Option<Bottleneck>,
    /// When each packet of the queue is sent completely, and its length.
    queue: VecDeque<(Duration, u64)>,
    queue_bytes: u64,
    /// When the last one is sent completely.
    idle_at: Duration,
}

impl Transmitter {
    fn new(bottleneck: Option<Bottleneck>) -> Transmitter {
        Transmitter {
            bottleneck,
            queue: VecDeque::new(),
            queue_bytes: 0,
            idle_at: Duration::ZERO,
        }
    }

    /// When a packet that arrived at `now` is sent completely, or none if the queue is full. An empty queue
    /// takes every packet.
    fn transmit(&mut self, now: Duration, length: u64) -> Option<Duration> {
        let Some(Bottleneck { rate_bits, queue }) = self.bottleneck else {
            return Some(now);
        };
        while let Some((_, sent)) = pop_if(&mut self.queue, |(end, _)| *end <= now) {
            self.queue_bytes -= sent;
        }
        let fits = match queue {
            QueueLimit::Bytes(limit) => self.queue_bytes + length <= limit,
            QueueLimit::Packets(limit) => (self.queue.len() as u64) < limit,
        };
        if !fits && !self.queue.is_empty() {
            return None;
        }
        let nanoseconds = (length * 8 * 1_000_000_000).div_ceil(rate_bits.get());
        let end = self.idle_at.max(now) + Duration::from_nanos(nanoseconds);
        self.idle_at = end;
        self.queue.push_back((end, length));
        self.queue_bytes += length;
        Some(end)
    }
}

/// Takes the first item if the condition holds.
fn pop_if<T>(queue: &mut VecDeque<T>, condition: impl FnOnce(&T) -> bool) -> Option<T> {
    queue
        .front()
        .is_some_and(condition)
        .then(|| queue.pop_front())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::spec::LinkSpec;

    const MILLISECOND: Duration = Duration::from_millis(1);

    fn direction(text: &str, seed: u64) -> LinkDirection {
        let spec: LinkSpec = text.parse().unwrap();
        LinkDirection::new(spec.down, seed)
    }

    /// A packet of this length with a number in its first bytes.
    fn packet(number: u32, length: usize) -> Packet {
        let mut bytes = vec![0; length];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        bytes.into()
    }

    /// Sends packets of `length` bytes, one each `step`. Returns the number and the time of each delivery.
    fn run(
        direction: &mut LinkDirection,
        count: u32,
        length: usize,
        step: Duration,
    ) -> Vec<(u32, Duration)> {
        let mut deliveries = Vec::new();
        for number in 0..count {
            let now = number * step;
            deliver_until(direction, now, &mut deliveries);
            direction.handle_packet(now, packet(number, length));
        }
        deliver_until(direction, Duration::MAX, &mut deliveries);
        deliveries
    }

    /// Moves the clock from deadline to deadline.
    fn deliver_until(
        direction: &mut LinkDirection,
        end: Duration,
        deliveries: &mut Vec<(u32, Duration)>,
    ) {
        while let Some(now) = direction.next_deadline().filter(|due| *due <= end) {
            let mut count = 0;
            while let Some(delivery) = direction.poll_delivery(now) {
                let number = delivery.packet[..4].try_into().unwrap();
                assert!(delivery.due <= now);
                deliveries.push((u32::from_be_bytes(number), delivery.due));
                count += 1;
            }
            let moves = direction.next_deadline().is_none_or(|due| due > now);
            assert!(count > 0 || moves, "a deadline without an effect");
        }
    }

    #[test]
    fn a_packet_arrives_after_the_delay() {
        let deliveries = run(&mut direction("delay=25ms", 1), 3, 100, MILLISECOND);
        assert_eq!(deliveries, [0, 1, 2].map(|n| (n, (25 + n) * MILLISECOND)));
    }

    #[test]
    fn a_packet_takes_its_length_divided_by_the_rate() {
        let mut direction = direction("delay=5ms,rate=12mbit,queue=10p", 1);
        // 1,500 bytes at 12 Mbit/s: 1 ms.
        let deliveries = run(&mut direction, 3, 1500, 10 * MILLISECOND);
        let expected = [0, 1, 2].map(|n| (n, (10 * n + 1 + 5) * MILLISECOND));
        assert_eq!(deliveries, expected);
    }

    #[test]
    fn packets_wait_for_those_before_them() {
        let mut direction = direction("rate=12mbit,queue=10p", 1);
        let deliveries = run(&mut direction, 3, 1500, Duration::ZERO);
        assert_eq!(deliveries, [0, 1, 2].map(|n| (n, (n + 1) * MILLISECOND)));
    }

    #[test]
    fn the_throughput_is_the_rate() {
        for rate in [1u64, 10, 100, 1000] {
            let mut direction = direction(&format!("delay=10ms,rate={rate}mbit,queue=64k"), 1);
            // Offers about twice the rate.
            let step = Duration::from_nanos(6_000_000 / rate);
            let deliveries = run(&mut direction, 10_000, 1500, step);
            let time = deliveries.last().unwrap().1 - deliveries[0].1;
            let bits = (deliveries.len() - 1) as f64 * 12_000.0;
            let measured = bits / time.as_secs_f64() / 1e6 / rate as f64;
            assert!((measured - 1.0).abs() < 0.001, "{rate} Mbit/s: {measured}");
            assert!(direction.counters().dropped > 4_000);
        }
    }

    #[test]
    fn a_full_queue_drops_the_newest_packet() {
        for queue in ["4p", "6000"] {
            let mut direction = direction(&format!("rate=12mbit,queue={queue}"), 1);
            let deliveries = run(&mut direction, 7, 1500, Duration::ZERO);
            let numbers: Vec<u32> = deliveries.iter().map(|(number, _)| *number).collect();
            assert_eq!(numbers, [0, 1, 2, 3]);
            assert_eq!(direction.counters().dropped, 3);
        }
    }

    #[test]
    fn a_standing_queue_delays_by_its_length() {
        // 12,000 bytes at 12 Mbit/s: 8 ms.
        let mut direction = direction("rate=12mbit,queue=12000", 1);
        for number in 0..100 {
            direction.handle_packet(number * MILLISECOND / 2, packet(number, 1500));
            while direction.poll_delivery(number * MILLISECOND / 2).is_some() {}
        }
        let now = 100 * MILLISECOND / 2;
        let last = direction.in_flight.back().unwrap().due;
        let waiting = last - now;
        assert!(
            waiting > 6 * MILLISECOND && waiting <= 8 * MILLISECOND,
            "{waiting:?}"
        );
    }

    #[test]
    fn an_empty_queue_takes_a_packet_that_is_longer_than_its_limit() {
        let mut direction = direction("rate=12mbit,queue=1000", 1);
        assert_eq!(run(&mut direction, 5, 1500, 2 * MILLISECOND).len(), 5);
    }

    #[test]
    fn jitter_keeps_the_order() {
        let mut direction = direction("delay=50ms,jitter=10ms", 1);
        let deliveries = run(&mut direction, 100_000, 100, MILLISECOND / 100);
        assert_eq!(deliveries.len(), 100_000);
        assert!(deliveries.is_sorted());
        assert_eq!(direction.counters().reordered, 0);
    }

    #[test]
    fn a_reordered_packet_arrives_after_as_many_others_as_configured() {
        let mut direction = direction("delay=10ms,reorder=1%/3", 5);
        let count = 50_000;
        let deliveries = run(&mut direction, count, 100, MILLISECOND);
        assert_eq!(deliveries.len(), count as usize);
        let reordered = direction.counters().reordered as f64;
        // 3.29 standard errors: 99.9 %.
        assert!((reordered - 500.0).abs() < 74.0, "{reordered}");
        let mut late = 0;
        for (position, (number, _)) in deliveries.iter().enumerate() {
            let before = &deliveries[..position];
            let overtaken_by = before
                .iter()
                .rev()
                .take(20)
                .filter(|(other, _)| other > number)
                .count();
            late += usize::from(overtaken_by > 0);
            // One more if a neighbour is held back as well.
            assert!(
                [0, 3, 4, 5].contains(&overtaken_by),
                "{number}: {overtaken_by}"
            );
        }
        assert_eq!(late as f64, reordered);
    }

    #[test]
    fn a_packet_that_nothing_overtakes_arrives_in_time() {
        let mut direction = direction("delay=10ms,reorder=100%", 1);
        let deliveries = run(&mut direction, 1, 100, MILLISECOND);
        assert_eq!(deliveries, [(0, 10 * MILLISECOND + HOLD_MAX)]);
        assert_eq!(direction.counters().reordered, 0);
    }

    #[test]
    fn duplicates_arrive_twice() {
        let mut direction = direction("duplicate=10%", 1);
        let deliveries = run(&mut direction, 10_000, 100, MILLISECOND);
        let duplicated = direction.counters().duplicated;
        assert_eq!(deliveries.len() as u64, 10_000 + duplicated);
        assert!((900..1_100).contains(&duplicated), "{duplicated}");
    }

    #[test]
    fn lost_packets_use_the_rate() {
        let mut direction = direction("rate=12mbit,queue=1000p,loss=50%", 1);
        let deliveries = run(&mut direction, 1_000, 1500, Duration::ZERO);
        let end = deliveries.last().unwrap().1;
        assert!(end > 990 * MILLISECOND, "{end:?}");
        assert_eq!(deliveries.len() as u64 + direction.counters().lost, 1_000);
    }

    #[test]
    fn every_packet_is_counted_once() {
        let text = "4g,loss=3%,reorder=2%,duplicate=1%,queue=20k";
        let mut direction = direction(text, 1);
        let deliveries = run(&mut direction, 20_000, 1200, MILLISECOND / 4);
        let counters = direction.counters();
        assert_eq!(deliveries.len() as u64, counters.delivered);
        assert!(counters.lost > 0 && counters.dropped > 0 && counters.reordered > 0);
        assert_eq!(
            counters.packets + counters.duplicated,
            counters.delivered + counters.lost + counters.dropped
        );
        assert_eq!(counters.delivered_bytes, counters.delivered * 1200);
        assert_eq!(direction.in_flight_bytes, 0);
    }

    #[test]
    fn a_seed_repeats_a_run() {
        let text = "lossy-wifi,reorder=1%,duplicate=1%";
        let run = |seed| run(&mut direction(text, seed), 10_000, 1200, MILLISECOND);
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }

    #[test]
    fn packets_under_way_are_bounded() {
        let mut direction = direction("delay=10s", 1);
        for number in 0..50_000 {
            direction.handle_packet(Duration::ZERO, packet(number, 1500));
        }
        let counters = direction.counters();
        assert!(direction.in_flight_bytes <= IN_FLIGHT_BYTES_MAX);
        assert_eq!(counters.dropped, 50_000 - IN_FLIGHT_BYTES_MAX / 1500);
    }
}
