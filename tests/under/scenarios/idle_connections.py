"""Ten thousand idle keep-alive connections: at most one KiB of resident memory each."""

import asyncio

from h1 import Client

SECONDS = 120
FIRST = 100
ALL = 10_000
BYTES_MAX = 1024
# Blitz accepts connections for 90 % of its file limit.
FILES = 12_000


async def run(binary):
    async with binary.running() as server:
        clients = await connections(server.port, FIRST)
        before = server.rss_bytes()
        clients += await connections(server.port, ALL - FIRST)
        await asyncio.sleep(5)
        after = server.rss_bytes()
        each = (after - before) / (ALL - FIRST)

        # Idle connections are still served; a sample is checked.
        for client in clients[:: ALL // 100]:
            assert await client.get("/hello") == (200, b"Hello, World!")
        assert server.open_files() >= ALL
        for client in clients:
            client.writer.close()
        note = f"{each:.0f} bytes each, total RSS {after >> 10} KiB, {kernel_memory()}"
        assert each <= BYTES_MAX, note
        return note


async def connections(port, count):
    """Opens `count` connections and sends one request on each."""
    clients = []
    while len(clients) < count:
        batch = min(100, count - len(clients))
        clients += await asyncio.gather(*(request_once(port) for _ in range(batch)))
    return clients


async def request_once(port):
    client = await Client.connect(port)
    assert await client.get("/hello") == (200, b"Hello, World!")
    return client


def kernel_memory():
    """Kernel memory of this cgroup, for both ends of the connections."""
    try:
        with open("/sys/fs/cgroup/memory.stat") as file:
            for line in file:
                if line.startswith("kernel "):
                    return f"kernel {int(line.split()[1]) >> 20} MiB"
    except OSError:
        pass
    return "kernel memory not visible"
