//! Names of upstreams are resolved, and again when the TTL expires.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::thread;

use blitz_gateway::Options;

use crate::support::{Proxy, Upstream, eventually};

/// A name server that gives every name one address in 127.0.0.0/8, with a TTL of one second.
struct NameServer {
    address: SocketAddr,
    /// The last octet of its answers; 0 for "no such name".
    octet: Arc<AtomicU8>,
    received: Arc<AtomicUsize>,
}

impl NameServer {
    fn start(octet: u8) -> NameServer {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = socket.local_addr().unwrap();
        let octet = Arc::new(AtomicU8::new(octet));
        let received = Arc::new(AtomicUsize::new(0));
        let (answered, counted) = (Arc::clone(&octet), Arc::clone(&received));
        thread::spawn(move || {
            let mut query = [0; 512];
            while let Ok((length, client)) = socket.recv_from(&mut query) {
                counted.fetch_add(1, Ordering::SeqCst);
                let answer = answer(&query[..length], answered.load(Ordering::SeqCst));
                let _ = socket.send_to(&answer, client);
            }
        });
        NameServer {
            address,
            octet,
            received,
        }
    }

    fn options(&self) -> Options {
        Options {
            name_servers: vec![self.address],
            ..Options::default()
        }
    }
}

/// RFC 1035 section 4: the question, and for type A one record that refers to its name.
fn answer(query: &[u8], octet: u8) -> Vec<u8> {
    let name_end = 12 + query[12..].iter().position(|&byte| byte == 0).unwrap() + 1;
    let is_a = query[name_end..name_end + 2] == [0, 1];
    let exists = octet != 0;
    let mut answer = query[..2].to_vec();
    answer.extend([0x81, if exists { 0x80 } else { 0x83 }, 0, 1]);
    answer.extend([0, u8::from(exists && is_a), 0, 0, 0, 0]);
    answer.extend(&query[12..name_end + 4]);
    if exists && is_a {
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4, 127, 0, 0, octet]);
    }
    answer
}

scenarios! {
    fn a_request_waits_for_the_first_lookup(io) {
        let names = NameServer::start(1);
        let upstream = Upstream::with_text("found");
        let target = format!("http://app.internal.example:{}", upstream.port());
        let proxy = Proxy::with(io, &[&target], names.options());
        assert_eq!(proxy.client().get("/").text(), "found");
    }

    fn a_new_address_is_used_when_the_ttl_expires(io) {
        let names = NameServer::start(2);
        let upstream = Upstream::with_text("found");
        let target = format!("http://app.internal.example:{}", upstream.port());
        let proxy = Proxy::with(io, &[&target], names.options());
        let mut client = proxy.client();
        let answer = client.get("/");
        assert_eq!(answer.field("proxy-status"), Some("blitz; error=connection_refused"));
        names.octet.store(1, Ordering::SeqCst);
        eventually("the new address is used", || client.get("/").status == 200);
    }

    fn a_name_that_does_not_exist_is_a_bad_gateway(io) {
        let names = NameServer::start(0);
        let proxy = Proxy::with(io, &["http://nobody.internal.example"], names.options());
        let mut client = proxy.client();
        let answer = client.get("/");
        assert_eq!(answer.status, 502);
        assert_eq!(answer.field("proxy-status"), Some("blitz; error=dns_error"));
    }

    fn the_last_address_stays_in_use_while_lookups_fail(io) {
        let names = NameServer::start(1);
        let upstream = Upstream::with_text("found");
        let target = format!("http://app.internal.example:{}", upstream.port());
        let proxy = Proxy::with(io, &[&target], names.options());
        let mut client = proxy.client();
        assert_eq!(client.get("/").text(), "found");
        let received = names.received.load(Ordering::SeqCst);
        names.octet.store(0, Ordering::SeqCst);
        eventually("it was received again", || names.received.load(Ordering::SeqCst) >= received + 2);
        assert_eq!(client.get("/").text(), "found");
    }
}
