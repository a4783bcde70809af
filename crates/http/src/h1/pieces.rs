//! Every message of the tables, in pieces that all came before anybody reads: whoever waits for
//! bytes has looked at all of them (rule 8), however they are cut.

use std::fmt::Write as _;
use std::rc::Rc;

use blitz_proto::{BodyLength, Method, RequestHead};
use blitz_reactor::{Buffer, Chunk, Config, IoChoice, Slice};
use blitz_testing::{REQUESTS, RESPONSES};

use super::client::ClientSide;
use super::exchange::Arrived;
use super::inbound::{Body, Inbound};
use super::outbound::Outbound;
use super::server::ServerSide;
use super::wire::{Got, Side, State};
use crate::client::ClientOptions;
use crate::decoration::Decoration;
use crate::exchange::{Peer, Scheme};
use crate::recycle::Pooled;
use crate::serve::ServeOptions;
use crate::timer::LazyTimer;

/// A connection without a socket: nothing comes but what was received.
fn received(side: Side, pieces: &[&[u8]]) -> State {
    let mut state = State {
        socket: None,
        exchange: 0,
        is_tunnel: false,
        side,
        inbound: Inbound::default(),
        outbound: Outbound::default(),
        timer: LazyTimer::default(),
    };
    for piece in pieces {
        let mut buffer = Buffer::take();
        buffer.extend_from_slice(piece);
        state.inbound.push(Slice::from_buffer(buffer));
    }
    state
}

/// What happens until more bytes are wanted.
fn events(mut state: State, head: impl Fn(&mut State, BodyLength, &mut String)) -> String {
    let (mut text, mut content) = (String::new(), Vec::new());
    loop {
        let got = state.step();
        if !matches!(got, Ok(Got::Data(_))) && !content.is_empty() {
            let _ = write!(text, "{:?} ", String::from_utf8_lossy(&content));
            content.clear();
        }
        match got {
            Ok(Got::Data(slice)) => content.extend_from_slice(&slice),
            Ok(Got::Head(length)) => head(&mut state, length, &mut text),
            Ok(Got::Trailers) => {
                let _ = write!(text, "{:?} ", state.take_trailers());
            }
            Ok(Got::End) => {
                text += "end ";
                answer(&mut state);
            }
            Ok(Got::NeedMore | Got::Paused) => {
                // What follows an upgrade or the last exchange stays, and nothing else.
                let _ = write!(text, "{} left", state.inbound.input.bytes());
                return text;
            }
            Err(error) => return text + error.rule(),
        }
    }
}

/// Answers the request, unless that would be a tunnel, so that the next one can come.
fn answer(state: &mut State) {
    state.inbound.body = Body::Done;
    if let Side::Server(side) = &state.side
        && !side.machine.upgrade_requested()
    {
        state.send_whole(&mut Pooled::default(), Chunk::from("ok"));
    }
}

fn server(pieces: &[&[u8]]) -> String {
    let options = Rc::new(ServeOptions::default());
    let side = ServerSide::new(
        Peer {
            remote: None,
            listener: None,
            scheme: Scheme::Http,
            tls: None,
        },
        &options,
        &Rc::new(Decoration::new(false, None)),
    );
    events(
        received(Side::Server(side), pieces),
        |state, length, text| match state.begin_exchange(length) {
            Arrived::Request(request, length) => {
                let _ = write!(text, "{request:?} {length:?} ");
                if matches!(state.inbound.body, Body::Done) {
                    answer(state);
                }
            }
            _ => *text += "something else ",
        },
    )
}

fn client(method: Method, pieces: &[&[u8]]) -> String {
    let options = Rc::new(ClientOptions::default());
    let mut side = ClientSide::new(options, None, false);
    let target = match method {
        Method::Connect => "example.org:443",
        _ => "/",
    };
    let request = RequestHead::new(method, target);
    side.machine
        .send_request(&request, BodyLength::Empty, &mut Vec::new());
    events(
        received(Side::Client(side), pieces),
        |state, length, text| {
            let _ = write!(text, "{:?} {length:?} ", state.side.client().head.take());
        },
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
        pin: false,
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
