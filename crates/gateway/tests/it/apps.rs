//! An app and a proxy in one site: the router, the changes of fields and the records are the same for both.

use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use blitz::App;
use blitz_config::{Document, Environment, read};
use blitz_gateway::{
    Ended, Failure, Gateway, LoadedFile, Options, Record, RecordHook, Rejection, Site, compile,
};
use blitz_http::{BodyError, BodyLength, IoChoice, Limits, Method, RequestHead, Status, Version};
use blitz_site::EndpointMaker;
use blitz_site::matcher::RouteKey;
use blitz_testing::H1Peer;
use blitz_testing::h3::request;

use crate::h2::h2;
use crate::h3_support::{QuicServer, block_on};
use crate::support::{Proxy, Upstream, any_port, eventually};

/// The owned parts of a record.
#[derive(Debug, Clone)]
struct Seen {
    version: Version,
    request: String,
    site: Option<String>,
    route: Option<String>,
    status: Option<u16>,
    bytes: u64,
    request_bytes: u64,
    is_relayed: bool,
    ended: Ended,
}

impl Seen {
    /// The compared facts: request, site, route, status and bytes.
    fn facts(&self) -> (&str, Option<&str>, Option<&str>, Option<u16>, u64) {
        let (site, route) = (self.site.as_deref(), self.route.as_deref());
        (&self.request, site, route, self.status, self.bytes)
    }
}

#[derive(Default, Clone)]
struct Records(Arc<Mutex<Vec<Seen>>>);

impl Records {
    fn hook(&self) -> RecordHook {
        let keeps = Arc::clone(&self.0);
        RecordHook::new(move |record: &Record<'_>, head| {
            let host = head.authority().unwrap_or_default();
            let path = head.known_path().unwrap_or_default();
            keeps.lock().unwrap().push(Seen {
                version: record.version,
                request: format!("{} {host}{path}", head.method_str()),
                site: record.site.map(str::to_owned),
                route: record.route.map(|route| route.name().to_owned()),
                status: record.response.status.map(Status::code),
                bytes: record.response.bytes,
                request_bytes: record.request_bytes,
                is_relayed: record.response.is_relayed,
                ended: record.response.ended.clone(),
            });
        })
    }

    /// All records, once there are so many.
    fn all(&self, count: usize) -> Vec<Seen> {
        eventually("there are records", || {
            self.0.lock().unwrap().len() >= count
        });
        let seen = self.0.lock().unwrap().clone();
        assert_eq!(seen.len(), count, "{seen:?}");
        seen
    }

    fn only(&self) -> Seen {
        self.all(1).remove(0)
    }
}

/// An app, which the site has below `/app`.
fn app() -> EndpointMaker {
    let app = App::new()
        .get("/app/hello", || "hello from the app")
        .get("/app/late", || async {
            blitz::sleep(Duration::from_millis(10)).await;
            "late"
        })
        .get("/app/stream", || {
            blitz::Response::stream(async |writer| {
                writer.send("two ").await?;
                writer.send("pieces").await?;
                Ok(())
            })
        })
        .get("/app/breaks", || {
            blitz::Response::stream(async |writer| {
                writer.send("one").await?;
                Err(std::io::Error::other("it breaks").into())
            })
        })
        .get("/app/endless", || {
            blitz::Response::stream(async |writer| {
                loop {
                    writer.send("x").await?;
                    blitz::sleep(Duration::from_millis(1)).await;
                }
            })
        })
        .get("/app/fails", || -> Result<&'static str, blitz::Problem> {
            Err(std::io::Error::other("it fails").into())
        })
        .get("/app/missing", || {
            blitz::Problem::new(Status::NOT_FOUND).detail("no user 7")
        })
        .get("/app/asked", |request: blitz::Request| {
            request
                .fields()
                .get_str("x-tenant")
                .unwrap_or("none")
                .to_owned()
        })
        .post("/app/read", async |mut body: blitz::extract::Body| {
            while body.chunk().await?.is_some() {}
            Ok::<_, blitz::Problem>("read")
        });
    let app = app.build().unwrap();
    EndpointMaker::new(move || app.on_core())
}

