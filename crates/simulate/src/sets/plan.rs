//! The plan of a run with a set: its servers and their faults, its settings, and its clients.

use std::ops::Range;
use std::time::Duration;

use blitz_reactor::simulation::Conditions;

use crate::plan::{ContentPlan, conditions};
use crate::random::Random;

/// Runs with a set, of 1,000.
const SETS_PER_MILLE: u64 = 250;

/// Largest content of a message: it fits into what the gateway keeps for another attempt.
const CONTENT_MAX: u64 = 3_000;

/// When the first fault begins at the latest.
const FAULTS_BEGIN_MAX: Duration = Duration::from_secs(4);

/// How long requests follow the last fault, so that all servers have returned long before the end.
const AFTER_FAULTS: Duration = Duration::from_secs(45);

/// The fault of all servers is as long: the windows of the budget of retries pass by.
const STORM: Duration = Duration::from_secs(14);

/// How long a request takes at a server that works.
const WORK_MAX: Duration = Duration::from_millis(40);

/// Everything that a run with a set does.
#[derive(Debug, Clone)]
pub(crate) struct SetPlan {
    pub(crate) seed: u64,
    pub(crate) cores: usize,
    pub(crate) conditions: Conditions,
    pub(crate) settings: Settings,
    /// Servers and clients use HTTP/2, the latter only if it is true for them.
    pub(crate) is_http2: bool,
    pub(crate) members: Vec<Vec<FaultWindow>>,
    /// This machine has no descriptor for a new connection.
    pub(crate) shortage: Option<Range<Duration>>,
    /// The requests of each client, in order.
    pub(crate) clients: Vec<SetClient>,
}

/// The keys of the upstream and its route.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) balance: Balance,
    pub(crate) retries: usize,
    /// 5xx are answered with another attempt.
    pub(crate) retries_statuses: bool,
    /// The share of the requests, in percent.
    pub(crate) budget: u64,
    pub(crate) outlier: Outlier,
    pub(crate) slow_start: Option<Duration>,
    pub(crate) hedge: Option<Duration>,
    pub(crate) response_timeout: Option<Duration>,
    pub(crate) request_timeout: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Balance {
    P2c,
    RoundRobin,
    LeastRequests,
    Hash,
    Sticky,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outlier {
    Default,
    Off,
    Soon,
}

/// A time in which a server fails.
#[derive(Debug, Clone)]
pub(crate) struct FaultWindow {
    pub(crate) time: Range<Duration>,
    pub(crate) fault: MemberFault,
}

/// How a server fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemberFault {
    /// It is gone: its connections are reset, and others refused.
    Refuses,
    /// Its host is silent: packets of new connections are lost, and requests on others wait until it is back.
    BlackHole,
    /// It accepts requests and responds when the fault is over.
    Hangs,
    /// It closes the connection in place of a response.
    Closes,
    /// It ends the connection within the content of a response.
    Resets,
    /// It responds with this status.
    Status(u16),
}

impl MemberFault {
    /// Whether nothing can be connected to it.
    pub(crate) fn is_of_connects(self) -> bool {
        matches!(self, MemberFault::Refuses | MemberFault::BlackHole)
    }
}

/// A client that sends one request after the other.
#[derive(Debug, Clone)]
pub(crate) struct SetClient {
    pub(crate) is_http2: bool,
    /// It sends the cookie that it got.
    pub(crate) keeps_cookie: bool,
    pub(crate) requests: Vec<SetRequest>,
}

#[derive(Debug, Clone)]
pub(crate) struct SetRequest {
    pub(crate) id: u64,
    /// When it is sent, if the one before has ended.
    pub(crate) at: Duration,
    pub(crate) method: &'static str,
    pub(crate) request: ContentPlan,
    pub(crate) answer: ContentPlan,
    pub(crate) status: u16,
    /// How long its server works.
    pub(crate) work: Duration,
    /// The client cancels it after this time.
    pub(crate) leaves: Option<Duration>,
}

impl SetRequest {
    /// Whether it may be sent a second time (RFC 9110, section 9.2.2).
    pub(crate) fn is_idempotent(&self) -> bool {
        self.method != "POST"
    }
}

