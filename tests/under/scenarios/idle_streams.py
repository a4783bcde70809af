"""A thousand connections with a hundred open streams each that have nothing to do: at most four KiB
of resident memory a stream. What a core may buffer is no bound for streams; their number has its own."""

import asyncio

import h2
from blitz import settles

SECONDS = 120
STREAMS = 100
WARM = 50
CONNECTIONS = 1_000
BYTES_MAX = 4096


async def run(binary):
    rows = [
        await measured(binary, "answers are awaited", h2.get),
        await measured(binary, "requests have no end", lambda stream, path: h2.headers(
            stream, h2.request("GET", path), h2.END_HEADERS)),
    ]
    return "; ".join(rows)


async def measured(binary, name, ask):
    """What a stream costs whose request is written by `ask`."""
    opening = h2.start() + b"".join(ask(h2.odd(n), "/delay?ms=60000")
                                    for n in range(1, STREAMS + 1))
    async with binary.running() as server:
        peers = [opened(server.port, opening) for _ in range(WARM)]
        await all_taken(peers)
        before = server.rss_bytes()
        peers += [opened(server.port, opening) for _ in range(CONNECTIONS - WARM)]
        await all_taken(peers)
        await settled(server)
        after = server.rss_bytes()
        # They are open, not forgotten: one more on any of these connections is one too many.
        for peer in peers[:: CONNECTIONS // 20]:
            await asyncio.to_thread(is_full, peer)
        await asyncio.to_thread(h2.is_served, server.port)
        for peer in peers:
            peer.abort()
        left = await settles(server.open_files, lambda count: count < 50, 10)
        assert left < 50, f"{left} files are open after everybody left"
        await settled(server)
        each = (after - before) / (CONNECTIONS - WARM) / STREAMS
        note = (f"{name}: {each / 1024:.2f} KiB a stream, total RSS {after >> 20} MiB,"
                f" {server.rss_bytes() >> 20} MiB afterwards")
        assert each <= BYTES_MAX, note
        return note


def opened(port, opening):
    peer = h2.Peer(port)
    peer.send(opening)
    return peer


async def all_taken(peers):
    """Each of the connections has answered a PING behind its requests."""
    for peer in peers:
        await asyncio.to_thread(peer.pong)


async def settled(server):
    """The server has nothing left to do."""
    for _ in range(20):
        before = server.cpu_seconds()
        await asyncio.sleep(0.5)
        if server.cpu_seconds() - before < 0.02:
            return


def is_full(peer):
    stream = h2.odd(STREAMS + 1)
    peer.send(h2.get(stream))
    refused = peer.until(lambda got: got.kind == h2.RST_STREAM)[-1]
    assert refused.payload == h2.number(h2.CODES.index("REFUSED_STREAM")), refused
