#!/usr/bin/env python3
"""aioquic as an HTTP/3 client.

h3_aioquic.py endpoints PORT CA CLEAR_PORT     the built-in endpoints; CLEAR_PORT has them without TLS
h3_aioquic.py trailers PORT CA                 pages of `go serve`
h3_aioquic.py websocket PORT CA                an echo server
"""

import asyncio
import hashlib
import os
import socket
import sys
import time
import urllib.request

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import ErrorCode, H3Connection, Setting
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, StopSendingReceived, StreamReset

MIB = 1 << 20


class Exchange:
    """A request and its response as far as it has arrived."""

    def __init__(self, client, stream):
        self.client, self.stream = client, stream
        self.sections, self.content, self.is_ended, self.reset, self.stopped = [], bytearray(), False, None, None

    def send(self, content, end=False):
        self.client.h3.send_data(self.stream, content, end)
        self.client.transmit()

    async def until(self, condition, what):
        await self.client.until(lambda: condition(self), what)

    async def response(self, wanted=200):
        await self.until(lambda it: it.is_ended or it.reset is not None, f"the response on stream {self.stream}")
        assert self.reset is None, f"reset with {self.reset:#x} after {len(self.content)} bytes"
        assert self.head()[":status"] == str(wanted), self.head()
        return bytes(self.content)

    def head(self):
        return self.sections[0] if self.sections else {}


class Client(QuicConnectionProtocol):
    """A connection with its exchanges."""

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.h3 = H3Connection(self._quic)
        self.exchanges, self.terminated, self.news = {}, None, asyncio.Event()

    def quic_event_received(self, event):
        exchange = self.exchanges.get(getattr(event, "stream_id", None))
        if isinstance(event, ConnectionTerminated):
            self.terminated = event
        elif isinstance(event, StreamReset) and exchange:
            exchange.reset = event.error_code
        elif isinstance(event, StopSendingReceived) and exchange:
            exchange.stopped = event.error_code
        for happened in self.h3.handle_event(event):
            exchange = self.exchanges.get(happened.stream_id)
            if exchange and isinstance(happened, HeadersReceived):
                exchange.sections.append({name.decode(): value.decode() for name, value in happened.headers})
            elif exchange and isinstance(happened, DataReceived):
                exchange.content += happened.data
            if exchange and happened.stream_ended:
                exchange.is_ended = True
        self.news.set()

    async def until(self, condition, what, seconds=20):
        try:
            async with asyncio.timeout(seconds):
                while not condition():
                    assert self.terminated is None, f"{what}: the connection ended: {self.terminated}"
                    self.news.clear()
                    await self.news.wait()
        except TimeoutError:
            have = {it.stream: (len(it.content), it.reset) for it in self.exchanges.values() if not it.is_ended}
            raise AssertionError(f"{what}: nothing after {seconds} s; not ended are {have}") from None

    def begin(self, path, method="GET", end=True, fields=()):
        """Sends the head of a request."""
        stream = self._quic.get_next_available_stream_id()
        exchange = self.exchanges[stream] = Exchange(self, stream)
        head = [(b":method", method.encode()), (b":scheme", b"https"), (b":authority", self.authority),
                (b":path", path.encode()), *fields]
        self.h3.send_headers(stream, head, end)
        self.transmit()
        return exchange

    async def request(self, path, wanted=200, **named):
        return await self.begin(path, **named).response(wanted)

    async def move(self):
        """Continues on another port, as behind a NAT that has forgotten the old one."""
        old = self._transport
        other = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        other.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        other.bind(("::", 0, 0, 0))
        await self._loop.create_datagram_endpoint(lambda: self, sock=other)
        old.abort()
        assert self._transport is not old
        self.transmit()

    def key_phase(self):
        return next(crypto.key_phase for epoch, crypto in self._quic._cryptos.items() if epoch.name == "ONE_RTT")


def digest(content):
    return hashlib.sha256(content).hexdigest()


async def simple(client):
    assert await client.request("/hello") == b"Hello, World!"
    # Not HEAD: aioquic misses the content that Content-Length announces.
    await client.request("/nothing", 404)
    await client.request("/hello", 405, method="DELETE")


