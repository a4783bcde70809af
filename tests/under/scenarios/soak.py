"""Minutes of mixed load: no request fails, memory and descriptors are released."""

import asyncio
import os
import random

from blitz import wait_for
from h1 import Backend, Client, pattern, reset, respond_by_path

LENGTH = int(os.environ.get("SOAK_SECONDS", "180"))
SECONDS = LENGTH + 60
SEED = int(os.environ.get("SOAK_SEED", "1"))
USERS = 100
GROWTH_MAX = 16 << 20


async def run(binary):
    async with Backend(respond_by_path).running() as backend, binary.proxy_to(backend) as proxy:
        end = asyncio.get_running_loop().time() + LENGTH
        done = [0]
        users = [asyncio.create_task(user(proxy.port, end, random.Random(SEED + n), done))
                 for n in range(USERS)]
        # The first quarter fills pools and caches; after it memory must not grow.
        await asyncio.sleep(LENGTH / 4)
        before = proxy.rss_bytes()
        await asyncio.gather(*users)
        after = proxy.rss_bytes()
        files = await wait_for(proxy.open_files, lambda count: count < 300)
        note = f"seed {SEED}, {done[0]} requests, RSS {before >> 10} -> {after >> 10} KiB"
        assert after - before < GROWTH_MAX, note
        assert files < 300, f"{files} files are open after all clients have left; {note}"
        return note


async def user(port, end, random_source, done):
    """Sends one request after another, chosen at random."""
    while asyncio.get_running_loop().time() < end:
        async with Client.connected(port) as client:
            for _ in range(random_source.randrange(1, 20)):
                match random_source.randrange(10):
                    case 0:
                        await download(client, random_source.randrange(2_000_000))
                    case 1:
                        await upload(client, random_source.randrange(1, 500_000))
                    case 2:
                        client.send_head("GET", "/size/1000000")
                        await asyncio.sleep(random_source.random() / 50)
                        reset(client.writer)
                        break
                    case _:
                        assert await client.get("/soak") == (200, b"/soak")
                done[0] += 1
                await asyncio.sleep(random_source.random() / 20)


async def download(client, size):
    status, body = await client.get(f"/size/{size}")
    assert status == 200 and body == pattern(0, size), f"{status}, {len(body)} of {size} bytes"


async def upload(client, size):
    client.send_head("POST", "/upload", f"Content-Length: {size}")
    client.writer.write(pattern(0, size))
    status, _, body = await client.response()
    assert (status, body) == (200, b"/upload"), (status, body)
