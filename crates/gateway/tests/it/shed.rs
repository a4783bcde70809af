//! Upstreams that shed load: the limit, the queue before it, and the ranks of requests.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use blitz_config::Importance;
use blitz_gateway::{Failure, Gateway};
use blitz_http::{Config, IoChoice};
use blitz_testing::{H1Peer, Response};

use crate::site_rules::{HOST, ask, gateway, sites_of};
use crate::support::{Proxy, Upstream, config, eventually, held, ok};

/// A file whose upstream has this URL and this `shed`.
fn file(url: &str, shed: &str) -> String {
    format!(
        "[site.\"*\"]\nto = \"app\"\n\"/low\".importance = \"low\"\n\"/high\".importance = \"high\"\n\
         \"/first\".importance = \"critical\"\n[upstream.app]\nservers = [\"{url}\"]\nshed = {shed}\n"
    )
}

/// The value of a gauge of the upstream.
fn gauge(proxy: &Proxy, name: &str) -> Option<usize> {
    let text = proxy.metrics().read().open_metrics();
    let start = format!("blitz_upstream_shed_{name}{{upstream=\"app\"}} ");
    let value = text.lines().find_map(|line| line.strip_prefix(&start))?;
    value.parse().ok()
}

fn waits(proxy: &Proxy, count: usize) {
    eventually("the requests wait", || {
        gauge(proxy, "waiting") == Some(count)
    });
}

/// Sends a request on a connection of its own.
fn begin(proxy: &Proxy, path: &str) -> H1Peer {
    let mut peer = proxy.peer();
    peer.send(format!("GET {path} HTTP/1.1\r\n{HOST}\r\n"));
    peer
}

fn status(mut peer: H1Peer) -> u16 {
    let line = peer.head().unwrap().line;
    line.split(' ').nth(1).unwrap().parse().unwrap()
}

fn shed_counts(proxy: &Proxy) -> [u64; 4] {
    proxy.counters().shed
}

/// An upstream that works on eight requests at a time, for 20 ms on each. The others wait.
fn of_eight() -> (Upstream, Arc<AtomicUsize>) {
    let (places, most) = (
        Arc::new((Mutex::new(8), Condvar::new())),
        Arc::new(AtomicUsize::new(0)),
    );
    let (under_way, seen) = (AtomicUsize::new(0), Arc::clone(&most));
    let upstream = Upstream::scripted(move |_, peer| {
        let (free, freed) = &*places;
        while peer.request().is_some() {
            let now = under_way.fetch_add(1, Ordering::SeqCst) + 1;
            seen.fetch_max(now, Ordering::SeqCst);
            let mut free_places = freed
                .wait_while(free.lock().unwrap(), |free| *free == 0)
                .unwrap();
            *free_places -= 1;
            drop(free_places);
            thread::sleep(Duration::from_millis(20));
            *free.lock().unwrap() += 1;
            freed.notify_one();
            under_way.fetch_sub(1, Ordering::SeqCst);
            peer.send(ok("done"));
        }
    });
    (upstream, most)
}

/// Requests of so many clients one after the other until the time is over: those that were served and those that were shed.
fn overload(proxy: &Proxy, clients: usize, time: Duration) -> [usize; 2] {
    let is_over = Arc::new(AtomicBool::new(false));
    let address = proxy.address;
    let clients: Vec<_> = (0..clients)
        .map(|_| {
            let is_over = Arc::clone(&is_over);
            thread::spawn(move || {
                let mut client = blitz_testing::Client::connect(address);
                let mut counts = [0, 0];
                while !is_over.load(Ordering::SeqCst) {
                    match ask(&mut client, "GET /", HOST).status {
                        200 => counts[0] += 1,
                        503 => {
                            counts[1] += 1;
                            // Without the load of clients that are refused at once.
                            thread::sleep(Duration::from_millis(20));
                        }
                        other => panic!("{other}"),
                    }
                }
                counts
            })
        })
        .collect();
    thread::sleep(time);
    is_over.store(true, Ordering::SeqCst);
    let counts = clients.into_iter().map(|client| client.join().unwrap());
    counts.fold([0, 0], |[served, shed], [more, others]| {
        [served + more, shed + others]
    })
}

