//! A limit belongs to the message, not to its wire form (rule 25).

use std::time::Duration;

use blitz_proto::Method::Get;
use blitz_proto::{Limits, Name, RequestHead};

use crate::h2_frames::{self, EH, END};
use crate::h2_support::{pair, settle};
use crate::h3_support::{self, End, last, more};
use crate::support::{requests_with, responses_to};

/// A request with a cookie in `crumbs` lines and `others` other fields.
fn request(crumbs: &[String], others: usize) -> RequestHead {
    let mut head = RequestHead::new(Get, "/");
    head.set_authority("a");
    for number in 0..others {
        head.fields.append(format!("x-{number}").as_str(), "1");
    }
    for crumb in crumbs {
        head.fields.append(Name::Cookie, crumb.as_str());
    }
    head
}

/// The result of a server of HTTP/2 and of one of HTTP/3: the status of a refusal, or the number of fields, the cookie,
/// and the bytes of text that the head holds.
fn received(head: &RequestHead) -> [Result<(usize, String, usize), String>; 2] {
    let (mut client, mut server) = pair();
    let stream = client.request(head, Vec::new(), None).expect("a stream");
    settle(&mut client, &mut server);
    let status = &client.messages[&stream].start;
    let http2 = match status.as_str() {
        "200" => Ok(summary(&server.received.request)),
        _ => Err(status.clone()),
    };
    let fields = head.fields.iter();
    let lines = fields
        .map(|(name, value)| format!("{}: {}\n", name.as_str(), String::from_utf8_lossy(value)));
    let section = format!("{}\n{}", h3_support::GET, lines.collect::<String>());
    let mut end = End::server(&Limits::default());
    end.arrive(&last(0, h3_support::headers(&section.to_ascii_lowercase())));
    let http3 = match end.log.contains("refused") {
        false => Ok(summary(&end.received.request)),
        true => Err(end.log),
    };
    [http2, http3]
}

fn summary(head: &RequestHead) -> (usize, String, usize) {
    let cookie = head.fields.get_str(Name::Cookie).unwrap_or_default();
    (head.fields.len(), cookie.to_owned(), head.text_len())
}

fn crumbs(count: usize, value_len: usize) -> Vec<String> {
    let crumb = |number| format!("c{number:03}={}", "v".repeat(value_len));
    (0..count).map(crumb).collect()
}

#[test]
fn the_crumbs_of_a_cookie_are_one_field() {
    // With the host, 98 other fields leave room for one.
    for (count, value_len, others) in [(180, 1, 98), (600, 40, 20), (1_000, 1, 98), (60, 500, 10)] {
        let crumbs = crumbs(count, value_len);
        for outcome in received(&request(&crumbs, others)) {
            let (fields, cookie, text_len) = outcome.expect("a legal request");
            assert_eq!((fields, cookie), (others + 1, crumbs.join("; ")));
            // The crumbs are not kept beside the field.
            assert!(
                text_len < crumbs.join("; ").len() + 1_000,
                "{text_len} bytes"
            );
        }
    }
}

#[test]
fn crumbs_have_limits() {
    let too_many = request(&crumbs(1_001, 1), 0);
    let too_large = request(&crumbs(800, 50), 0);
    let too_many_fields = request(&crumbs(2, 1), 99);
    for head in [too_many, too_large, too_many_fields] {
        let [http2, http3] = received(&head);
        assert_eq!(http2, Err("431".to_owned()));
        assert_eq!(http3, Err("0 refused 431".to_owned()));
    }
}

#[test]
fn crumbs_between_other_fields_are_joined_too() {
    let mut head = request(&crumbs(2, 1), 2);
    head.fields.append("x-between", "1");
    head.fields.append(Name::Cookie, "");
    head.fields.append("x-last", "1");
    head.fields.append(Name::Cookie, "d=1");
    head.fields.append(Name::Cookie, "e=1");
    for outcome in received(&head) {
        let (fields, cookie, _) = outcome.expect("a legal request");
        assert_eq!((fields, cookie.as_str()), (5, "c000=v; c001=v; ; d=1; e=1"));
    }
}

/// Details of an error of gRPC, for example.
#[test]
fn the_trailers_of_a_response_have_the_limits_of_its_head() {
    let many = (0..200)
        .map(|n| format!("x-{n}: 1\r\n"))
        .collect::<String>();
    // Smaller ones, because each is cut at every byte.
    let limits = Limits {
        head_bytes_max: 2_000,
        trailer_bytes_max: 100,
        ..Limits::default()
    };
    let h1 = |trailers: &str| {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n";
        let raw = format!("{head}{trailers}\r\n");
        responses_to(&RequestHead::new(Get, "/"), raw.as_bytes(), &limits)
    };
    let h2 = |trailers: &str| {
        let frames = [
            h2_frames::headers(EH, 1, ":status: 200"),
            h2_frames::headers(END | EH, 1, &trailers.replace("\r\n", "\n")),
        ];
        h2_frames::client(Get, &frames.concat())
    };
    let h3 = |trailers: &str| {
        let sections = [":status: 200", &trailers.replace("\r\n", "\n")];
        h3_support::client(&[last(0, sections.map(h3_support::headers).concat())])
    };
    let large = format!("x: {}\r\n", "v".repeat(9_000));
    for seen in [
        h1(&format!("{}\r\n", &large[..1_500])),
        h2(&large),
        h2(&many),
        h3(&large),
        h3(&many),
    ] {
        let arrived = seen.contains(" trailers") && !seen.contains("too-large");
        assert!(arrived, "{seen:.300}");
    }
    let too_many = format!("{many}x: 1\r\n");
    for seen in [
        h1(&too_many.replace(": 1", ":")),
        h2(&too_many),
        h3(&too_many),
    ] {
        assert!(seen.contains("trailers-too-large"), "{seen:.300}");
    }
    let too_large = h1(&format!("x: {}\r\n", "v".repeat(2_000)));
    assert!(
        too_large.ends_with("refused 502 trailers-too-large"),
        "{too_large:.300}"
    );
    // Those of a request have their own.
    let request = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n";
    let large = format!("{request}x: {}\r\n\r\n", "v".repeat(200));
    let seen = requests_with(large.as_bytes(), &limits);
    assert!(
        seen.ends_with("refused 431 trailers-too-large"),
        "{seen:.300}"
    );
}

/// 102 Processing may be sent for as long as the work takes (RFC 2518, section 10.1).
#[test]
fn informational_responses_are_limited_by_their_rate() {
    for (millis, is_allowed) in [(10_000, true), (1_000, true), (400, false), (0, false)] {
        let mut http2 = crate::h2_support::End::client(&Limits::default());
        let stream = http2.get("/");
        http2.receive(&h2_frames::frame(4, 0, 0, []));
        let mut http3 = End::client(&Limits::default());
        http3.request(0);
        for _ in 0..40 {
            http2.receive(&h2_frames::headers(EH, stream.get(), ":status: 102"));
            http3.arrive(&more(0, h3_support::headers(":status: 102")));
            http2.now += Duration::from_millis(millis);
            http3.now += Duration::from_millis(millis);
        }
        let was_reset = !http2.take_out().is_empty()
            && http2
                .messages
                .get(&stream)
                .is_none_or(|message| message.reset.is_some());
        assert_eq!(was_reset, !is_allowed, "HTTP/2, every {millis} ms");
        let was_reset = http3.log.contains("too-many-informational");
        assert_eq!(was_reset, !is_allowed, "HTTP/3, every {millis} ms");
    }
}
