//! Clients of HTTP/3, and the network that carries their datagrams.

use std::ops::RangeInclusive;
use std::time::Duration;

use blitz_reactor::simulation::Conditions;

use super::{ClientPlan, RequestPlanner, UpstreamPlan, Version, Windows};
use crate::random::Random;

/// Runs with clients of HTTP/3, of 1,000.
const HTTP3_PER_MILLE: u64 = 250;

/// Those of them in which the gateway drains.
const DRAINS_PER_MILLE: u64 = 150;

/// Largest content where datagrams are lost or take long, and elsewhere.
const SLOW_CONTENT_MAX: u64 = 16_000;
const CONTENT_MAX: u64 = 60_000;

/// Largest content of requests where it must not use up the window: padding and insertions into QPACK's table have to
/// fit into it.
const LITTLE_CONTENT_MAX: u64 = 500;

/// Most requests of a client.
const REQUESTS_MAX: u64 = 16;

/// The same where datagrams are lost or take long.
const SLOW_REQUESTS_MAX: usize = 6;

/// A one-way delay from which on a network is slow.
const SLOW_US: u64 = 50_000;

/// Datagrams of QUIC's handshake: a path that does not carry them does not carry QUIC (RFC 9000, section 14).
const DATAGRAM_BYTES_MIN: usize = 1_200;

/// The gateway's side of HTTP/3.
#[derive(Debug, Clone)]
pub(crate) struct Http3 {
    /// Connection IDs, tokens and random numbers of QUIC follow from it.
    pub(crate) secret: u64,
    /// Incomplete handshakes above which clients have to prove their address.
    pub(crate) retry_above: usize,
    /// When the gateway begins to drain. Then the run has clients of HTTP/3 only.
    pub(crate) drains: Option<Duration>,
    /// When the path begins to lose larger datagrams, and the largest ones that still arrive.
    pub(crate) narrows: Option<(Duration, usize)>,
}

/// How a client uses its connections.
#[derive(Debug, Clone)]
pub(crate) struct QuicPlan {
    /// Times after the first bytes of the gateway.
    pub(crate) moves: Vec<(Duration, Move)>,
    pub(crate) key_updates: Vec<Duration>,
    /// It goes without closing its connection.
    pub(crate) vanishes: bool,
    /// It looks for a larger MTU.
    pub(crate) finds_mtu: bool,
    /// Requests refer to QPACK's dynamic table; the longest time from a request to the insertion of its entry.
    pub(crate) inserts_within: Option<Duration>,
}

/// A change of a client's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Move {
    /// The last byte of its new address. Clients with moves to other hosts send padding: the gateway ignores the first
    /// short datagrams from there.
    pub(crate) host: u8,
    /// The client knows of it, and uses another connection ID.
    pub(crate) is_noticed: bool,
}

/// The host of clients that have not moved.
pub(crate) const FIRST_HOST: u8 = 1;

/// How long the gateway waits for handshakes, heads and content where datagrams are lost.
pub(crate) const LOSSY_WAIT: Duration = Duration::from_secs(60);

impl QuicPlan {
    fn new(random: &mut Random, conditions: &Conditions, streams_max: u32) -> QuicPlan {
        let times = |random: &mut Random, max: u64| -> Vec<Duration> {
            let count = random.within(0..=max);
            let time = |_| Duration::from_micros(random.within(0..=1_000_000));
            let mut times: Vec<Duration> = (0..count).map(time).collect();
            times.sort_unstable();
            times
        };
        let has_moves = random.chance(300);
        let moves = times(random, if has_moves { 3 } else { 0 });
        // A lost datagram with padding is followed by short ones only.
        let changes_host = random.chance(500) && conditions.datagram_lost == 0;
        let moves = moves.into_iter().map(|after| {
            let host = match changes_host {
                true => random.within(1..=3) as u8,
                false => FIRST_HOST,
            };
            let is_noticed = random.chance(500);
            (after, Move { host, is_noticed })
        });
        let moves = moves.collect();
        let updates = random.chance(300) && conditions.datagram_lost == 0;
        QuicPlan {
            moves,
            key_updates: times(random, if updates { 3 } else { 0 }),
            vanishes: random.chance(300),
            finds_mtu: random.chance(500),
            inserts_within: (random.chance(300) && streams_max >= REQUESTS_MAX as u32)
                .then(|| Duration::from_micros(random.one_of(&[0, 1_000, 100_000]))),
        }
    }

    /// Whether it comes from other hosts.
    pub(crate) fn changes_host(&self) -> bool {
        self.moves.iter().any(|(_, to)| to.host != FIRST_HOST)
    }
}

