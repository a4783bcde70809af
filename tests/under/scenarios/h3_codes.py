"""Violations of HTTP/3, QPACK and QUIC: each closes the connection at once with the code of its RFC."""

import asyncio

import h3
from h3_attack import assert_idle, running

SECONDS = 60
CASES = {}


def closes(code, **options):
    """Registers a violation."""
    def register(case):
        CASES[case.__name__] = (case, code, options)
        return case
    return register


def control(peer, content=b"", fin=False):
    peer.write(peer.own[h3.CONTROL], content, fin)


@closes("STREAM_CREATION_ERROR")
def second_control_stream(peer):
    peer.open(h3.CONTROL)


@closes("STREAM_CREATION_ERROR", opens=(h3.CONTROL, h3.ENCODER))
def second_encoder_stream(peer):
    peer.open(h3.ENCODER)


@closes("STREAM_CREATION_ERROR", opens=(h3.CONTROL, h3.DECODER))
def second_decoder_stream(peer):
    peer.open(h3.DECODER)


@closes("STREAM_CREATION_ERROR")
def push_stream(peer):
    peer.open(h3.PUSH)


@closes("CLOSED_CRITICAL_STREAM")
def end_of_control(peer):
    control(peer, fin=True)


@closes("CLOSED_CRITICAL_STREAM")
def reset_of_control(peer):
    stream = peer.own[h3.CONTROL]
    peer.queue_frames(h3.reset_stream(stream, size=peer.offsets[stream]))


@closes("CLOSED_CRITICAL_STREAM", opens=(h3.CONTROL, h3.ENCODER))
def end_of_encoder(peer):
    peer.write(peer.own[h3.ENCODER], fin=True)


@closes("CLOSED_CRITICAL_STREAM", opens=(h3.CONTROL, h3.DECODER))
def reset_of_decoder(peer):
    peer.queue_frames(h3.reset_stream(peer.own[h3.DECODER], size=1))


@closes("CLOSED_CRITICAL_STREAM")
def control_of_server_stopped(peer):
    peer.response(peer.request())
    peer.queue_frames(h3.stop_sending(3))


@closes("CLOSED_CRITICAL_STREAM")
def decoder_of_server_stopped(peer):
    peer.response(peer.request())
    peer.queue_frames(h3.stop_sending(7))


@closes("MISSING_SETTINGS", opens=())
def no_settings(peer):
    peer.open(h3.CONTROL, h3.frame(h3.GOAWAY, b"\0"))


@closes("FRAME_UNEXPECTED")
def second_settings(peer):
    control(peer, h3.settings())


@closes("SETTINGS_ERROR", opens=())
def settings_of_http2(peer):
    peer.open(h3.CONTROL, h3.settings((0x4, 1)))


@closes("SETTINGS_ERROR", opens=())
def setting_twice(peer):
    peer.open(h3.CONTROL, h3.settings((0x6, 1), (0x6, 1)))


@closes("FRAME_ERROR", opens=())
def settings_of_5_kib(peer):
    peer.open(h3.CONTROL, h3.frame(h3.SETTINGS, bytes(5_000)))


@closes("FRAME_UNEXPECTED")
def data_on_control(peer):
    control(peer, h3.frame(h3.DATA, b"x"))


@closes("FRAME_UNEXPECTED")
def headers_on_control(peer):
    control(peer, h3.head())


@closes("FRAME_UNEXPECTED")
def ping_of_http2(peer):
    control(peer, h3.frame(0x6, bytes(8)))


@closes("ID_ERROR")
def cancel_push(peer):
    control(peer, h3.frame(h3.CANCEL_PUSH, b"\0"))


@closes("ID_ERROR")
def smaller_max_push_id(peer):
    control(peer, h3.frame(h3.MAX_PUSH_ID, b"\x05") + h3.frame(h3.MAX_PUSH_ID, b"\x04"))


@closes("ID_ERROR")
def larger_goaway(peer):
    control(peer, h3.frame(h3.GOAWAY, b"\x04") + h3.frame(h3.GOAWAY, b"\x05"))


@closes("FRAME_ERROR")
def goaway_of_nine_bytes(peer):
    control(peer, h3.frame(h3.GOAWAY, bytes(9)))


@closes("ID_ERROR")
def priority_of_a_wrong_stream(peer):
    control(peer, h3.frame(h3.PRIORITY_UPDATE, h3.varint(2)))


@closes("ID_ERROR")
def priority_of_a_push(peer):
    control(peer, h3.frame(h3.PRIORITY_UPDATE + 1, b"\0"))


@closes("FRAME_ERROR")
def priority_of_2_kib(peer):
    control(peer, h3.frame(h3.PRIORITY_UPDATE, bytes(2_000)))


@closes("FRAME_UNEXPECTED")
def settings_on_a_request(peer):
    peer.request(h3.settings())


@closes("FRAME_UNEXPECTED")
def data_before_headers(peer):
    peer.request(h3.frame(h3.DATA, b"x"))


@closes("FRAME_UNEXPECTED")
def push_promise(peer):
    peer.request(h3.frame(h3.PUSH_PROMISE, b"\0\0\0"))


