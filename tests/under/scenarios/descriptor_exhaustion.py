"""Without free descriptors new connections replace idle ones, at little CPU, and are served at once."""

import asyncio

from h1 import Client

SECONDS = 60
NOFILE = 64
CLIENTS = 200


async def run(binary):
    async with binary.running(nofile=NOFILE) as server:
        for _ in range(3):
            used = await exhaust(server)
        async with Client.connected(server.port) as client:
            assert await client.get("/hello") == (200, b"Hello, World!")
        return f"{used:.2f} s of CPU in a second of exhaustion"


async def exhaust(server):
    """Opens more connections than there are descriptors, then closes them."""
    clients = await asyncio.gather(*(Client.connect(server.port) for _ in range(CLIENTS)))
    await asyncio.sleep(0.2)
    assert server.open_files() <= NOFILE
    before = server.cpu_seconds()
    await asyncio.sleep(1)
    used = server.cpu_seconds() - before
    assert used < 0.3, f"{used:.2f} s of CPU while no connection can be accepted"
    # The newest connections are still served, and another one is.
    assert await clients[-1].get("/hello") == (200, b"Hello, World!")
    async with asyncio.timeout(1):
        async with Client.connected(server.port) as client:
            assert await client.get("/hello") == (200, b"Hello, World!")
    for client in clients:
        client.writer.close()
    async with asyncio.timeout(5):
        async with Client.connected(server.port) as client:
            assert await client.get("/ping") == (200, b"pong")
    return used
