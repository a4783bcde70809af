//! The access log has one line for each request.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use blitz_gateway::access_log::{
    AccessLog, LineWriter, LogField, LogFilter, LogFormat, LogSettings, LogSink, LoggedStatus,
};
use blitz_gateway::{Options, RecordBatch, RecordSink};
use blitz_http::IoChoice;
use blitz_testing::h2::{self, flag, kind};
use blitz_testing::refusing_address;
use serde_json::Value;

use crate::basic_auth::basic;
use crate::jwt::{SECRET, bearer, token};
use crate::site_rules::{HOST, ask, gateway_with};
use crate::support::{Proxy, Upstream, eventually};

/// Keeps all lines.
#[derive(Default)]
pub(crate) struct Lines {
    kept: Mutex<Vec<u8>>,
    lost: AtomicU64,
}

impl LogSink for Lines {
    fn write(&self, mut lines: Vec<u8>) -> Vec<u8> {
        self.kept.lock().unwrap().extend_from_slice(&lines);
        lines.clear();
        lines
    }

    fn lose(&self, lines: u64) {
        self.lost.fetch_add(lines, Ordering::Relaxed);
    }
}

/// Keeps all records while it has room.
#[derive(Debug, Default)]
struct Records {
    kept: Mutex<Vec<RecordBatch>>,
    wants_all: AtomicBool,
    is_full: AtomicBool,
}

impl RecordSink for Records {
    fn take(&self, batch: RecordBatch) -> Option<RecordBatch> {
        if self.is_full.load(Ordering::Relaxed) {
            batch.lose_lines();
            return Some(batch);
        }
        self.kept.lock().unwrap().push(batch);
        None
    }

    fn wants_all(&self) -> bool {
        self.wants_all.load(Ordering::Relaxed)
    }
}

impl Records {
    fn count(&self) -> usize {
        self.kept
            .lock()
            .unwrap()
            .iter()
            .map(|batch| batch.records.len())
            .sum()
    }
}

impl Lines {
    fn text(&self) -> String {
        String::from_utf8(self.kept.lock().unwrap().clone()).unwrap()
    }

    /// The lines, once there are as many.
    pub(crate) fn wait(&self, count: usize) -> Vec<String> {
        eventually("all lines are written", || {
            self.text().lines().count() >= count
        });
        let lines: Vec<_> = self.text().lines().map(str::to_owned).collect();
        assert_eq!(lines.len(), count, "{lines:?}");
        lines
    }
}

/// A gateway with this log.
fn proxy(io: IoChoice, targets: &[&str], settings: LogSettings) -> (Proxy, Arc<Lines>) {
    let lines = Arc::<Lines>::default();
    let log = AccessLog::new(settings, Arc::clone(&lines) as Arc<dyn LogSink>);
    let options = Options {
        access_log: Some(Arc::new(log)),
        ..Options::default()
    };
    (Proxy::with(io, targets, options), lines)
}

fn with_format(format: LogFormat) -> LogSettings {
    LogSettings {
        format,
        ..LogSettings::default()
    }
}

