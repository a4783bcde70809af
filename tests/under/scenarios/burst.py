"""After a burst of a hundred thousand small HTTP/2 streams most memory is returned."""

import asyncio

import h2
from blitz import wait_for

SECONDS = 120
STREAMS = 100
CONNECTIONS = 1_000
BYTES_MAX = 48 << 20


async def run(binary):
    opening = h2.client_preface() + b"".join(h2.get(h2.client_stream(n), "/delay?ms=60000")
                                    for n in range(1, STREAMS + 1))
    async with binary.running() as server:
        await asyncio.to_thread(h2.assert_served, server.port)
        before = server.rss_bytes()
        peers = []
        for _ in range(CONNECTIONS):
            peer = h2.Peer(server.port)
            peer.send(opening)
            peers.append(peer)
        for peer in peers:
            await asyncio.to_thread(peer.wait_for_ping)
        for peer in peers:
            peer.abort()
        left = await wait_for(server.open_files, lambda count: count < 50, 20)
        assert left < 50, f"{left} files are open after all clients have left"
        after = await wait_for(server.rss_bytes, lambda rss: rss <= BYTES_MAX, 10)
        await asyncio.to_thread(h2.assert_served, server.port)
        note = (f"{before >> 20} MiB before, {server.peak_rss_bytes() >> 20} MiB at most,"
                f" {after >> 20} MiB afterwards")
        assert after <= BYTES_MAX, note
        return note
