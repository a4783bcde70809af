//! A request whose response takes long is sent a second time, to another server: one of the two responds, and the other is
//! cancelled.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use blitz_http::{IoChoice, Status};

use crate::h2::H2Upstream;
use crate::site_rules::gateway;
use crate::support::{Proxy, Upstream, eventually, held, ok};

/// Long after the second attempt has begun.
const LATER: Duration = Duration::from_millis(400);

/// A gateway with servers that take turns, whose requests are sent a second time after 100 ms.
fn hedging(io: IoChoice, servers: &[String], of_route: &str) -> Proxy {
    let urls: Vec<String> = servers.iter().map(|url| format!("\"{url}\"")).collect();
    gateway(
        io,
        &format!(
            "[site.\"*\"]\nto = \"app\"\n{of_route}\n[upstream.app]\nservers = [{}]\n\
             balance = \"round_robin\"\nhedge = \"100ms\"\n",
            urls.join(", ")
        ),
    )
}

/// An upstream that never responds, and whether the other end has closed a connection to it.
fn silent() -> (Upstream, Arc<AtomicBool>) {
    let is_closed = Arc::new(AtomicBool::new(false));
    let closed = Arc::clone(&is_closed);
    let upstream = Upstream::scripted(move |_, peer| {
        if peer.request().is_some() {
            closed.store(peer.is_closed_by_peer(), Ordering::SeqCst);
        }
    });
    (upstream, is_closed)
}

/// An upstream that responds later.
fn late(text: &'static str) -> Upstream {
    Upstream::scripted(move |_, peer| {
        while peer.request().is_some() {
            thread::sleep(LATER);
            peer.send(ok(text));
        }
    })
}

/// An upstream that closes later without a response.
fn failing() -> Upstream {
    Upstream::scripted(|_, peer| {
        peer.request();
        thread::sleep(LATER);
    })
}

fn hedges(proxy: &Proxy) -> (u64, u64) {
    let counters = proxy.counters();
    (counters.hedges, counters.hedges_won)
}

