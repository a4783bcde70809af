"""An upstream that resets: before the response one retry if it is safe; within a body the client sees an
incomplete response."""

import asyncio

from h1 import Backend, Client, reset, respond_by_path

SECONDS = 30


async def run(binary):
    attempts = {}

    async def answer(request, reader, writer):
        attempts[request.path] = attempts.get(request.path, 0) + 1
        match request.path.split("/")[1]:
            case "never":
                reset(writer)
                return False
            case "once" if attempts[request.path] == 1:
                reset(writer)
                return False
            case "known":
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b"x" * 500)
            case "chunked":
                writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1f4\r\n"
                             + b"x" * 500 + b"\r\n")
            case _:
                return await respond_by_path(request, reader, writer)
        await writer.drain()
        await asyncio.sleep(0.1)
        reset(writer)
        return False

    async with Backend(answer).running() as backend, binary.proxy_to(backend) as proxy:
        for path in ("/known", "/chunked"):
            await broken_body(proxy.port, path)
        await retried_once(proxy.port, attempts)
        async with Client.connected(proxy.port) as client:
            assert await client.get("/fine") == (200, b"/fine")


async def broken_body(port, path):
    async with Client.connected(port) as client:
        try:
            _, body = await client.get(path)
        except (EOFError, ConnectionError):
            return  # IncompleteReadError is an EOFError.
        raise AssertionError(f"{path}: an incomplete response of {len(body)} bytes looked complete")


async def retried_once(port, attempts):
    async with Client.connected(port) as client:
        assert await client.get("/once") == (200, b"/once"), "an idempotent request is retried"
        assert attempts["/once"] == 2, attempts
        status, _ = await client.get("/never")
        assert status == 502, status
        assert attempts["/never"] == 2, attempts
    async with Client.connected(port) as client:
        client.send_head("POST", "/never/post", "Content-Length: 0")
        status, fields, _ = await client.response()
        assert status == 502, status
        assert "proxy-status" in fields, fields
        assert attempts["/never/post"] == 1, "a request that may have had an effect is not repeated"
