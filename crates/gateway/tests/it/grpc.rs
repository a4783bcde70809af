//! The gateway's own responses to gRPC clients, and the deadlines of calls.

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use blitz_gateway::{Failure, Options};
use blitz_http::{BodyLength, Fields, Method, Name, RequestHead, ResponseHead, Status};
use blitz_proto::h2::{Code, StreamId};
use blitz_testing::refusing_address;

use crate::h2::{H2Upstream, h2, result_of};
use crate::h2_client::{Answer, Client};
use crate::h2_peer::H2Peer;
use crate::support::{Proxy, Upstream};

/// A message of two bytes, as gRPC frames it.
const MESSAGE: &[u8] = b"\0\0\0\0\x02hi";

/// The head of a call with these additional fields.
fn call(fields: &[(&str, &str)]) -> RequestHead {
    let mut head = RequestHead::new(Method::Post, "/s/m");
    head.set_authority("a");
    head.fields
        .append(Name::ContentType, "application/grpc+proto");
    head.fields.append(Name::Te, "trailers");
    for (name, value) in fields {
        head.fields.append(*name, value);
    }
    head
}

/// Sends a call with one message.
fn send(client: &mut Client, fields: &[(&str, &str)]) -> StreamId {
    let stream = client.send_head(&call(fields), BodyLength::Unknown);
    client.send(stream, MESSAGE, true);
    stream
}

fn call_and_wait(client: &mut Client, fields: &[(&str, &str)]) -> Answer {
    let stream = send(client, fields);
    client.answer(stream)
}

/// Status and `Proxy-Status` of a response that has only a head.
fn trailers_only(answer: &Answer) -> (&str, Option<&str>) {
    assert_eq!(answer.status, Some(Status::OK), "{answer:?}");
    assert_eq!(
        answer.fields.get_str(Name::ContentType),
        Some("application/grpc")
    );
    assert_eq!(answer.fields.get_str(Name::ContentLength), None);
    assert!(answer.content.is_empty() && answer.trailers.is_none() && answer.reset.is_none());
    let message = answer.fields.get_str("grpc-message");
    assert!(message.is_some_and(|message| !message.is_empty()));
    (
        answer.fields.get_str("grpc-status").unwrap_or_default(),
        answer.fields.get_str(Name::ProxyStatus),
    )
}

/// The status in the trailers of a response.
fn in_trailers(answer: &Answer) -> (&str, Option<&str>) {
    assert_eq!(
        (answer.status, answer.reset),
        (Some(Status::OK), None),
        "{answer:?}"
    );
    let trailers = answer.trailers.as_ref().unwrap();
    (
        trailers.get_str("grpc-status").unwrap_or_default(),
        trailers.get_str(Name::ProxyStatus),
    )
}

/// Starts a response with a message.
fn begin(peer: &mut H2Peer, stream: StreamId, length: BodyLength) {
    let mut head = ResponseHead::new(Status::OK);
    head.fields.append(Name::ContentType, "application/grpc");
    peer.start(stream, &head, length);
    peer.send(stream, MESSAGE, false);
}

/// Responds with a message and this status.
fn answer(peer: &mut H2Peer, stream: StreamId, status: &str) {
    begin(peer, stream, BodyLength::Unknown);
    let mut trailers = Fields::new();
    trailers.append("grpc-status", status);
    peer.finish(stream, Some(&trailers));
}

