//! Every message of the tables, in pieces that all came before anybody reads: whoever waits for
//! bytes has looked at all of them (rule 8), however they are cut.

use std::fmt::Write as _;
use std::rc::Rc;

use blitz_proto::{BodyLength, Method, RequestHead};
use blitz_reactor::{Buffer, Chunk, Config, IoChoice, Pinning, Slice};
use blitz_testing::{REQUESTS, RESPONSES};

use super::client::ClientRole;
use super::driver::{Driver, InputStep, Role};
use super::run::Arrived;
use super::server::ServerRole;
use crate::default_headers::DefaultHeaders;
use crate::exchange::{BodyState, Peer, Scheme, send_response};
use crate::options::ClientOptions;
use crate::options::ServeOptions;
use crate::recycle::Pooled;

/// A connection without a socket: nothing comes but what was received.
fn received<R: Role>(role: R, pieces: &[&[u8]]) -> Driver<R> {
    let mut driver = Driver::new(None, role);
    for piece in pieces {
        let mut buffer = Buffer::take();
        buffer.extend_from_slice(piece);
        driver.push(Slice::from_buffer(buffer));
    }
    driver
}

/// The events until more bytes are wanted.
fn events<R: Role>(
    mut driver: Driver<R>,
    head: impl Fn(&mut Driver<R>, BodyLength, &mut String),
    answer: impl Fn(&mut Driver<R>),
) -> String {
    let (mut text, mut content) = (String::new(), Vec::new());
    loop {
        let got = driver.step();
        if !matches!(got, Ok(InputStep::Data(_))) && !content.is_empty() {
            let _ = write!(text, "{:?} ", String::from_utf8_lossy(&content));
            content.clear();
        }
        match got {
            Ok(InputStep::Data(slice)) => content.extend_from_slice(&slice),
            Ok(InputStep::Head(length)) => head(&mut driver, length, &mut text),
            Ok(InputStep::Trailers) => {
                let _ = write!(text, "{:?} ", std::mem::take(&mut driver.trailers));
            }
            Ok(InputStep::End) => {
                text += "end ";
                answer(&mut driver);
            }
            Ok(InputStep::NeedMore | InputStep::Paused) => {
                // Only bytes behind an upgrade or the last exchange stay.
                let _ = write!(text, "{} left", driver.input.bytes());
                return text;
            }
            Err(error) => return text + error.rule(),
        }
    }
}

/// Responds to the request, unless that would be a tunnel, so that the next one can come.
fn answer(driver: &mut Driver<ServerRole>) {
    driver.exchange.receiving.body = BodyState::Done;
    if !driver.role.machine.upgrade_requested() {
        let id = driver.number;
        send_response(driver, id, &mut Pooled::default(), Chunk::from("ok"));
    }
}

fn server(pieces: &[&[u8]]) -> String {
    let peer = Peer {
        remote: None,
        listener: None,
        scheme: Scheme::Http,
        tls: None,
    };
    let default_headers = Rc::new(DefaultHeaders::new(false, None, None));
    let role = ServerRole::new(peer, &Rc::new(ServeOptions::default()), &default_headers);
    events(
        received(role, pieces),
        |driver, length, text| match driver.begin_exchange(length) {
            Arrived::Request(request, length) => {
                let _ = write!(text, "{request:?} {length:?} ");
                if driver.exchange.receiving.is_complete() {
                    answer(driver);
                }
            }
            _ => *text += "something else ",
        },
        answer,
    )
}

fn client(method: Method, pieces: &[&[u8]]) -> String {
    let mut role = ClientRole::new(Rc::new(ClientOptions::default()));
    let target = match method {
        Method::Connect => "example.org:443",
        _ => "/",
    };
    let request = RequestHead::new(method, target);
    role.machine
        .send_request(&request, BodyLength::Empty, &mut Vec::new());
    events(
        received(role, pieces),
        |driver, length, text| {
            let _ = write!(text, "{:?} {length:?} ", driver.role.head.take());
        },
        Driver::end_body,
    )
}

/// Compares the whole with every cut in two, with single bytes and with pieces of three.
fn all_cuts(raw: &str, run: impl Fn(&[&[u8]]) -> String) {
    let raw = raw.as_bytes();
    let whole = run(&[raw]);
    // Long messages are about limits, which no cut changes; a few tell as much.
    let step = 1 + raw.len() / 500;
    for cut in (1..raw.len()).step_by(step) {
        let (front, back) = raw.split_at(cut);
        assert_eq!(run(&[front, back]), whole, "cut at {cut}");
    }
    for bytes in [1, 3] {
        let pieces: Vec<&[u8]> = raw.chunks(bytes).collect();
        assert_eq!(run(&pieces), whole, "in pieces of {bytes}");
    }
}

fn on_a_core(test: impl FnOnce()) {
    let config = Config {
        io: IoChoice::Epoll,
        cores: 1,
        pin: Pinning::Off,
        ..Config::default()
    };
    blitz_reactor::block_on(&config, async { test() }).expect("epoll works everywhere");
}

#[test]
fn messages_in_pieces_that_came_before_they_are_read_are_those_that_came_whole() {
    on_a_core(|| {
        for (_, raw, _) in REQUESTS.iter().copied().flatten() {
            all_cuts(raw, server);
        }
        for (_, method, raw, _) in RESPONSES {
            let method = Method::parse(method.as_bytes());
            all_cuts(raw, |pieces| client(method, pieces));
        }
    });
}

#[test]
fn nothing_of_a_message_is_left_that_came_byte_by_byte() {
    on_a_core(|| {
        let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
                       2\r\nhi\r\n0\r\n\r\n";
        let pieces: Vec<&[u8]> = chunked.as_bytes().chunks(1).collect();
        let seen = server(&pieces);
        assert!(seen.ends_with("\"hi\" end 0 left"), "{seen}");
    });
}
