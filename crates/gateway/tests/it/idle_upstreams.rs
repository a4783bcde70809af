//! Idle connections are closed before their upstream closes them, so that no request meets its FIN.

use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use blitz_gateway::Options;
use blitz_http::ClientOptions;

use crate::support::{Proxy, SOON, Upstream, ok};

/// An upstream with this line in its first response, which tells how long its connection was idle after that.
fn telling_idle_time(line: &'static str) -> (Upstream, Receiver<Duration>) {
    let (sender, receiver) = channel();
    let upstream = Upstream::scripted(move |_, peer| {
        if peer.request().is_some() {
            peer.send(ok("one").replacen("\r\n", &format!("\r\n{line}"), 1));
            let start = Instant::now();
            if peer.is_closed_by_peer() {
                let _ = sender.send(start.elapsed());
            }
        }
    });
    (upstream, receiver)
}

fn idle_at_most(limit: Duration) -> Options {
    let client = ClientOptions {
        idle_timeout: limit,
        ..ClientOptions::default()
    };
    Options {
        client,
        ..Options::default()
    }
}

scenarios! {
    fn an_announced_idle_time_is_not_used_up(io) {
        for (line, least, most) in [
            ("Keep-Alive: timeout=1\r\n", 400, 950),
            ("Keep-Alive: max=9, Timeout=2\r\nKeep-Alive: timeout=60\r\n", 900, 1900),
            ("Keep-Alive: timeout=0\r\n", 0, 300),
        ] {
            let (upstream, idle_times) = telling_idle_time(line);
            let proxy = Proxy::to(io, &[&upstream.url()]);
            assert_eq!(proxy.client().get("/").text(), "one");
            let idle = idle_times.recv_timeout(SOON).unwrap().as_millis();
            assert!((least..most).contains(&idle), "{line:?}: {idle} ms");
        }
    }

    fn the_longest_idle_time_is_an_option(io) {
        for line in ["", "Keep-Alive: timeout=60\r\n", "Keep-Alive: timeout=x, timeout=-1\r\n"] {
            let (upstream, idle_times) = telling_idle_time(line);
            let options = idle_at_most(Duration::from_millis(300));
            let proxy = Proxy::with(io, &[&upstream.url()], options);
            assert_eq!(proxy.client().get("/").text(), "one");
            let idle = idle_times.recv_timeout(SOON).unwrap().as_millis();
            assert!((250..900).contains(&idle), "{line:?}: {idle} ms");
        }
    }

    fn requests_in_the_closing_window_use_another_connection(io) {
        // It closes each connection a second after its response, as it announces.
        let upstream = Upstream::scripted(|_, peer| {
            while peer.request().is_some() {
                peer.send(ok("here").replacen("\r\n", "\r\nKeep-Alive: timeout=1\r\n", 1));
                if !peer.has_more_within(Duration::from_secs(1)) {
                    return;
                }
            }
        });
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let clients = (0..16).map(|number| {
            let mut client = proxy.client();
            std::thread::spawn(move || {
                let mut post = || {
                    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
                    client.response().status
                };
                let first = post();
                std::thread::sleep(Duration::from_millis(990 + number));
                (first, post())
            })
        });
        for client in clients.collect::<Vec<_>>() {
            assert_eq!(client.join().unwrap(), (200, 200));
        }
    }
}
