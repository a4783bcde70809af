"""A slow client is served, a stalled client gets 408, and neither delays another client."""

import asyncio
import time

from h1 import Backend, Client, respond_by_path

SECONDS = 40


async def run(binary):
    async with Backend(respond_by_path).running() as backend, binary.proxy_to(backend) as proxy:
        await asyncio.gather(
            sends_byte_by_byte(proxy.port),
            stalls_in_the_head(proxy.port),
            stalls_in_the_body(proxy.port),
            other_client(proxy.port),
        )


async def sends_byte_by_byte(port):
    """Byte by byte, with pauses, but within the deadline of a head."""
    async with Client.connected(port) as client:
        for byte in b"GET /slow HTTP/1.1\r\nHost: test\r\n\r\n":
            client.writer.write(bytes([byte]))
            await asyncio.sleep(0.05)
        assert (await client.response())[2] == b"/slow"


async def stalls_in_the_head(port):
    """A head has ten seconds from its first byte."""
    async with Client.connected(port) as client:
        start = time.monotonic()
        client.writer.write(b"GET /never HTTP/1.1\r\nHost:")
        status, _, _ = await client.response()
        took = time.monotonic() - start
        assert status == 408, status
        assert 9 <= took <= 13, f"the response came after {took:.1f} s"
        assert await client.is_closed()


async def stalls_in_the_body(port):
    """A request body has a minimum rate of 240 bytes per second after five seconds."""
    async with Client.connected(port) as client:
        start = time.monotonic()
        client.send_head("POST", "/never", "Content-Length: 100000")
        client.writer.write(b"x" * 100)
        status, _, _ = await client.response()
        took = time.monotonic() - start
        assert status == 408, status
        assert 4 <= took <= 10, f"the response came after {took:.1f} s"
        assert await client.is_closed()


async def other_client(port):
    """A hundred requests per second of another client, none of which waits."""
    worst = 0.0
    async with Client.connected(port) as client:
        for number in range(1000):
            start = time.monotonic()
            assert await client.get(f"/{number}") == (200, f"/{number}".encode())
            worst = max(worst, time.monotonic() - start)
            await asyncio.sleep(0.01)
    # A slow client would delay them by seconds; shorter delays are noise of the machine.
    assert worst < 1, f"another client waited {worst * 1000:.0f} ms"
