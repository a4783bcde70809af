"""One fast sender to a peer that does not read, in both directions: 99 other clients keep their p99."""

import asyncio
import statistics
import time

from h1 import BLOCK, Backend, Client, respond_by_path

SECONDS = 90
OTHERS = 99
WINDOW_SECONDS = 1.5
ROUNDS = 4
# A Python client measures coarsely; a starved client waits far longer.
SLACK = 0.005
FACTOR = 1.5


async def run(binary):
    async with Backend(answer).running() as backend, binary.proxy_to(backend) as proxy:
        others = [await Client.connect(proxy.port) for _ in range(OTHERS)]
        await window(others)  # warm-up
        notes = []
        for stall in (unread_download, unread_upload):
            # Interleaved, so that drift of the machine affects both alike.
            calm, stalled = [], []
            for _ in range(ROUNDS):
                calm.append(await window(others))
                staller = await stall(proxy.port)
                stalled.append(await window(others))
                staller.writer.transport.abort()
                await asyncio.sleep(0.2)
            before, during = statistics.median(calm), statistics.median(stalled)
            note = f"{stall.__name__}: p99 {before * 1000:.1f} -> {during * 1000:.1f} ms"
            assert during <= before * FACTOR + SLACK, note
            notes.append(note)
        return "; ".join(notes)


async def answer(request, reader, writer):
    if request.path == "/endless":
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {1 << 40}\r\n\r\n".encode())
        while True:
            writer.write(BLOCK)
            await writer.drain()
    if request.path == "/unread":
        # The stream reader stops at the limit of its buffer.
        await asyncio.sleep(WINDOW_SECONDS * 2)
        return False
    return await respond_by_path(request, reader, writer)


async def unread_download(port):
    client = await Client.connect(port, receive_buffer=4096)
    client.send_head("GET", "/endless")
    await asyncio.sleep(0.2)
    return client


async def unread_upload(port):
    client = await Client.connect(port)
    client.send_head("POST", "/unread", f"Content-Length: {1 << 40}")
    # Without drain: asyncio buffers the rest and sends it when the kernel has room.
    client.writer.write(BLOCK * 512)
    await asyncio.sleep(0.2)
    return client


async def window(clients):
    """The 99th percentile of the clients' latencies over one window."""
    end = time.monotonic() + WINDOW_SECONDS
    times = []

    async def ask(client):
        while time.monotonic() < end:
            start = time.monotonic()
            assert await client.get("/n") == (200, b"/n")
            times.append(time.monotonic() - start)
            await asyncio.sleep(0.01)

    await asyncio.gather(*(ask(client) for client in clients))
    return statistics.quantiles(times, n=100)[98]