scenarios! {
    fn the_second_server_responds_if_the_first_is_slow(io) {
        let ((slow, is_closed), good) = (silent(), Upstream::with_text("good"));
        let proxy = hedging(io, &[slow.url(), good.url()], "");
        let mut client = proxy.client();
        assert_eq!(client.get("/one").text(), "good");
        eventually("the first attempt is cancelled", || is_closed.load(Ordering::SeqCst));
        assert_eq!(hedges(&proxy), (1, 1));
        assert_eq!(client.get("/two").text(), "good", "the client's connection goes on");
        assert_eq!((slow.heads().len(), good.heads().len()), (1, 2));
    }

    fn a_stream_of_the_first_server_is_reset(io) {
        let is_reset = Arc::new(AtomicBool::new(false));
        let reset = Arc::clone(&is_reset);
        let slow = H2Upstream::scripted(move |_, mut peer| {
            let (stream, _) = peer.request().unwrap();
            peer.until(stream, |request| request.reset.is_some());
            reset.store(true, Ordering::SeqCst);
            // The connection goes on.
            let (stream, _) = peer.request().unwrap();
            peer.answer(stream, Status::OK, "of the same connection");
            peer.fin_and_wait();
        });
        let good = Upstream::with_text("good");
        let proxy = hedging(io, &[slow.url.clone(), good.url()], "");
        let mut client = proxy.client();
        assert_eq!(client.get("/").text(), "good");
        eventually("the stream is reset", || is_reset.load(Ordering::SeqCst));
        let texts = [(); 2].map(|()| client.get("/").text().to_owned());
        assert!(texts.contains(&"of the same connection".to_owned()), "{texts:?}");
        assert_eq!((slow.accepted(), hedges(&proxy)), (1, (1, 1)));
    }

    fn the_first_server_responds_if_the_second_is_slower(io) {
        let (first, (second, is_closed)) = (late("first"), silent());
        let proxy = hedging(io, &[first.url(), second.url()], "");
        let mut client = proxy.client();
        assert_eq!(client.get("/one").text(), "first");
        eventually("the second attempt is cancelled", || is_closed.load(Ordering::SeqCst));
        assert_eq!((hedges(&proxy), second.heads().len()), ((1, 0), 1));
    }

    fn a_quick_response_needs_no_second_attempt(io) {
        let [a, b] = ["a", "b"].map(Upstream::with_text);
        let proxy = hedging(io, &[a.url(), b.url()], "");
        let mut client = proxy.client();
        for _ in 0..20 {
            assert_eq!(client.get("/").status, 200);
        }
        assert_eq!(hedges(&proxy), (0, 0));
        assert_eq!((a.heads().len(), b.heads().len()), (10, 10));
    }

    fn only_requests_that_may_be_sent_twice_are(io) {
        let requests = [
            ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", ""),
            ("PATCH / HTTP/1.1\r\nHost: a\r\n\r\n", ""),
            ("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi", ""),
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "retries = 0"),
        ];
        for (request, of_route) in requests {
            let (first, other) = (late("late"), Upstream::with_text("other"));
            let proxy = hedging(io, &[first.url(), other.url()], of_route);
            let mut client = proxy.client();
            client.send(request);
            assert_eq!(client.response().text(), "late", "{request:?}");
            assert_eq!((other.accepted(), hedges(&proxy)), (0, (0, 0)));
        }
    }

    fn a_client_that_stays_with_a_server_waits_for_it(io) {
        let (first, other) = (late("late"), Upstream::with_text("other"));
        let proxy = hedging(io, &[first.url(), other.url()], "sticky = \"cookie\"");
        let mut client = proxy.client();
        let texts = [(); 2].map(|()| client.get("/").text().to_owned());
        assert!(texts.contains(&"late".to_owned()), "{texts:?}");
        assert_eq!(hedges(&proxy), (0, 0));
    }

    fn a_request_without_another_server_waits(io) {
        let (only, release) = held("only");
        let proxy = hedging(io, &[only.url()], "");
        let mut client = proxy.client();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        eventually("it is sent", || only.heads().len() == 1);
        thread::sleep(LATER);
        release.send(()).unwrap();
        assert_eq!(client.response().text(), "only");
        assert_eq!((only.heads().len(), hedges(&proxy)), (1, (0, 0)));
    }

    fn the_second_attempt_survives_the_first(io) {
        let (first, second) = (failing(), Upstream::scripted(|_, peer| {
            peer.request();
            thread::sleep(2 * LATER);
            peer.send(ok("second"));
            peer.is_closed_by_peer();
        }));
        let proxy = hedging(io, &[first.url(), second.url()], "");
        assert_eq!(proxy.client().get("/").text(), "second");
        assert_eq!((hedges(&proxy), proxy.counters().retries), ((1, 1), 0));
    }

    fn the_first_attempt_survives_the_second(io) {
        let (first, second) = (late("first"), Upstream::scripted(|_, peer| {
            peer.request();
        }));
        let proxy = hedging(io, &[first.url(), second.url()], "");
        assert_eq!(proxy.client().get("/").text(), "first");
        assert_eq!((hedges(&proxy), second.heads().len()), ((1, 0), 1));
    }

    fn a_second_attempt_is_one_of_the_retries(io) {
        for (retries, attempts) in [(1, 2), (2, 3)] {
            let servers = [failing(), failing(), failing()];
            let urls = servers.each_ref().map(Upstream::url);
            let proxy = hedging(io, &urls, &format!("retries = {retries}"));
            let answer = proxy.client().get("/");
            let expected = (502, Some("blitz; error=connection_terminated"));
            assert_eq!((answer.status, answer.field("proxy-status")), expected);
            let sent: usize = servers.iter().map(|server| server.heads().len()).sum();
            assert_eq!((sent, hedges(&proxy).0), (attempts, 1));
        }
    }

    fn two_servers_that_respond_at_once_are_one_response(io) {
        let sent = Arc::new(AtomicUsize::new(0));
        let servers = ["a", "b"].map(|name| {
            let sent = Arc::clone(&sent);
            Upstream::scripted(move |_, peer| {
                while let Some((head, _)) = peer.request() {
                    // The first attempt waits about as long as the second one begins later.
                    let is_second = sent.fetch_add(1, Ordering::SeqCst) % 2 == 1;
                    if !is_second {
                        thread::sleep(Duration::from_millis(101));
                    }
                    peer.send(ok(&format!("{name} {}", head.line)));
                }
            })
        });
        let proxy = hedging(io, &servers.each_ref().map(Upstream::url), "");
        let mut client = proxy.client();
        for number in 0..30 {
            let answer = client.get(&format!("/{number}"));
            let expected = format!(" GET /{number} HTTP/1.1");
            assert!(answer.text().ends_with(&expected), "{}", answer.text());
        }
        let counters = proxy.counters();
        assert_eq!(counters.responses[2 - 1], 30);
    }

    fn the_second_server_receives_its_own_host(io) {
        let ((slow, _), good) = (silent(), Upstream::with_text("good"));
        let proxy = hedging(io, &[slow.url(), good.url()], "host = \"upstream\"");
        assert_eq!(proxy.client().get("/").text(), "good");
        for server in [slow, good] {
            assert_eq!(server.head().field("host"), Some(&server.url()["http://".len()..]));
        }
    }
}
