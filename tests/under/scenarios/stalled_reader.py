"""One fast sender to a peer that stopped reading, in both directions: 99 others keep their p99."""

import asyncio
import statistics
import time

from wire import BLOCK, Backend, Client, answer_by_path

SECONDS = 90
NEIGHBOURS = 99
WINDOW_SECONDS = 1.5
ROUNDS = 4
# The clock of a Python client is coarse; a starved neighbour waits for far longer.
SLACK = 0.005
FACTOR = 1.5


async def run(binary):
    async with Backend(answer).running() as backend, binary.to(backend) as proxy:
        neighbours = [await Client.connect(proxy.port) for _ in range(NEIGHBOURS)]
        await window(neighbours)  # warm-up
        notes = []
        for disturb in (download_nobody_reads, upload_nobody_reads):
            # Interleaved, so that the machine's own drift meets both sides alike.
            calm, disturbed = [], []
            for _ in range(ROUNDS):
                calm.append(await window(neighbours))
                disturber = await disturb(proxy.port)
                disturbed.append(await window(neighbours))
                disturber.writer.transport.abort()
                await asyncio.sleep(0.2)
            before, during = statistics.median(calm), statistics.median(disturbed)
            note = f"{disturb.__name__}: p99 {before * 1000:.1f} -> {during * 1000:.1f} ms"
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
        # The limit of the stream's own buffer ends the reading.
        await asyncio.sleep(WINDOW_SECONDS * 2)
        return False
    return await answer_by_path(request, reader, writer)


async def download_nobody_reads(port):
    client = await Client.connect(port, receive_buffer=4096)
    client.send_head("GET", "/endless")
    await asyncio.sleep(0.2)
    return client


async def upload_nobody_reads(port):
    client = await Client.connect(port)
    client.send_head("POST", "/unread", f"Content-Length: {1 << 40}")
    # Without drain: asyncio keeps what the kernel does not take and sends as soon as it does.
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
