"""A request followed by FIN gets its response; a tunnel passes FIN on per direction."""

import asyncio

from h1 import Backend, Client, pattern, respond_by_path

SECONDS = 30
UPGRADE = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
           "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")
SWITCH = (b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
          b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n")


async def run(binary):
    async with binary.running() as server:
        # The request and FIN often arrive together; their order must not matter.
        for _ in range(100):
            await response_after_fin(server.port, "/hello", b"Hello, World!")
    received_all = asyncio.Event()

    async def answer(request, reader, writer):
        return await answer_by_scenario(request, reader, writer, received_all)

    async with Backend(answer).running() as backend, binary.proxy_to(backend) as proxy:
        await response_after_fin(proxy.port, "/late", b"/late")
        await body_then_fin(proxy.port)
        await tunnel_client_first(proxy.port)
        await tunnel_upstream_first(proxy.port, received_all)


async def answer_by_scenario(request, reader, writer, received_all):
    match request.path:
        case "/client-first":
            # Returns everything up to FIN, after FIN.
            writer.write(SWITCH)
            received = await reader.read(-1)
            writer.write(received)
            await writer.drain()
            return False
        case "/upstream-first":
            writer.write(SWITCH + b"goodbye")
            writer.write_eof()
            received = await reader.read(-1)
            assert received == b"still here", received
            received_all.set()
            return False
        case "/late":
            await asyncio.sleep(0.3)
    return await respond_by_path(request, reader, writer)


async def response_after_fin(port, path, wanted):
    async with Client.connected(port) as client:
        client.send_head("GET", path)
        client.writer.write_eof()
        status, _, body = await client.response()
        assert (status, body) == (200, wanted), (status, body)
        assert await client.is_closed()


async def body_then_fin(port):
    async with Client.connected(port) as client:
        client.send_head("POST", "/body", "Content-Length: 300000")
        client.writer.write(pattern(0, 300_000))
        client.writer.write_eof()
        assert (await client.response())[2] == b"/body"


async def tunnel_client_first(port):
    async with Client.connected(port) as client:
        client.send_head("GET", "/client-first", *UPGRADE)
        assert (await client.response_head())[0] == 101
        sent = pattern(0, 200_000)
        client.writer.write(sent)
        client.writer.write_eof()
        assert await client.reader.read(-1) == sent


async def tunnel_upstream_first(port, received_all):
    async with Client.connected(port) as client:
        client.send_head("GET", "/upstream-first", *UPGRADE)
        assert (await client.response_head())[0] == 101
        assert await client.reader.read(-1) == b"goodbye"
        client.writer.write(b"still here")
        client.writer.write_eof()
        await asyncio.wait_for(received_all.wait(), 5)
