"""Frames that cost the server work and are useless to the client: each kind has a limit."""

import h2
from attack import Attack, table

SECONDS = 180

# A request without its content, to which the server does not respond yet.
OPEN = h2.headers(1, h2.request("GET", "/delay?ms=60000"), h2.END_HEADERS)

CANCEL = h2.frame(h2.RST_STREAM, 0, 1, h2.u32(8))


def priority_update(count):
    payload = h2.u32(h2.client_stream(count)) + b"u=1"
    return h2.frame(h2.PRIORITY_UPDATE, 0, 0, payload)


def ping(count):
    return h2.frame(h2.PING, 0, 0, b"%08d" % (count % 10**8))


ATTACKS = [
    # The first SETTINGS of the connection counts as well.
    Attack("SETTINGS", lambda _: h2.settings(window=1 << 16), 99),
    Attack("SETTINGS with 2,730 values", lambda _: h2.frame(
        h2.SETTINGS, 0, 0, h2.settings(window=1 << 16)[9:] * 2_730), 99, flood=False),
    Attack("SETTINGS ACK", lambda _: h2.frame(h2.SETTINGS, h2.ACK), 99, flood=False),
    # The PING of the test counts as well.
    Attack("PING", ping, 999),
    Attack("PING ACK", lambda _: h2.frame(h2.PING, h2.ACK, 0, b"unasked!"), 1_000, flood=False),
    # The stream that was opened before adds to the limits.
    Attack("empty DATA", lambda _: h2.data(1), 101, setup=OPEN),
    Attack("DATA of padding only", lambda _: h2.data(1, b"\xc8" + bytes(200), h2.PADDED), 101,
           setup=OPEN, flood=False),
    Attack("DATA of a byte", lambda _: h2.data(1, b"x"), 11_000, setup=OPEN),
    Attack("WINDOW_UPDATE", lambda _: h2.frame(h2.WINDOW_UPDATE, 0, 0, h2.u32(1)), 2_000),
    Attack("WINDOW_UPDATE of a stream", lambda _: h2.frame(
        h2.WINDOW_UPDATE, 0, 1, h2.u32(1)), 2_001, setup=OPEN, flood=False),
    Attack("PRIORITY", lambda n: h2.frame(h2.PRIORITY, 0, h2.client_stream(n), bytes(4) + b"\1"), 500),
    Attack("PRIORITY_UPDATE", priority_update, 500),
    Attack("frames of unknown types", lambda _: h2.frame(0xfa), 500),
    Attack("frames of unknown types, 16 KiB", lambda _: h2.frame(0xfa, 0, 0, bytes(16_384)), 500,
           flood=False),
    Attack("RST_STREAM on a stream that is closed", lambda _: CANCEL, 502, setup=OPEN + CANCEL),
    Attack("HEADERS on a stream that is closed", lambda _: h2.headers(1, [("x", "y")]), 502,
           setup=OPEN + h2.frame(h2.WINDOW_UPDATE, 0, 1, bytes(4))),
    # Connection errors close it at once.
    Attack("PRIORITY on itself", lambda _: h2.frame(
        h2.PRIORITY, 0, 3, h2.u32(3) + b"\1"), 0, "PROTOCOL_ERROR", flood=False),
    Attack("WINDOW_UPDATE of 0", lambda _: h2.frame(h2.WINDOW_UPDATE, 0, 0, bytes(4)), 0,
           "PROTOCOL_ERROR", flood=False),
    Attack("a window beyond 31 bits", lambda _: h2.frame(
        h2.WINDOW_UPDATE, 0, 0, h2.u32(h2.WINDOW_MAX)), 0, "FLOW_CONTROL_ERROR", flood=False),
    Attack("a frame of more than 16 KiB", lambda _: h2.frame(0xfa, 0, 0, bytes(16_385)), 0,
           "FRAME_SIZE_ERROR", flood=False),
]


async def run(binary):
    return await table(binary, ATTACKS)