@closes("FRAME_ERROR")
def request_ends_in_a_frame(peer):
    peer.request(h3.head()[:-1])


@closes("FRAME_ERROR")
def request_ends_in_a_frame_header(peer):
    peer.request(b"\x40")


@closes("QPACK_DECOMPRESSION_FAILED")
def static_index_beyond_the_table(peer):
    peer.request(h3.frame(h3.HEADERS, h3.NO_REFERENCES + h3.integer(99, 6, 0xc0)))


@closes("QPACK_DECOMPRESSION_FAILED")
def dynamic_index_without_entries(peer):
    peer.request(h3.frame(h3.HEADERS, h3.NO_REFERENCES + b"\x80"))


@closes("QPACK_DECOMPRESSION_FAILED")
def required_insertions_beyond_the_table(peer):
    peer.request(h3.frame(h3.HEADERS, h3.integer(1_000, 8) + b"\0\x80"))


@closes("QPACK_DECOMPRESSION_FAILED")
def truncated_section(peer):
    peer.request(h3.frame(h3.HEADERS, h3.NO_REFERENCES + b"\x27\xff"))


@closes("QPACK_DECOMPRESSION_FAILED")
def seventeen_blocked_streams(peer):
    for _ in range(17):
        peer.request(h3.frame(h3.HEADERS, b"\x02\0\x80"))


@closes("QPACK_ENCODER_STREAM_ERROR")
def capacity_beyond_the_setting(peer):
    peer.open(h3.ENCODER, h3.capacity(4_097))


@closes("QPACK_ENCODER_STREAM_ERROR")
def insertion_beyond_the_capacity(peer):
    peer.open(h3.ENCODER, h3.capacity(100) + h3.insertion("x", "y" * 68))


@closes("QPACK_ENCODER_STREAM_ERROR")
def duplicate_of_nothing(peer):
    peer.open(h3.ENCODER, h3.capacity(100) + h3.duplicate(0))


@closes("QPACK_DECODER_STREAM_ERROR")
def acknowledgement_of_nothing(peer):
    peer.open(h3.DECODER, h3.integer(0, 7, 0x80))


@closes("QPACK_DECODER_STREAM_ERROR")
def increment_beyond_the_insertions(peer):
    peer.open(h3.DECODER, h3.integer(1, 6))


@closes("STREAM_LIMIT_ERROR")
def streams_beyond_the_limit(peer):
    peer.queue_frames(h3.stream_frame(4 * 100, 0, b"x"))


@closes("STREAM_LIMIT_ERROR")
def unidirectional_streams_beyond_the_limit(peer):
    peer.queue_frames(h3.stream_frame(4 * 8 + 2, 0, b"x"))


@closes("STREAM_STATE_ERROR")
def stream_of_the_server(peer):
    peer.queue_frames(h3.stream_frame(1, 0, b"x"))


@closes("STREAM_STATE_ERROR")
def content_on_the_servers_control_stream(peer):
    peer.queue_frames(h3.stream_frame(3, 0, b"x"))


@closes("FLOW_CONTROL_ERROR")
def content_beyond_the_credit(peer):
    peer.queue_frames(h3.stream_frame(0, 1 << 21, b"x"))


@closes("FINAL_SIZE_ERROR")
def two_final_sizes(peer):
    peer.queue_frames(h3.stream_frame(0, 10, b"x", True), h3.stream_frame(0, 20, b"x", True))


@closes("FINAL_SIZE_ERROR")
def reset_below_what_was_sent(peer):
    peer.queue_frames(h3.stream_frame(0, 10, b"x"), h3.reset_stream(0, size=5))


@closes("PROTOCOL_VIOLATION")
def retirement_of_a_future_id(peer):
    peer.queue_frames(h3.retire_connection_id(1_000))


@closes("CONNECTION_ID_LIMIT_ERROR")
def ids_beyond_the_limit(peer):
    peer.queue_frames(*(h3.new_connection_id(n) for n in range(1, 20)))


@closes("FRAME_ENCODING_ERROR")
def unknown_frame_of_quic(peer):
    peer.queue_frames(b"\x3f")


@closes("PROTOCOL_VIOLATION")
def handshake_done_of_a_client(peer):
    peer.queue_frames(b"\x1e")


@closes("PROTOCOL_VIOLATION")
def acknowledgement_of_an_unsent_packet(peer):
    peer.queue_frames(b"\x02" + h3.varint(100_000) + b"\0\0\0")


async def run(binary):
    failures = []
    async with running(binary) as (server, port):
        for name, (case, code, options) in CASES.items():
            if failure := await asyncio.to_thread(check, port, case, code, options):
                failures.append(f"{name}: {failure}")
        await assert_idle(server)
        await asyncio.to_thread(h3.assert_served, port)
    assert not failures, f"{len(failures)} of {len(CASES)}:\n  " + "\n  ".join(failures)
    return f"{len(CASES)} violations"


def check(port, case, code, options):
    with h3.Peer(port, seconds=3, **options) as peer:
        try:
            case(peer)
            found = peer.ends()
        except TimeoutError:
            found = "nothing"
        except h3.ConnectionEnded as ended:
            found = ended.code
    return None if found == code else f"{found}, not {code}"
