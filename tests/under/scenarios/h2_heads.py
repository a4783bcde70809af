"""Heads that never end (CVE-2024-27316), and heads that decode to far more bytes than they have (HPACK
bombs)."""

import asyncio

import h2
from attack import Attack, Flood, format_rows, measure_attack, server_cpus, table

SECONDS = 120
PATTERN = h2.request("GET", "/hello")
# The 62nd entry is the newest one of the dynamic table (RFC 7541, section 2.3.3).
NEWEST = h2.indexed(62)
# The most that one HEADERS frame holds.
MANY = 12_000
OPEN = h2.headers(1, PATTERN, h2.END_STREAM)

CONTINUED = [
    Attack("CONTINUATION of a field", lambda _: h2.frame(
        h2.CONTINUATION, 0, 1, h2.literal("a", "b")), 16, setup=OPEN, marker=False),
    Attack("CONTINUATION of 16 KiB", lambda _: h2.frame(
        h2.CONTINUATION, 0, 1, bytes(16_384)), 16, setup=OPEN, marker=False),
    Attack("CONTINUATION without bytes", lambda _: h2.frame(h2.CONTINUATION, 0, 1), 16,
           setup=OPEN, marker=False, flood=False),
    Attack("an index outside the tables", lambda n: h2.headers(h2.client_stream(n), h2.indexed(100)), 0,
           "COMPRESSION_ERROR", flood=False),
    Attack("an integer without end", lambda n: h2.headers(h2.client_stream(n), b"\xff" * 100), 0,
           "COMPRESSION_ERROR", flood=False),
    Attack("a table of 1 GiB", lambda n: h2.headers(
        h2.client_stream(n), h2.integer(1 << 30, 5, 0x20) + h2.block(PATTERN)), 0,
           "COMPRESSION_ERROR", flood=False),
]

# Each gets 431: the request may be genuine, and the HPACK table has to stay synchronized.
BOMBS = {
    "a large field, 12,000 times": h2.indexing("x", "a" * 4_000) + NEWEST * MANY,
    "a small field, 12,000 times": h2.indexing("x", "a") + NEWEST * MANY,
    "12,000 cookie crumbs": h2.indexing("cookie", "a=b") + NEWEST * MANY,
    "101 fields": b"".join(h2.literal("x", "a") for _ in range(101)),
    "101 cookie crumbs": b"".join(h2.literal("cookie", "a") for _ in range(101)),
    "a field of 33 KiB in CONTINUATION": h2.literal("x", "a" * (33 << 10)),
}


async def run(binary):
    return await table(binary, CONTINUED) + await bombs(binary)


async def bombs(binary):
    """No bomb closes the connection, so the cost of repeated bombs is measured."""
    for name, bomb in BOMBS.items():
        async with binary.running() as server:
            await asyncio.to_thread(refused, server.port, name, h2.block(PATTERN) + bomb)
    async with binary.running() as server:
        await asyncio.to_thread(refused_at_last, server.port)
    rows = []
    for name, fields in [
        ("HPACK: a large field, 12,000 times", h2.block(PATTERN) + NEWEST * MANY),
        ("HPACK: 8,000 changes of the table", b"\x20\x3f\xe1\x1f" * 4_000 + h2.block(PATTERN)),
    ]:
        setup = h2.client_preface() + h2.headers(1, h2.block(PATTERN) + h2.indexing("x", "a" * 4_000))
        script = setup + b"".join(h2.headers(h2.client_stream(n), fields) for n in range(2, 1_000))
        async with binary.running(cpus=server_cpus()) as server:
            cost = await measure_attack(server, Flood(server.port, script))
        rows.append({"attack": name, "frames": "a response each time"} | cost)
    return format_rows(rows)


def refused(port, name, fields):
    """Asserts that the head gets 431 and that the connection stays usable."""
    with h2.Peer(port) as peer:
        response = response_to(peer, fields)
        assert response and h2.status_of(response[0]) == 431, f"{name}: {response}"
        peer.send(h2.get(3))
        assert peer.response(3)[1] == b"Hello, World!", name


def refused_at_last(port):
    """Asserts that a block too long to be decoded gets 431, and that the connection then ends."""
    with h2.Peer(port) as peer:
        response = response_to(peer, h2.block(PATTERN) + h2.literal("x", "a" * (70 << 10)))
        assert response and h2.status_of(response[0]) == 431, response
        assert peer.is_closed(), "the connection continues"


def response_to(peer, fields):
    peer.send(h2.client_preface())
    head, *rest = (fields[at:at + 16_384] for at in range(0, len(fields), 16_384))
    peer.send(h2.headers(1, head, h2.END_STREAM if rest else h2.WHOLE))
    for part in rest:
        flags = h2.END_HEADERS if part is rest[-1] else 0
        peer.send(h2.frame(h2.CONTINUATION, flags, 1, part))
    return peer.response(1)
