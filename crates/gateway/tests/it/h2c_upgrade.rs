//! `Upgrade: h2c`, which carries requests past the access rules of proxies in front (rule 15).

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use blitz_gateway::Options;
use blitz_http::Address;
use blitz_testing::{H1Peer, Head};

use crate::support::{Proxy, Upstream};

const REQUEST: &str = "GET /public HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\n\
                    Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n";

fn options(trusted: &[&str]) -> Options {
    Options {
        h2c_upgrade: true,
        trusted_proxies: trusted.iter().map(|text| text.parse().unwrap()).collect(),
        ..Options::default()
    }
}

/// Requests the switch; returns the first line of the response.
fn answer(mut peer: H1Peer) -> String {
    peer.send(REQUEST);
    peer.head().unwrap().line
}

/// The upstream's request has no field of the switch.
fn check(head: &Head) {
    for name in ["upgrade", "http2-settings"] {
        assert_eq!(head.field(name), None);
    }
    let connection = head.field("connection").unwrap_or_default();
    assert!(
        !connection.to_ascii_lowercase().contains("http2"),
        "{head:?}"
    );
}

scenarios! {
    fn the_upgrade_to_h2c_is_off_by_default(io) {
        let upstream = Upstream::with_text("over HTTP/1.1");
        let proxy = Proxy::to(io, &[&upstream.url()]);
        assert_eq!(answer(proxy.peer()), "HTTP/1.1 200 OK");
        check(&upstream.head());
        assert_eq!(proxy.http_counters().h2c_upgrades, 0);
    }

    fn an_untrusted_client_may_switch_if_enabled(io) {
        let upstream = Upstream::with_text("as stream 1");
        let proxy = Proxy::with(io, &[&upstream.url()], options(&["10.0.0.0/8", "unix"]));
        assert_eq!(answer(proxy.peer()), "HTTP/1.1 101 Switching Protocols");
        assert_eq!(proxy.http_counters().h2c_upgrades, 1);
    }

    fn a_trusted_proxy_never_switches(io) {
        let upstream = Upstream::with_text("over HTTP/1.1");
        let proxy = Proxy::with(io, &[&upstream.url()], options(&["127.0.0.0/8"]));
        assert_eq!(answer(proxy.peer()), "HTTP/1.1 200 OK");
        check(&upstream.head());
        assert_eq!(proxy.http_counters().h2c_upgrades, 0);
    }

    fn a_client_of_a_unix_socket_never_switches(io) {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("blitz-h2c-{}-{number}.sock", std::process::id());
        let path = std::env::temp_dir().join(name);
        let upstream = Upstream::with_text("over HTTP/1.1");
        let gateway = Proxy::gateway(io).listen(Address::Unix(Arc::new(path.clone())));
        let proxy = Proxy::start(gateway.options(options(&[])), &[&upstream.url()]);
        let client = UnixStream::connect(&path).unwrap();
        assert_eq!(answer(H1Peer::new(client)), "HTTP/1.1 200 OK");
        check(&upstream.head());
        assert_eq!(proxy.http_counters().h2c_upgrades, 0);
    }
}
