//! The state of upstreams, as it is told to operators.

use std::net::SocketAddr;
use std::time::Duration;

use blitz_gateway::{AddressOnCore, Failure, UpstreamReport};
use blitz_http::{Address, Status};
use blitz_testing::refusing_address;

use crate::name_server::NameServer;
use crate::names::target;
use crate::support::{Proxy, Upstream, eventually, held};

/// RFC 1035, section 4.1.1.
const NAME_ERROR: u8 = 3;

/// The state of the only address of the only upstream on the only core, once a request has used it.
fn only(reports: &[UpstreamReport]) -> Option<AddressOnCore> {
    let [upstream] = reports else {
        panic!("{reports:?}")
    };
    let [address] = &upstream.addresses[..] else {
        panic!("{reports:?}")
    };
    assert!(address.cores.len() < 2, "{reports:?}");
    address.cores.first().copied()
}

scenarios! {
    fn connections_are_in_use_and_then_idle(io) {
        let (upstream, release) = held("later");
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let [report] = &proxy.upstreams()[..] else {
            panic!("one upstream")
        };
        assert_eq!(report.url, upstream.url());
        assert!(report.names.is_empty() && report.failure.is_none());
        assert_eq!(only(&proxy.upstreams()), None, "no request has used it");
        let mut client = proxy.client();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let counts = || only(&proxy.upstreams()).map(|state| (state.in_use, state.idle));
        eventually("it is in use", || counts() == Some((1, 0)));
        release.send(()).unwrap();
        assert_eq!(client.response().text(), "later");
        eventually("it is idle", || counts() == Some((0, 1)));
    }

    fn an_address_that_refuses_connections_cools_down(io) {
        let address = refusing_address();
        let proxy = Proxy::to(io, &[&format!("http://{address}")]);
        assert_eq!(proxy.client().get("/").status, 502);
        let reports = proxy.upstreams();
        assert_eq!(reports[0].addresses[0].address, Address::Tcp(address));
        let state = only(&reports).unwrap();
        assert!(state.last_failure.is_some_and(|ago| ago < Duration::from_secs(10)), "{state:?}");
        assert_eq!(state.last_failure_cause, Some(Failure::ConnectionRefused));
        assert_eq!((state.figures.requests, state.figures.failures), (1, 1));
        assert_eq!((state.in_use, state.idle), (0, 0));
        eventually("the cooldown ends", || {
            only(&proxy.upstreams()).is_some_and(|state| state.cooling_down.is_none())
        });
    }

    fn requests_of_an_address_are_counted_with_their_time(io) {
        let upstream = Upstream::with_text("now");
        let proxy = Proxy::to(io, &[&upstream.url()]);
        for _ in 0..3 {
            assert_eq!(proxy.client().get("/").status, 200);
        }
        let figures = only(&proxy.upstreams()).unwrap().figures;
        assert_eq!((figures.requests, figures.failures, figures.responses.count), (3, 0, 3));
        assert!(figures.responses.time < Duration::from_secs(30), "{figures:?}");
        assert_eq!(figures.recent, figures.responses);
    }

    fn a_name_that_has_changed_tells_its_earlier_addresses(io) {
        let names = NameServer::start(2);
        let upstream = Upstream::with_text("found");
        let proxy = Proxy::with(io, &[&target(&upstream)], names.options());
        assert_eq!(proxy.client().get("/").status, 502);
        assert_eq!(proxy.upstreams()[0].change, None, "the first addresses are no change");
        names.set_octet(1);
        eventually("the name has changed", || proxy.upstreams()[0].change.is_some());
        let report = proxy.upstreams().remove(0);
        let before = SocketAddr::from(([127, 0, 0, 2], upstream.port()));
        assert_eq!(report.change.unwrap().before, [before]);
        let address = SocketAddr::from(([127, 0, 0, 1], upstream.port()));
        let addresses: Vec<_> = report
            .addresses
            .iter()
            .map(|one| (one.address.clone(), one.is_former))
            .collect();
        // No request has needed the name since then.
        let expected = [(Address::Tcp(address), false), (Address::Tcp(before), true)];
        assert_eq!(addresses, expected);
    }

    fn a_name_without_addresses_has_a_failure(io) {
        let names = NameServer::start(0);
        names.set_code(NAME_ERROR);
        let proxy = Proxy::with(io, &["http://nobody.internal.example"], names.options());
        assert_eq!(proxy.client().get("/").status, 502);
        let reports = proxy.upstreams();
        assert_eq!(reports[0].failure, Some(Failure::DnsNoSuchName));
        assert_eq!(reports[0].addresses, []);
    }

    fn names_and_servers_follow_the_configuration(io) {
        let [one, other] = ["one", "other"].map(Upstream::with_text);
        let (one, other) = (one.url(), other.url());
        let mut proxy = Proxy::to(io, &[&one]);
        proxy.replace_sites(&format!(
            "[site.\"*\"]\nto = \"app\"\n[upstream.app]\nservers = [\"{one}\", \"{other}\"]\n"
        ));
        let of = |report: &UpstreamReport| (report.url.clone(), report.names.clone());
        let found: Vec<_> = proxy.upstreams().iter().map(of).collect();
        let names = vec!["app".to_owned()];
        assert_eq!(found, [(one, names.clone()), (other, names)]);
    }

    fn failures_are_kept_by_cause_and_route(io) {
        let address = refusing_address();
        let mut proxy = Proxy::to(io, &["http://127.0.0.1:1"]);
        proxy.replace_sites(&format!(
            "[site.\"*\"]\nrespond = 204\n\"/a\" = \"http://{address}\"\n\"/b\" = \"http://{address}\"\n"
        ));
        assert_eq!(proxy.client().get("/").status, 204);
        assert_eq!(proxy.failures(), []);
        // More than the log has lines for in a second.
        for _ in 0..25 {
            assert_eq!(proxy.client().get("/a").status, 502);
        }
        assert_eq!(proxy.client().get("/b").status, 502);
        let failures = proxy.failures();
        let seen: Vec<_> = failures
            .iter()
            .map(|one| (one.route.as_deref(), one.count, one.last.status.map(Status::code)))
            .collect();
        assert_eq!(seen, [(Some("/b"), 1, Some(502)), (Some("/a"), 25, Some(502))]);
        assert_eq!(failures[1].upstream, Some(format!("http://{address}").into()));
        assert_eq!(failures[1].last.address, Some(Address::Tcp(address)));
        assert!(failures[1].first < failures[1].last.at && !failures[1].last.request_id.is_empty());
    }
}