/// Which servers fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    /// One of them, once or twice.
    One,
    /// Some, each at its own times; one never does.
    Some,
    /// All but one at the same time.
    AllButOne,
    /// All, each at its own times.
    All,
    /// All at the same time.
    Storm,
    None,
}

impl SetPlan {
    /// The plan of a seed, if it has a set. The seed's other choices do not depend on it.
    pub(crate) fn new(seed: u64) -> Option<SetPlan> {
        let mut random = Random::new(seed.rotate_left(16) ^ 6);
        if !random.chance(SETS_PER_MILLE) {
            return None;
        }
        let style = random.one_of(&[
            Style::One,
            Style::One,
            Style::Some,
            Style::Some,
            Style::AllButOne,
            Style::AllButOne,
            Style::All,
            Style::Storm,
            Style::None,
        ]);
        let is_http2 = random.chance(250);
        let mut conditions = conditions(&mut random);
        // Times of connects and responses are compared with timeouts.
        conditions.segment_bytes = 500..=65_536;
        conditions.backlog = 4_096;
        let members = members(style, &mut random);
        let shortage = (style == Style::None || random.chance(50)).then(|| {
            let begin = Duration::from_millis(random.within(1_000..=5_000));
            begin..begin + Duration::from_millis(random.within(200..=2_000))
        });
        let faults = members.iter().flatten().map(|window| window.time.end);
        let last = faults.max().unwrap_or(FAULTS_BEGIN_MAX);
        let (until, pause_ms) = match style {
            Style::Storm => (last + Duration::from_secs(3), 100),
            Style::None => (last + Duration::from_secs(8), 500),
            Style::One | Style::Some | Style::AllButOne | Style::All => {
                (last + AFTER_FAULTS, 2_000)
            }
        };
        let settings = Settings::new(style, &mut random);
        let mut next_id = 0;
        let clients = (0..random.within(5..=10)).map(|_| SetClient {
            is_http2: random.chance(300),
            keeps_cookie: random.chance(300),
            requests: requests(&mut random, &mut next_id, until, pause_ms),
        });
        Some(SetPlan {
            seed,
            clients: clients.collect(),
            cores: random.within(1..=2) as usize,
            conditions,
            settings,
            is_http2,
            members,
            shortage,
        })
    }

    pub(crate) fn requests(&self) -> impl Iterator<Item = &SetRequest> {
        self.clients.iter().flat_map(|client| &client.requests)
    }

    /// The fault of a server at this time.
    pub(crate) fn fault_at(&self, member: usize, time: Duration) -> Option<&FaultWindow> {
        let mut windows = self.members[member].iter();
        windows.find(|window| window.time.contains(&time))
    }

    /// The faults that a server has within this time.
    pub(crate) fn faults_within(
        &self,
        member: usize,
        time: Range<Duration>,
    ) -> impl Iterator<Item = &FaultWindow> {
        let Range { start, end } = time;
        let windows = self.members[member].iter();
        windows.filter(move |window| window.time.start <= end && window.time.end >= start)
    }

    /// The end of the last fault of all.
    pub(crate) fn last_fault(&self) -> Duration {
        let windows = self.members.iter().flatten();
        windows
            .map(|window| window.time.end)
            .max()
            .unwrap_or_default()
    }
}

impl Settings {
    fn new(style: Style, random: &mut Random) -> Settings {
        let is_storm = style == Style::Storm;
        let some = |random: &mut Random, times: &[u64]| {
            let time = Duration::from_millis(random.one_of(times));
            Some(time).filter(|time| !time.is_zero())
        };
        Settings {
            balance: random.one_of(&[
                Balance::P2c,
                Balance::P2c,
                Balance::RoundRobin,
                Balance::LeastRequests,
                Balance::Hash,
                Balance::Sticky,
            ]),
            retries: match is_storm {
                true => random.one_of(&[3, 8]),
                false => random.one_of(&[0, 1, 1, 2, 3]),
            },
            retries_statuses: is_storm || random.chance(500),
            budget: random.one_of(&[20, 20, 10, 0]),
            outlier: random.one_of(&[
                Outlier::Default,
                Outlier::Default,
                Outlier::Soon,
                Outlier::Off,
            ]),
            slow_start: some(random, &[0, 0, 5_000]),
            hedge: match is_storm {
                true => None,
                false => some(random, &[0, 0, 300]),
            },
            response_timeout: some(random, &[0, 1_000, 1_000, 2_000]),
            request_timeout: some(random, &[0, 0, 1_500, 3_000]),
        }
    }
}

