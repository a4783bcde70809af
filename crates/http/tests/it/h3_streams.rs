//! How many streams a client may open.

use std::time::Duration;

use blitz_http::ServeOptions;
use blitz_testing::h3::request;
use blitz_testing::quic::RawClient;

use crate::deadlines::limits;
use crate::h3_relay::{Relay, SHORT};
use crate::h3_support::{soon, with_options};

const STREAMS_MAX: usize = 16;
/// Credit is announced when so much of it has come together.
const UNANNOUNCED_MAX: usize = STREAMS_MAX / 8;

fn options() -> ServeOptions {
    limits(|limits| limits.concurrent_streams_max = STREAMS_MAX as u32)
}

/// Opens as many streams as the server allows, with a request that gets no complete response.
async fn open_quiet(client: &RawClient) -> Vec<(quinn::SendStream, quinn::RecvStream)> {
    let mut open = Vec::new();
    let wait = Duration::from_millis(200);
    while let Ok(opened) = tokio::time::timeout(wait, client.quic.connection.open_bi()).await {
        let (mut send, recv) = opened.unwrap();
        send.write_all(&request("GET", "/quiet")).await.unwrap();
        send.finish().unwrap();
        open.push((send, recv));
    }
    open
}

async fn ask_in_parallel(client: &RawClient) {
    let mut exchanges = Vec::new();
    for _ in 0..STREAMS_MAX {
        let mut exchange = client.exchange(request("GET", "/hello")).await;
        exchange.send.finish().unwrap();
        exchanges.push(exchange);
    }
    for mut exchange in exchanges {
        exchange.response().await.expect(200, "hello");
    }
}

/// A client over a long path would wait a round trip more for its next requests.
#[test]
fn the_next_requests_do_not_wait_until_responses_are_acknowledged() {
    with_options(options, async |server| {
        let relay = Relay::start(server.address).await;
        let client = relay.connect(server).await;
        client.hello().await;
        relay.lose(SHORT);
        ask_in_parallel(&client).await;
        let mut open = Vec::new();
        for _ in 0..STREAMS_MAX - UNANNOUNCED_MAX {
            open.push(soon(client.quic.connection.open_bi()).await.unwrap());
        }
    });
}

#[test]
fn no_client_has_more_requests_than_it_may_have() {
    with_options(options, async |server| {
        let client = server.raw_client().await;
        for _ in 0..3 {
            ask_in_parallel(&client).await;
        }
        let open = open_quiet(&client).await;
        let allowed = STREAMS_MAX - UNANNOUNCED_MAX..=STREAMS_MAX;
        assert!(allowed.contains(&open.len()), "{} requests", open.len());
        drop(open);
        // Those that the client has given up are no longer counted.
        ask_in_parallel(&client).await;
    });
}
