"""A thousand clients that do not read, behind a fast upstream: memory stays within its cap, a
newcomer is served at once, and in the end each of them gets its whole answer."""

import asyncio
import time

from wire import Backend, Client, answer_by_path, pattern

SECONDS = 240
READERS = 1000
# More than what the kernel holds for a connection whose peer does not read.
SIZE = 3 << 20
# 64 MiB is the cap of received bytes per core; the rest is the process itself.
RSS_MAX = 96 << 20


async def run(binary):
    async with Backend(answer_by_path).running() as backend, binary.to(backend) as proxy:
        readers = await asyncio.gather(
            *(Client.connect(proxy.port, receive_buffer=4096) for _ in range(READERS)))
        for reader in readers:
            reader.send_head("GET", f"/size/{SIZE}")
        await asyncio.sleep(5)

        start = time.monotonic()
        async with Client.connected(proxy.port) as client:
            assert await client.get("/newcomer") == (200, b"/newcomer")
        waited = time.monotonic() - start
        assert waited < 0.5, f"a newcomer waited {waited:.2f} s"

        gate = asyncio.Semaphore(100)
        await asyncio.gather(*(read_all(reader, gate) for reader in readers))
        peak = proxy.peak_rss_bytes()
        assert peak < RSS_MAX, f"the peak was {peak >> 20} MiB"
        return f"peak RSS {peak >> 10} KiB, newcomer {waited * 1000:.1f} ms"


async def read_all(client, gate):
    async with gate:
        status, fields = await client.response_head()
        assert status == 200, status
        taken = 0
        async for part in client.body(fields):
            assert part == pattern(taken, len(part)), f"wrong bytes after {taken}"
            taken += len(part)
        assert taken == SIZE
        client.writer.close()
