//! The client of HTTP/3 with servers that fail, or violate the protocol.

use std::net::UdpSocket;
use std::rc::Rc;
use std::time::Duration;

use blitz_http::{
    Address, BodyError, BodyLength, CertificateProblem, ClientConnection, ClientError,
    ClientOptions, ClientTls, ConnectOptions, Limits, Part, Protocol, TlsError, UpstreamTls,
};

use crate::client_connection::{ask, connect, fetch, options, refused, trusting, until};
use crate::client_exchange::get;
use crate::h3_client::{post, with_peer, with_server};
use crate::h3_peer::{OK, Peer, accept, data};
use crate::support::{SOON, on_each_driver, run};
use crate::tls_support::Authority;

#[test]
fn certificates_are_verified_over_quic_unless_that_is_switched_off() {
    with_server(async |_, address, _| {
        let stranger = trusting(&Authority::new());
        let error = refused(&address, &options(Protocol::Http3, Some(&stranger))).await;
        let ClientError::TlsHandshake(TlsError::Certificate(problem)) = error else {
            panic!("{error:?}")
        };
        assert_eq!(problem, CertificateProblem::UnknownIssuer);
        let any = ClientTls::builder().danger_accept_any_certificate();
        let any = UpstreamTls::new(&any.build().unwrap().into(), "127.0.0.1").unwrap();
        let connection = connect(&address, &options(Protocol::Http3, Some(&any))).await;
        assert_eq!(connection.tls().unwrap().server_name, None);
        assert_eq!(fetch(&connection, "/hello").await.unwrap(), "hello");
    });
}

#[test]
fn a_certificate_for_another_name_is_refused() {
    with_server(async |server, address, _| {
        let tls = ClientTls::builder()
            .authorities(server.authority.set())
            .build();
        let other = UpstreamTls::new(&tls.unwrap().into(), "other.example").unwrap();
        let error = refused(&address, &options(Protocol::Http3, Some(&other))).await;
        let ClientError::TlsHandshake(TlsError::Certificate(problem)) = error else {
            panic!("{error:?}")
        };
        assert_eq!(problem, CertificateProblem::WrongName);
    });
}

#[test]
fn another_protocol_over_quic_is_refused() {
    on_each_driver(|io| {
        let mut peer = Peer::new();
        peer.protocols = vec![b"other".to_vec()];
        let script = async |endpoint: quinn::Endpoint| {
            let incoming = crate::h3_peer::incoming(&endpoint).await;
            assert!(incoming.await.is_err());
        };
        with_peer(peer, io, script, async |address, options| {
            let error = refused(&address, &options).await;
            let alert = ClientError::TlsHandshake(TlsError::Alert(120));
            assert_eq!(format!("{error:?}"), format!("{alert:?}"));
        });
    });
}

#[test]
fn a_silent_address_is_a_timeout_to_connect() {
    on_each_driver(|io| {
        let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = Address::Tcp(silent.local_addr().unwrap());
        run(io, async {
            let limits = Limits {
                tls_handshake_timeout: Duration::from_millis(200),
                ..Limits::default()
            };
            let options = ConnectOptions {
                client: Rc::new(ClientOptions {
                    limits,
                    ..ClientOptions::default()
                }),
                ..options(Protocol::Http3, Some(&trusting(&Authority::new())))
            };
            let error = refused(&address, &options).await;
            assert!(matches!(error, ClientError::ConnectTimedOut), "{error:?}");
            let clear = ConnectOptions {
                tls: None,
                ..options
            };
            let error = refused(&address, &clear).await;
            assert!(matches!(error, ClientError::ConnectFailed(_)), "{error:?}");
        });
    });
}

#[test]
fn an_abandoned_attempt_to_connect_leaves_nothing_behind() {
    on_each_driver(|io| {
        let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = Address::Tcp(silent.local_addr().unwrap());
        run(io, async {
            let tls = trusting(&Authority::new());
            let options = options(Protocol::Http3, Some(&tls));
            let connecting = ClientConnection::connect(&address, &options);
            let waited = blitz_http::timeout(Duration::from_millis(50), connecting).await;
            assert!(waited.is_err());
            let client = Rc::downgrade(&options.client);
            drop(options);
            // The endpoint ends once the peer had time for the close.
            until(|| client.strong_count() == 0).await;
        });
    });
}