/// A gateway with a site for all hosts: an app below `/app`, and a proxy for all other paths.
fn site(gateway: Gateway, upstream: &Upstream, options: Options) -> Gateway {
    let text = format!(
        "[site.\"*\"]\nto = \"{}\"\nheaders.X-Site = \"{{path}}\"\nheaders.X-Powered-By = false\n\
         request_headers.X-Tenant = \"t1\"\n\"GET /only\" = \"{}\"\n",
        upstream.url(),
        upstream.url(),
    );
    with_app(gateway.options(options), &text)
}

/// The gateway with the sites of a text, the first of which has the app below `/app`.
fn with_app(gateway: Gateway, text: &str) -> Gateway {
    let mut sites = sites_of(text);
    let served = sites[0].serve(RouteKey::parse("/app").unwrap(), app());
    served.map_err(|gap| gap.to_string()).unwrap();
    sites.into_iter().fold(gateway, Gateway::site)
}

/// Every file that a site names.
const PAGE: &[u8] = b"<h1>a page</h1>";

/// The sites of a text.
fn sites_of(text: &str) -> Vec<Site> {
    let document = Document::new("blitz.toml", text);
    let (configuration, mut diagnostics) = read(&document, &Environment::default());
    let mut read_file = |name: &str| Ok(LoadedFile::new(Path::new(name), PAGE));
    let sites = compile(&configuration, &mut read_file, &mut diagnostics);
    assert_eq!(diagnostics, []);
    sites
}

/// A site of these lines, whose app is below `/app`.
fn with_rules(io: IoChoice, lines: &str) -> Proxy {
    let text = format!("[site.\"*\"]\nrespond = 204\n{lines}\n");
    Proxy::start(with_app(Proxy::gateway(io), &text), &[])
}

struct Server {
    proxy: Proxy,
    records: Records,
    _upstream: Upstream,
}

fn server(io: IoChoice, mut options: Options) -> Server {
    let upstream = Upstream::with_text("hello from the upstream");
    let records = Records::default();
    options.record_hook = Some(records.hook());
    let gateway = site(Proxy::gateway(io), &upstream, options);
    Server {
        proxy: Proxy::start(gateway, &[]),
        records,
        _upstream: upstream,
    }
}

const CASES: [(&str, u16, &str, &str); 6] = [
    ("/app/hello", 200, "hello from the app", "/app"),
    ("/app/late", 200, "late", "/app"),
    ("/app/stream", 200, "two pieces", "/app"),
    ("/app/asked", 200, "t1", "/app"),
    ("/app/none", 404, "", "/app"),
    ("/else", 200, "hello from the upstream", "/"),
];

/// Whether there is one complete record for each case.
fn check(seen: &[Seen], host: &str, version: Version) {
    for (seen, (path, status, content, route)) in seen.iter().zip(CASES) {
        let request = format!("GET {host}{path}");
        let bytes = if content.is_empty() {
            seen.bytes
        } else {
            content.len() as u64
        };
        assert_eq!(
            seen.facts(),
            (&*request, Some("*"), Some(route), Some(status), bytes)
        );
        assert!(
            seen.bytes > 0 && matches!(seen.ended, Ended::Complete),
            "{seen:?}"
        );
        assert_eq!(
            (seen.version, seen.is_relayed),
            (version, route == "/"),
            "{seen:?}"
        );
    }
}

/// As the error `access-gap` of a file.
#[test]
fn an_app_takes_no_requests_that_a_route_protects() {
    for (protected, key, is_gap) in [
        ("POST /app", "/app/hello", true),
        ("/{x}/hello", "/app/hello", true),
        ("/app", "/{x}/hello", false),
        ("/app", "/app/hello", false),
        ("GET /app/x", "POST /app", false),
        ("/other", "/app", false),
    ] {
        let text = format!(
            "[site.\"*\"]\nrespond = 204\n\"{protected}\".allow = [\"unix\"]\n\"/app\" = {{ allow = false }}\n"
        );
        let text = match protected {
            "/app" => text.replace("\"/app\" = { allow = false }\n", ""),
            _ => text,
        };
        let mut sites = sites_of(&text);
        let served = sites[0].serve(RouteKey::parse(key).unwrap(), app());
        assert_eq!(served.is_err(), is_gap, "{protected} {key}");
    }
}