/// Adds clients of HTTP/3 to some runs. The seed's other choices do not depend on it.
pub(super) fn add(
    seed: u64,
    requests: &mut RequestPlanner,
    upstreams: &[UpstreamPlan],
    clients: &mut Vec<ClientPlan>,
    conditions: &mut Conditions,
    streams_max: u32,
) -> Option<Http3> {
    let mut random = Random::new(seed.rotate_left(32) ^ 3);
    if !random.chance(HTTP3_PER_MILLE) {
        return None;
    }
    network(&mut random, conditions);
    let drains = random.chance(DRAINS_PER_MILLE).then(|| {
        clients.clear();
        Duration::from_micros(random.within(100_000..=1_000_000))
    });
    // A client that reads slowly separates surplus from the response before it.
    requests.has_surplus = false;
    let narrows = random.chance(200).then(|| {
        let after = Duration::from_micros(random.within(0..=1_000_000));
        (after, random.one_of(&[DATAGRAM_BYTES_MIN, 1_300]))
    });
    for _ in 0..random.within(1..=3) {
        let mut client = client(&mut random, requests, upstreams, conditions, streams_max);
        if narrows.is_some()
            && let Some(quic) = &mut client.quic
        {
            // The gateway goes on with the MTU of the same host: a NAT does not change it.
            quic.moves.clear();
        }
        clients.push(client);
    }
    Some(Http3 {
        secret: random.next(),
        retry_above: random.one_of(&[0, 1, 256, 256]),
        drains,
        narrows,
    })
}

fn client(
    random: &mut Random,
    requests: &mut RequestPlanner,
    upstreams: &[UpstreamPlan],
    conditions: &Conditions,
    streams_max: u32,
) -> ClientPlan {
    let quic = QuicPlan::new(random, conditions, streams_max);
    let sends_little = quic.changes_host() || quic.inserts_within.is_some();
    let sent_max = match sends_little {
        true => LITTLE_CONTENT_MAX,
        false => u64::MAX,
    };
    let count = random.within(1..=REQUESTS_MAX) as usize;
    let (requests_max, content_max) = match is_slow(conditions) {
        true => (SLOW_REQUESTS_MAX, SLOW_CONTENT_MAX),
        false => (count, CONTENT_MAX),
    };
    let all = (0..count.min(requests_max)).map(|_| {
        let mut request = requests.next(random, upstreams, Version::Http3);
        for content in [&mut request.request, &mut request.answer] {
            content.bytes = content.bytes.min(content_max);
        }
        request.request.bytes = request.request.bytes.min(sent_max);
        request.limit_fault();
        request
    });
    let requests = all.collect();
    ClientPlan {
        version: Version::Http3,
        begins: Duration::from_micros(random.within(0..=200_000)),
        half_closes: false,
        windows: Windows::new(random),
        is_secure: true,
        quic: Some(quic),
        requests,
    }
}

fn network(random: &mut Random, conditions: &mut Conditions) {
    let (delay_max_us, lost_max, twice_max) = match random.within(0..=9) {
        0..=3 => (20_000, 0, 0),
        4..=6 => (40_000, 30, 30),
        7..=8 => (100_000, 100, 100),
        _ => (600_000, 100, 20),
    };
    let range = |random: &mut Random, within: RangeInclusive<u64>| {
        let (low, high) = (random.within(within.clone()), random.within(within));
        low.min(high)..=low.max(high)
    };
    let per_mille = |random: &mut Random, max: u64| random.within(0..=max) as u16;
    conditions.datagram_delay_us = range(random, 10..=delay_max_us);
    if random.chance(300) {
        // No datagram overtakes another.
        let delay = *conditions.datagram_delay_us.end();
        conditions.datagram_delay_us = delay..=delay;
    }
    conditions.datagram_lost = per_mille(random, lost_max);
    conditions.datagram_twice = per_mille(random, twice_max);
    conditions.trains_refused = random.one_of(&[0, 0, 100, 1_000]);
    conditions.datagram_bytes_max = random.one_of(&[DATAGRAM_BYTES_MIN, 1_280, 1_400, 1_500]);
}

fn is_slow(conditions: &Conditions) -> bool {
    conditions.datagram_lost > 0 || *conditions.datagram_delay_us.end() > SLOW_US
}

/// Whether all requests that are on their way arrive before the final GOAWAY, which follows the first one after 200 ms.
pub(super) fn is_prompt(http3: &Http3, conditions: &Conditions) -> bool {
    const ROUND_TRIP_MAX: Duration = Duration::from_millis(150);
    let round_trip = Duration::from_micros(2 * conditions.datagram_delay_us.end());
    conditions.datagram_lost == 0 && http3.narrows.is_none() && round_trip < ROUND_TRIP_MAX
}

/// How long a request over HTTP/3 may additionally be silent: retransmissions take time.
pub(super) fn silence_max(http3: &Http3, conditions: &Conditions) -> Duration {
    /// Round trips of a probe timeout (RFC 9002, section 6.2.1), and the sum of those that double three times.
    const TIMEOUT_ROUND_TRIPS: u32 = 3;
    const DOUBLING: u32 = 1 + 2 + 4 + 8;
    /// The timeout before the first sample of the round trip.
    const TIMEOUT_FIRST: Duration = Duration::from_secs(1);
    let round_trip = Duration::from_micros(2 * conditions.datagram_delay_us.end());
    let timeout = TIMEOUT_FIRST + round_trip * TIMEOUT_ROUND_TRIPS;
    match (conditions.datagram_lost, http3.narrows) {
        (0, None) => timeout * 2,
        _ => timeout * DOUBLING,
    }
}
