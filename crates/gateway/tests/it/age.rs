//! Upstream connections have a maximum age, after which they get no more requests.

use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use blitz_gateway::Options;
use blitz_http::{BodyLength, Method, Status};

use crate::h2::{H2Upstream, result_of};
use crate::h2_client::Client;
use crate::support::{Proxy, Upstream, eventually, ok};

const AGE: Duration = Duration::from_millis(800);

fn options() -> Options {
    let mut options = Options::default();
    options.client.limits.connection_age_max = AGE;
    options
}

scenarios! {
    fn an_old_http1_connection_is_not_reused(io) {
        let upstream = Upstream::with_text("hello");
        let proxy = Proxy::with(io, &[&upstream.url()], options());
        let mut client = proxy.client();
        for _ in 0..3 {
            assert_eq!(client.get("/").text(), "hello");
        }
        assert_eq!(upstream.accepted(), 1);
        thread::sleep(AGE);
        assert_eq!(client.get("/").text(), "hello");
        assert_eq!(upstream.accepted(), 2);
        let counters = proxy.http_counters();
        assert_eq!((counters.upstream_retired, counters.upstream_idle), (1, 1));
    }

    fn a_connection_that_reaches_its_maximum_age_in_a_request_is_not_pooled(io) {
        let upstream = Upstream::scripted(|_, peer| {
            while peer.request().is_some() {
                thread::sleep(AGE);
                peer.send(ok("slow"));
            }
        });
        let proxy = Proxy::with(io, &[&upstream.url()], options());
        assert_eq!(proxy.client().get("/").text(), "slow");
        eventually("it is closed", || proxy.http_counters().upstream_retired == 1);
        assert_eq!(proxy.http_counters().upstream_idle, 0);
    }

    fn an_old_http2_connection_gets_no_requests_and_closes_after_the_last(io) {
        let (ended, has_ended) = channel();
        let (release, released) = channel();
        let released = Mutex::new(released);
        let upstream = H2Upstream::scripted(move |number, mut peer| {
            while let Some((stream, head)) = peer.next() {
                if head.path() == "/held" {
                    released.lock().unwrap().recv().unwrap();
                }
                peer.answer(stream, Status::OK, &format!("{number}"));
            }
            ended.send(number).unwrap();
        });
        let proxy = Proxy::with(io, &[&upstream.url], options());
        let mut client = Client::connect(proxy.address);
        assert_eq!(client.get("/").content, b"0");
        let held = client.request(Method::Get, "/held", BodyLength::Empty);
        client.flush();
        thread::sleep(AGE);
        let next = client.request(Method::Get, "/", BodyLength::Empty);
        client.flush();
        eventually("another is made", || upstream.accepted() == 2);
        assert_eq!(proxy.http_counters().upstream_retired, 1);
        release.send(()).unwrap();
        assert_eq!(client.answer(held).content, b"0", "its request continues");
        assert_eq!(result_of(&has_ended), 0);
        assert_eq!(client.answer(next).content, b"1");
        // A connection that is idle at its maximum age gets no other request.
        thread::sleep(AGE);
        assert_eq!(client.get("/").content, b"2");
    }
}
