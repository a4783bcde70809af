//! Requests that the upstream certainly did not process are sent again (rule 13).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use blitz_gateway::Options;
use blitz_http::{BodyLength, ClientOptions, Method, Status};
use blitz_proto::h2::Code;

use crate::h2::{H2Upstream, h2};
use crate::support::Proxy;

/// An upstream that refuses every request after a pause, and the number of its requests.
fn refusing(pause: Duration) -> (H2Upstream, Arc<AtomicUsize>) {
    let received = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&received);
    let upstream = H2Upstream::scripted(move |_, mut peer| {
        while let Some((stream, _)) = peer.request() {
            counter.fetch_add(1, Ordering::SeqCst);
            thread::sleep(pause);
            peer.reset(stream, Code::REFUSED_STREAM);
        }
    });
    (upstream, received)
}

scenarios! {
    fn requests_at_once_survive_several_goaways(io) {
        // Each connection answers ten requests, and GOAWAY refuses the others.
        let upstream = H2Upstream::scripted(|_, mut peer| {
            for number in 1..=10 {
                let Some((stream, received)) = peer.request() else { return };
                if number == 10 {
                    peer.send_go_away(stream.get());
                }
                peer.answer(stream, Status::OK, &String::from_utf8_lossy(&received.content));
            }
            peer.fin_and_wait();
        });
        let proxy = Proxy::to(io, &[&upstream.url]);
        let mut client = h2(&proxy);
        let streams: Vec<_> = (0..40)
            .map(|number: u32| {
                let method = [Method::Get, Method::Post, Method::Patch][number as usize % 3];
                let content = format!("{number:04}");
                let stream = client.request(method, "/", BodyLength::Known(4));
                client.send(stream, content.as_bytes(), true);
                (stream, content)
            })
            .collect();
        for (stream, content) in streams {
            let answer = client.answer(stream);
            assert_eq!((answer.status, answer.content), (Some(Status::OK), content.into_bytes()));
        }
        assert!(upstream.accepted() >= 4, "{}", upstream.accepted());
        let counters = proxy.counters();
        assert_eq!((counters.responses[2 - 1], counters.retries_over_budget), (40, 0));
    }

    fn a_request_that_is_always_refused_is_sent_nine_times(io) {
        let (upstream, received) = refusing(Duration::ZERO);
        let proxy = Proxy::to(io, &[&upstream.url]);
        let answer = h2(&proxy).get("/");
        assert_eq!(answer.status, Some(Status::BAD_GATEWAY));
        assert_eq!(received.load(Ordering::SeqCst), 9);
        assert_eq!(upstream.accepted(), 9, "each attempt has another connection");
        let counters = proxy.counters();
        assert_eq!((counters.retries, counters.retries_over_budget), (1, 0));
    }

    fn an_upstream_that_refuses_everything_gets_a_hundred_retries_or_two_for_each_request(io) {
        let (upstream, received) = refusing(Duration::ZERO);
        let proxy = Proxy::to(io, &[&upstream.url]);
        let mut client = h2(&proxy);
        for _ in 0..20 {
            assert_eq!(client.get("/").status, Some(Status::BAD_GATEWAY));
        }
        assert_eq!(received.load(Ordering::SeqCst), 20 + 100);
        // Twelve requests use the budget up, and half of the thirteenth.
        assert_eq!(proxy.counters().retries_over_budget, 8);
    }

    fn a_refused_request_is_not_sent_again_after_its_deadline(io) {
        let (upstream, received) = refusing(Duration::from_millis(120));
        let client = ClientOptions {
            response_timeout: Duration::from_millis(300),
            ..ClientOptions::default()
        };
        let options = Options { client, ..Options::default() };
        let proxy = Proxy::with(io, &[&upstream.url], options);
        assert_eq!(h2(&proxy).get("/").status, Some(Status::BAD_GATEWAY));
        let received = received.load(Ordering::SeqCst);
        assert!((2..=3).contains(&received), "{received}");
    }

    fn large_content_is_not_sent_again(io) {
        let (upstream, received) = refusing(Duration::from_millis(100));
        let proxy = Proxy::to(io, &[&upstream.url]);
        let mut client = h2(&proxy);
        // More than the replay buffer holds, and less than the client may send at once.
        let content = vec![b'x'; 64 * 1024 - 1];
        let stream = client.request(Method::Post, "/", BodyLength::Known(content.len() as u64));
        client.send(stream, &content, true);
        assert_eq!(client.answer(stream).status, Some(Status::BAD_GATEWAY));
        assert_eq!(received.load(Ordering::SeqCst), 9, "it fits");
        let large = vec![b'x'; 96 * 1024];
        let stream = client.request(Method::Post, "/", BodyLength::Known(large.len() as u64));
        client.send(stream, &large, true);
        assert_eq!(client.answer(stream).status, Some(Status::BAD_GATEWAY));
        assert_eq!(received.load(Ordering::SeqCst), 10);
    }
}
