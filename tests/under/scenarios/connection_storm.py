"""A thousand connections at a time are opened, then served, closed or reset; no descriptor leaks."""

import asyncio

from blitz import wait_for
from h1 import Backend, Client, reset, respond_by_path

SECONDS = 90
ROUNDS = 10
AT_ONCE = 1000


async def run(binary):
    async with Backend(respond_by_path).running() as backend, binary.proxy_to(backend) as proxy:
        async with Client.connected(proxy.port) as client:
            assert (await client.get("/first"))[0] == 200
        before = await wait_for(proxy.open_files, lambda count: False, seconds=1)
        kinds = (is_served, closes_at_once, resets_inside)
        for _ in range(ROUNDS):
            await asyncio.gather(
                *(kinds[number % len(kinds)](proxy.port) for number in range(AT_ONCE)))
        async with Client.connected(proxy.port) as client:
            assert await client.get("/after") == (200, b"/after")
        # Upstream connections of requests that were served at the same time may stay in the pool.
        allowed = before + AT_ONCE
        after = await wait_for(proxy.open_files, lambda count: count <= allowed)
        assert after <= allowed, f"{before} files before, {after} after"
        return f"{before} files before, {after} after"


async def is_served(port):
    async with Client.connected(port) as client:
        assert await client.get("/storm") == (200, b"/storm")


async def closes_at_once(port):
    async with Client.connected(port):
        pass


async def resets_inside(port):
    client = await Client.connect(port)
    client.send_head("GET", "/size/1000000")
    await asyncio.sleep(0.01)
    reset(client.writer)
