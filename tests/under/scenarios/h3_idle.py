"""Two thousand idle connections of HTTP/3: their memory is reported, they need no CPU time, and they are closed
after the idle timeout although they send PING."""

import asyncio
import contextlib
import time

import h3
from h3_attack import IDLE_CPU_MAX, running

SECONDS = 200
FILES = 8_192
WARM = 100
CONNECTIONS = 2_000
BYTES_MAX = 40 * 1024
IDLE_SECONDS, SLACK_SECONDS = 75, 6
PING_SECONDS = 25


async def run(binary):
    async with running(binary) as (server, port):
        return await asyncio.to_thread(hold, server, port)


def hold(server, port):
    peers = [opened(port) for _ in range(WARM)]
    before = server.rss_bytes()
    begun = time.monotonic()
    peers += [opened(port) for _ in range(CONNECTIONS - WARM)]
    took = time.monotonic() - begun
    # Probes of the path are answered.
    for _ in range(4):
        time.sleep(0.5)
        for peer in peers:
            peer.receive()
    each = (server.rss_bytes() - before) / (CONNECTIONS - WARM)
    idle = server.cpu_seconds()
    time.sleep(5)
    idle = (server.cpu_seconds() - idle) / 5
    closed = {}
    next_ping = time.monotonic()
    while len(closed) < CONNECTIONS and time.monotonic() < peers[-1].since + IDLE_SECONDS + SLACK_SECONDS:
        pings = time.monotonic() >= next_ping
        if pings:
            next_ping += PING_SECONDS
        for number, peer in enumerate(peers):
            if number in closed:
                continue
            with contextlib.suppress(h3.ConnectionEnded):
                if pings:
                    peer.send(h3.PING)
                peer.receive()
            if peer.ended:
                closed[number] = (time.monotonic() - peer.since, peer.ended.code)
        time.sleep(0.05)
    codes = sorted({code for _, code in closed.values()})
    times = [seconds for seconds, _ in closed.values()]
    note = (f"{CONNECTIONS} connections in {took:.1f} s, {each / 1024:.1f} KiB for each, {idle * 100:.1f} % CPU while"
            f" idle, {len(closed)} closed with {', '.join(codes)} after"
            f" {min(times, default=0):.1f} to {max(times, default=0):.1f} s, {server.rss_bytes() >> 20} MiB afterwards")
    for peer in peers:
        peer.close()
    assert len(closed) == CONNECTIONS and codes == ["NO_ERROR"], note
    assert min(times) >= IDLE_SECONDS - 1, note
    assert each <= BYTES_MAX, note
    assert idle <= IDLE_CPU_MAX, note
    h3.assert_served(port)
    return note


def opened(port):
    """A connection that has had a request."""
    peer = h3.Peer(port)
    assert peer.response(peer.request()) == (200, b"Hello, World!")
    peer.since = time.monotonic()
    return peer
