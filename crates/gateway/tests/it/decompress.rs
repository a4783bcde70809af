//! Content of requests is decompressed on its way to the upstream.

use std::io::Write;

use blitz_gateway::{Options, Rejection};
use blitz_http::{BodyLength, Method, RequestHead, Status};
use blitz_testing::h3::{data, request_with};
use blitz_testing::{Client, Response};
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};

use crate::files::over_tls;
use crate::h2::{H2Upstream, h2};
use crate::h3_support::{QuicServer, block_on};
use crate::site_rules::{HOST, gateway, gateway_with};
use crate::support::{Proxy, Upstream, eventually, ok};

const CODINGS: [&str; 4] = ["gzip", "deflate", "br", "zstd"];

/// The usual form of content with a coding.
fn encoded(coding: &str, content: &[u8]) -> Vec<u8> {
    match coding {
        "gzip" => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(content).unwrap();
            encoder.finish().unwrap()
        }
        "deflate" => {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(content).unwrap();
            encoder.finish().unwrap()
        }
        "br" => {
            let mut output = Vec::new();
            let parameters = brotli::enc::BrotliEncoderParams {
                quality: 3,
                ..Default::default()
            };
            brotli::BrotliCompress(&mut &*content, &mut output, &parameters).unwrap();
            output
        }
        _ => zstd::bulk::compress(content, 1).unwrap(),
    }
}

/// Content of which no part repeats itself at once.
fn text(length: usize) -> Vec<u8> {
    let mut content = Vec::new();
    let mut number = 0_u64;
    while content.len() < length {
        number = number
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        content.extend_from_slice(format!("{} ", number >> 40).as_bytes());
    }
    content.truncate(length);
    content
}

/// Responds with facts about the content: its length, its sum, its coding, and whether its length was declared.
fn measuring() -> Upstream {
    Upstream::scripted(|_, peer| {
        while let Some(head) = peer.head() {
            let length = head
                .field("content-length")
                .map(|length| length.parse().unwrap());
            let content = match (head.field("transfer-encoding"), length) {
                (Some(_), _) => peer.chunks(),
                (None, length) => peer.exactly(length.unwrap_or_default()),
            };
            let Some(content) = content else { return };
            let coding = head.field("content-encoding").unwrap_or("none");
            let declared = length.is_some();
            peer.send(ok(&format!(
                "{} {} {coding} {declared}",
                content.len(),
                sum(&content)
            )));
        }
    })
}

fn sum(content: &[u8]) -> u64 {
    content.iter().fold(7, |sum: u64, byte| {
        sum.wrapping_mul(31).wrapping_add(u64::from(*byte))
    })
}

fn measured(content: &[u8], coding: &str, declared: bool) -> String {
    format!("{} {} {coding} {declared}", content.len(), sum(content))
}

fn post(client: &mut Client, path: &str, fields: &str, content: &[u8]) -> Response {
    let length = content.len();
    client.send(format!(
        "POST {path} HTTP/1.1\r\n{HOST}{fields}Content-Length: {length}\r\n\r\n"
    ));
    client.send(content);
    client.response()
}

fn in_chunks(client: &mut Client, fields: &str, content: &[u8], chunk: usize) -> Response {
    client.send(format!(
        "POST / HTTP/1.1\r\n{HOST}{fields}Transfer-Encoding: chunked\r\n\r\n"
    ));
    for piece in content.chunks(chunk) {
        client.send(format!("{:x}\r\n", piece.len()));
        client.send(piece);
        client.send("\r\n");
    }
    client.send("0\r\n\r\n");
    client.response()
}

fn field(coding: &str) -> String {
    format!("Content-Encoding: {coding}\r\n")
}

fn rejected(proxy: &Proxy, rejection: Rejection, count: u64) {
    eventually("it is counted", || {
        proxy.counters().rejected(rejection) == count
    });
}

