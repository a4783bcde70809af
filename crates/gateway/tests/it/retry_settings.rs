//! Retries by the settings of routes and upstreams: how often, in place of which responses, and in which time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use blitz_gateway::{Failure, Gateway};
use blitz_http::{Config, IoChoice};
use blitz_testing::{Client, Response, refusing_address, silent_address};

use crate::site_rules::{gateway, sites_of};
use crate::support::{Proxy, Upstream, config, eventually, held, ok};

/// Far below the times that servers would have without the settings under test.
const LONG: Duration = Duration::from_secs(30);

const BUSY: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy";

/// A site with an upstream of these servers, which take turns.
fn in_turn(servers: &[String], keys: &str, of_route: &str) -> String {
    let urls: Vec<String> = servers.iter().map(|url| format!("\"{url}\"")).collect();
    format!(
        "[site.\"*\"]\nto = \"app\"\n{of_route}\n[upstream.app]\nservers = [{}]\n\
         balance = \"round_robin\"\n{keys}\n",
        urls.join(", ")
    )
}

fn over(io: IoChoice, servers: &[&Upstream], keys: &str, of_route: &str) -> Proxy {
    let urls: Vec<String> = servers.iter().map(|server| server.url()).collect();
    gateway(io, &in_turn(&urls, keys, of_route))
}

/// An upstream that reads requests and never responds.
fn silent() -> Upstream {
    Upstream::scripted(|_, peer| {
        peer.request();
        peer.is_closed_by_peer();
    })
}

/// An upstream that closes after each request.
fn closing() -> Upstream {
    Upstream::scripted(|_, peer| {
        peer.request();
    })
}

/// An upstream that responds so to its first request, and with 200 to others.
fn recovering(first: String) -> Upstream {
    let has_responded = AtomicBool::new(false);
    Upstream::scripted(move |_, peer| {
        while peer.request().is_some() {
            let is_first = !has_responded.swap(true, Ordering::SeqCst);
            peer.send(match is_first {
                true => first.clone(),
                false => ok("recovered"),
            });
        }
    })
}

fn post(client: &mut Client) -> Response {
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
    client.response()
}

fn requests_of(servers: &[&Upstream]) -> usize {
    servers.iter().map(|server| server.heads().len()).sum()
}

