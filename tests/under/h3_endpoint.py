"""A client of HTTP/3 with aioquic whose connections share sockets and move between them."""

import asyncio
import itertools
import pathlib
import socket
import struct
import sys
import time

sys.path.append(str(pathlib.Path(__file__).parents[2] / "target/tools/http3"))

from aioquic.h3.connection import H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic import events
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection

# Of connection IDs of the client, which tell the connections of a socket apart.
ID_BYTES = 8
# Datagrams of one size that are sent by one call (`udp(7)`).
UDP_SEGMENT = 103
TRAIN_MAX = 40
RECEIVES_MAX = 64


class Lost(Exception):
    """A connection or a stream has ended before its response was complete."""


class Response:
    def __init__(self):
        self.status = None
        self.content = bytearray()
        self.done = asyncio.get_running_loop().create_future()

    def fail(self, reason):
        if not self.done.done():
            self.done.set_exception(Lost(reason))


class Connection:
    """A connection; `client.connect` makes it."""

    def __init__(self, client, quic, link):
        self.client = client
        self.quic = quic
        self.link = link
        self.http = None
        self.responses = {}
        self.timer = None
        self.ready = asyncio.get_running_loop().create_future()
        self.certificate = None

    def open(self, method, path, *fields, end=True):
        """Begins a request; returns its stream."""
        stream = self.quic.get_next_available_stream_id()
        head = [(":method", method), (":scheme", "https"), (":authority", "localhost"), (":path", path), *fields]
        self.responses[stream] = Response()
        self.http.send_headers(stream, [(name.encode(), value.encode()) for name, value in head], end)
        self.client.list(self)
        return stream

    def send(self, stream, content, end=False):
        self.http.send_data(stream, content, end)
        self.client.list(self)

    async def response(self, stream):
        """The content of a response with status 200."""
        response = self.responses[stream]
        await response.done
        del self.responses[stream]
        if response.status != b"200":
            raise Lost(f"status {response.status}")
        return bytes(response.content)

    async def get(self, path, *fields):
        return await self.response(self.open("GET", path, *fields))

    def move(self, link, is_noticed):
        """Uses another socket from now on. A client that notices it changes the connection ID (RFC 9000,
        section 9.5); it does not notice when a NAT has assigned another port."""
        self.link = link
        if is_noticed:
            self.quic.change_connection_id()
        self.quic.send_ping(0)
        self.client.list(self)

    def close(self):
        self.quic.close()
        self.client.list(self)

    def handle_events(self):
        while event := self.quic.next_event():
            match event:
                case events.HandshakeCompleted():
                    self.http = H3Connection(self.quic)
                    self.certificate = self.quic.tls._peer_certificate.serial_number
                case events.ConnectionIdIssued():
                    self.client.connections[event.connection_id] = self
                case events.ConnectionIdRetired():
                    self.client.connections.pop(event.connection_id, None)
                case events.StreamReset():
                    if response := self.responses.get(event.stream_id):
                        response.fail(f"reset with {event.error_code:#x}")
                case events.ConnectionTerminated():
                    self._end(f"closed with {event.error_code:#x} {event.reason_phrase}")
            for part in self.http.handle_event(event) if self.http else ():
                self._take(part)
        # Before that a client must not move (RFC 9000, section 9).
        if self.quic._handshake_confirmed and not self.ready.done():
            self.ready.set_result(None)

    def _take(self, part):
        response = self.responses.get(part.stream_id) if hasattr(part, "stream_id") else None
        if response is None:
            return
        if isinstance(part, HeadersReceived):
            response.status = response.status or dict(part.headers)[b":status"]
        if isinstance(part, DataReceived):
            response.content += part.data
        if part.stream_ended and not response.done.done():
            response.done.set_result(None)

    def _end(self, reason):
        if self.timer:
            self.timer.cancel()
        self.client.forget(self)
        if not self.ready.done():
            self.ready.set_exception(Lost(reason))
        for response in self.responses.values():
            response.fail(reason)

    def set_timer(self):
        if self.timer:
            self.timer.cancel()
            self.timer = None
        if (at := self.quic.get_timer()) is not None:
            wait = max(0, at - time.monotonic())
            self.timer = asyncio.get_running_loop().call_later(wait, self._handle_timer)

    def _handle_timer(self):
        self.quic.handle_timer(time.monotonic())
        self.handle_events()
        self.client.list(self)


class Client:
    """Connections to one server. `connections` has them by their connection IDs."""

    def __init__(self, server, authority):
        self.server = server
        self.authority = authority
        self.connections = {}
        self.listed = {}

    def link(self, address="0.0.0.0"):
        """A socket with a new port."""
        link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        link.setblocking(False)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            link.setsockopt(socket.SOL_SOCKET, option, 4 << 20)
        link.bind((address, 0))
        asyncio.get_running_loop().add_reader(link, self._receive, link)
        return link

    @staticmethod
    def unlink(link):
        asyncio.get_running_loop().remove_reader(link)
        link.close()

    async def connect(self, link):
        """A new connection on a socket, when its handshake is confirmed."""
        configuration = QuicConfiguration(
            is_client=True, alpn_protocols=["h3"], server_name="localhost", cafile=self.authority,
            connection_id_length=ID_BYTES, max_data=1 << 24, max_stream_data=1 << 22)
        quic = QuicConnection(configuration=configuration)
        connection = Connection(self, quic, link)
        self.connections[quic.host_cid] = connection
        quic.connect(self.server, time.monotonic())
        self.list(connection)
        await connection.ready
        return connection

    def forget(self, connection):
        for id in [id for id, known in self.connections.items() if known is connection]:
            del self.connections[id]

    def list(self, connection):
        """Has a connection send soon, together with others."""
        if not self.listed:
            asyncio.get_running_loop().call_soon(self._send)
        self.listed[connection] = None

    def _receive(self, link):
        for _ in range(RECEIVES_MAX):
            try:
                datagram = link.recv(65_536)
            except BlockingIOError:
                return
            except ConnectionRefusedError:
                continue
            at = 6 if datagram[0] & 0x80 else 1
            if connection := self.connections.get(datagram[at:at + ID_BYTES]):
                connection.quic.receive_datagram(datagram, self.server, time.monotonic())
                connection.handle_events()
                self.list(connection)

    def _send(self):
        waiting = {}
        connections, self.listed = list(self.listed), {}
        for connection in connections:
            for datagram, _ in connection.quic.datagrams_to_send(time.monotonic()):
                waiting.setdefault(connection.link, []).append(datagram)
            connection.handle_events()
            connection.set_timer()
        for link, datagrams in waiting.items():
            for size, train in itertools.groupby(datagrams, len):
                train = list(train)
                for at in range(0, len(train), TRAIN_MAX):
                    self._send_train(link, size, train[at:at + TRAIN_MAX])

    def _send_train(self, link, size, train):
        control = [(socket.IPPROTO_UDP, UDP_SEGMENT, struct.pack("=H", size))] if len(train) > 1 else []
        try:
            link.sendmsg(train, control, 0, self.server)
        except OSError:
            # As if the datagrams were lost: a closed socket, or a full buffer.
            pass
