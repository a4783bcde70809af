#!/usr/bin/env python3
"""An echo server and a client with the `websockets` library: `websocket.py serve|talk PORT`."""

import asyncio
import os
import sys

from websockets.asyncio.client import connect
from websockets.asyncio.server import serve


async def echo(port):
    async def handler(socket):
        async for message in socket:
            await socket.send(message)

    async with serve(handler, "127.0.0.1", port, max_size=None) as server:
        await server.serve_forever()


async def talk(port):
    # Ten seconds in total, so that a stalled tunnel fails the test.
    async with asyncio.timeout(10):
        async with connect(f"ws://127.0.0.1:{port}/chat?x=1", max_size=None) as socket:
            for message in ("hello", "ünïcode", os.urandom(1), os.urandom(500_000)):
                await socket.send(message)
                assert await socket.recv() == message
            # Many small frames in flight at once.
            for number in range(1000):
                await socket.send(str(number))
            for number in range(1000):
                assert await socket.recv() == str(number)
            await (await socket.ping())
        assert socket.close_code == 1000, socket.close_code


role, port = sys.argv[1], int(sys.argv[2])
asyncio.run(echo(port) if role == "serve" else talk(port))
