//! Limits that several processes share, with a store that fails: a peer of the test in place of Redis.

use std::thread;
use std::time::{Duration, Instant};

use blitz_testing::{Client, RedisMode, RedisPeer};

use crate::control_support::Controlled;

const WAIT: Duration = Duration::from_secs(60);

/// A process whose limits have 50 tokens in the store, and no further ones.
fn limited(peer: &RedisPeer) -> Controlled {
    let control = Controlled::with_file(&file(&peer.url, "share"));
    until("the store answers", || metric(&control, "up") == Some(1.0));
    control
}

fn file(url: &str, path: &str) -> String {
    format!(
        r#"
redis = {{ url = "{url}", timeout = "500ms" }}
[site."*"]
respond = 204
"/{path}".rate_limit = {{ rate = "50/h", burst = 50, by = "header:x-key", store = "redis" }}
"/open".rate_limit = {{ rate = "50/h", by = "header:x-key", store = "redis", on_failure = "open" }}
"/closed".rate_limit = {{ rate = "50/h", by = "header:x-key", store = "redis", on_failure = "closed" }}
"#
    )
}

fn metric(control: &Controlled, name: &str) -> Option<f64> {
    let text = control.address.get("/metrics").content;
    let name = format!("blitz_rate_limit_store_{name}");
    let line = text
        .lines()
        .find(|line| line.split(' ').next() == Some(&*name))?;
    line.split(' ').nth(1)?.parse().ok()
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let end = Instant::now() + WAIT;
    while !condition() {
        assert!(Instant::now() < end, "not in time: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

fn client(control: &Controlled) -> Client {
    Client::connect(control.running.address("http://"))
}

fn status(client: &mut Client, path: &str, key: &str) -> u16 {
    client.send(format!(
        "GET {path} HTTP/1.1\r\nHost: a\r\nX-Key: {key}\r\n\r\n"
    ));
    client.response().status
}

/// How many of so many requests pass; others are refused with this status.
fn passed(client: &mut Client, path: &str, key: &str, count: usize, refused: u16) -> usize {
    let statuses = (0..count).map(|_| status(client, path, key));
    let passed = statuses.filter(|status| {
        assert!([204, refused].contains(status), "{status}");
        *status == 204
    });
    passed.count()
}

#[test]
fn the_tokens_of_the_store_are_spent_and_no_further_ones() {
    let peer = RedisPeer::start(50);
    let control = limited(&peer);
    assert_eq!(metric(&control, "instances"), Some(2.0));
    let mut client = client(&control);
    // A key that is new has a lease at once: a quarter of its burst, of which there are two.
    assert_eq!(
        passed(&mut client, "/share", "alice@example.com", 6, 429),
        6
    );
    let mut all = 6;
    until("all tokens", || peer.taken().values().sum::<i64>() >= 6);
    let end = Instant::now() + WAIT;
    while all < 50 {
        all += passed(&mut client, "/share", "alice@example.com", 1, 429);
        assert!(all <= 50 && Instant::now() < end, "{all}");
    }
    thread::sleep(Duration::from_millis(50));
    assert_eq!(
        passed(&mut client, "/share", "alice@example.com", 20, 429),
        0
    );
    assert_eq!(passed(&mut client, "/share", "bob", 1, 429), 1);
    until("both keys", || peer.taken().len() == 2);
    // The names of keys are of one length, and tell nothing.
    for key in peer.taken().keys() {
        let hash = key.strip_prefix("blitz:rate:").unwrap();
        assert!(
            hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()),
            "{key}"
        );
    }
    until("what is left goes back", || {
        let taken = peer.taken();
        taken.values().any(|taken| *taken == 1) && taken.values().any(|taken| *taken == 50)
    });
}

#[test]
fn without_the_store_limits_do_what_they_say() {
    let peer = RedisPeer::start(50);
    let control = limited(&peer);
    let mut client = client(&control);
    for (number, failure) in [
        RedisMode::IsSilent,
        RedisMode::Closes,
        RedisMode::SaysNonsense,
    ]
    .into_iter()
    .enumerate()
    {
        let key = format!("key {number}");
        assert_eq!(status(&mut client, "/closed", &key), 204);
        peer.set(failure);
        until("the failure", || metric(&control, "up") == Some(0.0));
        // Half of the limit, because two processes share it.
        assert_eq!(
            passed(&mut client, "/share", &key, 60, 429),
            25,
            "{failure:?}"
        );
        assert_eq!(
            passed(&mut client, "/open", &key, 60, 429),
            60,
            "{failure:?}"
        );
        assert_eq!(
            passed(&mut client, "/closed", &key, 5, 503),
            0,
            "{failure:?}"
        );
        client.send(format!(
            "GET /closed HTTP/1.1\r\nHost: a\r\nX-Key: {key}\r\n\r\n"
        ));
        assert_eq!(client.response().field("retry-after"), Some("1"));
        peer.set(RedisMode::Answers);
        until("the recovery", || metric(&control, "up") == Some(1.0));
        assert_eq!(
            status(&mut client, "/closed", &format!("new {number}")),
            204
        );
    }
    let metrics = control.address.get("/metrics").content;
    assert!(
        metrics.contains("blitz_requests_rejected_total{rule=\"rate-limit-store\"} 18"),
        "{metrics}"
    );
    assert!(metric(&control, "failures_total").is_some_and(|failures| failures >= 3.0));
}

#[test]
fn a_store_that_grants_too_much_grants_a_lease() {
    let peer = RedisPeer::start(50);
    let control = limited(&peer);
    peer.set(RedisMode::GrantsTooMuch);
    let mut client = client(&control);
    assert_eq!(passed(&mut client, "/share", "a", 6, 429), 6);
    thread::sleep(Duration::from_millis(100));
    assert!(passed(&mut client, "/share", "a", 1, 429) <= 1);
    assert_eq!(metric(&control, "up"), Some(1.0));
}

#[test]
fn a_reload_uses_another_store() {
    let (one, other) = (RedisPeer::start(50), RedisPeer::start(50));
    let control = limited(&one);
    control.write(&file(&other.url, "share"));
    let reloaded = control.socket.post("/reload");
    assert!(
        reloaded.status == 200 && reloaded.content.contains("~ redis\n"),
        "{}",
        reloaded.content
    );
    until("the other one", || {
        other.connections() == 1 && metric(&control, "up") == Some(1.0)
    });
    let shown = control.address.get("/config").content;
    assert!(
        shown.contains("redis.url") && !shown.contains("secret"),
        "{shown}"
    );
    // Nothing else changes.
    control.write(&file(&other.url, "other"));
    let reloaded = control.socket.post("/reload");
    assert!(!reloaded.content.contains("redis"), "{}", reloaded.content);
    assert_eq!(other.connections(), 1);
    control.write("[site.\"*\"]\nrespond = 204\n");
    assert_eq!(control.socket.post("/reload").status, 200);
    assert_eq!(metric(&control, "up"), None);
}
