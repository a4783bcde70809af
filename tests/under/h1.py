"""A minimal HTTP/1.1 client that checks every byte, and a backend that may send wrong ones."""

import asyncio
import contextlib
import socket
import struct

BLOCK = bytes(range(256)) * 256  # 64 KiB, repeated in bodies


def pattern(start, length):
    """Bytes `start..start+length` of an endless repetition of BLOCK."""
    first = start % len(BLOCK)
    repeated = BLOCK[first:] + BLOCK * (length // len(BLOCK) + 1)
    return repeated[:length]


class Client:
    """One connection to a server on this machine."""

    def __init__(self, reader, writer):
        self.reader = reader
        self.writer = writer

    @classmethod
    @contextlib.asynccontextmanager
    async def connected(cls, port, receive_buffer=None):
        """A connection until the block is left."""
        client = await cls.connect(port, receive_buffer)
        try:
            yield client
        finally:
            client.writer.close()

    @classmethod
    async def connect(cls, port, receive_buffer=None):
        stream = socket.socket()
        stream.setblocking(False)
        if receive_buffer:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            await asyncio.get_running_loop().sock_connect(stream, ("127.0.0.1", port))
            # A small limit, because asyncio reads ahead up to twice the limit.
            limit = 4096 if receive_buffer else 1 << 20
            return cls(*await asyncio.open_connection(sock=stream, limit=limit))
        except BaseException:
            stream.close()
            raise

    async def get(self, path):
        """Status and body of one request; the connection stays usable."""
        self.send_head("GET", path)
        status, _, body = await self.response()
        return status, body

    def send_head(self, method, path, *fields):
        lines = [f"{method} {path} HTTP/1.1", "Host: test", *fields, "", ""]
        self.writer.write("\r\n".join(lines).encode())

    async def response(self):
        """Status, fields and the whole body of the next final response."""
        status, fields = await self.response_head()
        parts = [part async for part in self.body(fields, status)]
        return status, fields, b"".join(parts)

    async def response_head(self):
        """The next final head; informational heads are skipped."""
        while True:
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head[:-4].split("\r\n")
            version, status, *_ = first.split(" ")
            assert version == "HTTP/1.1", first
            fields = {}
            for line in lines:
                name, colon, value = line.partition(":")
                assert colon, f"not a field: {line!r}"
                fields[name.lower()] = value.strip()
            if int(status) >= 200 or int(status) == 101:
                return int(status), fields

    async def body(self, fields, status=200):
        """The parts of a body; raises if it ends before its length."""
        if status in (204, 304):
            return
        if fields.get("transfer-encoding") == "chunked":
            while size := int(await self.reader.readuntil(b"\r\n"), 16):
                yield await self.reader.readexactly(size)
                assert await self.reader.readexactly(2) == b"\r\n"
            assert await self.reader.readuntil(b"\r\n") == b"\r\n"
            return
        left = int(fields["content-length"])
        while left:
            part = await self.reader.read(min(left, 1 << 18))
            if not part:
                raise EOFError(f"{left} bytes of the body are missing")
            left -= len(part)
            yield part

    async def is_closed(self):
        """Whether the server has closed the connection without further bytes."""
        try:
            return await self.reader.read(1) == b""
        except ConnectionError:
            return True


def reset(writer):
    """Closes with RST instead of FIN."""
    linger = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()


class Request:
    """A request that a backend received."""

    def __init__(self, head):
        first, *lines = head[:-4].decode("latin-1").split("\r\n")
        self.method, self.path, _ = first.split(" ")
        self.fields = {}
        for line in lines:
            name, _, value = line.partition(":")
            self.fields[name.lower()] = value.strip()


class Backend:
    """An upstream whose responses the scenario writes, in `answer(request, reader, writer)`.

    The result False closes the connection; any other result keeps it for the next request.
    """

    def __init__(self, answer):
        self.answer = answer
        self.requests = 0
        self.connections = 0
        self.port = None

    @contextlib.asynccontextmanager
    async def running(self):
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 20,
                                            backlog=4096)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    async def _serve(self, reader, writer):
        self.connections += 1
        try:
            while True:
                request = Request(await reader.readuntil(b"\r\n\r\n"))
                self.requests += 1
                if await self.answer(request, reader, writer) is False:
                    break
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # The proxy closed the connection, which scenarios provoke.
        except asyncio.CancelledError:
            pass  # The scenario is over.
        finally:
            writer.close()


async def respond_by_path(request, reader, writer):
    """The default backend: `/size/N` returns N bytes of the pattern, other paths return themselves."""
    length = int(request.fields.get("content-length", 0))
    if length:
        await reader.readexactly(length)
    if not request.path.startswith("/size/"):
        send(writer, request.path.encode())
        return
    size = int(request.path.removeprefix("/size/"))
    writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n".encode())
    for start in range(0, size, len(BLOCK)):
        writer.write(pattern(start, min(len(BLOCK), size - start)))
        await writer.drain()


def send(writer, body, status="200 OK"):
    """Queues a whole response."""
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