scenarios! {
    fn an_app_and_a_proxy_answer_in_one_site(io) {
        let Server { proxy, records, _upstream } = server(io, Options::default());
        let mut client = proxy.client();
        for (path, status, content, _) in CASES {
            client.send(format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n"));
            let response = client.response();
            assert_eq!(response.status, status, "{path}");
            assert!(response.text().contains(content), "{path}");
            assert_eq!(response.field("x-site"), Some(path));
        }
        check(&records.all(CASES.len()), "a.example", Version::Http11);
        assert_eq!(proxy.counters().routed, CASES.len() as u64);
    }

    fn the_rules_of_a_site_hold_for_its_app(io) {
        for (lines, request, status) in [
            ("allow = [\"10.0.0.0/8\"]", "GET /app/hello HTTP/1.1\r\n", 403),
            ("methods = [\"GET\"]", "POST /app/read HTTP/1.1\r\nContent-Length: 0\r\n", 405),
            ("body_max = \"10\"", "POST /app/read HTTP/1.1\r\nContent-Length: 20\r\n", 413),
            ("body_max = \"20\"", "GET /app/hello HTTP/1.1\r\n", 200),
        ] {
            let proxy = with_rules(io, lines);
            let mut client = proxy.client();
            client.send(format!("{request}Host: a.example\r\n\r\n"));
            assert_eq!(client.response().status, status, "{lines}");
        }
        let proxy = with_rules(io, "request_headers.X-Tenant = \"{request_id}\"");
        let mut client = proxy.client();
        client.send("GET /app/asked HTTP/1.1\r\nHost: a.example\r\n\r\n");
        assert_ne!(client.response().text(), "none");
    }

    fn an_app_has_the_rules_of_the_routes_around_it(io) {
        for (lines, key, status) in [
            ("\"/app\".allow = [\"10.0.0.0/8\"]", "/app/hello", 403),
            ("\"/{any}\".deny = [\"127.0.0.0/8\"]", "/app/hello", 403),
            ("\"/app\".methods = [\"POST\"]", "/app/hello", 405),
            ("allow = [\"10.0.0.0/8\"]\n\"/app\".allow = false", "/app/hello", 200),
            ("allow = [\"10.0.0.0/8\"]\n\"/app*\".allow = false", "/app", 200),
            ("\"=/app/hello\".allow = [\"10.0.0.0/8\"]", "/app", 403),
            // A route of the same key gets the app.
            ("\"/app\".deny = [\"10.0.0.0/8\"]", "/app", 200),
        ] {
            let mut sites = sites_of(&format!("[site.\"*\"]\nrespond = 204\n{lines}\n"));
            sites[0].serve(RouteKey::parse(key).unwrap(), app()).unwrap();
            let proxy = Proxy::start(sites.into_iter().fold(Proxy::gateway(io), Gateway::site), &[]);
            let mut client = proxy.client();
            client.send("GET /app/hello HTTP/1.1\r\nHost: a.example\r\n\r\n");
            assert_eq!(client.response().status, status, "{lines} {key}");
        }
    }

    fn an_app_has_the_pages_of_its_site(io) {
        let proxy = with_rules(io, "errors = { 404 = \"404.html\", 5xx = \"50x.html\" }");
        let page = String::from_utf8_lossy(PAGE);
        let mut client = proxy.client();
        for (path, accept, status, content) in [
            ("/app/none", "text/html", 404, &*page),
            ("/app/fails", "text/html", 500, &*page),
            ("/app/none", "application/json", 404, "{\"status\":404,\"title\":\"Not Found\"}"),
            // Error responses of an app are not replaced.
            ("/app/missing", "text/html", 404, "404 Not Found: no user 7\n"),
            ("/app/hello", "text/html", 200, "hello from the app"),
        ] {
            client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nAccept: {accept}\r\n\r\n"));
            let response = client.response();
            assert_eq!((response.status, response.text()), (status, content), "{path} {accept}");
        }
    }

    fn content_that_is_received_is_recorded(io) {
        let records = Records::default();
        let options = Options { record_hook: Some(records.hook()), ..Options::default() };
        let text = "[site.\"*\"]\nrespond = \"200 in\"\n".to_owned();
        let proxy = Proxy::start(with_app(Proxy::gateway(io).options(options), &text), &[]);
        for path in ["/app/read", "/fixed"] {
            let mut client = proxy.client();
            client.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n01234"));
            assert_eq!(client.response().status, 200);
        }
        let seen = records.all(2);
        assert_eq!((seen[0].request_bytes, seen[1].request_bytes), (5, 5), "{seen:?}");
    }

    fn redirects_to_the_canonical_host_are_of_its_site(io) {
        let records = Records::default();
        let options = Options { record_hook: Some(records.hook()), ..Options::default() };
        let text = "[site.\"a.example\"]\nrespond = 204\ncanonical_for = [\"www.a.example\"]\n".to_owned();
        let proxy = Proxy::start(with_app(Proxy::gateway(io).options(options), &text), &[]);
        let mut client = proxy.client();
        client.send("GET /x HTTP/1.1\r\nHost: www.a.example\r\n\r\n");
        assert_eq!(client.response().status, 308);
        let seen = records.only();
        assert_eq!(seen.facts(), ("GET www.a.example/x", Some("a.example"), Some("other paths"), Some(308), seen.bytes));
    }

    fn a_listener_is_closed_while_an_app_answers(io) {
        let (upstream, records) = (Upstream::with_text("hello"), Records::default());
        let options = Options {
            record_hook: Some(records.hook()),
            drain_timeout: Duration::from_millis(50),
            ..Options::default()
        };
        let gateway = site(Proxy::gateway(io).listen(any_port()), &upstream, options);
        let mut proxy = Proxy::start(gateway, &[]);
        let address = (Ipv4Addr::LOCALHOST, proxy.ports()[1]);
        let mut peer = H1Peer::new(TcpStream::connect(address).unwrap());
        peer.send("GET /app/endless HTTP/1.1\r\nHost: a\r\n\r\n");
        peer.head().unwrap();
        proxy.keep_one_listener(sites_of("[site.\"*\"]\nrespond = 204\n"));
        peer.rest();
        let seen = records.only();
        assert!(matches!(seen.ended, Ended::CutOff(Failure::DrainEnded)), "{seen:?}");
        // Clients of others are not taken for cut off.
        let mut peer = proxy.peer();
        peer.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n");
        assert!(peer.head().unwrap().line.contains(" 204 "));
    }

    fn they_do_so_over_connections_that_multiplex(io) {
        let Server { proxy, records, _upstream } = server(io, Options::default());
        let mut client = h2(&proxy);
        for (path, status, content, _) in CASES {
            let mut head = RequestHead::new(Method::Get, path);
            head.set_authority("a.example");
            let stream = client.send_head(&head, BodyLength::Empty);
            let answer = client.answer(stream);
            assert_eq!(answer.status.map(Status::code), Some(status), "{path}");
            assert!(String::from_utf8_lossy(&answer.content).contains(content), "{path}");
            assert_eq!(answer.fields.get_str("x-site"), Some(path));
        }
        check(&records.all(CASES.len()), "a.example", Version::Http2);
    }

    fn they_do_so_over_quic(io) {
        let upstream = Upstream::with_text("hello from the upstream");
        let records = Records::default();
        let options = Options { record_hook: Some(records.hook()), ..Options::default() };
        let server = QuicServer::with(|tls| {
            let gateway = Proxy::gateway_over_tls(io, tls);
            Proxy::start(site(gateway, &upstream, options), &[])
        });
        block_on(async {
            let client = server.raw_client().await;
            for (path, status, content, _) in CASES {
                let response = client.ask(request("GET", path)).await;
                assert_eq!(response.heads, [Some(status)], "{path}");
                assert!(String::from_utf8_lossy(&response.content).contains(content), "{path}");
            }
        });
        check(&records.all(CASES.len()), "localhost", Version::Http3);
    }

    fn the_answer_to_head_has_no_content(io) {
        let Server { proxy, records, _upstream } = server(io, Options::default());
        for path in ["/app/hello", "/app/stream"] {
            let mut peer = proxy.peer();
            peer.send(format!("HEAD {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
            assert!(peer.head().unwrap().line.contains(" 200 "));
        }
        for seen in records.all(2) {
            assert_eq!((seen.status, seen.bytes), (Some(200), 0), "{seen:?}");
            assert!(matches!(seen.ended, Ended::Complete), "{seen:?}");
        }
    }

    fn an_app_gives_its_response_up(io) {
        let Server { proxy, records, _upstream } = server(io, Options::default());
        let mut peer = proxy.peer();
        peer.send("GET /app/breaks HTTP/1.1\r\nHost: a\r\n\r\n");
        peer.rest();
        let seen = records.only();
        assert_eq!(seen.facts(), ("GET a/app/breaks", Some("*"), Some("/app"), Some(200), 3));
        assert!(matches!(seen.ended, Ended::Aborted), "{seen:?}");
    }

    fn a_client_leaves_an_app(io) {
        let Server { proxy, records, _upstream } = server(io, Options::default());
        let mut peer = proxy.peer();
        peer.send("GET /app/endless HTTP/1.1\r\nHost: a\r\n\r\n");
        peer.head().unwrap();
        drop(peer);
        let seen = records.only();
        assert_eq!((seen.status, seen.route.as_deref()), (Some(200), Some("/app")));
        assert!(seen.bytes > 0 && matches!(seen.ended, Ended::ClientGone), "{seen:?}");
    }

    fn content_for_an_app_comes_too_slowly(io) {
        let limits = Limits {
            body_rate_grace: Duration::from_millis(50),
            body_idle_timeout: Duration::from_millis(50),
            ..Limits::default()
        };
        let Server { proxy, records, _upstream } = server(io, Options { limits, ..Options::default() });
        let mut peer = proxy.peer();
        peer.send("POST /app/read HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc");
        let head = peer.head().unwrap();
        assert!(head.line.contains(" 408 "));
        assert_eq!(head.field("x-site"), Some("/app/read"));
        assert_eq!(head.field("connection"), Some("close"));
        peer.rest();
        let seen = records.only();
        assert_eq!((seen.status, seen.route.as_deref()), (Some(408), Some("/app")), "{seen:?}");
        assert!(matches!(seen.ended, Ended::RequestContent(BodyError::TimedOut)), "{seen:?}");
    }

    fn the_gateway_stops_while_an_app_answers(io) {
        let Server { proxy, records, _upstream } = server(io, Options::default());
        let mut peer = proxy.peer();
        peer.send("GET /app/endless HTTP/1.1\r\nHost: a\r\n\r\n");
        peer.head().unwrap();
        let reads = thread::spawn(move || peer.rest());
        drop(proxy);
        let seen = records.only();
        assert!(matches!(seen.ended, Ended::CutOff(_)), "{seen:?}");
        reads.join().unwrap();
    }

    fn rejections_have_their_site_and_route(io) {
        let Server { proxy, records, _upstream } = server(io, Options::default());
        let mut client = proxy.client();
        client.send("TRACE /x HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response().status, 405);
        let seen = records.only();
        let facts = ("TRACE a/x", Some("*"), Some("/"), Some(405), seen.bytes);
        assert_eq!(seen.facts(), facts);
        assert!(matches!(seen.ended, Ended::Rejected(Rejection::Method)), "{seen:?}");
    }

    fn refusals_of_the_parser_have_a_record(io) {
        let Server { proxy, records, _upstream } = server(io, Options::default());
        let request = "POST /x?y HTTP/1.1\r\nHost: a.example\r\nContent-Length: x\r\n\r\n";
        for (request, rule, line, site) in [
            (request, "content-length-malformed", "POST a.example/x", Some("*")),
            ("(garbage\r\n\r\n", "", " ", None),
        ] {
            let records = &records;
            records.0.lock().unwrap().clear();
            let mut peer = proxy.peer();
            peer.send(request);
            assert!(peer.head().unwrap().line.contains(" 400 "));
            let seen = records.only();
            assert_eq!(seen.facts(), (line, site, None, Some(400), seen.bytes));
            assert!(seen.bytes > 0, "{seen:?}");
            let refused = matches!(seen.ended, Ended::Refused(of) if rule.is_empty() || of == rule);
            assert!(refused, "{seen:?}");
        }
        records.0.lock().unwrap().clear();
        let mut client = h2(&proxy);
        let mut head = RequestHead::new(Method::Get, "/x");
        head.set_authority("a.example");
        (0..1_000).for_each(|_| head.fields.append("x-a", "b"));
        let stream = client.send_head(&head, BodyLength::Empty);
        assert_eq!(client.answer(stream).status, Some(Status::REQUEST_HEADER_FIELDS_TOO_LARGE));
        let seen = records.only();
        assert_eq!((seen.status, seen.version, seen.route.as_deref()), (Some(431), Version::Http2, None));
        assert!(matches!(seen.ended, Ended::Refused("too-many-fields")), "{seen:?}");
    }
}