fn with_cores(io: IoChoice, cores: usize, text: &str) -> Proxy {
    let gateway = Proxy::gateway(io).config(Config {
        cores,
        ..config(io)
    });
    Proxy::start(sites_of(text).into_iter().fold(gateway, Gateway::site), &[])
}

scenarios! {
    fn a_request_beyond_the_limit_is_shed_with_the_reason(io) {
        let (upstream, release) = held("in");
        let proxy = gateway(io, &file(&upstream.url(), "{ max = 1, wait = \"0\" }"));
        let first = begin(&proxy, "/");
        eventually("the first reaches the upstream", || upstream.heads().len() == 1);
        let response: Response = ask(&mut proxy.client(), "GET /high", HOST);
        assert_eq!((response.status, response.field("retry-after")), (503, Some("1")));
        let status_field = response.field("proxy-status");
        assert_eq!(status_field, Some("blitz; error=connection_limit_reached; details=\"load-shed\""));
        assert!(response.text().contains("(shed)"), "{response:?}");
        release.send(()).unwrap();
        assert_eq!(status(first), 200);
        release.send(()).unwrap();
        assert_eq!(status(begin(&proxy, "/")), 200);
        eventually("it is counted", || proxy.counters().failed(Failure::LoadShed) == 1);
        let mut expected = [0; 4];
        expected[Importance::High as usize] = 1;
        assert_eq!(shed_counts(&proxy), expected);
    }

    fn the_most_important_request_is_sent_first_and_of_its_equals_the_newest(io) {
        let (upstream, release) = held("in");
        let proxy = gateway(io, &file(&upstream.url(), "{ max = 1, wait = \"10s\" }"));
        let first = begin(&proxy, "/first");
        eventually("the first reaches the upstream", || upstream.heads().len() == 1);
        let paths = ["/a", "/low", "/high", "/first/2", "/b"];
        let mut others = Vec::new();
        for (number, path) in paths.iter().enumerate() {
            others.push(begin(&proxy, path));
            waits(&proxy, number + 1);
        }
        for number in 2..=paths.len() + 1 {
            release.send(()).unwrap();
            eventually("the next reaches the upstream", || upstream.heads().len() == number);
        }
        release.send(()).unwrap();
        assert_eq!(status(first), 200);
        for other in others {
            assert_eq!(status(other), 200);
        }
        let heads = upstream.heads();
        let order: Vec<_> = heads.iter().map(|head| head.line.split(' ').nth(1).unwrap()).collect();
        assert_eq!(order, ["/first", "/first/2", "/high", "/b", "/a", "/low"]);
        assert_eq!(shed_counts(&proxy), [0; 4]);
    }

    fn a_full_queue_sheds_the_least_important_at_once(io) {
        let (upstream, release) = held("in");
        let proxy = gateway(io, &file(&upstream.url(), "{ max = 1, queue = 1, wait = \"10s\" }"));
        let first = begin(&proxy, "/");
        eventually("the first reaches the upstream", || upstream.heads().len() == 1);
        let low = begin(&proxy, "/low");
        waits(&proxy, 1);
        let high = begin(&proxy, "/high");
        assert_eq!(status(low), 503);
        assert_eq!(status(begin(&proxy, "/")), 503, "the place is that of a higher one");
        release.send(()).unwrap();
        release.send(()).unwrap();
        assert_eq!([status(first), status(high)], [200, 200]);
        let mut expected = [0; 4];
        (expected[Importance::Low as usize], expected[Importance::Normal as usize]) = (1, 1);
        assert_eq!(shed_counts(&proxy), expected);
    }

    fn a_request_that_has_waited_too_long_is_shed(io) {
        let (upstream, release) = held("in");
        let proxy = gateway(io, &file(&upstream.url(), "{ max = 1, wait = \"50ms\" }"));
        let first = begin(&proxy, "/");
        eventually("the first reaches the upstream", || upstream.heads().len() == 1);
        let start = Instant::now();
        assert_eq!(status(begin(&proxy, "/")), 503);
        assert!(start.elapsed() >= Duration::from_millis(50));
        assert_eq!(gauge(&proxy, "waiting"), Some(0));
        release.send(()).unwrap();
        assert_eq!(status(first), 200);
    }

    fn clients_that_leave_give_back_their_places(io) {
        let (upstream, release) = held("in");
        let proxy = gateway(io, &file(&upstream.url(), "{ max = 1, wait = \"10s\" }"));
        let first = begin(&proxy, "/");
        eventually("the first reaches the upstream", || upstream.heads().len() == 1);
        let second = begin(&proxy, "/");
        waits(&proxy, 1);
        second.reset();
        waits(&proxy, 0);
        let third = begin(&proxy, "/");
        waits(&proxy, 1);
        first.reset();
        eventually("the next reaches the upstream", || upstream.heads().len() == 2);
        release.send(()).unwrap();
        release.send(()).unwrap();
        assert_eq!(status(third), 200);
        eventually("nothing is under way", || gauge(&proxy, "in_flight") == Some(0));
    }

    fn tunnels_and_streams_count_until_their_response_begins(io) {
        let upstream = Upstream::scripted(|_, peer| {
            while let Some((head, _)) = peer.request() {
                if head.line.contains("/events") {
                    peer.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: a\n\n");
                } else if head.field("upgrade").is_some() {
                    peer.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n");
                } else {
                    peer.send(ok("in"));
                    continue;
                }
                peer.rest();
            }
        });
        let text = file(&upstream.url(), "{ max = 1, wait = \"0\" }");
        let text = text.replace("to = \"app\"", "to = \"app\"\nupgrade = [\"tcp\"]");
        let proxy = gateway(io, &text);
        let mut tunnel = proxy.peer();
        tunnel.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n");
        assert!(tunnel.head().unwrap().line.contains("101"));
        let mut events = begin(&proxy, "/events");
        assert!(events.head().unwrap().line.contains("200"));
        assert_eq!(status(begin(&proxy, "/")), 200);
        assert_eq!(gauge(&proxy, "in_flight"), Some(0));
    }

    fn a_failed_request_gives_its_permit_back(io) {
        let proxy = gateway(io, &file("http://127.0.0.1:1", "{ max = 1, wait = \"0\" }"));
        for _ in 0..3 {
            assert_eq!(status(begin(&proxy, "/")), 502);
        }
        assert_eq!(gauge(&proxy, "in_flight"), Some(0));
    }

    fn requests_from_before_a_reload_count(io) {
        let (upstream, release) = held("in");
        let text = file(&upstream.url(), "{ max = 1, wait = \"0\" }");
        let mut proxy = gateway(io, &text);
        let first = begin(&proxy, "/");
        eventually("the first reaches the upstream", || upstream.heads().len() == 1);
        proxy.replace_sites(&format!("{text}\n[site.\"b.example\"]\nrespond = 204\n"));
        assert_eq!(status(begin(&proxy, "/")), 503);
        // Another limit applies at once.
        proxy.replace_sites(&text.replace("max = 1", "min = 2, max = 2"));
        let second = begin(&proxy, "/");
        eventually("the second reaches the upstream", || upstream.heads().len() == 2);
        release.send(()).unwrap();
        release.send(()).unwrap();
        assert_eq!([status(first), status(second)], [200, 200]);
        proxy.replace_sites(&text.replace("shed = { max = 1, wait = \"0\" }", "shed = false"));
        assert_eq!(gauge(&proxy, "limit"), None);
        release.send(()).unwrap();
        assert_eq!(status(begin(&proxy, "/")), 200);
    }

    fn under_overload_the_limit_follows_the_upstream(io) {
        let (upstream, most) = of_eight();
        for cores in [1, 2] {
            let proxy = with_cores(io, cores, &file(&upstream.url(), "true"));
            let [_, _] = overload(&proxy, 64, Duration::from_secs(1));
            most.store(0, Ordering::SeqCst);
            let [served, shed] = overload(&proxy, 64, Duration::from_secs(2));
            // With a busy machine it is less than the 800 of the upstream, and the times vary.
            assert!(served > 200 && shed > 50, "{cores} cores: {served} served, {shed} shed");
            assert!(most.load(Ordering::SeqCst) < 56, "{cores} cores: {most:?}");
            assert_eq!(status(begin(&proxy, "/")), 200, "it has recovered");
            let counted: u64 = shed_counts(&proxy).iter().sum();
            assert!(counted >= shed as u64, "{cores} cores: {counted} and {shed}");
        }
    }
}
