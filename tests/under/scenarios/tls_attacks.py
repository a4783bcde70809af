"""Attacks on TLS: abandoned handshakes, invalid records, clear text, renegotiation, endless key updates, one
record per byte."""

import asyncio
import contextlib
import ctypes
import ctypes.util
import os
import random
import socket
import ssl
import time

import h2
from attack import Flood, client_cpus, format_rows, measure_attack, server_cpus
from blitz import client_context, client_hello, listening_tls

SECONDS = 150
TLS1_2_VERSION, KEY_UPDATE_REQUESTED = 0x0303, 1
SSL_CTRL_SET_MAX_PROTO_VERSION = 124
# Key updates that rustls accepts without content between them.
KEY_UPDATES = 32


async def run(binary):
    rows = []
    with listening_tls(binary) as (flags, port, context):
        async with binary.running(*flags):
            hello = client_hello(context)
            for name, bytes_, answer in CLOSED_AT_ONCE:
                await asyncio.to_thread(closed_at_once, port, name, bytes_, answer)
                rows.append({"attack": name, "frames": "closed at once"})
            for attack in (long_handshake, renegotiation, key_updates):
                rows.append({"attack": attack.__name__.replace("_", " "),
                             "frames": await asyncio.to_thread(attack, port)})
    for name, flood in {
        "ClientHello, then nothing": lambda port, _: Flood(port, hello, connections=500),
        "ClientHello, then close": lambda port, _: Flood(port, hello, closes_on_response=True),
        "garbage": lambda port, _: Flood(port, random.Random(1).randbytes(1 << 16)),
        "one record per byte": OneByteRecords,
    }.items():
        # A new port for each, because io_uring closes its sockets a moment after its process has ended.
        with listening_tls(binary) as (flags, port, _):
            ca = flags[-1].replace("localhost.key", "ca.pem")
            async with binary.running(*flags, cpus=server_cpus()) as server:
                cost = await measure_attack(server, flood(port, ca))
        row = {"attack": name, "frames": "held" if not cost["closed"] else "each closed"}
        rows.append(row | cost)
    return format_rows(rows)


CLOSED_AT_ONCE = [
    ("clear text", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"HTTP/1.1 400 Bad Request"),
    ("preface in clear text", h2.PREFACE, b"HTTP/1.1 400 Bad Request"),
    ("a record of unknown type", b"\x00\x03\x01\x00\x05hello", b""),
    ("a record of 18,433 bytes", b"\x16\x03\x01\x48\x01" + bytes(18_433), b"\x15\x03"),
    ("content before the handshake", b"\x17\x03\x03\x00\x05hello", b"\x15\x03"),
    ("an empty handshake record", b"\x16\x03\x01\x00\x00", b""),
    ("SSL 2", b"\x80\x2e\x01\x00\x02" + bytes(43), b""),
]


def closed_at_once(port, name, sent, response):
    """Asserts that the server closes after these bytes, and checks its response."""
    with h2.Peer(port, seconds=3) as peer:
        peer.send(sent)
        received = b""
        try:
            while part := peer.socket.recv(1 << 16):
                received += part
        except ConnectionError:
            pass
        except TimeoutError:
            raise AssertionError(f"{name}: the connection stays open") from None
        assert received.startswith(response), f"{name}: {received}"


def long_handshake(port):
    """A message that declares 16 MiB, in valid records: the server closes within 40 KiB."""
    sent = 0
    with h2.Peer(port, seconds=0.2) as peer:
        peer.send(b"\x16\x03\x01\x10\x00" + b"\x01\xff\xff\xff" + bytes(4_092))
        while sent < 40 << 10:
            try:
                peer.socket.recv(1 << 16)
                return "closed"
            except ConnectionError:
                return "closed"
            except TimeoutError:
                pass
            peer.send(b"\x16\x03\x01\x10\x00" + bytes(4_096))
            sent += 4_096
    raise AssertionError(f"the connection is open after a handshake of {sent} bytes")


