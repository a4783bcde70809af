"""A thousand clients that do not read, and a fast upstream: memory stays within its limit, a new client
is served at once, and finally each client gets its whole response."""

import asyncio
import socket
import time

from h1 import Backend, Client, pattern, respond_by_path

SECONDS = 240
READERS = 1000
# More than the buffers of proxy and kernel for a connection whose peer does not read.
SIZE = 4 << 20
# 64 MiB is the limit of received bytes per core; the rest is the process itself.
RSS_MAX = 96 << 20


async def run(binary):
    sent = [0]

    async def answer(request, reader, writer):
        # A kernel that buffers the whole response would prove nothing about the proxy.
        stream = writer.get_extra_info("socket")
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 << 10)
        await respond_by_path(request, reader, writer)
        sent[0] += 1

    async with Backend(answer).running() as backend:
        # The new client uses a built-in endpoint, because this process is busy with all the others.
        target = f"/size=http://127.0.0.1:{backend.port}"
        async with binary.running("--to", target) as proxy:
            readers = await asyncio.gather(
                *(Client.connect(proxy.port, receive_buffer=4096) for _ in range(READERS)))
            for reader in readers:
                reader.send_head("GET", f"/size/{SIZE}")
            await wait_until_idle(proxy)
            assert sent[0] < READERS / 2, f"{sent[0]} responses were sent although no client reads"

            start = time.monotonic()
            async with Client.connected(proxy.port) as client:
                assert await client.get("/ping") == (200, b"pong")
            waited = time.monotonic() - start
            assert waited < 0.5, f"a new client waited {waited:.2f} s"

            gate = asyncio.Semaphore(100)
            await asyncio.gather(*(read_all(reader, gate) for reader in readers))
            peak = proxy.peak_rss_bytes()
            assert peak < RSS_MAX, f"the peak was {peak >> 20} MiB"
            return f"peak RSS {peak >> 10} KiB, new client {waited * 1000:.1f} ms"


async def wait_until_idle(proxy):
    """Waits until all buffers are full and the proxy is idle."""
    for _ in range(60):
        before = proxy.cpu_seconds()
        await asyncio.sleep(1)
        if proxy.cpu_seconds() - before < 0.05:
            return
    raise AssertionError("the proxy is still busy although no client reads")


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
