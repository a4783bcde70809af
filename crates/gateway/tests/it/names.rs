//! Names of upstreams are resolved, and again when the TTL expires, when their addresses fail, and on HUP.

use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use blitz_http::Signals;
use blitz_testing::IO_TIMEOUT;

use crate::name_server::NameServer;
use crate::support::{Proxy, Upstream, eventually};

/// RFC 1035, section 4.1.1.
const SERVER_FAILURE: u8 = 2;
const NAME_ERROR: u8 = 3;
const REFUSED: u8 = 5;

/// Signals belong to the process: one test at a time waits for them.
pub(crate) static SIGNALS: Mutex<()> = Mutex::new(());

/// Sends this process a signal.
pub(crate) fn kill(signal: &str) {
    let kill = format!("kill -{signal} {}", std::process::id());
    let sent = Command::new("sh").args(["-c", &kill]).status();
    assert!(sent.unwrap().success());
}

/// Longer than a test.
const LONG_TTL: u8 = 200;

pub(crate) fn target(upstream: &Upstream) -> String {
    format!("http://app.internal.example:{}", upstream.port())
}

scenarios! {
    fn a_request_waits_for_the_first_lookup(io) {
        let names = NameServer::start(1);
        let upstream = Upstream::with_text("found");
        let proxy = Proxy::with(io, &[&target(&upstream)], names.options());
        assert_eq!(proxy.client().get("/").text(), "found");
    }

    fn an_ipv4_address_needs_no_answer_about_ipv6(io) {
        let names = NameServer::start(1);
        names.answer.is_silent_otherwise.store(true, Ordering::SeqCst);
        let upstream = Upstream::with_text("found");
        let proxy = Proxy::with(io, &[&target(&upstream)], names.options());
        let start = Instant::now();
        assert_eq!(proxy.client().get("/").text(), "found");
        assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    }

    fn a_new_address_is_used_when_the_ttl_expires(io) {
        let names = NameServer::start(2);
        let upstream = Upstream::with_text("found");
        let proxy = Proxy::with(io, &[&target(&upstream)], names.options());
        let mut client = proxy.client();
        let answer = client.get("/");
        assert_eq!(answer.field("proxy-status"), Some("blitz; error=connection_refused"));
        names.set_octet(1);
        eventually("the new address is used", || client.get("/").status == 200);
    }

    fn a_name_that_does_not_exist_is_a_bad_gateway(io) {
        for (code, rcode, detail) in [
            (NAME_ERROR, "NXDOMAIN", "does not exist"),
            (SERVER_FAILURE, "SERVFAIL", "server failed"),
            (REFUSED, "REFUSED", "server refused"),
            (0, "NOERROR", "has no address"),
        ] {
            let names = NameServer::start(0);
            names.set_code(code);
            let proxy = Proxy::with(io, &["http://nobody.internal.example"], names.options());
            let answer = proxy.client().get("/");
            assert_eq!(answer.status, 502);
            let expected = format!("blitz; error=dns_error; rcode=\"{rcode}\"");
            assert_eq!(answer.field("proxy-status"), Some(expected.as_str()));
            assert!(answer.text().contains(detail), "{}", answer.text());
        }
    }

    fn the_last_address_stays_in_use_while_lookups_fail(io) {
        let names = NameServer::start(1);
        let upstream = Upstream::with_text("found");
        let proxy = Proxy::with(io, &[&target(&upstream)], names.options());
        let mut client = proxy.client();
        assert_eq!(client.get("/").text(), "found");
        let received = names.received();
        names.set_code(NAME_ERROR);
        eventually("it was received again", || names.received() >= received + 2);
        assert_eq!(client.get("/").text(), "found");
    }

    fn a_refused_address_is_resolved_again_before_its_ttl_ends(io) {
        let names = NameServer::with_ttl(2, LONG_TTL);
        let upstream = Upstream::with_text("found");
        let proxy = Proxy::with(io, &[&target(&upstream)], names.options());
        let mut client = proxy.client();
        assert_eq!(client.get("/").status, 502);
        names.set_octet(1);
        eventually("the new address is used", || client.get("/").status == 200);
    }

    fn a_name_is_resolved_seldom_while_its_addresses_refuse(io) {
        let names = NameServer::with_ttl(2, LONG_TTL);
        let upstream = Upstream::with_text("unreachable");
        let proxy = Proxy::with(io, &[&target(&upstream)], names.options());
        let mut client = proxy.client();
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(2500) {
            assert_eq!(client.get("/").status, 502);
        }
        // One look-up at the start, one after 100 ms and one after another second, each for both types of
        // addresses. The fourth one is due two seconds later.
        let received = names.received();
        assert!(received == 6 || start.elapsed() > Duration::from_millis(2900), "{received}");
    }

    fn an_address_that_resets_connections_repeatedly_is_resolved_again(io) {
        let names = NameServer::with_ttl(1, LONG_TTL);
        let closing = Upstream::scripted(|_, peer| drop(peer.request()));
        let proxy = Proxy::with(io, &[&target(&closing)], names.options());
        let mut client = proxy.client();
        for _ in 0..3 {
            assert_eq!(client.get("/").status, 502);
        }
        eventually("it was received again", || names.received() > 2);
    }

    fn hup_resolves_names_again(io) {
        let _one = SIGNALS.lock();
        let names = NameServer::with_ttl(1, LONG_TTL);
        let upstream = Upstream::with_text("found");
        let mut proxy = Proxy::with(io, &[&target(&upstream)], names.options());
        assert_eq!(proxy.client().get("/").text(), "found");
        let received = names.received();
        let signals = Signals::install().unwrap();
        let running = proxy.take();
        thread::scope(|scope| {
            let ended = scope.spawn(|| running.run_until_signal(&signals));
            kill("HUP");
            let deadline = Instant::now() + IO_TIMEOUT;
            while names.received() == received && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(5));
            }
            kill("INT");
            ended.join().unwrap().unwrap();
        });
        assert!(names.received() > received, "it was not received again");
    }
}