def renegotiation(port):
    """TLS 1.2 lets a client request a new handshake at any time, which would cost a signature each."""
    with OpenSsl(port, TLS1_2_VERSION) as client:
        client.call("SSL_renegotiate")
        assert client.call("SSL_do_handshake", ok=None) <= 0, "the server has renegotiated"
    return "refused"


def key_updates(port):
    """TLS 1.3 lets a client update its keys at any time, and the server has to respond."""
    for count, is_allowed in [(KEY_UPDATES, True), (KEY_UPDATES + 1, False)]:
        with OpenSsl(port) as client:
            for _ in range(count):
                client.call("SSL_key_update", KEY_UPDATE_REQUESTED)
                client.call("SSL_do_handshake", ok=None)
            assert client.pings() == is_allowed, f"{count} key updates"
    return f"closed after {KEY_UPDATES + 1:>5}"


class OpenSsl:
    """A client on OpenSSL's C interface, for operations that Python's ssl module lacks."""

    def __init__(self, port, version=None):
        self.lib = ctypes.CDLL(ctypes.util.find_library("ssl"))
        for name in ("TLS_client_method", "SSL_CTX_new", "SSL_new"):
            getattr(self.lib, name).restype = ctypes.c_void_p
        self.lib.SSL_CTX_ctrl.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_long,
                                          ctypes.c_void_p]
        method = ctypes.c_void_p(self.lib.TLS_client_method())
        self.context = ctypes.c_void_p(self.lib.SSL_CTX_new(method))
        if version:
            self.lib.SSL_CTX_ctrl(self.context, SSL_CTRL_SET_MAX_PROTO_VERSION, version, None)
        self.ssl = ctypes.c_void_p(self.lib.SSL_new(self.context))
        self.stream = socket.create_connection(("127.0.0.1", port))
        self.lib.SSL_set_fd(self.ssl, self.stream.fileno())
        self.call("SSL_connect")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stream.close()
        self.lib.SSL_free(self.ssl)
        self.lib.SSL_CTX_free(self.context)

    def call(self, name, *arguments, ok=1):
        result = getattr(self.lib, name)(self.ssl, *arguments)
        assert ok is None or result == ok, f"{name}: {result}"
        return result

    def pings(self):
        """Requests /ping; whether a response arrived."""
        request = b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n"
        if self.call("SSL_write", request, len(request), ok=None) != len(request):
            return False
        answer = b""
        while not answer.endswith(b"pong"):
            room = ctypes.create_string_buffer(4096)
            taken = self.call("SSL_read", room, len(room), ok=None)
            if taken <= 0:
                return False
            answer += room.raw[:taken]
        return True


class OneByteRecords:
    """Content with one record per byte."""

    def __init__(self, port, ca):
        self.port = port
        self.ca = ca

    def run(self, seconds):
        os.sched_setaffinity(0, client_cpus())
        context, sent = client_context(self.ca), 0
        end = time.monotonic() + seconds
        with contextlib.ExitStack() as stack:
            clients = []
            for _ in range(4):
                stream = stack.enter_context(socket.create_connection(("127.0.0.1", self.port)))
                clients.append((stream, *handshake(stream, context)))
            # Content in frames of 16 KiB, so that only the records are small.
            begin = h2.client_preface() + h2.headers(1, h2.request("GET", "/delay?ms=60000"), h2.END_HEADERS)
            content = h2.data(1, bytes(16_384))
            for stream, client, _, outgoing in clients:
                client.write(begin)
                stream.sendall(outgoing.read())
            at = 0
            while time.monotonic() < end:
                for stream, client, _, outgoing in clients:
                    for byte in content[at:at + 1_000]:
                        client.write(bytes([byte]))
                    records = outgoing.read()
                    stream.sendall(records)
                    sent += len(records)
                at = at + 1_000 if at + 1_000 < len(content) else 0
        return {"sent": sent, "held": len(clients)}


def handshake(stream, context):
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    while True:
        try:
            client.do_handshake()
            stream.sendall(outgoing.read())
            return client, incoming, outgoing
        except ssl.SSLWantReadError:
            stream.sendall(outgoing.read())
            incoming.write(stream.recv(1 << 16))
