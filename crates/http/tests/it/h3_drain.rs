use std::time::{Duration, Instant};

use blitz_testing::h3::kind::{GOAWAY, SETTINGS};
use blitz_testing::h3::stream::CONTROL;
use blitz_testing::h3::{read_integer, request};
use blitz_testing::quic::{ResponseEnd, next_frame};
use bytes::Bytes;

use crate::deadlines::limits;
use crate::h3_support::{QuicServer, block_on, get, pause, post, receive, reset_code, soon};
use crate::support::{SOON, on_each_driver, options};

#[test]
fn draining_closes_idle_connections_and_finishes_the_rest() {
    on_each_driver(|io| {
        let server = QuicServer::start(io, 1, options);
        block_on(async {
            let idle = server.connect().await;
            idle.get("/hello").await;
            let busy = server.connect().await;
            let mut slow = busy.send(get("/ticks")).await;
            slow.finish().await.unwrap();
            soon(slow.recv_response()).await.unwrap();
            let begun = Instant::now();
            server.drain(SOON);
            assert!(idle.closed().await.is_h3_no_error());
            let idle_took = begun.elapsed();
            // Its application may still be reading the last response.
            let expected = Duration::from_millis(2_900)..Duration::from_millis(3_600);
            assert!(expected.contains(&idle_took), "{idle_took:?}");
            let mut bytes = 0;
            while let Some(piece) = soon(slow.recv_data()).await.unwrap() {
                bytes += bytes::Buf::remaining(&piece);
            }
            assert_eq!(bytes, 50);
            drop(slow);
            assert!(busy.closed().await.is_h3_no_error());
            server.join();
            assert!(begun.elapsed() < SOON);
        });
    });
}

/// RFC 9114, section 5.2: the first GOAWAY accepts what is on its way, the second names the end.
#[test]
fn goaway_is_sent_twice_and_later_requests_are_rejected() {
    on_each_driver(|io| {
        let server = QuicServer::start(io, 1, options);
        block_on(async {
            let client = server.raw_client().await;
            let mut running = client.exchange(request("GET", "/ticks")).await;
            running.send.finish().unwrap();
            let mut control = client.quic.accept(CONTROL).await;
            let mut arrived = Vec::new();
            let first = next_frame(&mut control, &mut arrived).await.unwrap();
            assert_eq!(first.0, SETTINGS);
            server
                .when("a request", |counters| counters.requests == 1)
                .await;
            server.drain(SOON);
            let mut goaway = async || {
                let (kind, id) = next_frame(&mut control, &mut arrived).await.unwrap();
                assert_eq!(kind, GOAWAY);
                read_integer(&id).unwrap().0
            };
            assert_eq!(goaway().await, (1 << 62) - 4);
            client.hello().await;
            assert_eq!(goaway().await, 8);
            let mut late = client.exchange(request("GET", "/hello")).await;
            assert_eq!(late.reset_code().await, 0x10b);
            assert_eq!(late.stop_code().await, Some(0x10b));
            let response = running.response().await;
            assert_eq!(response.end, ResponseEnd::Fin);
            assert_eq!(response.content.len(), 50);
        });
    });
}

/// Bytes of a client behind its response are discarded for 30 s, but not while its connection drains.
#[test]
fn an_upload_that_was_answered_early_does_not_hold_up_a_drain() {
    let options = || {
        limits(|limits| {
            limits.discard_timeout = Duration::from_millis(200);
            limits.quic.discard_silence = Duration::from_secs(60);
        })
    };
    on_each_driver(|io| {
        let server = QuicServer::start(io, 1, options);
        block_on(async {
            let client = server.connect().await;
            let mut uploads = Vec::new();
            let mut begun = Instant::now();
            for is_draining in [false, true] {
                let mut upload = client.send(post("/hello")).await;
                upload.send_data(Bytes::from_static(b"a")).await.unwrap();
                let response = soon(upload.recv_response()).await.unwrap();
                assert!(response.status().is_success());
                uploads.push(upload);
                if !is_draining {
                    begun = Instant::now();
                    server.drain(Duration::from_secs(60));
                }
            }
            assert!(client.closed().await.is_h3_no_error());
            assert!(begun.elapsed() < SOON);
        });
    });
}

#[test]
fn draining_refuses_new_connections() {
    on_each_driver(|io| {
        let server = QuicServer::start(io, 1, options);
        block_on(async {
            let client = server.connect().await;
            let mut never = client.send(get("/never")).await;
            never.finish().await.unwrap();
            server
                .when("a request", |counters| counters.requests == 1)
                .await;
            server.drain(SOON);
            pause(20).await;
            let outside = server.outside();
            let transport = quinn::TransportConfig::default();
            let connecting = crate::h3_support::Quic::connect(
                &outside.config,
                transport,
                server.address,
                "localhost",
            );
            let error = connecting.await.expect_err("it is refused");
            assert!(error.to_string().contains("refused"), "{error}");
        });
    });
}

#[test]
fn exchanges_are_aborted_at_the_deadline() {
    on_each_driver(|io| {
        let server = QuicServer::start(io, 1, options);
        block_on(async {
            let client = server.connect().await;
            let mut never = client.send(get("/never")).await;
            never.finish().await.unwrap();
            let other = server.connect().await;
            let mut quiet = other.send(get("/quiet")).await;
            soon(quiet.recv_response()).await.unwrap();
            server.drain(Duration::from_millis(300));
            let begun = Instant::now();
            assert!(client.closed().await.is_h3_no_error());
            let took = begun.elapsed();
            assert!(took >= Duration::from_millis(280), "{took:?}");
            assert!(receive(&mut quiet).await.is_err());
            assert!(other.closed().await.is_h3_no_error());
            server.join();
            assert!(begun.elapsed() < SOON);
        });
    });
}

#[test]
fn requests_within_the_pause_between_both_announcements_are_answered() {
    on_each_driver(|io| {
        let server = QuicServer::start(io, 1, options);
        block_on(async {
            let client = server.raw_client().await;
            client.hello().await;
            server.drain(SOON);
            client.hello().await;
            let response = client.ask(request("GET", "/slow")).await;
            response.expect(200, "slow");
        });
    });
}

#[test]
fn a_request_that_comes_too_late_may_be_retried() {
    on_each_driver(|io| {
        let server = QuicServer::start(io, 1, options);
        block_on(async {
            let client = server.connect().await;
            let mut running = client.send(get("/ticks")).await;
            running.finish().await.unwrap();
            server
                .when("a request", |counters| counters.requests == 1)
                .await;
            server.drain(SOON);
            pause(300).await;
            // The library knows from GOAWAY that it is too late.
            let mut sender = client.sender.clone();
            let late = sender.send_request(get("/hello").body(()).unwrap());
            let refused = match soon(late).await {
                Err(error) => format!("{error:?}"),
                Ok(mut stream) => {
                    let error = receive(&mut stream).await.unwrap_err();
                    assert_eq!(reset_code(&error), 0x10b);
                    String::new()
                }
            };
            assert!(refused.is_empty() || refused.contains("Clos"), "{refused}");
            assert_eq!(receive(&mut running).await.unwrap().content.len(), 50);
        });
    });
}
