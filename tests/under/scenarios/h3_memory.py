"""Clients that make the server hold memory: each case opens many connections, and the resident memory of the server
grows by less than the limit of a core's buffers. A normal client is served meanwhile, and afterwards the memory can
be used again."""

import contextlib
import dataclasses
import os
import time

import h3
from attack import client_cpus
from h3_attack import GROWTH_MAX, measure, running

SECONDS = 300
# A late response, to a request whose content nobody reads.
SLOW = "/delay?ms=60000"
STREAMS = 100
REQUIRES_ONE = b"\x02\0"


def incomplete_heads(peer):
    """Half a field section of 60 KiB on each stream."""
    for _ in range(STREAMS):
        peer.request(h3.frame(h3.HEADERS, bytes(60_000))[:30_000], fin=False)


def small_incomplete_heads(peer):
    """Field sections that lack a byte, and are too small to count as large."""
    content = h3.frame(h3.HEADERS, h3.section([("x", "y" * 20)]) + bytes(20))[:-1]
    for _ in range(STREAMS):
        peer.request(content, fin=False)


def blocked_heads(peer):
    """Field sections of 60 KiB that wait for an instruction."""
    peer.open(h3.ENCODER)
    for _ in range(16):
        peer.request(h3.frame(h3.HEADERS, REQUIRES_ONE + bytes(60_000)))


def unread_content(peer):
    """All credit of the connection is used for content that nobody reads."""
    stream = peer.request(h3.head("GET", SLOW), fin=False)
    peer.write(stream, h3.frame(h3.DATA, bytes(peer.data_max - peer.credit_used - 10)))


def unread_content_in_small_frames(peer):
    """The same in STREAM frames of sixteen bytes."""
    stream = peer.request(h3.head("GET", SLOW), fin=False)
    size = peer.data_max - peer.credit_used - 10
    peer.write(stream, h3.frame(h3.DATA, bytes(size))[:10])
    for at in range(0, size - 16, 16):
        peer.queue_frames(h3.stream_frame(stream, peer.offsets[stream] + at, bytes(16)))


def gaps(peer):
    """Streams without their first bytes: a byte of each in a packet of its own, so that each may keep its packet."""
    for number in range(24):
        for stream in range(0, STREAMS * 4, 4):
            peer.queue_frames(h3.stream_frame(stream, 1 + number * 2, b"x") + bytes(1_100))
    peer.next_request = STREAMS * 4


def gaps_in_one_packet(peer):
    """Streams without their first bytes: 500 single bytes with a gap before each."""
    for stream in range(0, STREAMS * 4, 4):
        for number in range(500):
            peer.queue_frames(h3.stream_frame(stream, 1 + number * 2, b"x"))
    peer.next_request = STREAMS * 4


def no_credit(peer):
    """Large responses without any credit."""
    for _ in range(STREAMS):
        peer.request(h3.head("GET", "/data?size=10000000"))


def no_acknowledgements(peer):
    """Large responses, of which nothing is acknowledged after some MB."""
    peer.keeps_content = False
    for _ in range(STREAMS):
        peer.request(h3.head("GET", "/data?size=10000000"))
    peer.flush()
    end = time.monotonic() + 1
    while peer.received_bytes < 3_000_000 and time.monotonic() < end:
        peer.receive(0.01)
    peer.acknowledges = False
    peer.flight_max = 1 << 30


CASES = {
    # Name: what a connection does, connections, options of each.
    "incomplete heads": (incomplete_heads, 20, {}),
    "small incomplete heads": (small_incomplete_heads, 200, {}),
    "blocked heads": (blocked_heads, 100, {}),
    "unread content": (unread_content, 500, {}),
    "unread content in frames of 16 bytes": (unread_content_in_small_frames, 20, {}),
    "a gap in each stream": (gaps, 50, {}),
    "500 gaps in each stream": (gaps_in_one_packet, 30, {}),
    "no credit for streams": (no_credit, 50, {"stream_window": 0}),
    "a byte of credit for streams": (no_credit, 50, {"stream_window": 1}),
    "no credit for the connection": (no_credit, 50, {"window": 0}),
    "no acknowledgements": (no_acknowledgements, 60, {}),
}


@dataclasses.dataclass(frozen=True)
class Holders:
    """Connections that begin a case one after another and then keep quiet, except for PING."""

    port: int
    name: str

    def run(self, seconds):
        os.sched_setaffinity(0, client_cpus())
        act, count, options = CASES[self.name]
        peers, closed, sent = [], 0, 0
        for _ in range(count):
            peer = None
            try:
                peer = h3.Peer(self.port, seconds=3, **options)
                peers.append(peer)
                act(peer)
                peer.flush()
                peer.receive()
            except (h3.ConnectionEnded, AssertionError, TimeoutError):
                closed += peer is not None
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for peer in peers:
                with contextlib.suppress(h3.ConnectionEnded):
                    peer.receive()
                    peer.send(h3.PING)
            time.sleep(0.2)
        sent = sum(peer.sent_bytes for peer in peers)
        closed = sum(peer.ended is not None for peer in peers)
        for peer in peers:
            peer.close()
        return {"opened": len(peers), "closed": closed, "sent": sent}


async def run(binary):
    lines, failures = [], []
    for name, (_, count, _) in CASES.items():
        async with running(binary) as (server, port):
            try:
                cost = await measure(server, port, Holders(port, name), cap=1 << 40, seconds=1)
            except Exception as error:
                lines.append(f"{name}: failed")
                failures.append(f"{name}: {type(error).__name__}: {error}")
                continue
            left = server.rss_bytes()
            growth = cost["growth"]
            lines.append(f"{name:<40} {count:>4} connections  {cost['closed']:>4} closed  {cost['MB']:6.1f} MB"
                         f"  RSS +{growth / (1 << 20):6.1f} MiB, {growth / count / 1024:7.1f} KiB for each,"
                         f" {left >> 20} MiB afterwards  cpu {cost['cpu'] * 100:3.0f} %"
                         f"  p99 {cost['p99']:.2f} -> {cost['p99 during']:.2f} ms")
            if growth > GROWTH_MAX:
                failures.append(f"{name}: resident memory grew by {growth >> 20} MiB")
    report = "\n  " + "\n  ".join(lines)
    assert not failures, report + "\n  failed:\n  " + "\n  ".join(failures)
    return report

