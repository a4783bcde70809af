//! Clients that send many requests open no route whose authorizer is there.

use std::os::unix::net::UnixStream;
use std::time::Duration;

use blitz_gateway::{Options, Rejection};
use blitz_http::Limits;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::site_rules::{HOST, ask, gateway, gateway_with};
use crate::support::{Upstream, eventually};

scenarios! {
    fn a_full_queue_of_a_socket_opens_no_route(io) {
        let path = std::env::temp_dir().join(format!("blitz-full-{io:?}-{}.sock", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        socket.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        socket.listen(0).unwrap();
        let _waiting = UnixStream::connect(&path).unwrap();
        let proxy = gateway(io, &format!(r#"
            [site."a.example"]
            respond = "200 in"
            forward_auth = {{ url = "unix:{}:/verify", on_failure = "open", timeout = "60s" }}
        "#, path.display()));
        // The socket is tried each time.
        for _ in 0..3 {
            assert_eq!(ask(&mut proxy.client(), "GET /", HOST).status, 503);
        }
        let counters = proxy.counters();
        assert_eq!((counters.rejected(Rejection::AuthorizerBusy), counters.authorizations_skipped), (3, 0));
        std::fs::remove_file(path).unwrap();
    }

    fn a_wait_for_a_connection_opens_no_route(io) {
        let silent = Upstream::scripted(|_, peer| { peer.rest(); });
        let mut options = Options::default();
        options.client.limits = Limits {
            upstream_connections_max: 1,
            upstream_wait_timeout: Duration::from_secs(60),
            ..Limits::default()
        };
        let url = silent.url();
        let proxy = gateway_with(io, options, &format!(r#"
            [site."a.example"]
            respond = "200 in"
            "/long".forward_auth = {{ url = "{url}", on_failure = "open", timeout = "5m" }}
            "/short".forward_auth = {{ url = "{url}", on_failure = "open", timeout = "50ms" }}
        "#));
        // Alone it is a late authorizer.
        assert_eq!(ask(&mut proxy.client(), "GET /short", HOST).status, 200);
        let mut first = proxy.client();
        first.send(format!("GET /long HTTP/1.1\r\n{HOST}\r\n"));
        eventually("the first is asked about", || silent.accepted() == 2);
        assert_eq!(ask(&mut proxy.client(), "GET /short", HOST).status, 503);
        let counters = proxy.counters();
        assert_eq!((counters.rejected(Rejection::AuthorizerBusy), counters.authorizations_skipped), (1, 1));
    }
}
