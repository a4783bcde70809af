//! Sites of a configuration file: the host and the path of a request choose its upstream, in each version.

use std::net::{SocketAddr, TcpListener};

use blitz_config::{Document, Environment, read};
use blitz_gateway::{Rejection, Site, compile};
use blitz_host::serving::ListenerConfig;
use blitz_http::{Address, BodyLength, IoChoice, Method, RequestHead, Status};
use blitz_testing::Client;

use crate::h2::h2;
use crate::support::{Proxy, Upstream};

/// The sites of a text.
pub(crate) fn compiled(text: &str) -> Vec<Site> {
    let document = Document::new("blitz.toml", text);
    let (configuration, mut diagnostics) = read(&document, &Environment::default());
    let mut read_file = |_: &str| Err(("no file".to_owned(), String::new()));
    let sites = compile(&configuration, &mut read_file, &mut diagnostics);
    assert_eq!(diagnostics, [], "{text}");
    sites
}

/// A gateway with the sites of a text.
fn gateway(io: IoChoice, text: &str) -> Proxy {
    let gateway = compiled(text)
        .into_iter()
        .fold(Proxy::gateway(io), blitz_gateway::Gateway::site);
    Proxy::start(gateway, &[])
}

/// An address that nothing listens on.
pub(crate) fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    listener.local_addr().expect("it has an address")
}

scenarios! {
    fn a_request_goes_to_the_site_of_its_host(io) {
        let [first, second, other] = ["first", "second", "other"].map(Upstream::with_text);
        let text = format!(
            "[site.\"a.example\"]\nto = \"{}\"\n\"/api\" = \"{}\"\n[site]\n\"*\" = \"{}\"\n\"gone.example\" = {{ \"/x\" = \"{}\" }}\n",
            first.url(), second.url(), other.url(), first.url(),
        );
        let proxy = gateway(io, &text);
        let cases = [
            ("a.example", "/", 200, "first"),
            ("A.Example:8080", "/api/x", 200, "second"),
            ("b.example", "/api", 200, "other"),
            ("gone.example", "/", 404, "no route of this site"),
        ];
        let mut client = proxy.client();
        for (host, path, status, content) in cases {
            client.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            let response = client.response();
            assert_eq!(response.status, status, "{host}{path}");
            assert!(response.text().contains(content), "{host}{path}: {}", response.text());
        }
        // HTTP/1.0 without a host.
        client.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        assert_eq!(client.response().text(), "other");
        let mut client = h2(&proxy);
        for (host, path, status, content) in cases {
            let mut head = RequestHead::new(Method::Get, path);
            head.set_authority(host);
            let stream = client.send_head(&head, BodyLength::Empty);
            let answer = client.answer(stream);
            assert_eq!(answer.status.map(Status::code), Some(status), "{host}{path}");
            assert!(String::from_utf8_lossy(&answer.content).contains(content), "{host}{path}");
        }
        assert_eq!(proxy.counters().rejected(Rejection::UnknownPath), 2);
    }

    fn a_site_is_known_on_its_own_listeners_only(io) {
        let text = "[site]\n\"a.example\" = { respond = \"200 own\" }\n\"b.example\" = { respond = \"200 all\" }\n";
        let mut sites = compiled(text);
        let own = free_address();
        sites[0].listeners = Some([own].into());
        let gateway = sites
            .into_iter()
            .fold(Proxy::gateway(io), blitz_gateway::Gateway::site)
            .listen(ListenerConfig::from(Address::Tcp(own)));
        let proxy = Proxy::start(gateway, &[]);
        for (address, host, status) in [
            (own, "a.example", 200),
            (own, "b.example", 200),
            (proxy.address, "a.example", 404),
            (proxy.address, "b.example", 200),
        ] {
            let mut client = Client::connect(address);
            client.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            assert_eq!(client.response().status, status, "{host} at {address}");
        }
        assert_eq!(proxy.counters().rejected(Rejection::UnknownHost), 1);
    }

    fn a_site_for_all_hosts_comes_before_targets_without_one(io) {
        let upstream = Upstream::with_text("target");
        let document = Document::new("blitz.toml", "[site.\"*\"]\nrespond = \"200 site\"\n");
        let (configuration, mut diagnostics) = read(&document, &Environment::default());
        let mut read_file = |_: &str| Err(("no file".to_owned(), String::new()));
        let sites = compile(&configuration, &mut read_file, &mut diagnostics);
        let gateway = sites.into_iter().fold(Proxy::gateway(io), blitz_gateway::Gateway::site);
        let proxy = Proxy::start(gateway, &[&upstream.url()]);
        let mut client = proxy.client();
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
        assert_eq!(client.response().text(), "site");
    }

    fn a_host_without_a_site_is_404(io) {
        let upstream = Upstream::with_text("a");
        let proxy = gateway(io, &format!("[site]\n\"a.example\" = \"{}\"\n", upstream.url()));
        let mut client = proxy.client();
        for host in ["b.example", "a.example.evil", "xa.example", "", "[::1]", "127.0.0.1"] {
            client.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            assert_eq!(client.response().status, 404, "{host}");
        }
        client.send("GET http://a.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n");
        assert_eq!(client.response().text(), "a");
        assert_eq!(upstream.heads().len(), 1);
    }
}