async def small_frames(client):
    """Content in many DATA frames, each in a few bytes."""
    for sizes in ([1] * 900, [1 + number % 97 for number in range(3000)]):
        upload = client.begin("/echo", method="POST", end=False)
        sent = b""
        for size in sizes:
            piece = os.urandom(size)
            client.h3.send_data(upload.stream, piece, False)
            sent += piece
        upload.send(b"", end=True)
        received = await upload.response()
        assert digest(received) == digest(sent), f"{len(sent)} bytes came back as {len(received)}"
    # Each byte in a datagram of its own, and the frame's head in pieces as well.
    upload = client.begin("/echo", method="POST", end=False)
    for byte in b"\x00\x40\x05hello\x00\x00\x00\x06 world":
        client._quic.send_stream_data(upload.stream, bytes([byte]))
        client.transmit()
        await asyncio.sleep(0.002)
    upload.send(b"", end=True)
    assert await upload.response() == b"hello world", upload.content


async def full_duplex(client):
    """Each piece is sent after the previous one has come back."""
    upload = client.begin("/echo", method="POST", end=False)
    for number in range(50):
        upload.send(b"piece %02d" % number)
        await upload.until(lambda it, number=number: len(it.content) == 8 * (number + 1), f"piece {number}")
    upload.send(b"", end=True)
    assert len(await upload.response()) == 400


async def concurrent(client):
    """A hundred requests at once, several times."""
    for path, size in (("/delay?ms=200", None), ("/data?size=30000", 30_000), ("/hello", 13)):
        start = time.monotonic()
        exchanges = [client.begin(path) for _ in range(100)]
        for exchange in exchanges:
            content = await exchange.response()
            assert size in (None, len(content)), f"{len(content)} of {size} bytes"
        assert time.monotonic() - start < 5, f"{path}: {time.monotonic() - start:.1f} s"


async def resets(client):
    """Exchanges that the client ends early; the connection and its other exchanges continue."""
    other = client.begin("/data?size=3000000")
    for number in range(20):
        download = client.begin("/data?size=50000000")
        await download.until(lambda it: len(it.content) > 100_000, f"download {number}")
        client._quic.stop_stream(download.stream, ErrorCode.H3_REQUEST_CANCELLED)
        client.transmit()
        await download.until(lambda it: it.reset is not None, f"reset of download {number}")
        # RFC 9000, section 3.5: "An endpoint SHOULD copy the error code from the STOP_SENDING frame".
        assert download.reset == ErrorCode.H3_REQUEST_CANCELLED, hex(download.reset)
        upload = client.begin("/echo", method="POST", end=False)
        upload.send(os.urandom(10_000))
        await upload.until(lambda it: len(it.content) == 10_000, f"upload {number}")
        client._quic.reset_stream(upload.stream, ErrorCode.H3_REQUEST_CANCELLED)
        client.transmit()
        await upload.until(lambda it: it.reset is not None, f"the end of upload {number}")
        assert await client.request("/hello") == b"Hello, World!"
    assert len(await other.response()) == 3_000_000


