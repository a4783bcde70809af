//! The allocations of a client's request on a warm connection, in every version. The server is in the same process, so
//! that it is counted as well.

use blitz_http::{
    Address, BodyLength, ClientConnection, IoChoice, Method, Part, Protocol, RequestHead,
    ServeOptions,
};

use crate::allocations::allocations;
use crate::client_connection::{connect, options, trusting};
use crate::h3_support::QuicServer;
use crate::support::{Server, on_each_driver, options as serve_options, run};

/// Requests per round. An allocation per request is counted at least as often.
const REQUESTS: usize = 500;

/// Allocations that a request may cause over HTTP/2.
const MULTIPLEXED_BOUND: usize = 0;

/// The same over HTTP/3 at both ends; most are in the library of QUIC.
const QUIC_BOUND: usize = 20;

#[test]
fn requests_on_a_kept_connection_allocate_nothing_or_little() {
    if !blitz_testing::is_alone() {
        return;
    }
    on_each_driver(|io| {
        let server = Server::with(io, with_name);
        let address = Address::Tcp(server.address);
        for (protocol, bound) in [(Protocol::Http1, 0), (Protocol::Http2, MULTIPLEXED_BOUND)] {
            let rounds = rounds(io, &address, &options(protocol, None));
            // Tables sometimes grow in one round; an allocation per request appears in every round.
            let least = rounds.iter().min().unwrap().div_ceil(REQUESTS);
            assert!(least <= bound, "{protocol:?}: {rounds:?}");
        }
    });
}

#[test]
fn requests_on_a_kept_connection_of_quic_allocate_little() {
    if !blitz_testing::is_alone() {
        return;
    }
    on_each_driver(|io| {
        let server = QuicServer::start(io, 1, with_name);
        let tls = trusting(&server.authority);
        let address = Address::Tcp(server.address);
        let rounds = rounds(io, &address, &options(Protocol::Http3, Some(&tls)));
        let least = rounds.iter().min().unwrap().div_ceil(REQUESTS);
        assert!(least <= QUIC_BOUND, "{rounds:?} for {REQUESTS} requests");
    });
}

fn with_name() -> ServeOptions {
    ServeOptions {
        server: Some("test".into()),
        ..serve_options()
    }
}

/// The allocations of each of a few rounds.
fn rounds(io: IoChoice, address: &Address, options: &blitz_http::ConnectOptions) -> Vec<usize> {
    run(io, async {
        let connection = connect(address, options).await;
        let mut head = RequestHead::new(Method::Get, "/hello");
        head.set_authority("localhost");
        let mut rounds = Vec::new();
        for _ in 0..4 {
            let before = allocations();
            for _ in 0..REQUESTS {
                exchange(&connection, &head).await;
            }
            rounds.push(allocations() - before);
        }
        rounds
    })
}

async fn exchange(connection: &ClientConnection, head: &RequestHead) {
    connection.ready().await.unwrap();
    let (_, response) = connection.request(head, BodyLength::Empty).unwrap();
    let mut response = response.response().await.unwrap();
    let mut bytes = 0;
    while let Some(part) = response.body.next().await.unwrap() {
        if let Part::Data(slice) = part {
            bytes += slice.len();
        }
    }
    assert_eq!(bytes, 5);
}
