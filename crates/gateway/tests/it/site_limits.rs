//! Limits of a site for the heads and trailers of its requests.

use blitz_gateway::{Options, Rejection};
use blitz_http::{BodyLength, Method, RequestHead, Status};

use crate::h2::h2;
use crate::site_rules::{ask, gateway_with};
use crate::support::{Upstream, ok};

/// An upstream that responds with the number of its fields and trailers.
fn counting() -> Upstream {
    Upstream::scripted(|_, peer| {
        while let Some((head, body)) = peer.request() {
            let text = String::from_utf8_lossy(&body).into_owned();
            peer.send(ok(&format!("{} {text}", head.fields.len())));
        }
    })
}

fn text(upstream: &Upstream) -> String {
    let url = upstream.url();
    format!(
        "[site.\"small.example\"]\nto = \"{url}\"\nrequest_trailers = true\n\
         limits = {{ head_max = \"300\", fields_max = 5, request_line_max = \"40\", trailers_max = \"30\" }}\n\
         canonical_for = [\"www.small.example\"]\n\
         [site.\"large.example\"]\nto = \"{url}\"\nrequest_trailers = true\n"
    )
}

scenarios! {
    fn a_site_takes_smaller_heads_than_the_process(io) {
        let upstream = counting();
        let proxy = gateway_with(io, Options::default(), &text(&upstream));
        let mut client = proxy.client();
        let long = format!("/{}", "p".repeat(40));
        let large = format!("X-Large: {}\r\n", "x".repeat(300));
        let many = "X-Many: 1\r\n".repeat(5);
        for (host, path, fields, expected) in [
            ("small.example", "/", "", 200),
            ("small.example", "/", large.as_str(), 431),
            ("small.example", "/", &many[..many.len() / 5 * 4], 200),
            ("small.example", "/", many.as_str(), 431),
            ("small.example", long.as_str(), "", 414),
            ("www.small.example", long.as_str(), "", 414),
            ("large.example", "/", large.as_str(), 200),
            ("large.example", "/", many.as_str(), 200),
            ("large.example", long.as_str(), "", 200),
        ] {
            let response = ask(&mut client, &format!("GET {path}"), &format!("Host: {host}\r\n{fields}"));
            assert_eq!(response.status, expected, "{host} {path} {fields}");
        }
        let counters = proxy.counters();
        assert_eq!(counters.rejections[Rejection::HeadTooLarge as usize], 2);
        assert_eq!(counters.rejections[Rejection::RequestLineTooLong as usize], 2);
        assert_eq!(upstream.heads().len(), 5);
    }

    fn the_limits_are_those_of_all_versions(io) {
        let upstream = counting();
        let proxy = gateway_with(io, Options::default(), &text(&upstream));
        let mut client = h2(&proxy);
        let long = format!("/{}", "p".repeat(40));
        for (host, path, is_large, expected) in [
            ("small.example", "/", false, Status::OK),
            ("small.example", "/", true, Status::REQUEST_HEADER_FIELDS_TOO_LARGE),
            ("small.example", long.as_str(), false, Status::URI_TOO_LONG),
            ("large.example", long.as_str(), true, Status::OK),
        ] {
            let mut head = RequestHead::new(Method::Get, path);
            head.set_authority(host);
            if is_large {
                head.fields.append("x-large", "x".repeat(300));
            }
            let stream = client.send_head(&head, BodyLength::Empty);
            assert_eq!(client.answer(stream).status, Some(expected), "{host} {path}");
        }
    }

    fn an_upstream_has_limits_of_its_own_for_responses(io) {
        let upstream = Upstream::scripted(|_, peer| {
            while let Some((head, _)) = peer.request() {
                let size = if head.line.contains("large") { 40_000 } else { 200 };
                peer.send(format!("HTTP/1.1 200 OK\r\nX-Size: {}\r\nContent-Length: 0\r\n\r\n", "x".repeat(size)));
            }
        });
        let url = upstream.url();
        let text = format!(
            "[upstream.large]\nservers = [\"{url}\"]\nlimits.head_max = \"64k\"\n\
             [upstream.small]\nservers = [\"{url}\"]\nlimits = {{ head_max = \"100\", fields_max = 5 }}\n\
             [site.\"*\"]\nto = \"{url}\"\n\"/of-large\" = \"large\"\n\"/of-small\" = \"small\"\n"
        );
        let proxy = gateway_with(io, Options::default(), &text);
        for (path, expected) in [
            ("/", 200),
            ("/large", 502),
            ("/of-large/large", 200),
            ("/of-small", 502),
        ] {
            let mut client = proxy.client();
            let response = ask(&mut client, &format!("GET {path}"), "Host: a\r\n");
            assert_eq!(response.status, expected, "{path}");
        }
    }

    fn a_site_takes_smaller_trailers_than_the_process(io) {
        let upstream = counting();
        let proxy = gateway_with(io, Options::default(), &text(&upstream));
        for (host, value, expected) in [
            ("small.example", "ok", 200),
            ("small.example", "too large for this site", 431),
            ("large.example", "not too large for this one", 200),
        ] {
            let mut client = proxy.client();
            client.send(format!(
                "POST / HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX-Sum: {value}\r\n\r\n"
            ));
            assert_eq!(client.response().status, expected, "{host} {value}");
        }
        assert_eq!(proxy.counters().rejections[Rejection::TrailersTooLarge as usize], 1);
    }
}
