//! How a client of HTTP/3 reads responses and other input of a server.

use blitz_proto::Limits;

use crate::h3_support::*;

#[test]
fn responses_of_all_forms_arrive() {
    let ok = ":status: 200";
    for (section, arrivals, expected) in [
        (
            "a response",
            vec![last(REQUEST, [headers(ok), data("hello")].concat())],
            "0 200 Unknown | 0 \"hello\" end",
        ),
        (
            "informational responses before it",
            vec![last(
                REQUEST,
                [headers(":status: 103"), headers(ok)].concat(),
            )],
            "0 103 Empty | 0 200 Empty end",
        ),
        (
            "4.1 nothing behind an informational response",
            vec![last(REQUEST, headers(":status: 103"))],
            "0 reset head-unexpected H3_MESSAGE_ERROR",
        ),
        (
            "4.3.2 no status",
            vec![last(REQUEST, headers("a: b"))],
            "0 reset pseudo-header-missing H3_MESSAGE_ERROR",
        ),
        (
            "4.1.1 the request was not processed",
            vec![Arrival::Reset(REQUEST, 0x10b)],
            "0 reset refused-by-peer H3_REQUEST_REJECTED",
        ),
        (
            "4.1.1 the server has failed",
            vec![Arrival::Reset(REQUEST, 0x102)],
            "0 reset reset-by-peer H3_INTERNAL_ERROR",
        ),
        (
            "4.1 the server needs no more of the request",
            vec![Arrival::Stopped(REQUEST, 0x100), last(REQUEST, headers(ok))],
            "0 200 Empty end",
        ),
    ] {
        assert_eq!(client(&arrivals), expected, "{section}");
    }
}

/// From the third on, the sections of equal heads are not decoded.
#[test]
fn a_response_that_repeats_is_checked_as_the_first() {
    let head = |length| {
        headers(&format!(
            ":status: 200\ncontent-length: {length}\nx-name: yes"
        ))
    };
    let mut end = End::client(&Limits::default());
    (0..7).for_each(|stream| end.request(stream * 4));
    for stream in 0..4 {
        end.received.response.fields.clear();
        end.arrive(&last(stream * 4, [head(5), data("hello")].concat()));
        let fields = &end.received.response.fields;
        assert_eq!(fields.get_str("x-name"), Some("yes"), "{stream}");
    }
    end.log.clear();
    end.arrive(&last(16, [head(5), data("hell")].concat()));
    end.arrive(&last(20, [head(4), data("hell")].concat()));
    let hints = headers(":status: 103").repeat(Limits::default().informational_max + 1);
    end.arrive(&more(24, hints));
    let (said, expected) = (
        end.log.replace("24 103 Empty | ", ""),
        "16 200 Known(5) | 16 reset content-length-mismatch H3_MESSAGE_ERROR | 20 200 Known(4) | \
         20 \"hell\" end | 24 reset too-many-informational H3_EXCESSIVE_LOAD",
    );
    assert_eq!(said, expected);
}

/// A section means something else once the table has changed.
#[test]
fn a_repeated_response_with_references_follows_the_table() {
    let mut end = End::client(&Limits::default());
    (0..4).for_each(|stream| end.request(stream * 4));
    let mut section = section(":status: 200");
    section[0] = 2;
    section.push(0x80);
    let response = frame(HEADERS, &section);
    end.arrive(&more(SERVER_ENCODER, insertion()));
    for stream in 0..3 {
        end.arrive(&last(stream * 4, response.clone()));
        let fields = &end.received.response.fields;
        assert_eq!(fields.get_str("x-name"), Some("value"), "{stream}");
    }
    // Without room, the entry is gone.
    end.arrive(&more(SERVER_ENCODER, vec![0x20]));
    end.arrive(&last(12, response));
    assert!(
        end.log.ends_with("compression QPACK_DECOMPRESSION_FAILED"),
        "{}",
        end.log
    );
}

#[test]
fn clients_refuse_what_a_server_must_not() {
    let begun = |bytes: &[u8]| more(SERVER_CONTROL, [control(), bytes.to_vec()].concat());
    for (section, arrivals, expected) in [
        (
            "6.1 a stream in both directions",
            vec![more(1, vec![0])],
            "stream-creation H3_STREAM_CREATION_ERROR",
        ),
        (
            "4.6 a push that was not allowed",
            vec![more(SERVER_CONTROL, integer(1))],
            "stream-id H3_ID_ERROR",
        ),
        (
            "7.2.5 the promise of one",
            vec![more(REQUEST, frame(0x5, [0, 0, 0]))],
            "stream-id H3_ID_ERROR",
        ),
        (
            "7.2.6 GOAWAY with a number that is no request",
            vec![begun(&frame(GOAWAY, [3]))],
            "stream-id H3_ID_ERROR",
        ),
        (
            "7.2.6 GOAWAY",
            vec![begun(&frame(GOAWAY, [4]))],
            "3 goes away from 4",
        ),
        (
            "7.2.7 MAX_PUSH_ID",
            vec![begun(&frame(0xd, [4]))],
            "frame-unexpected H3_FRAME_UNEXPECTED",
        ),
        (
            "RFC 9218 7.2 PRIORITY_UPDATE",
            vec![begun(&frame(0xf_0700, b"\x00u=1"))],
            "frame-unexpected H3_FRAME_UNEXPECTED",
        ),
    ] {
        assert_eq!(client(&arrivals), expected, "{section}");
    }
}
