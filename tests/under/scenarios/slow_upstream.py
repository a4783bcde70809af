"""A slow upstream is waited for, its bytes are forwarded at once, and a refused connection (502) differs
from a connect timeout (504)."""

import asyncio
import contextlib
import socket
import time

from blitz import free_port
from h1 import Backend, Client, respond_by_path

SECONDS = 30


async def run(binary):
    async with Backend(answer).running() as backend, binary.proxy_to(backend) as proxy:
        await asyncio.gather(late_head(proxy.port), slow_body(proxy.port))
    await refused_is_502(binary)
    await unanswered_connect_is_504(binary)


async def answer(request, reader, writer):
    if request.path == "/late":
        await asyncio.sleep(2)
        return await respond_by_path(request, reader, writer)
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(20):
        writer.write(b"1\r\nx\r\n")
        await writer.drain()
        await asyncio.sleep(0.1)
    writer.write(b"0\r\n\r\n")


async def late_head(port):
    async with Client.connected(port) as client:
        assert await client.get("/late") == (200, b"/late")


async def slow_body(port):
    """The first byte does not wait for the last."""
    async with Client.connected(port) as client:
        client.send_head("GET", "/slow")
        status, fields = await client.response_head()
        assert status == 200
        start = time.monotonic()
        times = []
        async for part in client.body(fields):
            assert set(part) == {ord("x")}, part
            times += [time.monotonic() - start] * len(part)
        assert len(times) == 20
        assert times[0] < 0.3, f"the first byte took {times[0]:.2f} s"
        assert times[-1] > 1.5, f"the last byte came after only {times[-1]:.2f} s"


async def refused_is_502(binary):
    unused = f"http://127.0.0.1:{free_port()}"
    async with binary.running("--to", unused) as proxy, Client.connected(proxy.port) as client:
        client.send_head("GET", "/")
        status, fields, _ = await client.response()
        assert status == 502, status
        assert "connection_refused" in fields["proxy-status"], fields


async def unanswered_connect_is_504(binary):
    """A listener with a full queue drops the handshake."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(3):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        flags = ["--to", url, "--timeout-connect", "1s"]
        async with binary.running(*flags) as proxy, Client.connected(proxy.port) as client:
            start = time.monotonic()
            client.send_head("GET", "/")
            status, fields, _ = await client.response()
            took = time.monotonic() - start
            assert status == 504, status
            assert "connection_timeout" in fields["proxy-status"], fields
            assert 0.8 <= took <= 3, f"the response came after {took:.1f} s"
