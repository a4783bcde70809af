"""What costs an HTTP/3 client nothing and the server work: each kind has a limit, and beyond it the connection is
closed with EXCESSIVE_LOAD."""

import h3
from h3_attack import Attack, table

SECONDS = 180


def on_control(content):
    """An action: these bytes on the control stream; or those that a function makes for the action's number."""
    def each(peer, n):
        peer.write(peer.own[h3.CONTROL], content(n) if callable(content) else content)
    return each


def on_request(content):
    def each(peer, _):
        peer.write(0, content)
    return each


def echo(peer):
    """A request without its content, which is read as it comes."""
    peer.request(h3.head("POST", "/echo"), fin=False)


def priority_update(n):
    return h3.frame(h3.PRIORITY_UPDATE, h3.varint(n * 4) + b"u=1")


def unknown_stream(peer, n):
    stream = peer.open(0x21 + 0x1f * n, b"x" * 10)
    peer.write(stream, b"", fin=True)


def endless_stream(peer, n):
    """A stream of an unknown type that is reset only after the server has stopped it."""
    stream = peer.open(0x21 + 0x1f * n, b"x")
    peer.queue_frames(h3.reset_stream(stream, size=peer.offsets[stream]))


def empty_stream(peer, _):
    """A stream that ends before its type."""
    stream = peer.next_uni
    peer.open(0x21)
    peer.queue[-1] = h3.stream_frame(stream, 0, b"", True)


def with_table(size):
    """Sets the capacity, and inserts an entry of this size (RFC 9204, section 3.2.1)."""
    def setup(peer):
        peer.open(h3.ENCODER, h3.capacity(4_096) + h3.insertion("x", "y" * (size - 33)))
    return setup


def duplicates(count):
    def each(peer, _):
        peer.write(peer.own[h3.ENCODER], h3.duplicate(0) * count)
    return each


ATTACKS = [
    Attack("PRIORITY_UPDATE", on_control(priority_update), 500),
    Attack("GOAWAY", on_control(h3.frame(h3.GOAWAY, b"\0")), 10),
    Attack("MAX_PUSH_ID", on_control(lambda n: h3.frame(h3.MAX_PUSH_ID, h3.varint(n))), 10),
    Attack("frames of unknown types", on_control(h3.frame(0x21)), 500),
    Attack("frames of unknown types, 16 KiB", on_control(h3.frame(0x21, bytes(16_384))), 500),
    # The stream that was opened before adds two.
    Attack("the same on a request's stream", on_request(h3.frame(0x21)), 502, setup=echo, flood=False),
    # The stream that was opened before adds one.
    Attack("empty DATA", on_request(h3.frame(h3.DATA)), 101, setup=echo),
    # The same: a thousand.
    Attack("DATA of a byte", on_request(h3.frame(h3.DATA, b"x")), 11_000, setup=echo),
    Attack("unidirectional streams of unknown types", unknown_stream, 500),
    Attack("the same, reset", endless_stream, 500, flood=False),
    Attack("unidirectional streams without a type", empty_stream, 500),
    # 4 MiB of insertions are allowed; the first entry is one KiB of them.
    Attack("insertions of 1 KiB", duplicates(1), 4_095, setup=with_table(1_024)),
    # 4,096 instructions, two of which came before.
    Attack("insertions of 40 bytes", duplicates(256), 15, setup=with_table(40), slack=1),
]


async def run(binary):
    return await table(binary, __name__)