async def download(client, during, clear_port):
    """A download during which something happens, compared with one over HTTP/1.1."""
    size = 8_000_000
    with urllib.request.urlopen(f"http://127.0.0.1:{clear_port}/data?size={size}", timeout=20) as response:
        wanted = digest(response.read())
    exchange = client.begin(f"/data?size={size}")
    for part in range(1, 4):
        await exchange.until(lambda it, part=part: len(it.content) > part * size // 5, f"part {part}")
        await during()
    received = await exchange.response()
    assert digest(received) == wanted, f"{len(received)} of {size} bytes, or others"


async def moves(client, clear_port):
    await download(client, client.move, clear_port)
    # In the other direction, and while nothing is in flight.
    sent = os.urandom(2 * MIB)
    upload = client.begin("/echo", method="POST", end=False)
    for at in range(0, len(sent), MIB):
        upload.send(sent[at:at + MIB], end=at + MIB == len(sent))
        await upload.until(lambda it, at=at: len(it.content) > at + MIB // 2, "half of the upload")
        await client.move()
    assert digest(await upload.response()) == digest(sent)
    await client.move()
    assert await client.request("/hello") == b"Hello, World!"
    # To another connection ID as well, as a client that moves on purpose does.
    client.change_connection_id()
    await client.move()
    assert await client.request("/hello") == b"Hello, World!"


async def key_updates(client, clear_port):
    async def update():
        before = client.key_phase()
        client._quic.request_key_update()
        assert client.key_phase() != before
        # aioquic changes the keys of both directions at once: only a server that has followed can acknowledge. It may
        # update keys itself as well.
        async with asyncio.timeout(5):
            await client.ping()

    await download(client, update, clear_port)
    assert await client.request("/hello") == b"Hello, World!"


async def endpoints(connection, clear_port):
    for check, *more in ((simple,), (small_frames,), (full_duplex,), (concurrent,), (resets,), (moves, clear_port),
                         (key_updates, clear_port)):
        async with connection() as client:
            start = time.monotonic()
            await check(client, *more)
        print(f"aioquic: {check.__name__} in {time.monotonic() - start:.2f} s")


async def trailers(connection):
    async with connection() as client:
        down = client.begin("/bytes?size=300000")
        content = await down.response()
        assert down.sections[-1] == {"x-sum": digest(content)}, down.sections
        empty = client.begin("/empty")
        assert await empty.response() == b"" and empty.sections[-1] == {"x-sum": "0"}, empty.sections
        up = client.begin("/digest", method="POST", end=False, fields=[(b"trailer", b"x-sent")])
        sent = os.urandom(200_000)
        up.send(sent)
        client.h3.send_headers(up.stream, [(b"x-sent", b"all")], True)
        client.transmit()
        answer = await up.response()
        assert answer == b"%d %s all" % (len(sent), digest(sent).encode()), answer
        hints = client.begin("/hints")
        await hints.until(lambda it: it.is_ended, "hints")
        assert [section[":status"] for section in hints.sections] == ["103", "200"], hints.sections
        cut = client.begin("/cut")
        await cut.until(lambda it: it.reset is not None, "the reset of a response that its server cut")
        # RFC 9114, section 8.1: H3_INTERNAL_ERROR says that the server is to blame, not the client.
        assert cut.reset == ErrorCode.H3_INTERNAL_ERROR, hex(cut.reset)
        assert await client.request("/version") == b"HTTP/2.0"


async def websocket(connection):
    """RFC 9220: CONNECT with the pseudo-field :protocol."""
    from websockets.protocol import CLIENT, OPEN, Protocol

    async with connection() as client:
        await client.until(lambda: client.h3.received_settings is not None, "SETTINGS")
        settings = client.h3.received_settings
        assert settings.get(Setting.ENABLE_CONNECT_PROTOCOL) == 1, f"no extended CONNECT: {settings}"
        tunnel = client.begin("/chat?x=1", method="CONNECT", end=False,
                              fields=[(b":protocol", b"websocket"), (b"sec-websocket-version", b"13")])
        await tunnel.until(lambda it: it.sections or it.reset is not None, "the answer to CONNECT")
        assert tunnel.head().get(":status") == "200", (tunnel.head(), bytes(tunnel.content), tunnel.reset)
        socket, taken, messages = Protocol(CLIENT, state=OPEN, max_size=None), 0, []

        def push():
            for piece in socket.data_to_send():
                if piece:
                    tunnel.send(piece)

        async def receive(count):
            def is_done(it):
                nonlocal taken
                socket.receive_data(bytes(it.content[taken:]))
                taken = len(it.content)
                messages.extend(socket.events_received())
                return len(messages) >= count

            await tunnel.until(is_done, f"{count} messages")
            received = [frame.data for frame in messages[:count]]
            del messages[:count]
            return received

        for message in (b"hello", "ünïcode".encode(), b"", b"x" * MIB):
            socket.send_text(message)
            push()
            if len(message) < MIB:
                assert await receive(1) == [message]
        # The server may split a large message.
        large = b""
        while len(large) < MIB:
            large += (await receive(1))[0]
        assert large == b"x" * MIB
        for number in range(500):
            socket.send_binary(b"%d" % number)
        push()
        assert await receive(500) == [b"%d" % number for number in range(500)]
        # Other requests on the connection are not disturbed, nor is the tunnel by a move.
        await client.move()
        socket.send_text(b"moved")
        push()
        assert await receive(1) == [b"moved"]
        socket.send_close(1000, "done")
        push()
        (reason,) = await receive(1)
        assert reason[:2] == (1000).to_bytes(2, "big"), reason
        tunnel.send(b"", end=True)
        await tunnel.until(lambda it: it.is_ended, "the end of the tunnel")


def main(role, port, authority, *more):
    configuration = QuicConfiguration(is_client=True, alpn_protocols=["h3"], server_name="localhost")
    configuration.load_verify_locations(authority)

    def create(*arguments, **named):
        client = Client(*arguments, **named)
        client.authority = b"localhost:%d" % int(port)
        return client

    def connection():
        return connect("127.0.0.1", int(port), configuration=configuration, create_protocol=create)

    roles = {"endpoints": endpoints, "trailers": trailers, "websocket": websocket}
    asyncio.run(roles[role](connection, *more))


main(*sys.argv[1:])
