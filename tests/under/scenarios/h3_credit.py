"""A client of HTTP/3 that has been idle gets no credit on top of what it has not used: beyond the largest window it
would be closed for content that it was allowed to send. Idle neighbours that have QUIC keep much memory do not take what
it needs to use its credit."""

import asyncio
import contextlib
import time

import h3
from h3_attack import running

SECONDS = 200
FILES = 2_048
CYCLES = 4
UPLOADS, SIZE = 18, 480_000
# The largest window, and what was read just before the window became smaller.
CREDIT_MAX = (16 << 20) + (512 << 10)
# More than any credit.
LAST_UPLOADS = 60
# Together they would take more than all connections share.
NEIGHBOURS, GAPS = 520, 1_010


async def run(binary):
    async with running(binary) as (server, port):
        note = await asyncio.to_thread(use_credit, port)
    async with running(binary) as (server, port):
        return f"{note}; {await asyncio.to_thread(use_beside_others, port)}"


def use_credit(port):
    # Nothing of a response is sent, so the server does not read on.
    with h3.Peer(port, stream_window=0, seconds=30) as peer:
        credit = [get_credit(peer) for _ in range(CYCLES)]
        used = 0
        while used < LAST_UPLOADS and peer.data_max - peer.credit_used > SIZE + 100:
            upload(peer)
            wait(peer, 0.02)
            used += 1
        peer.check()
    note = (f"credit of {', '.join(f'{bytes / 1e6:.1f}' for bytes in credit)} MB while idle; then {used} uploads of"
            f" {SIZE:,} bytes that nobody reads")
    assert max(credit) <= CREDIT_MAX, note
    assert 30 <= used < LAST_UPLOADS, note
    return note


def use_beside_others(port):
    with h3.Peer(port, stream_window=0, seconds=30) as peer, contextlib.ExitStack() as stack:
        get_credit(peer)
        neighbours = [stack.enter_context(h3.Peer(port)) for _ in range(NEIGHBOURS)]
        for neighbour in neighbours:
            with contextlib.suppress(h3.ConnectionEnded):
                leave_room(neighbour)
        streams = [upload(peer, 100_000) for _ in range(4)]
        wait(peer)
        receive(peer, streams, 100_000)
        for neighbour in neighbours:
            with contextlib.suppress(h3.ConnectionEnded):
                neighbour.receive()
        return f"served beside {sum(neighbour.ended is None for neighbour in neighbours)} of {NEIGHBOURS} neighbours"


def leave_room(peer):
    """QUIC keeps its room for the frames of four streams that have ended."""
    for _ in range(4):
        stream = peer.request(b"", fin=False)
        for number in range(GAPS):
            peer.queue_frames(h3.stream_frame(stream, 1 + number * 2, b"x"))
        peer.flush()
        peer.settle()
        peer.credit_used += 2 * GAPS
        peer.send(h3.reset_stream(stream, 0x10c, 2 * GAPS))
        peer.settle()


def get_credit(peer):
    """Uploads that wait for their reader, so that the window grows; returns what may be sent when all is read."""
    streams = [upload(peer) for _ in range(UPLOADS)]
    wait(peer)
    receive(peer, streams)
    wait(peer)
    return peer.data_max - peer.credit_used


def upload(peer, size=SIZE):
    stream = peer.request(b"", fin=False)
    head = h3.head("POST", "/echo", ("content-length", str(size)))
    peer.write(stream, head + h3.frame(h3.DATA, bytes(size)), True)
    peer.settle()
    return stream


def receive(peer, streams, size=SIZE):
    for stream in streams:
        peer.queue_frames(h3.max_stream_data(stream, 1 << 40))
    peer.flush()
    for stream in streams:
        status, content = peer.response(stream)
        assert (status, len(content)) == (200, size), (status, len(content))


def wait(peer, seconds=0.3):
    """Until the server has given all the credit that it wants to."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        peer.receive(0.01)
    peer.check()