/// A server responds to a request with these bytes. The error of the request, and the code of the client's reset or
/// close.
fn answered(bytes: &'static [u8]) {
    on_each_driver(|io| {
        let script = async move |endpoint: quinn::Endpoint| {
            let raw = accept(&endpoint).await;
            let (mut send, _) = raw.whole_request().await;
            send.write_all(bytes).await.unwrap();
            send.finish().unwrap();
            let _ = tokio::time::timeout(SOON, raw.connection.closed()).await;
        };
        with_peer(Peer::new(), io, script, async |address, options| {
            let connection = connect(&address, &options).await;
            let error = ask(&connection, "/").await.err().unwrap();
            assert!(matches!(error, ClientError::Malformed(_)), "{error:?}");
            connection.close();
        });
    });
}

#[test]
fn a_response_without_a_status_is_malformed() {
    answered(&[1, 2, 0, 0]);
}

#[test]
fn content_before_a_head_is_malformed() {
    answered(&[0, 1, b'x']);
}

#[test]
fn a_stream_that_ends_without_a_response_is_malformed() {
    answered(&[]);
}

#[test]
fn a_frame_that_is_cut_off_is_malformed() {
    answered(&[1, 3, 0, 0]);
}

#[test]
fn a_malformed_message_resets_only_its_stream() {
    on_each_driver(|io| {
        let script = async |endpoint: quinn::Endpoint| {
            let raw = accept(&endpoint).await;
            let (mut send, _) = raw.whole_request().await;
            send.write_all(&[1, 2, 0, 0]).await.unwrap();
            // H3_MESSAGE_ERROR.
            let stopped = send.stopped().await.unwrap();
            assert_eq!(stopped.map(quinn::VarInt::into_inner), Some(0x10e));
            let (mut send, _) = raw.whole_request().await;
            send.write_all(OK).await.unwrap();
            send.finish().unwrap();
            assert_eq!(raw.close_code().await, 0x100);
        };
        with_peer(Peer::new(), io, script, async |address, options| {
            let connection = connect(&address, &options).await;
            let error = ask(&connection, "/").await.err().unwrap();
            assert!(matches!(error, ClientError::Malformed(_)), "{error:?}");
            assert_eq!(fetch(&connection, "/").await.unwrap(), "");
            connection.close();
        });
    });
}

#[test]
fn a_violation_of_the_protocol_closes_the_connection_with_its_code() {
    // On the control stream: DATA, a second SETTINGS, a push; each with the code of RFC 9114.
    for (frame, code) in [
        (&[0, 0][..], 0x105),
        (&[4, 0], 0x105),
        (&[3, 1, 0], 0x108),
        (&[7, 1, 2], 0x108),
    ] {
        on_each_driver(|io| {
            let script = async move |endpoint: quinn::Endpoint| {
                let mut raw = accept(&endpoint).await;
                raw.whole_request().await;
                raw.control.write_all(frame).await.unwrap();
                assert_eq!(raw.close_code().await, code);
            };
            with_peer(Peer::new(), io, script, async |address, options| {
                let connection = connect(&address, &options).await;
                let error = ask(&connection, "/").await.err().unwrap();
                assert!(matches!(error, ClientError::Malformed(_)), "{error:?}");
                assert!(!connection.is_open());
            });
        });
    }
}

#[test]
fn rejected_requests_and_those_behind_goaway_were_not_processed() {
    on_each_driver(|io| {
        let script = async |endpoint: quinn::Endpoint| {
            let mut raw = accept(&endpoint).await;
            let (mut rejected, _) = raw.whole_request().await;
            rejected.reset(0x10b_u32.into()).unwrap();
            let (mut accepted, _) = raw.whole_request().await;
            let _behind = raw.whole_request().await;
            // GOAWAY names the third request.
            raw.control.write_all(&[7, 1, 8]).await.unwrap();
            tokio::time::sleep(Duration::from_millis(30)).await;
            accepted.write_all(OK).await.unwrap();
            accepted.finish().unwrap();
            assert_eq!(raw.close_code().await, 0x100);
        };
        with_peer(Peer::new(), io, script, async |address, options| {
            let connection = connect(&address, &options).await;
            let error = ask(&connection, "/").await.err().unwrap();
            assert!(matches!(error, ClientError::Unprocessed), "{error:?}");
            let (_, accepted) = connection.request(&get("/"), BodyLength::Empty).unwrap();
            let (_, behind) = connection.request(&get("/"), BodyLength::Empty).unwrap();
            let error = behind.response().await.err().unwrap();
            assert!(matches!(error, ClientError::Unprocessed), "{error:?}");
            assert!(!connection.is_open());
            assert!(accepted.response().await.is_ok());
        });
    });
}

