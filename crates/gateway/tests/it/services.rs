//! Services whose servers SRV records tell: they follow the records, and no request fails meanwhile.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use blitz_gateway::Options;
use blitz_http::{IoChoice, Signals, Status};
use blitz_testing::{Client, IO_TIMEOUT};

use crate::h2::H2Upstream;
use crate::names::{SIGNALS, kill};
use crate::site_rules::gateway_with;
use crate::support::{Proxy, Upstream, eventually};

/// RFC 1035, section 4.1.1.
const SERVER_FAILURE: u8 = 2;
const NAME_ERROR: u8 = 3;
/// RFC 2782.
const SRV: u8 = 33;
const A: u8 = 1;

/// Priority, weight, port and host.
type Record = (u16, u16, u16, &'static str);

/// A name server with SRV records for any name, and the address 127.0.0.1 for any name, for a second.
struct ServiceServer {
    address: SocketAddr,
    answer: Arc<Mutex<(u8, Vec<Record>)>>,
    /// Queries for SRV records.
    received: Arc<AtomicUsize>,
}

impl ServiceServer {
    fn start(records: &[Record]) -> ServiceServer {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = socket.local_addr().unwrap();
        let answer = Arc::new(Mutex::new((0, records.to_vec())));
        let received = Arc::new(AtomicUsize::new(0));
        let (answered, counted) = (Arc::clone(&answer), Arc::clone(&received));
        thread::spawn(move || {
            let mut query = [0; 512];
            while let Ok((length, client)) = socket.recv_from(&mut query) {
                let (code, records) = answered.lock().unwrap().clone();
                let query = &query[..length];
                let is_srv = kind(query) == SRV;
                let _ = socket.send_to(&answer_to(query, code, &records), client);
                counted.fetch_add(usize::from(is_srv), Ordering::SeqCst);
            }
        });
        ServiceServer {
            address,
            answer,
            received,
        }
    }

    fn set(&self, records: &[Record]) {
        *self.answer.lock().unwrap() = (0, records.to_vec());
    }

    fn fail(&self, code: u8) {
        self.answer.lock().unwrap().0 = code;
    }

    fn options(&self) -> Options {
        Options {
            name_servers: vec![self.address],
            sticky_secret: || [7; 32],
            ..Options::default()
        }
    }
}

fn question_end(query: &[u8]) -> usize {
    12 + query[12..].iter().position(|&byte| byte == 0).unwrap() + 5
}

/// The type of the records that a query is for.
fn kind(query: &[u8]) -> u8 {
    query[question_end(query) - 3]
}

/// RFC 1035, section 4: the question, and records that refer to its name.
fn answer_to(query: &[u8], code: u8, records: &[Record]) -> Vec<u8> {
    let question = &query[12..question_end(query)];
    let datas: Vec<Vec<u8>> = match kind(query) {
        SRV if code == 0 => records.iter().map(data).collect(),
        A => vec![vec![127, 0, 0, 1]],
        _ => Vec::new(),
    };
    let code = if kind(query) == SRV { code } else { 0 };
    let mut answer = query[..2].to_vec();
    answer.extend([0x81, 0x80 + code, 0, 1]);
    answer.extend(u16::try_from(datas.len()).unwrap().to_be_bytes());
    answer.extend([0, 0, 0, 0]);
    answer.extend(question);
    for data in datas {
        answer.extend([0xc0, 12, 0, kind(query), 0, 1, 0, 0, 0, 1]);
        answer.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
        answer.extend(data);
    }
    answer
}

/// The data of an SRV record.
fn data(&(priority, weight, port, host): &Record) -> Vec<u8> {
    let mut data = Vec::new();
    for number in [priority, weight, port] {
        data.extend(number.to_be_bytes());
    }
    for label in host.split('.').filter(|label| !label.is_empty()) {
        data.push(u8::try_from(label.len()).unwrap());
        data.extend(label.as_bytes());
    }
    data.push(0);
    data
}

const URL: &str = "srv+http://_api._tcp.internal.example";

/// A gateway with a file that has this `to`.
fn proxy(io: IoChoice, names: &ServiceServer, to: &str, keys: &str) -> Proxy {
    gateway_with(
        io,
        names.options(),
        &format!("[site.\"*\"]\nto = {to}\n{keys}\n"),
    )
}

/// A record of an upstream.
fn record(upstream: &Upstream, host: &'static str) -> Record {
    (10, 1, upstream.port(), host)
}

/// The texts of so many responses.
fn texts(client: &mut Client, count: usize) -> BTreeSet<String> {
    let responses = (0..count).map(|_| {
        let response = client.get("/");
        assert_eq!(response.status, 200, "{response:?}");
        response.text().to_owned()
    });
    responses.collect()
}

fn set<const N: usize>(texts: [&str; N]) -> BTreeSet<String> {
    texts.map(str::to_owned).into()
}

/// Waits until the servers are these.
fn follows(proxy: &mut Proxy, expected: &BTreeSet<String>) {
    eventually("the servers are those of the records", || {
        proxy.follow_services();
        texts(&mut proxy.client(), 12) == *expected
    });
}

scenarios! {
    fn servers_follow_the_records_and_no_request_fails(io) {
        let [a, b, c] = ["a", "b", "c"].map(Upstream::with_text);
        let records = [record(&a, "a.internal.example"), record(&b, "b.internal.example"), record(&c, "c.internal.example")];
        let names = ServiceServer::start(&records[..1]);
        let mut proxy = proxy(io, &names, &format!("\"{URL}\""), "");
        assert_eq!(texts(&mut proxy.client(), 3), set(["a"]), "the first request has servers");
        let (is_done, address) = (Arc::new(AtomicBool::new(false)), proxy.address);
        let clients: Vec<_> = (0..4).map(|_| {
            let is_done = Arc::clone(&is_done);
            thread::spawn(move || {
                let (mut client, mut count) = (Client::connect(address), 0);
                while !is_done.load(Ordering::Relaxed) {
                    let response = client.get("/");
                    assert_eq!(response.status, 200, "{response:?}");
                    count += 1;
                }
                count
            })
        }).collect();
        for (range, expected) in [
            (0..2, set(["a", "b"])),
            (0..3, set(["a", "b", "c"])),
            (1..2, set(["b"])),
            (1..3, set(["b", "c"])),
            (0..1, set(["a"])),
        ] {
            names.set(&records[range]);
            follows(&mut proxy, &expected);
        }
        is_done.store(true, Ordering::Relaxed);
        for client in clients {
            assert!(client.join().unwrap() > 0);
        }
        assert_eq!(proxy.counters().connect_failures, 0);
    }

    fn servers_stay_in_use_while_look_ups_fail(io) {
        let [a, b] = ["a", "b"].map(Upstream::with_text);
        let names = ServiceServer::start(&[record(&a, "a.example"), record(&b, "b.example")]);
        let mut proxy = proxy(io, &names, &format!("\"{URL}\""), "");
        let queried = |count: usize| {
            let received = names.received.load(Ordering::SeqCst);
            let since = || names.received.load(Ordering::SeqCst) - received;
            eventually("it was queried again", || since() >= count);
        };
        names.fail(SERVER_FAILURE);
        queried(2);
        assert!(!proxy.follow_services());
        assert_eq!(texts(&mut proxy.client(), 8), set(["a", "b"]));
        // Nor does an answer without records take them away.
        names.set(&[]);
        queried(1);
        assert!(!proxy.follow_services());
        assert_eq!(texts(&mut proxy.client(), 8), set(["a", "b"]));
        names.set(&[record(&b, "b.example")]);
        follows(&mut proxy, &set(["b"]));
    }

    fn a_service_without_servers_is_a_bad_gateway_until_it_has_some(io) {
        let a = Upstream::with_text("a");
        let names = ServiceServer::start(&[]);
        names.fail(NAME_ERROR);
        let mut proxy = proxy(io, &names, &format!("\"{URL}\""), "");
        let response = proxy.client().get("/");
        let expected = "blitz; error=dns_error; rcode=\"NXDOMAIN\"";
        assert_eq!((response.status, response.field("proxy-status")), (502, Some(expected)));
        let [report] = &proxy.upstreams()[..] else { panic!("one upstream") };
        assert_eq!(report.url, URL);
        assert!(report.failure.is_some() && report.addresses.is_empty());
        names.set(&[record(&a, "a.example")]);
        eventually("it has a server", || {
            proxy.follow_services();
            proxy.client().get("/").status == 200
        });
        let [report] = &proxy.upstreams()[..] else { panic!("one upstream") };
        assert_eq!(report.url, format!("http://a.example:{}", a.port()));
        assert_eq!(report.names, [URL]);
    }

    fn weights_and_priorities_are_those_of_the_records(io) {
        let [a, b, c] = ["a", "b", "c"].map(Upstream::with_text);
        let names = ServiceServer::start(&[
            (10, 3, a.port(), "a.example"),
            (10, 1, b.port(), "b.example"),
            (20, 9, c.port(), "c.example"),
            // Hosts that are none.
            (10, 9, 80, "x/y.example"),
            (10, 9, 80, "u@x.example"),
            (10, 9, 0, "d.example"),
        ]);
        let upstream = format!("[upstream.app]\nservers = [\"{URL}\"]\nbalance = \"round_robin\"");
        let mut proxy = proxy(io, &names, "\"app\"", &upstream);
        let mut client = proxy.client();
        let mut count = |text: &str| {
            (0..40).filter(|_| client.get("/").text() == text).count()
        };
        assert_eq!([count("a"), count("b"), count("c")], [30, 10, 0]);
        let reports = proxy.upstreams();
        let names_of: Vec<_> = reports.iter().map(|report| (report.url.as_str(), &report.names[..])).collect();
        let urls = [("a", &a), ("b", &b)].map(|(name, server)| format!("http://{name}.example:{}", server.port()));
        assert_eq!(names_of, [(urls[0].as_str(), &["app".to_owned()][..]), (urls[1].as_str(), &["app".to_owned()][..])]);
        // The next priority is used when the first has no record.
        names.set(&[(20, 9, c.port(), "c.example")]);
        follows(&mut proxy, &set(["c"]));
    }

    fn a_service_stands_beside_other_servers(io) {
        let [a, b, c] = ["a", "b", "c"].map(Upstream::with_text);
        let names = ServiceServer::start(&[record(&b, "b.example"), record(&c, "c.example")]);
        let upstream = format!(
            "[upstream.app]\nservers = {{ \"{}\" = 1, \"{URL}\" = 1 }}\nbalance = \"round_robin\"",
            a.url()
        );
        let mut proxy = proxy(io, &names, "\"app\"", &upstream);
        let mut client = proxy.client();
        let counted: Vec<String> = (0..400).map(|_| client.get("/").text().to_owned()).collect();
        let count = |text: &str| counted.iter().filter(|one| *one == text).count();
        assert_eq!((count("a").abs_diff(200) <= 1, count("b").abs_diff(100) <= 1), (true, true), "{}", count("a"));
        // A reload keeps the servers, and the next change applies to it.
        proxy.replace_sites(&format!("[site.\"*\"]\nto = [\"{}\", \"{URL}\"]\n", a.url()));
        assert_eq!(texts(&mut client, 12), set(["a", "b", "c"]));
        names.set(&[record(&c, "c.example")]);
        follows(&mut proxy, &set(["a", "c"]));
    }

    fn clients_stay_with_their_server_while_others_come_and_go(io) {
        let [a, b, c] = ["a", "b", "c"].map(Upstream::with_text);
        let names = ServiceServer::start(&[record(&a, "a.example"), record(&b, "b.example")]);
        let upstream = format!("[upstream.app]\nservers = [\"{URL}\"]\nsticky = \"cookie\"");
        let mut proxy = proxy(io, &names, "\"app\"", &upstream);
        let mut client = proxy.client();
        let of_b = (0..10).map(|_| client.get("/")).find(|response| response.text() == "b").unwrap();
        let cookie = of_b.field("set-cookie").unwrap().split(';').next().unwrap().to_owned();
        names.set(&[record(&b, "b.example"), record(&c, "c.example")]);
        follows(&mut proxy, &set(["b", "c"]));
        for _ in 0..6 {
            client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nCookie: {cookie}\r\n\r\n"));
            let response = client.response();
            assert_eq!((response.text(), response.field("set-cookie")), ("b", None));
        }
        names.set(&[record(&c, "c.example")]);
        follows(&mut proxy, &set(["c"]));
        client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nCookie: {cookie}\r\n\r\n"));
        let response = client.response();
        assert!(response.text() == "c" && response.field("set-cookie").is_some());
    }

    fn a_program_that_waits_for_signals_follows_its_services(io) {
        let _one = SIGNALS.lock();
        let [a, b] = ["a", "b"].map(Upstream::with_text);
        let names = ServiceServer::start(&[record(&a, "a.example")]);
        let mut proxy = proxy(io, &names, &format!("\"{URL}\""), "");
        let mut client = proxy.client();
        assert_eq!(client.get("/").text(), "a");
        let signals = Signals::install().unwrap();
        let running = proxy.take();
        names.set(&[record(&b, "b.example")]);
        let mut is_followed = false;
        thread::scope(|scope| {
            let ended = scope.spawn(|| running.run_until_signal(&signals));
            let deadline = Instant::now() + IO_TIMEOUT;
            while !is_followed && Instant::now() < deadline {
                is_followed = client.get("/").text() == "b";
                thread::sleep(Duration::from_millis(5));
            }
            kill("INT");
            ended.join().unwrap().unwrap();
        });
        assert!(is_followed, "the servers stayed the same");
    }

    fn a_service_has_the_protocol_of_its_url(io) {
        let upstream = H2Upstream::scripted(|_, mut peer| {
            while let Some((stream, _)) = peer.request() {
                peer.answer(stream, Status::OK, "h2");
            }
        });
        let port = upstream.url.rsplit(':').next().unwrap().parse().unwrap();
        let names = ServiceServer::start(&[(0, 0, port, "a.example")]);
        let target = URL.replace("http", "h2c");
        let proxy = Proxy::with(io, &[&target], names.options());
        assert_eq!(texts(&mut proxy.client(), 2), set(["h2"]));
        // With paths of a flag.
        let a = Upstream::with_text("a");
        let names = ServiceServer::start(&[record(&a, "a.example")]);
        let proxy = Proxy::with(io, &[&format!("/api={URL}/v2")], names.options());
        assert_eq!(proxy.client().get("/api/x").text(), "a");
        assert_eq!(a.heads().pop().unwrap().line, "GET /v2/x HTTP/1.1");
    }
}
