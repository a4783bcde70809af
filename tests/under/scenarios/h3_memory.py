"""Clients that make the server hold memory: each case opens many connections, and the resident memory of the server
grows by less than the limit of a core's buffers. A normal client is served meanwhile, and afterwards the memory can
be used again."""

import contextlib
import dataclasses
import os
import socket
import time

import h3
from aioquic.quic.crypto import CryptoPair
from aioquic.quic.packet import QuicProtocolVersion
from attack import client_cpus
from h3_attack import GROWTH_MAX, measure, running

SECONDS = 300
# A late response, to a request whose content nobody reads.
SLOW = "/delay?ms=60000"
STREAMS = 100
# Content of a connection, if the server takes so much.
CONTENT_BYTES = 7_000_000
# A new connection begins within this time.
BEGIN_SECONDS = 12
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


def waiting_requests(peer):
    """Requests that wait for their responses."""
    for _ in range(STREAMS):
        peer.request(h3.head("GET", SLOW))


def unread_content(peer):
    """Content that the upstream does not read, as far as the server gives credit."""
    stream = peer.request(h3.head("POST", "/upstream/"), fin=False)
    while room := min(room_of(peer) - 20, CONTENT_BYTES - peer.credit_used):
        if room <= 0:
            return
        peer.write(stream, h3.frame(h3.DATA, bytes(room)))
        peer.settle()
        peer.receive(0.02)