scenarios! {
    fn an_unreachable_upstream_is_unavailable(io) {
        let proxy = Proxy::to(io, &[&format!("h2c://{}", refusing_address())]);
        let mut client = h2(&proxy);
        let answer = call_and_wait(&mut client, &[]);
        assert_eq!(trailers_only(&answer), ("14", Some("blitz; error=connection_refused")));
        assert_eq!(
            answer.fields.get_str("grpc-message"),
            Some("the upstream refused the connection")
        );
        // Other requests get the HTTP status.
        let mut head = call(&[]);
        head.fields.set(Name::ContentType, "application/grpcx");
        let stream = client.send_head(&head, BodyLength::Empty);
        assert_eq!(client.answer(stream).status, Some(Status::BAD_GATEWAY));
        assert_eq!(proxy.counters().failed(Failure::ConnectionRefused), 2);
    }

    fn a_status_with_large_details_arrives_as_it_is(io) {
        let details = "d".repeat(9_000);
        let sent = details.clone();
        let upstream = H2Upstream::scripted(move |_, mut peer| {
            while let Some((stream, _)) = peer.request() {
                begin(&mut peer, stream, BodyLength::Unknown);
                let mut trailers = Fields::new();
                trailers.append("grpc-status", "3");
                trailers.append("grpc-status-details-bin", sent.as_str());
                (0..50).for_each(|n| trailers.append(format!("x-{n}").as_str(), "1"));
                peer.finish(stream, Some(&trailers));
            }
        });
        let proxy = Proxy::to(io, &[&upstream.url]);
        let answer = call_and_wait(&mut h2(&proxy), &[]);
        assert_eq!(in_trailers(&answer), ("3", None));
        let trailers = answer.trailers.unwrap();
        assert_eq!(trailers.get_str("grpc-status-details-bin"), Some(details.as_str()));
        assert_eq!(trailers.get_str("x-49"), Some("1"));
    }

    fn a_status_beyond_the_limits_is_not_one_that_clients_retry(io) {
        let upstream = H2Upstream::scripted(|_, mut peer| {
            while let Some((stream, _)) = peer.request() {
                begin(&mut peer, stream, BodyLength::Unknown);
                let mut trailers = Fields::new();
                trailers.append("grpc-status", "3");
                trailers.append("grpc-status-details-bin", "d".repeat(33_000));
                peer.finish(stream, Some(&trailers));
            }
        });
        let proxy = Proxy::to(io, &[&upstream.url]);
        let answer = call_and_wait(&mut h2(&proxy), &[]);
        let (status, reason) = in_trailers(&answer);
        assert_eq!(status, "8");
        assert!(reason.unwrap().starts_with("blitz; error=http_response_trailer_section_size"), "{reason:?}");
    }

    fn an_unmatched_call_is_unimplemented(io) {
        let proxy = Proxy::to(io, &[&format!("/api=h2c://{}", refusing_address())]);
        assert_eq!(trailers_only(&call_and_wait(&mut h2(&proxy), &[])), ("12", None));
    }

    fn an_http1_upstream_has_another_status_than_a_failure(io) {
        let upstream = Upstream::with_text("hello");
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut client = h2(&proxy);
        for _ in 0..2 {
            let answer = call_and_wait(&mut client, &[]);
            let expected = ("12", Some("blitz; error=proxy_configuration_error"));
            assert_eq!(trailers_only(&answer), expected);
            assert!(answer.fields.get_str("grpc-message").unwrap().contains("h2c://"));
        }
        assert_eq!(client.get("/").content, b"hello");
        // Other requests use the connection that cannot carry calls.
        assert_eq!((upstream.accepted(), upstream.heads().len()), (1, 1));
    }

    fn rejected_calls_get_a_grpc_status(io) {
        let to = format!("h2c://{}", refusing_address());
        let options = Options { redirect_https: true, ..Options::default() };
        let proxy = Proxy::with(io, &[&to], options);
        assert_eq!(trailers_only(&call_and_wait(&mut h2(&proxy), &[])), ("2", None));
        let proxy = Proxy::to(io, &[&to]);
        let mut client = h2(&proxy);
        let large = "x".repeat(50_000);
        assert_eq!(trailers_only(&call_and_wait(&mut client, &[("x-large", &large)])), ("8", None));
        assert_eq!(trailers_only(&call_and_wait(&mut client, &[("expect", "a miracle")])), ("2", None));
    }

    fn a_deadline_ends_a_call_without_a_response(io) {
        let (sender, receiver) = channel();
        let upstream = H2Upstream::scripted(move |_, mut peer| {
            while let Some((stream, head)) = peer.next() {
                let received = peer.until(stream, |received| received.reset.is_some());
                let timeout = head.fields.get_str("grpc-timeout").map(str::to_owned);
                let _ = sender.send((timeout, received.reset));
            }
        });
        let proxy = Proxy::to(io, &[&upstream.url]);
        let mut client = h2(&proxy);
        let begun = std::time::Instant::now();
        let answer = call_and_wait(&mut client, &[("grpc-timeout", "100m")]);
        assert!(begun.elapsed() >= Duration::from_millis(100), "{:?}", begun.elapsed());
        assert_eq!(trailers_only(&answer), ("4", Some("blitz; error=http_response_timeout")));
        assert_eq!(result_of(&receiver), (Some(String::from("100m")), Some(Code::CANCEL)));
        assert_eq!(proxy.counters().failed(Failure::DeadlineExceeded), 1);
    }

    fn a_deadline_ends_a_response_that_has_begun(io) {
        let (sender, receiver) = channel();
        let upstream = H2Upstream::scripted(move |_, mut peer| {
            while let Some((stream, _)) = peer.next() {
                begin(&mut peer, stream, BodyLength::Unknown);
                let received = peer.until(stream, |received| received.reset.is_some());
                let _ = sender.send(received.reset);
            }
        });
        let proxy = Proxy::to(io, &[&upstream.url]);
        let answer = call_and_wait(&mut h2(&proxy), &[("grpc-timeout", "100m")]);
        assert_eq!(in_trailers(&answer), ("4", Some("blitz; error=http_response_timeout")));
        assert_eq!(answer.content, MESSAGE);
        assert_eq!(result_of(&receiver), Some(Code::CANCEL));
    }

    fn a_distant_or_invalid_timeout_is_forwarded_unchanged(io) {
        let (sender, receiver) = channel();
        let sender = std::sync::Mutex::new(sender);
        let upstream = H2Upstream::scripted(move |_, mut peer| {
            while let Some((stream, received)) = peer.request() {
                let timeout = received.head.fields.get_str("grpc-timeout").unwrap().to_owned();
                let _ = sender.lock().unwrap().send(timeout);
                answer(&mut peer, stream, "0");
            }
        });
        let proxy = Proxy::to(io, &[&upstream.url]);
        let mut client = h2(&proxy);
        for timeout in ["99999999H", "soon", "123456789S", "-1S", ""] {
            assert_eq!(in_trailers(&call_and_wait(&mut client, &[("grpc-timeout", timeout)])), ("0", None));
            assert_eq!(result_of(&receiver), timeout);
        }
    }

    fn a_second_attempt_has_the_remaining_time(io) {
        let upstream = H2Upstream::scripted(|number, mut peer| {
            while let Some((stream, received)) = peer.request() {
                if number == 0 {
                    thread::sleep(Duration::from_millis(20));
                    peer.reset(stream, Code::REFUSED_STREAM);
                    continue;
                }
                let timeout = received.head.fields.get_str("grpc-timeout").unwrap();
                let left: u64 = timeout.strip_suffix('u').unwrap().parse().unwrap();
                assert!((1..9_980_000).contains(&left), "{left} us");
                answer(&mut peer, stream, "0");
            }
        });
        let proxy = Proxy::to(io, &[&upstream.url]);
        let answer = call_and_wait(&mut h2(&proxy), &[("grpc-timeout", "10S")]);
        assert_eq!(in_trailers(&answer), ("0", None));
        assert_eq!((upstream.accepted(), proxy.counters().retries), (2, 1));
    }

    fn an_incomplete_response_ends_with_a_status(io) {
        let upstream = H2Upstream::scripted(|_, mut peer| {
            while let Some((stream, received)) = peer.request() {
                let length = match received.head.fields.get_str("x-length") {
                    Some(_) => BodyLength::Known(100),
                    None => BodyLength::Unknown,
                };
                begin(&mut peer, stream, length);
                // A reset may arrive before forwarded data.
                thread::sleep(Duration::from_millis(50));
                match received.head.fields.get_str("x-end") {
                    Some("reset") => peer.reset(stream, Code::INTERNAL_ERROR),
                    _ => return,
                }
            }
        });
        let proxy = Proxy::to(io, &[&upstream.url]);
        let mut client = h2(&proxy);
        for end in ["reset", "close"] {
            let answer = call_and_wait(&mut client, &[("x-end", end)]);
            assert_eq!(in_trailers(&answer), ("14", Some("blitz; error=http_response_incomplete")));
            assert_eq!(answer.content, MESSAGE);
        }
        // Trailers after less content than announced would be an error of the gateway.
        let answer = call_and_wait(&mut client, &[("x-end", "reset"), ("x-length", "")]);
        assert!(answer.reset.is_some() && answer.trailers.is_none(), "{answer:?}");
        assert_eq!(proxy.counters().failed(Failure::HttpResponseIncomplete), 3);
    }

    fn a_call_may_be_silent_until_the_stream_idle_timeout(io) {
        let upstream = H2Upstream::scripted(|_, mut peer| {
            while let Some((stream, head)) = peer.next() {
                if head.fields.contains("x-silent") {
                    continue;
                }
                // Later than other responses and bodies may be.
                peer.until(stream, |received| received.is_complete);
                thread::sleep(Duration::from_millis(300));
                begin(&mut peer, stream, BodyLength::Unknown);
                thread::sleep(Duration::from_millis(300));
                peer.send(stream, MESSAGE, false);
                let mut trailers = Fields::new();
                trailers.append("grpc-status", "0");
                peer.finish(stream, Some(&trailers));
            }
        });
        let mut options = Options::default();
        options.limits.body_rate_grace = Duration::from_millis(100);
        options.client.response_timeout = Duration::from_millis(200);
        options.client.body_timeout = Duration::from_millis(200);
        options.client.limits.stream_idle_timeout = Duration::from_millis(800);
        let proxy = Proxy::with(io, &[&upstream.url], options);
        let mut client = h2(&proxy);
        let stream = client.send_head(&call(&[]), BodyLength::Unknown);
        client.flush();
        thread::sleep(Duration::from_millis(400));
        client.send(stream, MESSAGE, true);
        let answer = client.answer(stream);
        assert_eq!(in_trailers(&answer), ("0", None));
        assert_eq!(answer.content, [MESSAGE, MESSAGE].concat());
        let answer = call_and_wait(&mut client, &[("x-silent", "")]);
        assert_eq!(trailers_only(&answer), ("4", Some("blitz; error=http_response_timeout")));
        // Other requests have a minimum rate.
        let stream = client.request(Method::Post, "/", BodyLength::Unknown);
        let answer = client.answer(stream);
        assert_eq!(answer.status, Some(Status::REQUEST_TIMEOUT));
    }
}
