//! `concurrency`: requests beyond those under way are refused.

use std::sync::mpsc::Sender;

use blitz_gateway::{Gateway, Rejection};
use blitz_http::{Method, Status};
use blitz_testing::h3::request;
use blitz_testing::quic::{pause, soon};

use crate::h2::h2;
use crate::h3_support::{QuicServer, block_on};
use crate::site_rules::{HOST, ask, gateway, sites_of};
use crate::support::{Proxy, Upstream, eventually, held, ok};

/// An upstream that responds when it is told, beside a site with `concurrency = 1` for it.
fn one_at_a_time(text: &str) -> (Upstream, Sender<()>, String) {
    let (upstream, release) = held("in");
    let url = upstream.url();
    let file = format!("[site.\"*\"]\nto = \"{url}\"\nconcurrency = 1\n{text}");
    (upstream, release, file)
}

fn rejected(proxy: &Proxy) -> u64 {
    proxy.counters().rejected(Rejection::Concurrency)
}

scenarios! {
    fn requests_beyond_those_under_way_are_refused(io) {
        let (upstream, release, file) = one_at_a_time("\"/free\" = { concurrency = false, respond = 204 }\n");
        let proxy = gateway(io, &file);
        let (mut first, mut second) = (proxy.client(), proxy.client());
        first.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        eventually("the first reaches the upstream", || upstream.heads().len() == 1);
        let response = ask(&mut second, "GET /x", HOST);
        assert_eq!((response.status, response.field("retry-after")), (503, Some("1")));
        assert_eq!(ask(&mut second, "GET /free", HOST).status, 204);
        release.send(()).unwrap();
        assert_eq!(first.response().status, 200);
        release.send(()).unwrap();
        assert_eq!(ask(&mut second, "GET /x", HOST).status, 200);
        assert_eq!(rejected(&proxy), 1);
    }

    fn a_request_that_is_given_up_gives_its_permit_back(io) {
        let (upstream, release, file) = one_at_a_time("");
        let proxy = gateway(io, &file);
        let mut first = proxy.peer();
        first.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        eventually("the first reaches the upstream", || upstream.heads().len() == 1);
        first.reset();
        eventually("it has ended", || proxy.counters().in_flight == 0);
        let mut second = h2(&proxy);
        let stream = second.request(Method::Get, "/", blitz_http::BodyLength::Empty);
        second.flush();
        eventually("the next reaches the upstream", || upstream.heads().len() == 2);
        assert_eq!(second.get("/x").status, Status::new(503));
        // One is for the connection of the first.
        release.send(()).unwrap();
        release.send(()).unwrap();
        assert_eq!(second.answer(stream).status, Some(Status::OK));
    }

    fn failed_requests_give_their_permits_back(io) {
        let proxy = gateway(io, "[site.\"*\"]\nto = \"http://127.0.0.1:1\"\nconcurrency = 1\n\
            \"/fixed\".respond = 204\n\"/not\" = { methods = [\"PUT\"] }\n");
        let mut client = proxy.client();
        for _ in 0..3 {
            for (path, status) in [("/", 502), ("/fixed", 204), ("/not", 405)] {
                assert_eq!(ask(&mut client, &format!("GET {path}"), HOST).status, status);
            }
        }
    }

    fn a_tunnel_is_a_request_under_way(io) {
        let upstream = Upstream::scripted(|_, peer| {
            while let Some((head, _)) = peer.request() {
                if head.field("upgrade").is_none() {
                    peer.send(ok("in"));
                    continue;
                }
                peer.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n");
                peer.rest();
            }
        });
        let url = upstream.url();
        let proxy = gateway(io, &format!("[site.\"*\"]\nto = \"{url}\"\nconcurrency = 1\nupgrade = [\"tcp\"]\n"));
        let mut tunnel = proxy.peer();
        tunnel.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n");
        assert!(tunnel.head().unwrap().line.contains("101"));
        let mut client = proxy.client();
        assert_eq!(ask(&mut client, "GET /", HOST).status, 503);
        drop(tunnel);
        eventually("the tunnel has ended", || proxy.counters().in_flight == 0);
        assert_eq!(ask(&mut client, "GET /", HOST).status, 200);
    }

    fn a_reload_counts_requests_from_before(io) {
        let (upstream, release, file) = one_at_a_time("");
        let mut proxy = gateway(io, &file);
        let (mut first, mut second) = (proxy.client(), proxy.client());
        first.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        eventually("the first reaches the upstream", || upstream.heads().len() == 1);
        proxy.replace_sites(&format!("{file}\n\"/new\" = {{ respond = 204 }}\n"));
        assert_eq!(ask(&mut second, "GET /new", HOST).status, 503);
        // A higher limit applies at once.
        let higher = file.replace("concurrency = 1", "concurrency = 2");
        proxy.replace_sites(&format!("{higher}\n\"/new\" = {{ respond = 204 }}\n"));
        assert_eq!(ask(&mut second, "GET /new", HOST).status, 204);
        release.send(()).unwrap();
        assert_eq!(first.response().status, 200);
    }

    fn streams_of_http3_count(io) {
        block_on(async move {
            let (upstream, release, file) = one_at_a_time("");
            let server = QuicServer::with(|slot| {
                let gateway = Proxy::gateway_over_tls(io, slot);
                Proxy::start(sites_of(&file).into_iter().fold(gateway, Gateway::site), &[])
            });
            let client = server.raw_client().await;
            let mut first = client.exchange(request("GET", "/")).await;
            first.send.finish().unwrap();
            soon(async {
                while upstream.heads().is_empty() {
                    pause(5).await;
                }
            })
            .await;
            assert_eq!(client.ask(request("GET", "/x")).await.heads, [Some(503)]);
            release.send(()).unwrap();
            assert_eq!(first.response().await.heads, [Some(200)]);
        });
    }
}
