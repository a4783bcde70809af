//! Configurations that the gateway gets while it runs, and a client whose upstream connection must outlive them.

use std::time::Duration;

use super::{
    ClientPlan, ContentPlan, GatewayLimits, RequestPlanner, ResponseOrder, UpstreamPlan, Version,
    Windows,
};
use crate::random::Random;

/// Runs with reloads, of 1,000.
const RELOADS_PER_MILLE: u64 = 333;

/// Those of them with a steady client.
const STEADY_PER_MILLE: u64 = 500;

/// Most configurations that follow the first one.
const RELOADS_MAX: u64 = 4;

/// When the last one is made at the latest.
const RELOAD_MAX: Duration = Duration::from_micros(1_500_000);

/// Largest content of a steady client, whose requests are many and small.
const STEADY_CONTENT_MAX: u64 = 2_000;

/// More idle connections than a run can have.
const IDLE_CONNECTIONS: usize = 8_192;

/// The configurations of a run, from the first to the last.
#[derive(Debug, Clone)]
pub(crate) struct Reloads {
    /// The first targets of the gateway.
    pub(crate) first: Vec<usize>,
    pub(crate) then: Vec<ConfigurationPlan>,
    /// The upstream of a client that sends one request after the other: all of them use the same connection.
    pub(crate) steady: Option<usize>,
}

/// A configuration that the gateway changes to.
#[derive(Debug, Clone)]
pub(crate) struct ConfigurationPlan {
    /// From the start of the clients.
    pub(crate) after: Duration,
    /// Each core takes it up to this time later.
    pub(crate) within: Duration,
    /// The replica of each upstream that its route leads to.
    pub(crate) replicas: Vec<usize>,
    /// Its site is that of the host that all requests have, and not that of all hosts.
    pub(crate) is_of_host: bool,
}

/// Adds reloads to some runs. The seed's other choices do not depend on it.
pub(super) fn add(
    seed: u64,
    requests: &mut RequestPlanner,
    upstreams: &mut Vec<UpstreamPlan>,
    clients: &mut Vec<ClientPlan>,
    limits: &mut GatewayLimits,
    drains: bool,
) -> Option<Reloads> {
    let mut random = Random::new(seed.rotate_left(32) ^ 5);
    if !random.chance(RELOADS_PER_MILLE) {
        return None;
    }
    // A gateway that drains accepts no connections.
    let steady = (!drains && random.chance(STEADY_PER_MILLE)).then(|| {
        let version = random.one_of(&[Version::Http1, Version::Http2]);
        let is_secure = upstreams.iter().any(|upstream| upstream.is_secure);
        upstreams.push(UpstreamPlan {
            is_secure,
            ..UpstreamPlan::direct(version)
        });
        clients.push(steady_client(&mut random, requests, upstreams));
        // The pool must not close the connection to make room for others.
        limits.pool_idle_max = IDLE_CONNECTIONS;
        upstreams.len() - 1
    });
    let replicas = |random: &mut Random| -> Vec<usize> {
        let one = |index| match Some(index) == steady {
            true => 0,
            false => random.within(0..=1) as usize,
        };
        (0..upstreams.len()).map(one).collect()
    };
    let first = replicas(&mut random);
    let latest = RELOAD_MAX.as_micros() as u64;
    let count = random.within(1..=RELOADS_MAX);
    let then = (0..count).map(|_| ConfigurationPlan {
        after: Duration::from_micros(random.within(0..=latest)),
        within: Duration::from_micros(random.one_of(&[0, 100, 50_000])),
        replicas: replicas(&mut random),
        is_of_host: random.chance(500),
    });
    let mut then: Vec<ConfigurationPlan> = then.collect();
    then.sort_by_key(|configuration| configuration.after);
    Some(Reloads {
        first,
        then,
        steady,
    })
}

/// The only client of the last upstream. It sends its last request behind the last reload.
fn steady_client(
    random: &mut Random,
    requests: &mut RequestPlanner,
    upstreams: &[UpstreamPlan],
) -> ClientPlan {
    let count = random.within(3..=8) as u32;
    let all = (0..count).map(|_| {
        let mut request = requests.next(random, upstreams, Version::Http1);
        // Behind some requests with content hyper closes a connection.
        request.method = "GET";
        request.request = ContentPlan::none();
        request.answer.bytes = request.answer.bytes.min(STEADY_CONTENT_MAX);
        request.answer.pause = None;
        request.answer.has_trailers = false;
        request.upstream = upstreams.len() - 1;
        request.wait = RELOAD_MAX.mul_f64(1.2) / count;
        request.order = ResponseOrder::After;
        request.fault = None;
        request.odd = None;
        request.tunnel = None;
        request.call = None;
        request.reading_pause = None;
        request
    });
    ClientPlan {
        version: Version::Http1,
        begins: Duration::ZERO,
        half_closes: false,
        windows: Windows::DEFAULT,
        is_secure: false,
        quic: None,
        requests: all.collect(),
    }
}
