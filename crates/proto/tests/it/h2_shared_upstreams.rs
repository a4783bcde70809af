//! Reactions of the client's end that keep one request from ending a connection that others share.

use blitz_proto::h2::{Code, Event, Received, StreamId, WasReset};
use blitz_proto::{Limits, Method, RequestHead};

use crate::h2_support::End;

#[test]
fn a_client_knows_which_heads_the_server_accepts() {
    let mut client = End::client(&Limits::default());
    let mut head = RequestHead::new(Method::Post, "/");
    head.set_authority("example.org");
    head.fields.append("x-large", "v".repeat(4_000));
    assert!(client.connection.accepts_head(&head), "no limit is known");
    // RFC 9113, section 6.5.2: each line counts 32 bytes more than its texts.
    let lines = [
        ":methodPOST",
        ":schemehttps",
        ":path/",
        ":authorityexample.org",
    ];
    let size = lines.map(|line| line.len() + 32).iter().sum::<usize>() + "x-large".len() + 4_032;
    for (max, is_accepted) in [(size, true), (size - 1, false), (100_000, true)] {
        let mut settings = vec![0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 6];
        settings.extend_from_slice(&(max as u32).to_be_bytes());
        client.receive(&settings);
        assert_eq!(client.connection.accepts_head(&head), is_accepted, "{max}");
    }
}

#[test]
fn a_goaway_with_an_error_makes_at_most_two_requests_suspect() {
    for (last, expected) in [
        (5, [5, 7]),
        (4, [3, 5]),
        (0, [0, 1]),
        (u32::MAX >> 1, [9, 0]),
    ] {
        let mut client = End::client(&Limits::default());
        client.receive(&[0, 0, 0, 4, 0, 0, 0, 0, 0]);
        let streams = [(); 6].map(|()| client.get("/"));
        // The last one has a response, so that it is not the cause.
        client.receive(&[0, 0, 1, 1, 4, 0, 0, 0, 11, 0x88]);
        assert_eq!(streams[5].get(), 11);
        let mut goaway = vec![0, 0, 8, 7, 0, 0, 0, 0, 0];
        goaway.extend_from_slice(&u32::to_be_bytes(last));
        goaway.extend_from_slice(&[0, 0, 0, 11]);
        let suspects = |client: &End| {
            let ids = client.connection.suspects();
            ids.map(|id| id.map_or(0, StreamId::get))
        };
        // Streams above the last one are removed after the event.
        let (mut out, mut received) = (Vec::new(), Received::default());
        let step = client
            .connection
            .handle_input(&goaway, client.now, &mut received, &mut out);
        let code = Code::ENHANCE_YOUR_CALM;
        assert_eq!(step.expect("valid").event, Event::GoAway { code });
        assert_eq!(suspects(&client), expected, "{last}");
    }
}

#[test]
fn a_reset_tells_whether_the_response_had_begun() {
    let mut client = End::client(&Limits::default());
    client.receive(&[0, 0, 0, 4, 0, 0, 0, 0, 0]);
    let (early, late) = (client.get("/"), client.get("/"));
    client.receive(&[0, 0, 1, 1, 4, 0, 0, 0, late.get() as u8, 0x88]);
    for (stream, expected) in [
        (early, Some(WasReset::BeforeResponse)),
        (late, Some(WasReset::Later)),
        (late, None),
    ] {
        let was_reset = client
            .connection
            .reset(stream, Code::CANCEL, &mut client.out);
        assert_eq!(was_reset, expected);
    }
}
