"""A thousand connections with a hundred idle open streams each: at most four KiB of resident memory per
stream. The limit of a core's buffers does not apply to idle streams; their number has a limit of its own."""

import asyncio

import h2
from blitz import wait_for

SECONDS = 120
STREAMS = 100
WARM = 50
CONNECTIONS = 1_000
BYTES_MAX = 4096


async def run(binary):
    rows = [
        await measured(binary, "waiting for responses", h2.get),
        await measured(binary, "unfinished requests", lambda stream, path: h2.headers(
            stream, h2.request("GET", path), h2.END_HEADERS)),
    ]
    return "; ".join(rows)


async def measured(binary, name, ask):
    """The memory of a stream whose request `ask` writes."""
    opening = h2.client_preface() + b"".join(ask(h2.client_stream(n), "/delay?ms=60000")
                                    for n in range(1, STREAMS + 1))
    async with binary.running() as server:
        peers = [opened(server.port, opening) for _ in range(WARM)]
        await wait_until_processed(peers)
        before = server.rss_bytes()
        peers += [opened(server.port, opening) for _ in range(CONNECTIONS - WARM)]
        await wait_until_processed(peers)
        await wait_until_idle(server)
        after = server.rss_bytes()
        # The streams are still open: one more on any of these connections is refused.
        for peer in peers[:: CONNECTIONS // 20]:
            await asyncio.to_thread(is_full, peer)
        await asyncio.to_thread(h2.assert_served, server.port)
        for peer in peers:
            peer.abort()
        left = await wait_for(server.open_files, lambda count: count < 50, 10)
        assert left < 50, f"{left} files are open after all clients have left"
        await wait_until_idle(server)
        each = (after - before) / (CONNECTIONS - WARM) / STREAMS
        note = (f"{name}: {each / 1024:.2f} KiB per stream, total RSS {after >> 20} MiB,"
                f" {server.rss_bytes() >> 20} MiB afterwards")
        assert each <= BYTES_MAX, note
        return note


def opened(port, opening):
    peer = h2.Peer(port)
    peer.send(opening)
    return peer


async def wait_until_processed(peers):
    """Waits until each connection has acknowledged a PING after its requests."""
    for peer in peers:
        await asyncio.to_thread(peer.wait_for_ping)


async def wait_until_idle(server):
    """Waits until the server uses almost no CPU."""
    for _ in range(20):
        before = server.cpu_seconds()
        await asyncio.sleep(0.5)
        if server.cpu_seconds() - before < 0.02:
            return


def is_full(peer):
    stream = h2.client_stream(STREAMS + 1)
    peer.send(h2.get(stream))
    refused = peer.until(lambda got: got.kind == h2.RST_STREAM)[-1]
    assert refused.payload == h2.u32(h2.CODES.index("REFUSED_STREAM")), refused
