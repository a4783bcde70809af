"""One GiB up and one GiB down, every byte compared, in less than 64 MiB of memory."""

from h1 import BLOCK, Backend, Client, send

SECONDS = 240
SIZE = 1 << 30
RSS_MAX = 64 << 20


async def run(binary):
    async with Backend(answer).running() as backend, binary.proxy_to(backend) as proxy:
        async with Client.connected(proxy.port) as client:
            await download(client)
            await upload(client)
        peak = proxy.peak_rss_bytes()
        assert peak < RSS_MAX, f"the peak was {peak >> 20} MiB"
        return f"peak RSS {peak >> 10} KiB"


async def answer(request, reader, writer):
    if request.method == "POST":
        check = Comparison()
        left = int(request.fields["content-length"])
        while left:
            part = await reader.read(min(left, 1 << 18))
            if not part:
                return False
            check.take(part)
            left -= len(part)
        send(writer, str(check.taken).encode())
        return True
    writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n".encode())
    for _ in range(SIZE // len(BLOCK)):
        writer.write(BLOCK)
        await writer.drain()
    return True


async def download(client):
    check = Comparison()
    client.send_head("GET", "/large")
    status, fields = await client.response_head()
    assert status == 200, status
    async for part in client.body(fields):
        check.take(part)
    assert check.taken == SIZE, check.taken


async def upload(client):
    client.send_head("POST", "/large", f"Content-Length: {SIZE}")
    for _ in range(SIZE // len(BLOCK)):
        client.writer.write(BLOCK)
        await client.writer.drain()
    status, _, body = await client.response()
    assert (status, body) == (200, str(SIZE).encode()), (status, body)


class Comparison:
    """Compares a stream with the repeated block as it arrives."""

    def __init__(self):
        self.taken = 0

    def take(self, part):
        view = memoryview(part)
        while view:
            start = self.taken % len(BLOCK)
            piece = view[: len(BLOCK) - start]
            wanted = memoryview(BLOCK)[start : start + len(piece)]
            assert piece == wanted, f"wrong bytes after {self.taken}"
            self.taken += len(piece)
            view = view[len(piece) :]