scenarios! {
    fn a_route_says_how_often_a_request_is_sent_again(io) {
        for retries in [0, 1, 3, 8] {
            let upstream = closing();
            let keys = format!("to = \"{}\"\nretries = {retries}\n", upstream.url());
            let proxy = gateway(io, &format!("[site.\"*\"]\n{keys}"));
            let mut client = proxy.client();
            assert_eq!(client.get("/").status, 502);
            assert_eq!(upstream.accepted(), 1 + retries);
            assert_eq!(post(&mut client).status, 502, "it is not idempotent");
            assert_eq!(upstream.accepted(), 2 + retries);
        }
    }

    fn a_query_is_sent_again_with_its_content(io) {
        let upstream = Upstream::scripted(|number, peer| {
            while let Some((head, content)) = peer.request().filter(|_| number > 0) {
                peer.send(ok(&format!("{} {}", head.line, String::from_utf8_lossy(&content))));
            }
        });
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut client = proxy.client();
        client.send("QUERY /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
        assert_eq!(client.response().text(), "QUERY /x HTTP/1.1 hello");
        assert_eq!(proxy.counters().retries, 1);
        let upstream = closing();
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut client = proxy.client();
        client.send("QUERYX /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
        assert_eq!((client.response().status, upstream.accepted()), (502, 1));
    }

    fn a_request_is_sent_again_in_place_of_a_response(io) {
        for on in ["[503]", "[\"502\", \"503\"]", "[\"5xx\"]"] {
            let (busy, good) = (Upstream::with_response(BUSY), Upstream::with_text("good"));
            let proxy = over(io, &[&busy, &good], &format!("retry.on = {on}\noutlier = false"), "");
            let mut client = proxy.client();
            for _ in 0..20 {
                assert_eq!(client.get("/").text(), "good");
            }
            // Its connection was used again.
            assert_eq!((busy.heads().len(), busy.accepted()), (10, 1));
            assert_eq!(proxy.counters().retries, 10);
            let statuses: Vec<u16> = (0..4).map(|_| post(&mut client).status).collect();
            assert_eq!(statuses.iter().filter(|status| **status == 503).count(), 2, "{statuses:?}");
            assert_eq!(proxy.counters().retries, 10);
        }
    }

    fn other_statuses_are_responses(io) {
        for keys in ["", "retry.on = [502]", "retry.budget = 0.5"] {
            let busy = [Upstream::with_response(BUSY), Upstream::with_response(BUSY)];
            let proxy = over(io, &[&busy[0], &busy[1]], keys, "");
            let answer = proxy.client().get("/");
            assert_eq!((answer.status, answer.text()), (503, "busy"));
            assert_eq!((requests_of(&[&busy[0], &busy[1]]), proxy.counters().retries), (1, 0));
        }
    }

    fn the_client_gets_the_response_of_the_last_attempt(io) {
        for retries in [0, 1, 3] {
            let busy = [Upstream::with_response(BUSY), Upstream::with_response(BUSY)];
            let of_route = format!("retries = {retries}");
            let proxy = over(io, &[&busy[0], &busy[1]], "retry.on = [503]", &of_route);
            let mut client = proxy.client();
            let answer = client.get("/");
            assert_eq!((answer.status, answer.text()), (503, "busy"));
            assert_eq!(requests_of(&[&busy[0], &busy[1]]), 1 + retries);
            assert_eq!(client.get("/").status, 503, "the client's connection goes on");
        }
    }

    fn content_that_is_left_closes_its_connection(io) {
        let is_closed = Arc::new(AtomicBool::new(false));
        let closed = Arc::clone(&is_closed);
        let long = Upstream::scripted(move |_, peer| {
            peer.request();
            peer.send("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 100000\r\n\r\nsome of it");
            closed.store(peer.is_closed_by_peer(), Ordering::SeqCst);
        });
        let good = Upstream::with_text("good");
        let proxy = over(io, &[&long, &good], "retry.on = [503]", "");
        assert_eq!(proxy.client().get("/").text(), "good");
        eventually("the connection is closed", || is_closed.load(Ordering::SeqCst));
    }

    fn short_content_without_a_length_is_read(io) {
        let chunked = "HTTP/1.1 503 Service Unavailable\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbusy\r\n0\r\n\r\n";
        let (busy, good) = (Upstream::with_response(chunked), Upstream::with_text("good"));
        let proxy = over(io, &[&busy, &good], "retry.on = [503]", "");
        let mut client = proxy.client();
        for _ in 0..8 {
            assert_eq!(client.get("/").text(), "good");
        }
        assert_eq!((busy.heads().len(), busy.accepted()), (4, 1));
    }

    fn a_request_whose_interim_response_was_passed_on_is_not_sent_again(io) {
        let hinting = Upstream::scripted(|_, peer| {
            peer.request();
            peer.send(format!("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n{BUSY}"));
        });
        let good = Upstream::with_text("good");
        let proxy = over(io, &[&hinting, &good], "retry.on = [503]", "");
        let mut peer = proxy.peer();
        peer.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(peer.head().unwrap().line.contains(" 103 "));
        assert!(peer.head().unwrap().line.contains(" 503 "));
        assert_eq!((good.accepted(), proxy.counters().retries), (0, 0));
    }

    fn a_server_is_asked_again_after_the_time_that_it_names(io) {
        let busy = |value: &str| format!("{}Retry-After: {value}\r\n{}", &BUSY[..34], &BUSY[34..]);
        for (value, status) in [("1", 200), ("600", 503), ("Fri, 31 Dec 2100 23:59:59 GMT", 503)] {
            let upstream = recovering(busy(value));
            let proxy = over(io, &[&upstream], "retry.on = [503]", "");
            let began = Instant::now();
            let answer = proxy.client().get("/");
            assert_eq!(answer.status, status, "{value}");
            match status {
                200 => assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed()),
                _ => assert_eq!(answer.field("retry-after"), Some(value)),
            }
            assert_eq!(upstream.heads().len(), if status == 200 { 2 } else { 1 });
        }
        // Others are asked at once, and never the same.
        let (bad, good) = (Upstream::with_response(busy("600")), Upstream::with_text("good"));
        let proxy = over(io, &[&bad, &good], "retry.on = [503]", "");
        assert_eq!(proxy.client().get("/").text(), "good");
        let down = format!("http://{}", refusing_address());
        let proxy = gateway(io, &in_turn(&[bad.url(), down], "retry.on = [503]", ""));
        assert_eq!(proxy.client().get("/").status, 502);
        assert_eq!(bad.heads().len(), 2);
    }

    fn a_request_in_early_data_is_not_sent_again_for_its_client(io) {
        let early = "HTTP/1.1 425 Too Early\r\nContent-Length: 0\r\n\r\n";
        for (field, status, heads) in [("", 200, 2), ("Early-Data: 1\r\n", 425, 1)] {
            let upstream = recovering(early.to_owned());
            let proxy = over(io, &[&upstream], "retry.on = [425]", "");
            let mut client = proxy.client();
            client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{field}\r\n"));
            assert_eq!((client.response().status, upstream.heads().len()), (status, heads));
        }
    }

    fn a_silent_server_is_passed_over(io) {
        let (mute, good) = (silent(), Upstream::with_text("good"));
        let proxy = over(io, &[&mute, &good], "", "timeout.response = \"300ms\"");
        let began = Instant::now();
        let mut client = proxy.client();
        assert_eq!(client.get("/").text(), "good");
        assert!(began.elapsed() >= Duration::from_millis(300) && began.elapsed() < LONG);
        assert_eq!((mute.heads().len(), proxy.counters().retries), (1, 1));
        let statuses: Vec<u16> = (0..2).map(|_| post(&mut client).status).collect();
        assert!(statuses.contains(&504), "what may have been processed is not sent again: {statuses:?}");
        assert_eq!(proxy.counters().retries, 1);
    }

    fn a_silent_server_without_others_is_asked_once(io) {
        let mute = silent();
        let proxy = over(io, &[&mute], "", "timeout.response = \"300ms\"\nretries = 3");
        assert_eq!(proxy.client().get("/").status, 504);
        assert_eq!((mute.heads().len(), proxy.counters().retries), (1, 0));
    }

    fn a_server_that_is_silent_within_a_head_is_not_passed_over(io) {
        let slow = Upstream::scripted(|_, peer| {
            peer.request();
            peer.send("HTTP/1.1 200 OK\r\nContent-");
            peer.is_closed_by_peer();
        });
        let good = Upstream::with_text("good");
        let proxy = over(io, &[&slow, &good], "", "timeout.response = \"300ms\"");
        let answer = proxy.client().get("/");
        let expected = (504, Some("blitz; error=http_response_timeout"));
        assert_eq!((answer.status, answer.field("proxy-status")), expected);
        assert_eq!((good.accepted(), proxy.counters().retries), (0, 0));
    }

    fn connecting_takes_no_longer_than_a_response_may(io) {
        let good = Upstream::with_text("good");
        let black_hole = format!("http://{}", silent_address());
        let keys = "timeout = { connect = \"60s\", response = \"300ms\" }";
        let proxy = gateway(io, &in_turn(&[black_hole, good.url()], "", keys));
        let began = Instant::now();
        let mut client = proxy.client();
        for _ in 0..4 {
            assert_eq!(client.get("/").text(), "good");
        }
        assert!(began.elapsed() < LONG, "{:?}", began.elapsed());
        assert!(proxy.counters().connect_failures >= 1);
    }

    fn a_request_has_a_time_for_all_of_its_attempts(io) {
        let mute = [silent(), silent(), silent()];
        let keys = "retries = 8\ntimeout = { request = \"500ms\", response = \"300ms\" }";
        let proxy = over(io, &[&mute[0], &mute[1], &mute[2]], "", keys);
        let began = Instant::now();
        let answer = proxy.client().get("/");
        let expected = (504, Some("blitz; error=http_response_timeout"));
        assert_eq!((answer.status, answer.field("proxy-status")), expected);
        assert!(began.elapsed() >= Duration::from_millis(500) && began.elapsed() < LONG);
        assert_eq!(proxy.counters().failed(Failure::RequestTimeout), 1);
        assert_eq!(requests_of(&[&mute[0], &mute[1], &mute[2]]), 2);
    }

    fn a_long_response_may_take_longer_than_its_request(io) {
        let slow = Upstream::scripted(|_, peer| {
            peer.request();
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nsl");
            std::thread::sleep(Duration::from_millis(600));
            peer.send("ow");
        });
        let proxy = over(io, &[&slow], "", "timeout.request = \"300ms\"");
        assert_eq!(proxy.client().get("/").text(), "slow");
    }

    fn all_cores_have_one_budget(io) {
        let upstream = closing();
        let cores = Config { cores: 4, ..config(io) };
        let text = format!("[site.\"*\"]\nto = \"{}\"\n", upstream.url());
        let started = Proxy::gateway(io).config(cores);
        let proxy = Proxy::start(sites_of(&text).into_iter().fold(started, Gateway::site), &[]);
        for _ in 0..300 {
            assert_eq!(proxy.client().get("/").status, 502);
        }
        let retries = upstream.accepted() - 300;
        assert!((100..=100 + 300 / 5).contains(&retries), "{retries} retries");
        let counters = proxy.counters();
        assert_eq!(counters.retries as usize, retries);
        assert_eq!(counters.retries_over_budget as usize, 300 - retries);
    }

    fn an_upstream_may_have_another_budget(io) {
        for (budget, retries) in [("0", 100), ("0.5", 150)] {
            let upstream = closing();
            let proxy = over(io, &[&upstream], &format!("retry.budget = {budget}"), "");
            let mut client = proxy.client();
            for _ in 0..300 {
                assert_eq!(client.get("/").status, 502);
            }
            assert_eq!(upstream.accepted(), 300 + retries, "{budget}");
        }
    }

    fn an_upstream_has_its_own_limit_of_connections_and_queue(io) {
        let upstream = silent();
        let keys = "connections_max = 1\nqueue = { max = 1, timeout = \"1s\" }";
        let proxy = over(io, &[&upstream], keys, "");
        let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let (mut first, mut waiting) = (proxy.client(), proxy.client());
        first.send(get);
        eventually("the first is sent", || upstream.heads().len() == 1);
        waiting.send(get);
        eventually("the second waits", || proxy.http_counters().upstream_limit_waits == 1);
        let (refused, late) = (proxy.client().get("/"), waiting.response());
        for answer in [refused, late] {
            let expected = Some("blitz; error=connection_limit_reached");
            assert_eq!((answer.status, answer.field("proxy-status")), (503, expected));
        }
        let counters = proxy.counters();
        assert_eq!(counters.failed(Failure::UpstreamQueueFull), 1);
        assert_eq!(counters.failed(Failure::ConnectionLimitReached), 1);
    }

    fn a_server_with_a_full_queue_is_passed_over(io) {
        let ((slow, release), good) = (held("slow"), Upstream::with_text("good"));
        let urls = format!("[\"{}\", \"{}\"]", slow.url(), good.url());
        let proxy = gateway(io, &format!(
            "[site.\"*\"]\nto = \"app\"\n[upstream.app]\nservers = {urls}\n\
             sticky = \"header:X-User\"\nconnections_max = 1\nqueue.max = 1\n"
        ));
        // A user of the slow server.
        let mut user = 0;
        let mut first = proxy.client();
        while slow.heads().is_empty() {
            user += 1;
            first = proxy.client();
            first.send(format!("GET / HTTP/1.1\r\nHost: a\r\nX-User: {user}\r\n\r\n"));
            let sent = user;
            eventually("it is sent", || requests_of(&[&slow, &good]) == sent);
        }
        let get = format!("GET / HTTP/1.1\r\nHost: a\r\nX-User: {user}\r\n\r\n");
        let mut waiting = proxy.client();
        waiting.send(&get);
        eventually("one waits", || proxy.http_counters().upstream_limit_waits == 1);
        let mut third = proxy.client();
        third.send(&get);
        assert_eq!(third.response().text(), "good");
        for client in [&mut first, &mut waiting] {
            release.send(()).unwrap();
            assert_eq!(client.response().text(), "slow");
        }
    }
}
