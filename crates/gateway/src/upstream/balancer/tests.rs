use blitz_http::ClientOptions;

use super::*;
use crate::upstream::cooldown::{COOLDOWN_MAX, COOLDOWN_MIN};

fn plain() -> Connector {
    Connector {
        label: "http://a".into(),
        member: Arc::new(Member::new("http://a")),
        pool: Pool::new(ClientOptions::default()),
        protocol: Protocol::Http1,
        tls: None,
    }
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn upstream(text: &str) -> Upstream {
    plain().to(&Address::Tcp(address(text)))
}

fn named(addresses: &[&str]) -> Balancer {
    let addresses = addresses.iter().map(|text| address(text)).collect();
    Balancer::named(
        plain(),
        Arc::new(ResolvedName::fixed(LookupResult::Addresses(addresses))),
    )
}

/// All addresses that one request tries if each fails and no failure is noted.
fn picks(balancer: &Balancer, now: Instant) -> Vec<String> {
    picks_after(balancer, &mut Tried::default(), now)
}

fn picks_after(balancer: &Balancer, tried: &mut Tried, now: Instant) -> Vec<String> {
    let mut picks = Vec::new();
    while let Pick::Upstream(upstream) = balancer.pick(tried, || now) {
        match upstream.address() {
            Address::Tcp(address) => picks.push(address.to_string()),
            Address::Unix(path) => picks.push(path.display().to_string()),
        }
    }
    picks
}

#[test]
fn requests_take_addresses_in_turn_and_try_each_once() {
    let balancer = named(&["10.0.0.1:1", "10.0.0.2:1"]);
    let now = Instant::now();
    assert_eq!(picks(&balancer, now), ["10.0.0.1:1", "10.0.0.2:1"]);
    assert_eq!(picks(&balancer, now), ["10.0.0.2:1", "10.0.0.1:1"]);
    assert_eq!(picks(&balancer, now), ["10.0.0.1:1", "10.0.0.2:1"]);
}

#[test]
fn one_request_tries_three_addresses_at_most() {
    let balancer = named(&["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1", "10.0.0.4:1"]);
    assert_eq!(picks(&balancer, Instant::now()).len(), 3);
}

#[test]
fn an_address_that_failed_is_avoided_while_there_are_others() {
    let balancer = named(&["10.0.0.1:1", "10.0.0.2:1"]);
    let now = Instant::now();
    balancer.failed(
        &upstream("10.0.0.1:1"),
        Failure::ConnectionRefused,
        false,
        now,
    );
    assert_eq!(picks(&balancer, now), ["10.0.0.2:1", "10.0.0.1:1"]);
    assert_eq!(picks(&balancer, now), ["10.0.0.2:1", "10.0.0.1:1"]);
    balancer.failed(
        &upstream("10.0.0.2:1"),
        Failure::ConnectionRefused,
        false,
        now,
    );
    assert_eq!(
        picks(&balancer, now).len(),
        2,
        "all cool down, so all are tried"
    );
    let later = now + COOLDOWN_MIN;
    assert_eq!(
        picks(&balancer, later)[0],
        "10.0.0.2:1",
        "its turn had come"
    );
    assert_eq!(picks(&balancer, later)[0], "10.0.0.1:1");
}

/// Of four requests that begin now, how many go to the address that does not answer.
fn probes(balancer: &Balancer, now: Instant) -> usize {
    let is_probe = |_: &u8| {
        let Pick::Upstream(picked) = balancer.pick(&mut Tried::default(), || now) else {
            panic!("there is an address")
        };
        *picked.address() == Address::Tcp(address("10.0.0.1:1"))
    };
    (0..4).filter(is_probe).count()
}

#[test]
fn one_request_at_a_time_probes_an_address_that_did_not_answer() {
    let balancer = named(&["10.0.0.1:1", "10.0.0.2:1"]);
    let silent = upstream("10.0.0.1:1");
    let mut now = Instant::now();
    assert_eq!(probes(&balancer, now), 2);
    // Both began before the first failure.
    for _ in 0..2 {
        balancer.failed(&silent, Failure::ConnectionRefused, true, now);
    }
    for cooldown in [1, 2, 4, 8, 16, 30, 30].map(Duration::from_secs) {
        assert_eq!(probes(&balancer, now + cooldown / 2), 0);
        now += cooldown;
        assert_eq!(probes(&balancer, now), 1, "after {cooldown:?}");
        now += Duration::from_secs(4);
        assert_eq!(probes(&balancer, now), 0, "the probe is pending");
        balancer.failed(&silent, Failure::ConnectionRefused, true, now);
    }
    now += COOLDOWN_MAX;
    assert_eq!(probes(&balancer, now), 1);
    assert_eq!(
        probes(&balancer, now + COOLDOWN_MAX),
        1,
        "a probe was dropped"
    );
    now += COOLDOWN_MAX;
    balancer.undecided(&silent, now);
    assert_eq!(probes(&balancer, now), 1, "the probe had no outcome");
    balancer.connected(&silent);
    assert_eq!(probes(&balancer, now), 2);
    balancer.failed(&silent, Failure::ConnectionRefused, true, now);
    assert_eq!(probes(&balancer, now + COOLDOWN_MIN), 1, "it begins again");
}

#[test]
fn a_server_among_several_is_avoided_while_no_address_can_be_used() {
    let unix = Address::Unix(Arc::new("/run/app.sock".into()));
    for address in [Address::Tcp(address("10.0.0.1:1")), unix] {
        let (balancer, upstream) = (Balancer::fixed(plain(), &address), plain().to(&address));
        let now = Instant::now();
        balancer.note_picked(&upstream, now);
        assert!(!balancer.is_avoided(now));
        balancer.failed(&upstream, Failure::ConnectionRefused, true, now);
        assert!(balancer.is_avoided(now));
        let later = now + COOLDOWN_MIN;
        assert!(!balancer.is_avoided(later));
        balancer.note_picked(&upstream, later);
        assert!(balancer.is_avoided(later), "the probe is pending");
        balancer.connected(&upstream);
        assert!(!balancer.is_avoided(later));
    }
    let (balancer, now) = (named(&["10.0.0.1:1", "10.0.0.2:1"]), Instant::now());
    balancer.failed(
        &upstream("10.0.0.1:1"),
        Failure::ConnectionRefused,
        false,
        now,
    );
    assert!(!balancer.is_avoided(now));
    balancer.failed(
        &upstream("10.0.0.2:1"),
        Failure::ConnectionRefused,
        false,
        now,
    );
    assert!(balancer.is_avoided(now));
}

#[test]
fn the_cooldown_of_an_address_that_refuses_stays_short() {
    let balancer = named(&["10.0.0.1:1", "10.0.0.2:1"]);
    let mut now = Instant::now();
    balancer.failed(
        &upstream("10.0.0.1:1"),
        Failure::ConnectionRefused,
        false,
        now,
    );
    for is_slow in [false, true, false, false] {
        now += COOLDOWN_MAX;
        assert_eq!(probes(&balancer, now), 1);
        balancer.failed(
            &upstream("10.0.0.1:1"),
            Failure::ConnectionRefused,
            is_slow,
            now,
        );
    }
    assert_eq!(probes(&balancer, now + COOLDOWN_MIN), 1);
}

#[test]
fn localhost_keeps_the_address_family_that_answers() {
    let balancer = Balancer::localhost(plain(), 3000);
    let now = Instant::now();
    assert_eq!(picks(&balancer, now), ["127.0.0.1:3000", "[::1]:3000"]);
    assert_eq!(picks(&balancer, now), ["127.0.0.1:3000", "[::1]:3000"]);
    balancer.failed(
        &upstream("127.0.0.1:3000"),
        Failure::ConnectionRefused,
        false,
        now,
    );
    assert_eq!(picks(&balancer, now), ["[::1]:3000", "127.0.0.1:3000"]);
}

#[test]
fn a_retry_returns_to_the_first_address_if_no_other_is_reached() {
    let sent_once = |balancer: &Balancer, now| {
        let mut tried = Tried::default();
        let Pick::Upstream(first) = balancer.pick(&mut tried, || now) else {
            panic!("there is an address")
        };
        tried.may_return_to(&first);
        picks_after(balancer, &mut tried, now)
    };
    let balancer = Balancer::localhost(plain(), 3000);
    let now = Instant::now();
    assert_eq!(sent_once(&balancer, now), ["[::1]:3000", "127.0.0.1:3000"]);
    balancer.failed(
        &upstream("[::1]:3000"),
        Failure::ConnectionRefused,
        false,
        now,
    );
    assert_eq!(sent_once(&balancer, now), ["127.0.0.1:3000", "[::1]:3000"]);
    let many = named(&["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1", "10.0.0.4:1"]);
    let picks = ["10.0.0.2:1", "10.0.0.3:1", "10.0.0.1:1"];
    assert_eq!(sent_once(&many, now), picks);
}

#[test]
fn a_fixed_address_is_tried_once() {
    let unix = Address::Unix(Arc::new("/run/app.sock".into()));
    let balancer = Balancer::fixed(plain(), &unix);
    assert_eq!(picks(&balancer, Instant::now()), ["/run/app.sock"]);
}

#[test]
fn each_address_has_its_failure_and_its_figures() {
    let (balancer, now) = (Balancer::localhost(plain(), 3000), Instant::now());
    let [v4, v6] = ["127.0.0.1:3000", "[::1]:3000"].map(upstream);
    assert_eq!(picks(&balancer, now).len(), 2);
    balancer.failed(&v4, Failure::TlsCertificateError, false, now);
    let later = now + Duration::from_secs(1);
    balancer.failed(&v6, Failure::ConnectionRefused, false, later);
    balancer.responded(&v6, Duration::from_millis(40), false, later);
    balancer.responded(&v6, Duration::from_millis(20), true, later);
    balancer.unanswered(&v6, Duration::ZERO, false, now);
    balancer.sent(&v6, later);
    let states = balancer.states(later);
    let failures: Vec<_> = states.iter().map(|state| state.last_failure).collect();
    let (ago, zero) = (Duration::from_secs(1), Duration::ZERO);
    assert_eq!(
        failures,
        [
            Some((ago, Failure::TlsCertificateError)),
            Some((zero, Failure::ConnectionRefused))
        ]
    );
    let figures = states.iter().map(|state| state.figures);
    let figures: Vec<_> = figures
        .map(|one| (one.requests, one.failures, one.responses.mean()))
        .collect();
    let mean = Duration::from_millis(30);
    assert_eq!(figures, [(1, 1, None), (4, 3, Some(mean))]);
    let waits = |now| balancer.states(now)[1].figures.first_unanswered;
    assert_eq!(waits(later + ago), Some(ago));
    balancer.responded(&v6, ago, false, later + ago);
    assert_eq!(waits(later + ago), None);
}

#[test]
fn figures_are_kept_of_addresses_that_the_name_has() {
    let (balancer, now) = (named(&["10.0.0.1:1"]), Instant::now());
    assert_eq!(picks(&balancer, now).len(), 1);
    for address in ["10.0.0.1:1", "10.0.0.9:1"] {
        balancer.responded(&upstream(address), Duration::ZERO, false, now);
    }
    assert_eq!(balancer.counts.borrow().len(), 1);
}

#[test]
fn a_name_without_addresses_is_pending_or_failed() {
    let pick = |result| {
        let balancer = Balancer::named(plain(), Arc::new(ResolvedName::fixed(result)));
        balancer.pick(&mut Tried::default(), Instant::now)
    };
    assert!(matches!(pick(LookupResult::Pending), Pick::Pending));
    let failed = pick(LookupResult::Failed(NameFailure::Timeout));
    assert!(matches!(failed, Pick::Unresolved(NameFailure::Timeout)));
}
