//! A name server that gives every name one address in 127.0.0.0/8.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::thread;

use blitz_gateway::Options;

/// RFC 1035, section 4.1.1.
const FORMAT_ERROR: u8 = 1;
const TRUNCATED: u8 = 2;
/// RFC 6891, section 6.1.1.
const OPT: u16 = 41;

pub(crate) struct NameServer {
    pub(crate) address: SocketAddr,
    pub(crate) answer: Arc<Answer>,
    received: Arc<AtomicUsize>,
}

pub(crate) struct Answer {
    /// The last octet of the address; 0 for no address.
    octet: AtomicU8,
    /// The response code.
    code: AtomicU8,
    /// In seconds.
    ttl: u8,
    /// Queries of other types than A get no answer.
    pub(crate) is_silent_otherwise: AtomicBool,
    /// How often the answer has the address.
    records: usize,
    kind: Kind,
}

/// The way in which a server sends long responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It sends as much as the client takes in a datagram, which it cuts off if that is less.
    CutsOff,
    /// It sends datagrams of any length, as Docker's.
    SendsLong,
    /// The same, and there is no TCP.
    HasNoTcp,
    /// It cuts off after 512 bytes, and does not know EDNS.
    HasNoEdns,
    /// The same, and it ignores queries with EDNS.
    IgnoresEdns,
}

impl NameServer {
    /// With a TTL of one second.
    pub(crate) fn start(octet: u8) -> NameServer {
        NameServer::with_ttl(octet, 1)
    }

    pub(crate) fn with_ttl(octet: u8, ttl: u8) -> NameServer {
        NameServer::of_kind(octet, ttl, 1, Kind::CutsOff)
    }

    pub(crate) fn of_kind(octet: u8, ttl: u8, records: usize, kind: Kind) -> NameServer {
        let (datagrams, streams) = any_port();
        let address = datagrams.local_addr().unwrap();
        let answer = Arc::new(Answer {
            octet: AtomicU8::new(octet),
            code: AtomicU8::new(0),
            ttl,
            is_silent_otherwise: AtomicBool::new(false),
            records,
            kind,
        });
        let received = Arc::new(AtomicUsize::new(0));
        let (answered, counted) = (Arc::clone(&answer), Arc::clone(&received));
        thread::spawn(move || {
            let mut query = [0; 512];
            while let Ok((length, client)) = datagrams.recv_from(&mut query) {
                counted.fetch_add(1, Ordering::SeqCst);
                if let Some(answer) = answered.datagram(&query[..length]) {
                    let _ = datagrams.send_to(&answer, client);
                }
            }
        });
        if kind != Kind::HasNoTcp {
            let answered = Arc::clone(&answer);
            thread::spawn(move || {
                for stream in streams.incoming().flatten() {
                    let answered = Arc::clone(&answered);
                    thread::spawn(move || answered.serve(stream));
                }
            });
        }
        NameServer {
            address,
            answer,
            received,
        }
    }

    pub(crate) fn set_octet(&self, octet: u8) {
        self.answer.octet.store(octet, Ordering::SeqCst);
    }

    pub(crate) fn set_code(&self, code: u8) {
        self.answer.code.store(code, Ordering::SeqCst);
    }

    /// Queries in datagrams.
    pub(crate) fn received(&self) -> usize {
        self.received.load(Ordering::SeqCst)
    }

    pub(crate) fn options(&self) -> Options {
        Options {
            name_servers: vec![self.address],
            ..Options::default()
        }
    }
}

/// The same free port for UDP and TCP.
fn any_port() -> (UdpSocket, TcpListener) {
    loop {
        let datagrams = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        if let Ok(streams) = TcpListener::bind(datagrams.local_addr().unwrap()) {
            return (datagrams, streams);
        }
    }
}

impl Answer {
    fn serve(&self, mut stream: TcpStream) {
        let mut length = [0; 2];
        while stream.read_exact(&mut length).is_ok() {
            let mut query = vec![0; u16::from_be_bytes(length).into()];
            stream.read_exact(&mut query).unwrap();
            let Some(answer) = self.to(&query) else {
                return;
            };
            let length = u16::try_from(answer.len()).unwrap().to_be_bytes();
            let _ = stream.write_all(&[&length, answer.as_slice()].concat());
        }
    }

    /// The answer in a datagram.
    fn datagram(&self, query: &[u8]) -> Option<Vec<u8>> {
        let mut answer = self.to(query)?;
        let payload_max = payload_max(query);
        let bytes_max = match self.kind {
            Kind::SendsLong | Kind::HasNoTcp => usize::MAX,
            Kind::HasNoEdns if payload_max.is_some() => {
                answer.truncate(question_end(query));
                answer[3] |= FORMAT_ERROR;
                // No records.
                answer[6..8].fill(0);
                return Some(answer);
            }
            Kind::IgnoresEdns if payload_max.is_some() => return None,
            Kind::CutsOff | Kind::HasNoEdns | Kind::IgnoresEdns => payload_max.unwrap_or(512),
        };
        if answer.len() > bytes_max {
            answer.truncate(bytes_max);
            answer[2] |= TRUNCATED;
        }
        Some(answer)
    }

    /// RFC 1035 section 4: the question, and for type A records that refer to its name.
    fn to(&self, query: &[u8]) -> Option<Vec<u8>> {
        let octet = self.octet.load(Ordering::SeqCst);
        let code = self.code.load(Ordering::SeqCst);
        let question_end = question_end(query);
        let is_a = query[question_end - 4..question_end - 2] == [0, 1];
        if !is_a && self.is_silent_otherwise.load(Ordering::SeqCst) {
            return None;
        }
        let has_record = octet != 0 && code == 0 && is_a;
        let records = if has_record { self.records } else { 0 };
        let mut answer = query[..2].to_vec();
        answer.extend([0x81, 0x80 + code, 0, 1]);
        answer.extend(u16::try_from(records).unwrap().to_be_bytes());
        answer.extend([0, 0, 0, 0]);
        answer.extend(&query[12..question_end]);
        for _ in 0..records {
            answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, self.ttl]);
            answer.extend([0, 4, 127, 0, 0, octet]);
        }
        Some(answer)
    }
}

fn question_end(query: &[u8]) -> usize {
    12 + query[12..].iter().position(|&byte| byte == 0).unwrap() + 5
}

/// The longest datagram that the client takes, if it knows EDNS: the class of the OPT record.
fn payload_max(query: &[u8]) -> Option<usize> {
    let opt = &query[question_end(query)..];
    let is_opt = opt.get(1..3) == Some(&OPT.to_be_bytes());
    is_opt.then(|| u16::from_be_bytes([opt[3], opt[4]]).into())
}