fn members(style: Style, random: &mut Random) -> Vec<Vec<FaultWindow>> {
    let least = if style == Style::AllButOne { 3 } else { 2 };
    let count = random.within(least..=5) as usize;
    let healthy = random.within(0..=count as u64 - 1) as usize;
    let begin = |random: &mut Random| {
        let latest = FAULTS_BEGIN_MAX.as_millis() as u64;
        Duration::from_millis(random.within(1_000..=latest))
    };
    let length = |random: &mut Random| Duration::from_millis(random.within(500..=6_000));
    let together = begin(random);
    let of_storm = random.one_of(&[MemberFault::Closes, MemberFault::Status(503)]);
    let mut members = vec![Vec::new(); count];
    for (index, windows) in members.iter_mut().enumerate() {
        let fails = match style {
            Style::None => false,
            Style::Storm | Style::All => true,
            Style::One => index == (healthy + 1) % count,
            Style::Some | Style::AllButOne => index != healthy,
        };
        if !fails {
            continue;
        }
        let first = match style {
            Style::Storm => FaultWindow {
                time: together..together + STORM,
                fault: of_storm,
            },
            Style::AllButOne => FaultWindow {
                time: together..together + length(random),
                fault: fault(random),
            },
            Style::One | Style::Some | Style::All | Style::None => {
                let begin = begin(random);
                FaultWindow {
                    time: begin..begin + length(random),
                    fault: fault(random),
                }
            }
        };
        let is_twice = style != Style::Storm && random.chance(300);
        let begin = first.time.end + Duration::from_millis(random.within(100..=4_000));
        windows.push(first);
        if is_twice {
            windows.push(FaultWindow {
                time: begin..begin + length(random),
                fault: fault(random),
            });
        }
    }
    members
}

fn fault(random: &mut Random) -> MemberFault {
    match random.within(0..=7) {
        0 | 1 => MemberFault::Refuses,
        2 | 3 => MemberFault::BlackHole,
        4 => MemberFault::Hangs,
        5 => MemberFault::Closes,
        6 => MemberFault::Resets,
        _ => MemberFault::Status(random.one_of(&[500, 502, 503])),
    }
}

/// The requests of a client until this time, on average with this pause.
fn requests(
    random: &mut Random,
    next_id: &mut u64,
    until: Duration,
    pause_ms: u64,
) -> Vec<SetRequest> {
    let mut at = Duration::from_millis(random.within(0..=1_000));
    let mut all = Vec::new();
    while at < until {
        *next_id += 1;
        let method = random.one_of(&["GET", "GET", "GET", "PUT", "POST"]);
        all.push(SetRequest {
            id: *next_id,
            at,
            method,
            request: match method {
                "GET" => ContentPlan::none(),
                _ => content(random),
            },
            answer: content(random),
            status: random.one_of(&[200, 200, 200, 404]),
            work: Duration::from_micros(random.within(0..=WORK_MAX.as_micros() as u64)),
            leaves: random
                .chance(30)
                .then(|| Duration::from_millis(random.within(0..=1_500))),
        });
        at += Duration::from_millis(random.within(0..=2 * pause_ms));
    }
    all
}

fn content(random: &mut Random) -> ContentPlan {
    ContentPlan {
        seed: random.next(),
        bytes: random.length(CONTENT_MAX),
        is_sized: random.chance(500),
        piece: 4_096,
        pause: None,
        has_trailers: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fourth_of_the_seeds_has_a_set_and_most_keep_a_server() {
        let plans: Vec<SetPlan> = (0..1_000).filter_map(SetPlan::new).collect();
        assert!((200..300).contains(&plans.len()), "{}", plans.len());
        let keep = plans
            .iter()
            .filter(|plan| plan.members.iter().any(Vec::is_empty));
        let share = keep.count() * 100 / plans.len();
        assert!((60..95).contains(&share), "{share} %");
    }
}
