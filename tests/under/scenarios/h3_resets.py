"""Requests over HTTP/3 that the client resets or stops (CVE-2023-44487), or that the server resets because of an error
in each (CVE-2025-8671): the limit is 200 in ten seconds."""

import h3
from h3_attack import Attack, table

SECONDS = 90
RESETS = 200
# A late response, so that the reset comes before it.
SLOW = "/delay?ms=10000"


def cancelled(peer, _):
    stream = peer.request(h3.head("GET", SLOW), fin=False)
    peer.queue_frames(h3.reset_stream(stream, size=peer.offsets[stream]))


def never_begun(peer, _):
    stream = peer.request(b"", fin=False)
    peer.queue.pop()
    peer.queue_frames(h3.reset_stream(stream), h3.stop_sending(stream))


def stopped(peer, _):
    stream = peer.request(h3.head("GET", SLOW))
    peer.queue_frames(h3.stop_sending(stream))


def both(peer, _):
    stream = peer.request(h3.head("GET", SLOW), fin=False)
    peer.queue_frames(h3.reset_stream(stream, size=peer.offsets[stream]), h3.stop_sending(stream))


def malformed(peer, _):
    """A request without a method."""
    peer.request(h3.frame(h3.HEADERS, h3.section(h3.request("GET", SLOW)[1:])))


def incomplete(peer, _):
    """A stream that ends before its request."""
    peer.request(b"")


ATTACKS = [
    Attack("RESET_STREAM after a request", cancelled, RESETS),
    Attack("STOP_SENDING after a request", stopped, RESETS),
    Attack("RESET_STREAM and STOP_SENDING", both, RESETS),
    Attack("RESET_STREAM of streams without a byte", never_begun, RESETS),
    Attack("malformed requests", malformed, RESETS),
    Attack("streams that end without a request", incomplete, RESETS, flood=False),
]


async def run(binary):
    return await table(binary, __name__)
