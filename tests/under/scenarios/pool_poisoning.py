"""Surplus bytes of an upstream response never reach another client."""

import asyncio

from h1 import Backend, Client, respond_by_path, send

SECONDS = 60
LATE = 0.08
STOLEN = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nstolen"


async def run(binary):
    async with Backend(answer).running() as backend, binary.proxy_to(backend) as proxy:
        for kind in ("surplus", "late-surplus", "overlong", "truncated", "early", "head-body"):
            for round in range(20):
                await request_bad_response(proxy.port, f"/{kind}/{round}")
                await others_get_their_responses(proxy.port, f"/innocent/{kind}/{round}")


async def answer(request, reader, writer):
    match request.path.split("/")[1]:
        case "surplus":
            # One write, so that it arrives with the response. After the next request it would be
            # indistinguishable from that request's response.
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nmine" + STOLEN)
        case "late-surplus":
            send(writer, b"mine")
            await writer.drain()
            await asyncio.sleep(LATE / 4)
            writer.write(STOLEN)
        case "overlong":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nmine and stolen")
        case "truncated":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\nmine")
            await writer.drain()
            return False
        case "early":
            # The response comes before the body; the body must not be read as a request.
            send(writer, b"mine", "403 Forbidden")
        case "head-body":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nstolen")
        case _:
            return await respond_by_path(request, reader, writer)
    return True


async def request_bad_response(port, path):
    """One client receives the bad response: an error is allowed, surplus bytes are not."""
    async with Client.connected(port) as client:
        try:
            if path.startswith("/early"):
                client.send_head("POST", path, "Content-Length: 10000")
                client.writer.write(b"GET /innocent HTTP/1.1\r\nHost: x\r\n\r\n")
                status, _, body = await client.response()
                assert status in (403, 502), status
            elif path.startswith("/head-body"):
                client.send_head("HEAD", path)
                status, _ = await client.response_head()
                assert await asyncio.wait_for(has_no_more_bytes(client), 1)
                return
            else:
                status, body = await client.get(path)
            assert body == b"mine" or status == 502, (status, body)
            if path.startswith("/late-surplus"):
                await asyncio.sleep(LATE)  # The surplus reaches an idle connection in the pool.
        except (EOFError, ConnectionError):
            pass


async def has_no_more_bytes(client):
    """Whether no further byte follows."""
    try:
        async with asyncio.timeout(0.05):
            return await client.reader.read(1) == b""
    except TimeoutError:
        return True


async def others_get_their_responses(port, path):
    """Several clients at once, so that every pooled connection is used."""

    async def ask(number):
        async with Client.connected(port) as client:
            wanted = f"{path}/{number}"
            got = await client.get(wanted)
            assert got == (200, wanted.encode()), f"requested {wanted}, received {got}"

    await asyncio.gather(*(ask(number) for number in range(4)))
