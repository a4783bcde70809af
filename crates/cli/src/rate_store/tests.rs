//! The thread against a peer that fails.

use std::net::TcpListener;

use blitz_config::Placed;
use blitz_testing::{RedisMode, RedisPeer};

use super::*;

const WAIT: Duration = Duration::from_secs(60);
const TIMEOUT: Duration = Duration::from_millis(500);

fn until(what: &str, condition: impl Fn() -> bool) {
    let end = Instant::now() + WAIT;
    while !condition() {
        assert!(Instant::now() < end, "not in time: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn process(url: &str) -> Process {
    let placed = |text: &str| Some(Placed::new(text.to_owned(), 0..0));
    let mut process = Process::default();
    process.redis.url = placed(url);
    process.redis.timeout = Some(Placed::new(TIMEOUT, 0..0));
    process
}

/// A store that is in use, and reachable.
fn opened(peer: &RedisPeer) -> OpenRateStore {
    let open = OpenRateStore::default();
    open.open(&process(&peer.url));
    until("the first connection", || is_reachable(&open));
    open
}

fn is_reachable(open: &OpenRateStore) -> bool {
    open.facts().is_some_and(|facts| facts.is_reachable)
}

#[test]
fn every_failure_is_survived_and_ends() {
    for failure in [
        RedisMode::IsSilent,
        RedisMode::Closes,
        RedisMode::SaysNonsense,
    ] {
        let peer = RedisPeer::start(50);
        let open = opened(&peer);
        assert_eq!(open.facts().map(|facts| facts.processes), Some(2));
        peer.set(failure);
        until("the failure", || !is_reachable(&open));
        assert!(
            open.facts().is_some_and(|facts| facts.failures > 0),
            "{failure:?}"
        );
        // The number of processes is kept, for their shares.
        assert_eq!(open.facts().map(|facts| facts.processes), Some(2));
        peer.set(RedisMode::Answers);
        until("the end of the failure", || is_reachable(&open));
    }
}

#[test]
fn scripts_that_the_server_has_lost_are_loaded_again() {
    let peer = RedisPeer::start(50);
    peer.set(RedisMode::HasLostScripts);
    let open = opened(&peer);
    let facts = open.facts().unwrap();
    assert_eq!((facts.processes, facts.failures), (2, 0));
    assert_eq!(peer.connections(), 1);
}

#[test]
fn a_server_that_cannot_be_reached_holds_up_nothing() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let open = OpenRateStore::default();
    let started = Instant::now();
    open.open(&process(&format!("redis://{address}")));
    // A refused connection is an outcome, which nobody waits for.
    assert!(started.elapsed() < WAIT);
    until("failures", || {
        open.facts().is_some_and(|facts| facts.failures >= 2)
    });
    assert!(!is_reachable(&open));
    // It comes later.
    assert_eq!(open.replace(&process(&format!("redis://{address}"))), "");
    let peer = RedisPeer::start(50);
    assert_eq!(open.replace(&process(&peer.url)), CHANGED);
    until("the other server", || is_reachable(&open));
    assert_eq!(open.replace(&Process::default()), CHANGED);
    assert_eq!(open.facts(), None);
    assert!(!open.store().is_reachable(Instant::now()));
}

#[test]
fn passwords_are_not_shown() {
    let url = "redis://user:secret@127.0.0.1:6379/0";
    assert!(!crate::redaction::shown("redis.url", &format!("\"{url}\"")).contains("secret"));
    assert!(
        !crate::redaction::shown("redis", &format!("{{ url = \"{url}\" }}")).contains("secret")
    );
    let mut diagnostics = Vec::new();
    let wrong = process("redis://user:secret@127.0.0.1:port/0");
    check(&wrong.redis, &mut diagnostics);
    assert_eq!(diagnostics.len(), 1);
    assert!(!format!("{diagnostics:?}").contains("secret"));
}