def unread_content_in_small_frames(peer):
    """The same in STREAM frames of sixteen bytes."""
    stream = peer.request(h3.head("POST", "/upstream/"), fin=False)
    peer.write(stream, h3.frame(h3.DATA, bytes(10_000_000))[:5])
    while room := min(room_of(peer), CONTENT_BYTES - peer.credit_used):
        if room < 16:
            return
        for _ in range(room // 16):
            peer.queue_frames(h3.stream_frame(stream, peer.offsets[stream], bytes(16)))
            peer.offsets[stream] += 16
            peer.credit_used += 16
        peer.settle()
        peer.receive(0.02)


def gap_in_content(peer):
    """The first byte of the content is missing, and the rest comes in pieces with gaps between them."""
    stream = peer.request(h3.head("POST", "/upstream/") + h3.frame(h3.DATA, bytes(10_000_000))[:5], fin=False)
    offset = peer.offsets[stream] + 1
    for at in range(offset, offset + room_of(peer) - 200, 200):
        peer.queue_frames(h3.stream_frame(stream, at, bytes(100)))


def room_of(peer):
    """Bytes that may still be sent."""
    return peer.data_max - peer.credit_used


def permitted_streams(peer, size):
    """Streams that are begun one after another, as long as the server permits it and content of this size."""
    stream = 0
    while stream // 4 < min(STREAMS, peer.streams_max) and room_of(peer) >= size:
        yield stream
        peer.credit_used += size
        stream += 4
        peer.next_request = stream
        peer.flush()
        if stream // 4 == peer.streams_max:
            peer.settle()
            peer.receive(0.02)


def gaps(peer):
    """Streams without their first byte: each packet has only one other byte, so that it may keep the whole packet."""
    for stream in permitted_streams(peer, 50):
        for number in range(24):
            peer.queue_frames(h3.stream_frame(stream, 1 + number * 2, b"x") + bytes(1_100))


def gaps_in_one_packet(peer):
    """Streams without their first byte: 500 single bytes with a gap before each."""
    for stream in permitted_streams(peer, 1_001):
        for number in range(500):
            peer.queue_frames(h3.stream_frame(stream, 1 + number * 2, b"x"))


def merged_content_that_came_twice(peer):
    """Content that is read except for a byte behind a gap, with which QUIC has merged all of it: it holds the memory. QUIC
    merges because content comes again that is read meanwhile; a head that waits for QPACK has the server stop there."""
    peer.keeps_content = False
    encoder = peer.open(h3.ENCODER, h3.capacity(4_096))
    frame_bytes = 500
    for number in range(90):
        stream = peer.request(b"", fin=False)
        fields = b"".join(h3.literal(*field) for field in h3.request("POST", "/echo"))
        head = h3.frame(h3.HEADERS, bytes([(number + 1) % 256 + 1, 0]) + fields + b"\x80")
        begin = head + h3.frame(h3.DATA, bytes(10_000_000))[:5] + bytes(700)
        used = peer.credit_used

        def send(offset, content):
            """In a packet of its own, which is full."""
            peer.credit_used = max(peer.credit_used, used + offset + len(content))
            if room_of(peer) < 0:
                peer.until(lambda: room_of(peer) >= 0)
            frame = h3.stream_frame(stream, offset, content)
            peer.send(bytes(1_160 - len(frame)) + frame)

        send(1, begin[1:])
        end = len(begin) + 700
        for offset in range(end, end + 500 * frame_bytes, frame_bytes):
            send(offset, bytes(frame_bytes))
        for _ in range(15):
            send(len(begin), bytes(700))
        end += 500 * frame_bytes
        peer.settle()
        send(0, begin[:1])
        peer.settle()
        for offset in [end + 27, *range(end, end + 26)]:
            send(offset, b"x")
        peer.write(encoder, h3.insertion("x-a", "v"))
        peer.settle()


def crypto_bytes(peer):
    """A byte of CRYPTO, with a gap before it, in each packet."""
    peer.retransmits = False
    for number in range(2_040):
        peer.send_packet((b"\x06" + h3.varint(1 + number * 2) + b"\x01x").ljust(h3.PAYLOAD_BYTES, b"\0"))
        if number % 100 == 99:
            peer.receive(0.002)
            peer.check()


def crypto_bytes_beside_other_packets(peer):
    """A byte of CRYPTO, with a gap before it, in a small packet of a large datagram; with several keys."""
    peer.retransmits = False
    for number in range(2_040):
        if number % 500 == 499:
            peer.settle()
            peer.crypto._update_key("local_update")
            peer.settle()
        payload = b"\x06" + h3.varint(1 + number * 2) + b"\x01x"
        header = bytes([0x41 | peer.crypto.key_phase << 2]) + peer.peer_id + (peer.number & 0xffff).to_bytes(2, "big")
        packet = peer.crypto.encrypt_packet(header, payload, peer.number)
        peer.number += 1
        peer.send_datagram(long_header(peer.peer_id, 0xe1, 1_400, bytes(1_400)) + packet)
        if number % 20 == 19:
            peer.receive(0.002)
            peer.check()


def long_header(destination, first, length, content=b"", token=b""):
    """A packet with a long header, of which so much follows."""
    header = bytes([first]) + b"\0\0\0\1" + bytes([len(destination)]) + destination + b"\0" + token
    return header + (0x4000 | length).to_bytes(2, "big") + content


def incomplete_handshakes(peer):
    """Clients that only send Initial packets: a byte of CRYPTO, with a gap before it, in a small packet of each datagram.
    They are too few for Retry."""
    for _ in range(4):
        keys, destination = CryptoPair(), os.urandom(8)
        keys.setup_initial(destination, is_client=True, version=QuicProtocolVersion.VERSION_1)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.connect(peer.socket.getpeername())
            for number in range(511):
                payload = b"\x06" + h3.varint(1 + number * 2) + b"\x01x"
                header = long_header(destination, 0xc1, len(payload) + 18, token=b"\0") + number.to_bytes(2, "big")
                packet = keys.encrypt_packet(header, payload, number)
                client.send(packet + long_header(destination, 0xe1, 1_400, bytes(1_400)))
                if number % 20 == 19:
                    peer.receive(0.001)


def places_for_frames(peer):
    """Requests whose content comes in single bytes at first: QUIC keeps its room for so many frames."""
    for _ in range(9):
        content = h3.head("POST", "/echo") + h3.frame(0x21, bytes(1_700)) + h3.frame(h3.DATA, b"x" * 30)
        stream = peer.request(b"", fin=False)
        for offset in range(1, len(content), 2):
            peer.queue_frames(h3.stream_frame(stream, offset, content[offset:offset + 1]))
        peer.flush()
        peer.credit_used += len(content)
        for offset in range(0, len(content), 1_100):
            part = content[offset:offset + 1_100]
            peer.queue_frames(h3.stream_frame(stream, offset, part, offset + len(part) == len(content)))
        assert peer.response(stream) == (200, b"x" * 30)


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
    "waiting requests": (waiting_requests, 100, {}),
    "content that the upstream does not read": (unread_content, 12, {}),
    "the same in frames of 16 bytes": (unread_content_in_small_frames, 5, {}),
    "a gap in content": (gap_in_content, 100, {}),
    "a gap in each stream": (gaps, 50, {}),
    "500 gaps in each stream": (gaps_in_one_packet, 30, {}),
    "merged content that came twice": (merged_content_that_came_twice, 6, {}),
    "a byte of CRYPTO in each packet": (crypto_bytes, 40, {}),
    "the same beside other packets": (crypto_bytes_beside_other_packets, 40, {}),
    "incomplete handshakes": (incomplete_handshakes, 50, {}),
    "room for frames of ended streams": (places_for_frames, 150, {}),
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
        peers = []
        end = time.monotonic() + BEGIN_SECONDS
        while len(peers) < count and time.monotonic() < end:
            with contextlib.suppress(h3.ConnectionEnded, AssertionError, TimeoutError):
                peer = h3.Peer(self.port, seconds=3, **options)
                peers.append(peer)
                act(peer)
                peer.flush()
                peer.receive()
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


@contextlib.asynccontextmanager
async def upstream():
    """An upstream that accepts connections and reads nothing; its port."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        listener.bind(("127.0.0.1", 0))
        listener.listen(4_096)
        yield listener.getsockname()[1]


async def run(binary):
    async with upstream() as upstream_port:
        return await run_all(binary, "--to", f"/upstream=http://127.0.0.1:{upstream_port}")


async def run_all(binary, *flags):
    lines, failures = [], []
    for name in CASES:
        async with running(binary, *flags) as (server, port):
            try:
                cost = await measure(server, port, Holders(port, name), cap=1 << 40, seconds=1)
            except Exception as error:
                lines.append(f"{name}: failed")
                failures.append(f"{name}: {type(error).__name__}: {error}")
                continue
            left, growth, opened = server.rss_bytes(), cost["growth"], cost["results"][0]["opened"]
            lines.append(f"{name:<40} {opened:>4} connections  {cost['closed']:>4} closed  {cost['MB']:6.1f} MB"
                         f"  RSS +{growth / (1 << 20):6.1f} MiB, {growth / opened / 1024:7.1f} KiB for each,"
                         f" {left >> 20} MiB afterwards  cpu {cost['cpu'] * 100:3.0f} %"
                         f"  p99 {cost['p99']:.2f} -> {cost['p99 during']:.2f} ms")
            # Unacknowledged bytes take 64 MiB for all connections and 64 KiB for each, beside 4.8 KiB for each of their
            # 100 requests.
            growth_max = GROWTH_MAX + (32 << 20) * (name == "no acknowledgements")
            if growth > growth_max:
                failures.append(f"{name}: resident memory grew by {growth >> 20} MiB")
    report = "\n  " + "\n  ".join(lines)
    assert not failures, report + "\n  failed:\n  " + "\n  ".join(failures)
    return report