scenarios! {
    fn the_upstream_gets_content_without_coding(io) {
        let upstream = measuring();
        let url = upstream.url();
        let proxy = gateway(io, &format!(r#"
            [site."a.example"]
            to = "{url}"
            decompress = true
            "/off".decompress = false
            "/held".buffer_request = "1m"
            "/spooled".buffer_request = {{ memory = "100k", file = "1m" }}
        "#));
        let mut client = proxy.client();
        let digests = "Content-Digest: sha-256=:AAAA:\r\nContent-MD5: AAAA\r\n";
        for coding in CODINGS {
            for content in [&b"a"[..], b"", &text(300_000)] {
                let sent = encoded(coding, content);
                let fields = format!("{}{digests}", field(coding));
                let response = post(&mut client, "/", &fields, &sent);
                assert_eq!(response.text(), measured(content, "none", false), "{coding}");
                let response = in_chunks(&mut client, &field(coding), &sent, 1000);
                assert_eq!(response.text(), measured(content, "none", false), "{coding}");
                // All of it is received first, so its length is known.
                for path in ["/held", "/spooled"] {
                    let response = post(&mut client, path, &field(coding), &sent);
                    assert_eq!(response.text(), measured(content, "none", true), "{path} {coding}");
                }
                let response = post(&mut client, "/off", &field(coding), &sent);
                assert_eq!(response.text(), measured(&sent, coding, true), "{coding}");
            }
        }
        let heads = upstream.heads();
        let decoded = heads.iter().filter(|head| head.line.starts_with("POST / "));
        assert!(decoded.clone().all(|head| head.field("content-digest").is_none() && head.field("content-md5").is_none()));
        assert_eq!(decoded.count(), CODINGS.len() * 3 * 2);
        assert_eq!(proxy.counters().decompressed, CODINGS.len() as u64 * 3 * 4);
        // Content that needs no decoder.
        for (fields, content) in [("", &b"plain"[..]), ("Content-Encoding: identity\r\n", b"plain")] {
            assert_eq!(post(&mut client, "/", fields, content).text(), measured(content, "none", true), "{fields}");
        }
        assert_eq!(post(&mut client, "/", &field("gzip"), b"").text(), measured(b"", "none", false));
        client.send(format!("GET / HTTP/1.1\r\n{HOST}Content-Encoding: foo\r\n\r\n"));
        assert_eq!(client.response().text(), measured(b"", "foo", false));
        let twice = [encoded("gzip", b"one "), encoded("gzip", b"two")].concat();
        assert_eq!(post(&mut client, "/", &field("x-gzip"), &twice).text(), measured(b"one two", "none", false));
    }

    fn no_spelling_of_the_coding_outlives_it(io) {
        let upstream = measuring();
        let site = format!("[site.\"localhost\"]\nto = \"{}\"\ndecompress = true\n", upstream.url());
        let proxy = gateway(io, &site);
        let spellings = ["content-encoding", "content_encoding", "content.encoding"];
        let sent = encoded("gzip", b"text");
        let is_without = || {
            let head = upstream.heads().pop().unwrap();
            assert_eq!(head.field("x_kept"), Some("1"));
            spellings.iter().all(|name| head.field(name).is_none())
        };
        let fields = "Host: localhost\r\nContent-Encoding: gzip\r\nContent_Encoding: gzip\r\n\
                      CONTENT.ENCODING: gzip\r\nX_Kept: 1\r\n";
        let mut client = proxy.client();
        client.send(format!("POST / HTTP/1.1\r\n{fields}Content-Length: {}\r\n\r\n", sent.len()));
        client.send(&sent);
        assert_eq!(client.response().text(), measured(b"text", "none", false));
        assert!(is_without(), "over HTTP/1.1");
        let mut client = h2(&proxy);
        let mut head = RequestHead::new(Method::Post, "/");
        head.set_authority("localhost");
        spellings.iter().for_each(|name| head.fields.append(*name, "gzip"));
        head.fields.append("x_kept", "1");
        let stream = client.send_head(&head, BodyLength::Unknown);
        client.send(stream, &sent, true);
        assert_eq!(client.answer(stream).content, measured(b"text", "none", false).as_bytes());
        assert!(is_without(), "over HTTP/2");
    }

    fn every_version_gives_the_same_verdict(io) {
        let upstream = measuring();
        let site = format!("[site.\"localhost\"]\nto = \"{}\"\ndecompress = {{ max = \"400k\" }}\n", upstream.url());
        let content = text(300_000);
        let mut cases: Vec<(&str, Vec<u8>, u16)> = Vec::new();
        for coding in CODINGS {
            let good = encoded(coding, &content);
            cases.push((coding, good[..good.len() / 2].to_vec(), 400));
            cases.push((coding, encoded(coding, &vec![0; 500_000]), 413));
            cases.push((coding, b"this is no content with a coding".to_vec(), 400));
            cases.push((coding, good, 200));
        }
        cases.push(("compress", b"x".to_vec(), 415));
        cases.push(("gzip, br", b"x".to_vec(), 415));
        let proxy = gateway(io, &site);
        let mut client = h2(&proxy);
        for (coding, sent, status) in &cases {
            let mut head = RequestHead::new(Method::Post, "/");
            head.set_authority("localhost");
            head.fields.append("content-encoding", *coding);
            let stream = client.send_head(&head, BodyLength::Unknown);
            client.send(stream, sent, true);
            let answer = client.answer(stream);
            assert_eq!(answer.status.map(Status::code), Some(*status), "{coding}");
            if *status == 200 {
                assert_eq!(answer.content, measured(&content, "none", false).as_bytes(), "{coding}");
            }
        }
        block_on(async {
            let server = QuicServer::with(|slot| over_tls(io, slot, &site));
            let client = server.raw_client().await;
            for (coding, sent, status) in &cases {
                let head = request_with("POST", "/", &[("content-encoding", *coding)]);
                let response = client.ask([head, data(sent)].concat()).await;
                assert_eq!(response.heads, [Some(*status)], "{coding}");
                if *status == 200 {
                    assert_eq!(response.content, measured(&content, "none", false).as_bytes(), "{coding}");
                }
            }
        });
        let mut client = proxy.client();
        for (coding, sent, status) in &cases {
            let length = sent.len();
            let fields = field(coding);
            client.send(format!("POST / HTTP/1.1\r\nHost: localhost\r\n{fields}Content-Length: {length}\r\n\r\n"));
            client.send(sent);
            let response = client.response();
            assert_eq!(response.status, *status, "{coding}");
            let accepted = response.field("accept-encoding");
            assert_eq!(accepted, (*status == 415).then_some("zstd, br, gzip, deflate"), "{coding}");
            client = proxy.client();
        }
        // Of this gateway over HTTP/1.1 and HTTP/2.
        for (rejection, count) in [
            (Rejection::Undecodable, 16), (Rejection::DecodedTooLarge, 8), (Rejection::ContentCoding, 4), (Rejection::DecodersFull, 0),
        ] {
            rejected(&proxy, rejection, count);
        }
    }

    fn the_limit_of_content_is_for_what_is_decoded(io) {
        let upstream = measuring();
        let url = upstream.url();
        let options = Options {
            body_bytes_max: Some(50_000),
            ..Options::default()
        };
        let proxy = gateway_with(io, options, &format!(r#"
            [site."a.example"]
            to = "{url}"
            decompress = true
            "/large".body_max = "100000"
            "/less" = {{ body_max = "100000", decompress.max = "10000" }}
            "/held" = {{ body_max = "100000", buffer_request = "20000" }}
        "#));
        for (path, max) in [("/", 50_000), ("/large", 100_000), ("/less", 10_000), ("/held", 20_000)] {
            for (length, status) in [(max, 200), (max + 1, 413)] {
                for coding in CODINGS {
                    let sent = encoded(coding, &vec![b'x'; length]);
                    assert!(sent.len() < 2000, "{coding}: {}", sent.len());
                    let response = post(&mut proxy.client(), path, &field(coding), &sent);
                    assert_eq!(response.status, status, "{path} {coding} {length}");
                }
            }
        }
        // 12 MiB in a few kilobytes, beyond the limit by default.
        let proxy = gateway(io, &format!("[site.\"a.example\"]\nto = \"{url}\"\ndecompress = true\n"));
        for coding in CODINGS {
            let bomb = encoded(coding, &vec![0; 12 << 20]);
            assert_eq!(post(&mut proxy.client(), "/", &field(coding), &bomb).status, 413, "{coding}");
            let large = encoded(coding, &vec![0; 10 << 20]);
            assert!(post(&mut proxy.client(), "/", &field(coding), &large).text().starts_with("10485760 "), "{coding}");
        }
    }

    fn a_client_has_a_share_of_the_memory(io) {
        let upstream = measuring();
        let site = format!("[site.\"a.example\"]\nto = \"{}\"\ndecompress = true\n", upstream.url());
        let options = Options {
            trusted_proxies: ["127.0.0.1".parse().unwrap()].into_iter().collect(),
            ..Options::default()
        };
        let proxy = gateway_with(io, options, &site);
        // A frame with a window of 8 MiB, and one with its end.
        let begun = b"\x28\xb5\x2f\xfd\0\x68\x08\0\0x";
        let whole = [&begun[..], b"\x09\0\0y"].concat();
        let fields = field("zstd");
        let held: Vec<_> = (0..4)
            .map(|number| {
                let mut client = proxy.client();
                client.send(format!(
                    "POST / HTTP/1.1\r\n{HOST}{fields}X-Forwarded-For: 2001:db8::{number}\r\nContent-Length: 14\r\n\r\n"
                ));
                client.send(begun);
                client
            })
            .collect();
        eventually("one of four is refused", || proxy.counters().rejected(Rejection::DecodersFull) == 1);
        let other = format!("{fields}X-Forwarded-For: 2001:db8:0:1::1\r\n");
        assert_eq!(post(&mut proxy.client(), "/", &other, &whole).status, 200);
        drop(held);
    }

    fn what_was_decoded_can_be_sent_again(io) {
        let upstream = Upstream::scripted(|number, peer| {
            let Some(_) = peer.head() else { return };
            let Some(content) = peer.chunks() else { return };
            // The first connection ends without a response.
            if number > 0 {
                peer.send(ok(&String::from_utf8(content).unwrap()));
            }
        });
        let site = format!("[site.\"a.example\"]\nto = \"{}\"\ndecompress = true\n", upstream.url());
        let proxy = gateway(io, &site);
        let sent = encoded("gzip", b"hello again");
        let mut client = proxy.client();
        let length = sent.len();
        client.send(format!("PUT / HTTP/1.1\r\n{HOST}Content-Encoding: gzip\r\nContent-Length: {length}\r\n\r\n"));
        client.send(&sent);
        assert_eq!(client.response().text(), "hello again");
        assert_eq!(proxy.counters().retries, 1);
    }

    fn content_flows_as_it_is_decoded(io) {
        let upstream = Upstream::scripted(|_, peer| {
            let Some(_) = peer.head() else { return };
            // The response comes before the end of the request.
            while peer.line().is_some_and(|line| !line.contains("first")) {}
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\ngot");
            let _ = peer.rest();
        });
        let site = format!("[site.\"a.example\"]\nto = \"{}\"\ndecompress = true\n", upstream.url());
        let proxy = gateway(io, &site);
        for coding in ["gzip", "zstd"] {
            let sent = match coding {
                "gzip" => {
                    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
                    encoder.write_all(b"first\n").unwrap();
                    encoder.flush().unwrap();
                    encoder.get_ref().clone()
                }
                _ => {
                    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
                    encoder.write_all(b"first\n").unwrap();
                    encoder.flush().unwrap();
                    encoder.get_ref().clone()
                }
            };
            let mut client = proxy.client();
            let fields = field(coding);
            client.send(format!("POST / HTTP/1.1\r\n{HOST}{fields}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n", sent.len()));
            client.send(&sent);
            client.send("\r\n");
            let response = client.response();
            assert_eq!((response.status, response.text()), (200, "got"), "{coding}");
        }
    }

    fn an_http2_upstream_gets_it_too(io) {
        let upstream = H2Upstream::scripted(|_, mut peer| {
            while let Some((stream, received)) = peer.request() {
                let text = format!("{received:?}");
                peer.answer(stream, Status::OK, &text);
            }
        });
        let site = format!("[site.\"a.example\"]\nto = \"{}\"\ndecompress = true\n", upstream.url);
        let proxy = gateway(io, &site);
        let response = post(&mut proxy.client(), "/", &field("br"), &encoded("br", b"hello"));
        assert_eq!(response.status, 200);
        assert!(!response.text().contains("content-encoding"), "{}", response.text());
        let response = post(&mut proxy.client(), "/", &field("br"), b"\x0f\xff\xff\xff");
        assert_eq!(response.status, 400);
    }
}