pub(crate) fn json(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

/// The values of these fields, as JSON.
pub(crate) fn values(line: &Value, fields: &[&str]) -> Vec<Value> {
    let value = |field: &&str| line.get(field).cloned().unwrap_or(Value::Null);
    fields.iter().map(value).collect()
}

/// A request whose connection is read to its end.
fn send(proxy: &Proxy, request: &str) -> String {
    let mut peer = proxy.peer();
    peer.send(request);
    String::from_utf8_lossy(&peer.rest().0).into_owned()
}

scenarios! {
    fn the_user_of_a_request_is_in_its_line(io) {
        let site = format!(r#"
            log.access = "stdout"
            [site."a.example"]
            respond = "200 in"
            headers.X-For = "{{user}}"
            "/staff".basic_auth = "users.htpasswd"
            "/key".api_keys = {{ file = "api-keys" }}
            "/token" = {{ jwt = {{ secret = "{SECRET}" }}, rate_limit = {{ rate = "1/h", burst = 1, by = "jwt:jti" }} }}
        "#);
        let key = format!("{HOST}X-Api-Key: blitz_test_key_of_billing\r\n");
        // Nobody makes a field or a line of a name.
        let odd = bearer(&token(r#","sub":"a b\" [x] é""#));
        let no_text = bearer(&token(r#","sub":"a\r\nb","jti":"2""#));
        let requests = [
            ("/", HOST.to_owned(), 200, "", "-"),
            ("/staff", format!("{HOST}{}", basic("anna:secrets")), 200, "anna", "anna"),
            // Now the password is known.
            ("/staff", format!("{HOST}{}", basic("anna:secrets")), 200, "anna", "anna"),
            ("/staff", format!("{HOST}{}", basic("anna:wrong")), 401, "", "-"),
            ("/", format!("{HOST}{}", basic("anna:wrong")), 200, "", "-"),
            ("/key", key, 200, "billing", "billing"),
            ("/token", odd.clone(), 200, "a b\" [x] é", r"a\x20b\x22\x20[x]\x20\xc3\xa9"),
            // One that is refused for another reason.
            ("/token", odd, 429, "a b\" [x] é", r"a\x20b\x22\x20[x]\x20\xc3\xa9"),
            ("/token", no_text, 200, "", "-"),
        ];
        for format in [LogFormat::Json, LogFormat::Combined] {
            let lines = Arc::<Lines>::default();
            let log = AccessLog::new(with_format(format), Arc::clone(&lines) as Arc<dyn LogSink>);
            let options = Options {
                access_log: Some(Arc::new(log)),
                ..Options::default()
            };
            let proxy = gateway_with(io, options, &site);
            let mut client = proxy.client();
            for (path, fields, status, user, _) in &requests {
                let response = ask(&mut client, &format!("GET {path}"), fields);
                assert_eq!(response.status, *status, "{path}");
                assert_eq!(response.field("x-for").unwrap_or_default(), *user, "{path}");
            }
            for (line, (path, _, _, user, word)) in lines.wait(requests.len()).iter().zip(&requests) {
                match format {
                    LogFormat::Combined => assert_eq!(line.split(' ').nth(2), Some(*word), "{line}"),
                    _ => assert_eq!(json(line)["user"].as_str().unwrap_or_default(), *user, "{path} {line}"),
                }
            }
        }
    }

    fn a_line_has_what_is_known_of_the_request(io) {
        let upstream = Upstream::with_text("hello");
        let (proxy, lines) = proxy(io, &[&upstream.url()], LogSettings::default());
        send(&proxy, "PUT /a/b?token=secret&x HTTP/1.1\r\nHost: app.example:81\r\nUser-Agent: \"test\"\r\n\
            Referer: http://a/?q=secret\r\nAuthorization: secret\r\nX-Request-Id: the-id\r\n\
            Connection: close\r\nContent-Length: 3\r\n\r\nabc");
        let line = &lines.wait(1)[0];
        assert!(!line.contains("secret"), "{line}");
        let line = json(line);
        let fields = ["request_id", "client", "method", "scheme", "host", "path", "protocol"];
        let expected = ["the-id", "127.0.0.1", "PUT", "http", "app.example:81", "/a/b?token=***&***", "HTTP/1.1"];
        assert_eq!(values(&line, &fields), expected.map(Value::from));
        assert_eq!(values(&line, &["status", "bytes_in", "bytes_out", "attempts"]), [200, 3, 5, 1].map(Value::from));
        let upstream = format!("127.0.0.1:{}", upstream.port());
        assert_eq!(values(&line, &["upstream", "ended", "user_agent", "referer", "cause"]), [
            Value::from(upstream), "complete".into(), "\"test\"".into(), "http://a/?q=***".into(), Value::Null,
        ]);
        let seconds = |field: &str| line[field].as_f64().unwrap();
        assert!(seconds("connect_time") <= seconds("ttfb") && seconds("ttfb") <= seconds("duration"));
        assert!(seconds("upstream_time") <= seconds("duration"));
        let ts = line["ts"].as_str().unwrap();
        assert!(ts.len() == 24 && ts.ends_with('Z') && ts.as_bytes()[10] == b'T', "{ts}");
    }

    // The memory of large heads is freed before the end of the request.
    fn a_large_head_keeps_its_fields(io) {
        let upstream = Upstream::with_text("hello");
        let (proxy, lines) = proxy(io, &[&upstream.url()], LogSettings::default());
        let cookie = "c".repeat(20_000);
        send(&proxy, &format!(
            "GET /large HTTP/1.1\r\nHost: a\r\nCookie: {cookie}\r\nUser-Agent: browser\r\nConnection: close\r\n\r\n"
        ));
        let line = json(&lines.wait(1)[0]);
        assert_eq!(values(&line, &["path", "user_agent"]), ["/large", "browser"].map(Value::from));
    }

    // The upstream receives another path and another host.
    fn the_request_is_the_clients(io) {
        let upstream = Upstream::with_text("hello");
        let (mut proxy, lines) = proxy(io, &[], LogSettings::default());
        proxy.replace_sites(&format!(
            "[site.\"app.example\"]\nto = \"{}\"\nhost = \"inner.example\"\npath = \"/v2{{path}}\"\n\
             request_headers.User-Agent = \"gateway\"", upstream.url(),
        ));
        send(&proxy, "GET /a HTTP/1.1\r\nHost: app.example\r\nUser-Agent: browser\r\nConnection: close\r\n\r\n");
        assert_eq!(upstream.head().line, "GET /v2/a HTTP/1.1");
        let line = json(&lines.wait(1)[0]);
        let fields = ["site", "route", "host", "path", "user_agent"];
        let expected = ["app.example", "/", "app.example", "/a", "browser"];
        assert_eq!(values(&line, &fields), expected.map(Value::from));
    }

    fn each_end_of_a_request_has_one_line(io) {
        let upstream = Upstream::scripted(|_, peer| {
            while let Some((head, _)) = peer.request() {
                if head.line.contains("/cut") {
                    peer.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
                    return;
                }
                peer.send("HTTP/1.1 204 No Content\r\n\r\n");
            }
        });
        let (mut proxy, lines) = proxy(io, &[], LogSettings::default());
        proxy.replace_sites(&format!(
            "[site.\"a\"]\nto = \"{}\"\n\"/fixed\" = {{ respond = \"410 gone\" }}\n\
             \"/down\" = \"http://{}\"\n\"/closed\" = {{ allow = [\"192.0.2.0/24\"], respond = 204 }}\n\
             \"/quiet\" = {{ access_log = false }}",
            upstream.url(), refusing_address(),
        ));
        let cases = [
            ("GET / HTTP/1.1\r\nHost: a", 204, "complete", None),
            ("GET /fixed HTTP/1.1\r\nHost: a", 410, "complete", None),
            ("GET /closed HTTP/1.1\r\nHost: a", 403, "rejected", Some("forbidden")),
            ("GET /down HTTP/1.1\r\nHost: a", 502, "failed", Some("connection_refused")),
            ("GET /cut HTTP/1.1\r\nHost: a", 200, "cut-off", Some("http_response_incomplete")),
            ("GET / HTTP/1.1\r\nHost: b", 404, "rejected", Some("unknown-host")),
            ("GET / HTTP/1.1\r\nHost: a\r\nBad Name: x", 400, "refused", Some("field-name-malformed")),
            ("TRACE / HTTP/1.1\r\nHost: a", 405, "rejected", Some("method-not-forwarded")),
        ];
        for (count, (request, status, ended, cause)) in cases.into_iter().enumerate() {
            send(&proxy, "GET /quiet HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
            send(&proxy, &format!("{request}\r\nConnection: close\r\n\r\n"));
            let all = lines.wait(count + 1);
            let line = json(&all[count]);
            assert_eq!(values(&line, &["status", "ended", "cause"]), [
                Value::from(status), ended.into(), cause.map_or(Value::Null, Value::from),
            ], "{request}: {}", all[count]);
        }
    }

    // Their streams are reset. One whose content breaks a rule has been a request before.
    fn a_request_over_http_2_with_a_malformed_head_has_one_line(io) {
        let upstream = Upstream::with_text("hello");
        let (proxy, lines) = proxy(io, &[&upstream.url()], LogSettings::default());
        let mut peer = proxy.peer();
        let mut sent = [h2::PREFACE, &h2::settings(&[])].concat();
        let head = |stream, flags, field| {
            let pseudo = [(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "a")];
            let fields = h2::literals(pseudo.into_iter().chain([field]));
            h2::frame(kind::HEADERS, flags, stream, fields)
        };
        sent.extend(head(1, flag::END_HEADERS | flag::END_STREAM, ("connection", "close")));
        sent.extend(head(3, flag::END_HEADERS | flag::END_STREAM, ("Upper", "x")));
        sent.extend(head(5, flag::END_HEADERS, ("content-length", "1")));
        sent.extend(h2::frame(kind::DATA, flag::END_STREAM, 5, b"xyz"));
        peer.send(sent);
        let all = lines.wait(3);
        let of = |line: &String| values(&json(line), &["status", "protocol", "cause"]);
        let causes: Vec<_> = all.iter().map(of).collect();
        let malformed = |rule: &str| vec![Value::Null, "HTTP/2".into(), rule.into()];
        assert_eq!(causes[..2], [malformed("connection-specific-field"), malformed("field-name-uppercase")]);
        assert_eq!(causes[2][2], Value::Null);
    }

    fn a_user_and_a_fragment_have_no_place_in_a_line(io) {
        let upstream = Upstream::with_text("hello");
        let (proxy, lines) = proxy(io, &[&upstream.url()], LogSettings::default());
        // Longer than a host and a field in a line.
        let long = "secret".repeat(200);
        let requests = [
            "GET http://u:secret@a/x HTTP/1.1\r\nHost: a", "GET / HTTP/1.1\r\nHost: u:secret@a",
            "CONNECT u:secret@a:443 HTTP/1.1\r\nHost: a", "GET /f#secret HTTP/1.1\r\nHost: a",
            "GET / HTTP/1.1\r\nHost: a\r\nReferer: https://u:secret@b/?c=secret#secret",
            "GET http://a?c=secret HTTP/1.9\r\nHost: a", "GET http://a#secret HTTP/1.9\r\nHost: a",
            "GET / HTTP/1.1\r\nHost: a\r\nReferer: //u:secret@b/",
            "GET / HTTP/1.1\r\nHost: a\r\nReferer: https:/u:secret@b/",
            &format!("GET / HTTP/1.1\r\nHost: {long}@a"), &format!("GET http://{long}@a/x HTTP/1.1\r\nHost: a"),
            &format!("CONNECT {long}{long}@a:443 HTTP/1.1\r\nHost: a"),
            &format!("GET / HTTP/1.1\r\nHost: a\r\nReferer: https://{long}@b/"),
        ];
        for (count, request) in requests.into_iter().enumerate() {
            send(&proxy, &format!("{request}\r\nConnection: close\r\n\r\n"));
            let line = &lines.wait(count + 1)[count];
            assert!(!line.contains("secret"), "{line}");
        }
    }

    fn a_client_that_leaves_has_a_line_without_a_status(io) {
        let upstream = Upstream::scripted(|_, peer| {
            peer.request();
            // Until the gateway closes the connection.
            peer.request();
        });
        let (proxy, lines) = proxy(io, &[&upstream.url()], LogSettings::default());
        let mut client = proxy.peer();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        eventually("the upstream has it", || upstream.accepted() == 1);
        drop(client);
        let line = json(&lines.wait(1)[0]);
        assert_eq!(values(&line, &["status", "ended"]), [Value::Null, "client-gone".into()]);
    }

    // A client can neither add a line nor a field.
    fn a_client_cannot_forge_a_line(io) {
        let upstream = Upstream::with_text("hello");
        for format in [LogFormat::Json, LogFormat::Logfmt, LogFormat::Combined] {
            let (proxy, lines) = proxy(io, &[&upstream.url()], with_format(format));
            send(&proxy, "GET /a%0a\" HTTP/1.1\r\nHost: a\r\nUser-Agent: x\" \\ status=999 \u{202e}\u{85}\r\n\
                Referer: \",\"status\":\"999\r\nConnection: close\r\n\r\n");
            let line = &lines.wait(1)[0];
            assert!(!line.chars().any(char::is_control), "{line:?}");
            match format {
                LogFormat::Json => assert_eq!(json(line)["status"], 200),
                LogFormat::Logfmt => assert_eq!(line.matches(" status=200 ").count(), 1, "{line}"),
                LogFormat::Combined => assert_eq!(line.matches('"').count(), 6, "{line}"),
            }
        }
    }

    fn the_combined_format_is_that_of_other_servers(io) {
        let upstream = Upstream::with_text("hello");
        let (proxy, lines) = proxy(io, &[&upstream.url()], with_format(LogFormat::Combined));
        send(&proxy, "GET /a HTTP/1.1\r\nHost: a\r\nUser-Agent: test\r\nConnection: close\r\n\r\n");
        let line = &lines.wait(1)[0];
        let (client, rest) = line.split_once(" - - [").unwrap();
        let (time, rest) = rest.split_once("] ").unwrap();
        assert_eq!(client, "127.0.0.1");
        assert!(time.len() == 26 && time.ends_with(" +0000"), "{time}");
        assert_eq!(rest, "\"GET /a HTTP/1.1\" 200 5 \"-\" \"test\"");
    }

    fn fields_are_chosen(io) {
        let upstream = Upstream::with_text("hello");
        let fields = ["status", "header.X-A", "method", "header.X-A", "header.Cookie"];
        let (proxy, lines) = proxy(io, &[&upstream.url()], LogSettings {
            format: LogFormat::Logfmt,
            fields: fields.map(|field| field.parse::<LogField>().unwrap()).to_vec(),
            ..LogSettings::default()
        });
        send(&proxy, "GET /a HTTP/1.1\r\nHost: a\r\nx-a: 1\r\nX-A: 2 3\r\nCookie: c=d\r\nConnection: close\r\n\r\n");
        assert_eq!(lines.wait(1)[0], "status=200 x_a=\"1, 2 3\" method=GET x_a=\"1, 2 3\" cookie=***");
    }

    fn only_wanted_requests_have_a_line(io) {
        let upstream = Upstream::with_text("hello");
        let (proxy, lines) = proxy(io, &[&upstream.url(), "/down=http://127.0.0.1:9"], LogSettings {
            filter: LogFilter {
                statuses: vec![LoggedStatus::Class(5)],
                ..LogFilter::default()
            },
            ..LogSettings::default()
        });
        for path in ["/", "/down", "/"] {
            send(&proxy, &format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
        }
        assert_eq!(json(&lines.wait(1)[0])["status"], 502);
    }

    // Lines in the buffer of a core are written when it ends.
    fn the_last_lines_are_written(io) {
        let upstream = Upstream::with_text("hello");
        let (proxy, lines) = proxy(io, &[&upstream.url()], LogSettings::default());
        for _ in 0..3 {
            send(&proxy, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        }
        drop(proxy);
        assert_eq!(lines.text().lines().count(), 3);
    }

    fn a_reload_changes_the_log_and_loses_no_line(io) {
        let upstream = Upstream::with_text("hello");
        let (mut proxy, first) = proxy(io, &[&upstream.url()], LogSettings::default());
        let second = Arc::<Lines>::default();
        let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let mut client = proxy.client();
        client.send(request);
        client.response();
        let log = AccessLog::new(with_format(LogFormat::Logfmt), Arc::clone(&second) as Arc<dyn LogSink>);
        let site = format!("[site.\"*\"]\nto = \"{}\"", upstream.url());
        proxy.replace(&site, |replacement| replacement.with_access_log(Some(Arc::new(log))));
        client.send(request);
        client.response();
        proxy.replace(&site, |replacement| replacement.with_access_log(None));
        client.send(request);
        client.response();
        assert!(first.wait(1)[0].starts_with('{'));
        assert!(second.wait(1)[0].starts_with("ts="));
    }

    fn a_sink_takes_the_records_of_all_cores(io) {
        let upstream = Upstream::with_text("hello");
        let (lines, records) = (Arc::<Lines>::default(), Arc::<Records>::default());
        let log = Arc::new(AccessLog::new(LogSettings::default(), Arc::clone(&lines) as Arc<dyn LogSink>));
        let mut proxy = Proxy::with(io, &[], Options {
            access_log: Some(Arc::clone(&log)),
            record_sink: Some(Arc::clone(&records) as Arc<dyn RecordSink>),
            ..Options::default()
        });
        proxy.replace_sites(&format!(
            "[site.a]\nto = \"{}\"\n\"/quiet\" = {{ access_log = false }}", upstream.url(),
        ));
        let request = |path: &str| {
            send(&proxy, &format!("GET {path}?q=1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
        };
        let before = SystemTime::now();
        request("/logged");
        request("/quiet");
        eventually("the record is handed over", || records.count() == 1);
        records.wants_all.store(true, Ordering::Relaxed);
        request("/quiet");
        eventually("all records are wanted", || records.count() == 2);
        let batches = std::mem::take(&mut *records.kept.lock().unwrap());
        let all: Vec<_> = batches.iter().flat_map(|batch| &batch.records).collect();
        let paths: Vec<_> = all.iter().map(|record| (record.path(), record.query(), record.is_logged)).collect();
        assert_eq!(paths, [(&b"/logged"[..], Some(&b"q=1"[..]), true), (b"/quiet", Some(b"q=1"), false)]);
        let started = batches[0].wall_clock(all[0].started);
        assert!(started + Duration::from_secs(1) > before && started < SystemTime::now());
        let mut writer = LineWriter::default();
        batches.iter().for_each(|batch| writer.write(batch));
        assert_eq!(json(&lines.wait(1)[0])["path"], "/logged?q=***");
        // Any log can have a line of any record.
        let logfmt = AccessLog::new(with_format(LogFormat::Logfmt), Arc::<Lines>::default());
        let line = String::from_utf8_lossy(writer.line(&batches[1], all[1], &logfmt));
        assert!(line.contains(" path=\"/quiet?q=***\" "), "{line}");
        records.is_full.store(true, Ordering::Relaxed);
        request("/logged");
        request("/quiet");
        eventually("a line is lost", || lines.lost.load(Ordering::Relaxed) == 1);
    }
}