#[test]
fn a_connection_that_is_lost_cuts_its_responses() {
    on_each_driver(|io| {
        let script = async |endpoint: quinn::Endpoint| {
            let raw = accept(&endpoint).await;
            let (mut send, _) = raw.whole_request().await;
            let _unanswered = raw.whole_request().await;
            send.write_all(&[OK, &data(b"half")].concat())
                .await
                .unwrap();
            tokio::time::sleep(Duration::from_millis(30)).await;
            raw.connection.close(0x102_u32.into(), b"");
        };
        with_peer(Peer::new(), io, script, async |address, options| {
            let connection = connect(&address, &options).await;
            let (_, half) = connection.request(&get("/"), BodyLength::Empty).unwrap();
            let (_, none) = connection.request(&get("/"), BodyLength::Empty).unwrap();
            let mut half = half.response().await.unwrap();
            let Some(Part::Data(first)) = half.body.next().await.unwrap() else {
                panic!("no trailers")
            };
            assert_eq!(&first[..], b"half");
            let error = half.body.next().await.err().unwrap();
            assert!(matches!(error, BodyError::Reset), "{error}");
            let error = none.response().await.err().unwrap();
            assert!(matches!(error, ClientError::Reset { .. }), "{error}");
            assert!(!connection.is_open());
            assert!(connection.ready().await.is_err());
        });
    });
}

#[test]
fn a_response_that_comes_before_the_request_is_sent_can_be_read() {
    on_each_driver(|io| {
        let script = async |endpoint: quinn::Endpoint| {
            let raw = accept(&endpoint).await;
            let (mut send, mut receive) = raw.request().await;
            receive.stop(0x100_u32.into()).unwrap();
            send.write_all(&[OK, &data(b"early")].concat())
                .await
                .unwrap();
            send.finish().unwrap();
            assert_eq!(raw.close_code().await, 0x100);
        };
        with_peer(Peer::new(), io, script, async |address, options| {
            let connection = connect(&address, &options).await;
            let (mut send, response) = connection.request(&post("/"), BodyLength::Unknown).unwrap();
            let mut response = response.response().await.unwrap();
            let ended = async {
                while send.data(vec![0; 10_000]).await.is_ok() {
                    blitz_http::sleep(Duration::from_millis(1)).await;
                }
            };
            blitz_http::timeout(SOON, ended)
                .await
                .expect("it is stopped");
            let content = response.body.read_to_end(100).await.unwrap();
            assert_eq!(&content[..], b"early");
            connection.close();
        });
    });
}

#[test]
fn a_server_that_resets_a_response_fails_its_reader() {
    on_each_driver(|io| {
        let script = async |endpoint: quinn::Endpoint| {
            let raw = accept(&endpoint).await;
            let (mut send, _) = raw.whole_request().await;
            send.write_all(OK).await.unwrap();
            tokio::time::sleep(Duration::from_millis(30)).await;
            send.reset(0x102_u32.into()).unwrap();
            assert_eq!(raw.close_code().await, 0x100);
        };
        with_peer(Peer::new(), io, script, async |address, options| {
            let connection = connect(&address, &options).await;
            let mut response = ask(&connection, "/").await.unwrap();
            let error = response.body.next().await.err().unwrap();
            assert!(matches!(error, BodyError::Reset), "{error}");
            assert!(connection.is_open());
            connection.close();
        });
    });
}

#[test]
fn frames_behind_trailers_fail_the_response() {
    let trailers: &[u8] = &[1, 6, 0, 0, 0x21, b'a', 1, b'b'];
    for (behind, pause_ms) in [
        (data(b"more"), 0),
        (data(b"more"), 50),
        (trailers.to_vec(), 0),
    ] {
        let trailers = trailers.to_vec();
        on_each_driver(|io| {
            let (trailers, behind) = (trailers.clone(), behind.clone());
            let script = async move |endpoint: quinn::Endpoint| {
                let raw = accept(&endpoint).await;
                let (mut send, _) = raw.whole_request().await;
                let mut message = [OK, &data(b"content"), &trailers].concat();
                if pause_ms > 0 {
                    send.write_all(&message).await.unwrap();
                    tokio::time::sleep(Duration::from_millis(pause_ms)).await;
                    message.clear();
                }
                message.extend_from_slice(&behind);
                send.write_all(&message).await.unwrap();
                send.finish().unwrap();
                assert_eq!(raw.close_code().await, 0x105);
            };
            with_peer(Peer::new(), io, script, async |address, options| {
                let connection = connect(&address, &options).await;
                let mut response = ask(&connection, "/").await.unwrap();
                blitz_http::sleep(Duration::from_millis(2 * pause_ms)).await;
                let error = loop {
                    match response.body.next().await {
                        Ok(Some(_)) => {}
                        Ok(None) => panic!("it was complete"),
                        Err(error) => break error,
                    }
                };
                assert!(matches!(error, BodyError::Malformed(_)), "{error}");
                assert!(!connection.is_open());
            });
        });
    }
}
