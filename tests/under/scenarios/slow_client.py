"""A client that dribbles is served, one that stalls is told so, and neither disturbs another."""

import asyncio
import time

from wire import Backend, Client, answer_by_path

SECONDS = 40


async def run(binary):
    async with Backend(answer_by_path).running() as backend, binary.to(backend) as proxy:
        await asyncio.gather(
            dribbles(proxy.port),
            stalls_in_the_head(proxy.port),
            stalls_in_the_body(proxy.port),
            neighbour(proxy.port),
        )


async def dribbles(port):
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
        assert 9 <= took <= 13, f"the answer came after {took:.1f} s"
        assert await client.at_end()


async def stalls_in_the_body(port):
    """A request body has to keep 240 bytes a second once five seconds have passed."""
    async with Client.connected(port) as client:
        start = time.monotonic()
        client.send_head("POST", "/never", "Content-Length: 100000")
        client.writer.write(b"x" * 100)
        status, _, _ = await client.response()
        took = time.monotonic() - start
        assert status == 408, status
        assert 4 <= took <= 10, f"the answer came after {took:.1f} s"
        assert await client.at_end()


async def neighbour(port):
    """A hundred requests a second beside them, none of which waits."""
    worst = 0.0
    async with Client.connected(port) as client:
        for number in range(1000):
            start = time.monotonic()
            assert await client.get(f"/{number}") == (200, f"/{number}".encode())
            worst = max(worst, time.monotonic() - start)
            await asyncio.sleep(0.01)
    # Being held up by a slow client would take seconds; less is the machine's own noise.
    assert worst < 1, f"a neighbour waited {worst * 1000:.0f} ms"
