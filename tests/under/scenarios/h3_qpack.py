"""QPACK: small sections that decode to much are answered with 431, and blocked streams wait for instructions."""

import asyncio

import h3
from h3_attack import Attack, running, table

SECONDS = 90
# The entry has the largest size that the table takes.
VALUE = "y" * (4_096 - 33)


def with_large_entry(peer):
    peer.open(h3.ENCODER, h3.capacity(4_096) + h3.insertion("x", VALUE))
    peer.settle()


# One insertion is required: encoded as 2 (RFC 9204, section 4.5.1.1). Base 1, and relative index 0.
REQUIRES_ONE = b"\x02\0"
REFERENCE = b"\x80"


def fields(*lines):
    return b"".join(h3.literal(name, value) for name, value in lines)


def bomb(count):
    """A request whose section of `count` bytes and more decodes to 4 KiB for each."""
    content = h3.frame(h3.HEADERS, REQUIRES_ONE + fields(*h3.request()) + REFERENCE * count)

    def each(peer, _):
        peer.incoming.clear()
        peer.request(content)
    return each


def blocked(peer, _):
    """Requests that wait for an instruction, reset before it comes."""
    stream = peer.request(h3.frame(h3.HEADERS, REQUIRES_ONE + REFERENCE), fin=False)
    peer.queue_frames(h3.reset_stream(stream, size=peer.offsets[stream]))


ATTACKS = [
    Attack("sections of 100 references", bomb(100), 200, setup=with_large_entry, is_limited=False),
    Attack("sections of 60,000 references", bomb(60_000), 20, setup=with_large_entry, is_limited=False),
    Attack("blocked requests that are reset", blocked, 200, setup=lambda peer: peer.open(h3.ENCODER)),
]


async def run(binary):
    async with running(binary) as (_, port):
        for case in (answered_with_431, long_sections, blocked_streams, blocked_then_reset, unread_decoder_stream):
            await asyncio.to_thread(case, port)
            await asyncio.to_thread(h3.assert_served, port)
    return await table(binary, __name__)


def answered_with_431(port):
    """The connection goes on."""
    with h3.Peer(port) as peer:
        with_large_entry(peer)
        few = h3.frame(h3.HEADERS, REQUIRES_ONE + fields(*h3.request()) + REFERENCE * 4)
        assert peer.response(peer.request(few)) == (200, b"Hello, World!")
        for count in (9, 1_000, 60_000):
            content = h3.frame(h3.HEADERS, REQUIRES_ONE + fields(*h3.request()) + REFERENCE * count)
            status = peer.response(peer.request(content))[0]
            assert status == 431, f"{count} references: {status}"
        assert peer.response(peer.request()) == (200, b"Hello, World!")


def long_sections(port):
    """More than 64 KiB on the wire, and more than a hundred fields."""
    with h3.Peer(port) as peer:
        long = h3.head("GET", "/hello", ("x", "y" * (1 << 17)))
        assert peer.response(peer.request(long))[0] == 431
        many = h3.head("GET", "/hello", *[("x", "")] * 2_000)
        assert peer.response(peer.request(many))[0] == 431
        assert peer.response(peer.request()) == (200, b"Hello, World!")


def blocked_streams(port):
    """Sixteen requests wait, and are answered as soon as the instruction comes."""
    with h3.Peer(port) as peer:
        peer.open(h3.ENCODER)
        content = h3.frame(h3.HEADERS, REQUIRES_ONE + fields(*h3.request()) + REFERENCE)
        streams = [peer.request(content) for _ in range(16)]
        assert peer.response(peer.request()) == (200, b"Hello, World!")
        assert not any(peer.is_done(stream) for stream in streams)
        peer.write(peer.own[h3.ENCODER], h3.capacity(4_096) + h3.insertion("x", "y"))
        for stream in streams:
            assert peer.response(stream) == (200, b"Hello, World!")


def blocked_then_reset(port):
    """A blocked request that is reset makes room for another."""
    with h3.Peer(port) as peer:
        peer.open(h3.ENCODER)
        for _ in range(100):
            blocked(peer, 0)
        peer.settle()
        assert peer.response(peer.request()) == (200, b"Hello, World!")


def unread_decoder_stream(port):
    """What the server has to report without credit for it is limited."""
    with h3.Peer(port, uni_streams=0) as peer:
        peer.open(h3.ENCODER, h3.capacity(4_096) + h3.insertion("x", "y"))
        # Before any request: only sixteen of them may wait for it.
        peer.settle()
        content = h3.frame(h3.HEADERS, REQUIRES_ONE + fields(*h3.request()) + REFERENCE)
        try:
            for _ in range(20_000):
                peer.request(content)
                peer.incoming.clear()
            peer.settle()
        except h3.ConnectionEnded as ended:
            assert ended.code == "EXCESSIVE_LOAD", ended
            assert 3_000 < peer.next_request / 4 < 18_000, f"after {peer.next_request // 4} requests"
            return
    raise AssertionError("the server keeps every report")
