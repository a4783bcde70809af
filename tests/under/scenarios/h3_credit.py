"""A client of HTTP/3 that has been idle gets no credit on top of what it has not used: beyond the largest window it
would be closed for content that it was allowed to send."""

import asyncio
import time

import h3
from h3_attack import running

SECONDS = 120
CYCLES = 4
UPLOADS, SIZE = 18, 480_000
# The largest window, and what was read just before the window became smaller.
CREDIT_MAX = (16 << 20) + (512 << 10)
# More than any credit.
LAST_UPLOADS = 60


async def run(binary):
    async with running(binary) as (server, port):
        return await asyncio.to_thread(use_credit, port)


def use_credit(port):
    credit = []
    # Nothing of a response is sent, so the server does not read on.
    with h3.Peer(port, stream_window=0, seconds=30) as peer:
        for _ in range(CYCLES):
            streams = [upload(peer) for _ in range(UPLOADS)]
            wait(peer)
            for stream in streams:
                peer.queue_frames(h3.max_stream_data(stream, 1 << 40))
            peer.flush()
            for stream in streams:
                status, content = peer.response(stream)
                assert (status, len(content)) == (200, SIZE), (status, len(content))
            wait(peer)
            credit.append(peer.data_max - peer.credit_used)
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


def upload(peer):
    stream = peer.request(b"", fin=False)
    head = h3.head("POST", "/echo", ("content-length", str(SIZE)))
    peer.write(stream, head + h3.frame(h3.DATA, bytes(SIZE)), True)
    peer.settle()
    return stream


def wait(peer, seconds=0.3):
    """Until the server has given all the credit that it wants to."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        peer.receive(0.01)
    peer.check()
