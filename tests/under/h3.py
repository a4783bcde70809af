"""A minimal HTTP/3 client: frames as bytes on a QUIC connection without any checks.

aioquic makes the handshake and encrypts. After it a connection sends the frames that the scenario writes, in
packets of its own: so it can withhold acknowledgements and credit, leave gaps, and break every rule.
"""

import contextlib
import pathlib
import os
import select
import socket
import ssl
import sys
import time

sys.path.append(str(pathlib.Path(__file__).parents[2] / "target/tools/http3"))

import pylsqpack
from aioquic.buffer import Buffer
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.crypto import CryptoError
from aioquic.quic.packet import pull_ack_frame, push_ack_frame
from aioquic.quic.rangeset import RangeSet
from aioquic.tls import Epoch

DATA, HEADERS, CANCEL_PUSH, SETTINGS, PUSH_PROMISE, GOAWAY, MAX_PUSH_ID = 0, 1, 3, 4, 5, 7, 0xd
PRIORITY_UPDATE = 0xf0700
CONTROL, PUSH, ENCODER, DECODER = 0, 1, 2, 3

CODES = {
    0x100: "NO_ERROR", 0x101: "GENERAL_PROTOCOL_ERROR", 0x102: "INTERNAL_ERROR",
    0x103: "STREAM_CREATION_ERROR", 0x104: "CLOSED_CRITICAL_STREAM", 0x105: "FRAME_UNEXPECTED",
    0x106: "FRAME_ERROR", 0x107: "EXCESSIVE_LOAD", 0x108: "ID_ERROR", 0x109: "SETTINGS_ERROR",
    0x10a: "MISSING_SETTINGS", 0x10b: "REQUEST_REJECTED", 0x10c: "REQUEST_CANCELLED",
    0x10d: "REQUEST_INCOMPLETE", 0x10e: "MESSAGE_ERROR", 0x200: "QPACK_DECOMPRESSION_FAILED",
    0x201: "QPACK_ENCODER_STREAM_ERROR", 0x202: "QPACK_DECODER_STREAM_ERROR",
}
TRANSPORT_CODES = {
    0x0: "TRANSPORT NO_ERROR", 0x1: "TRANSPORT INTERNAL_ERROR", 0x3: "FLOW_CONTROL_ERROR",
    0x4: "STREAM_LIMIT_ERROR", 0x5: "STREAM_STATE_ERROR", 0x6: "FINAL_SIZE_ERROR",
    0x7: "FRAME_ENCODING_ERROR", 0x8: "TRANSPORT_PARAMETER_ERROR", 0x9: "CONNECTION_ID_LIMIT_ERROR",
    0xa: "PROTOCOL_VIOLATION", 0xd: "CRYPTO_BUFFER_EXCEEDED",
}

# Payload of a packet: the smallest path MTU, without header and tag.
PAYLOAD_BYTES = 1_200 - 1 - 8 - 2 - 16
DATAGRAM_BYTES = 1_200
# Packets in flight: with twenty connections they fit into the receive buffer of the server's socket.
FLIGHT = 32
# A packet is lost if this many later ones were acknowledged, or after this time.
LOSS_PACKETS, LOSS_SECONDS = 3, 0.3
OPEN = 1 << 40


def varint(value):
    """An integer of QUIC (RFC 9000, section 16)."""
    for bits, size, first in ((6, 1, 0), (14, 2, 1), (30, 4, 2), (62, 8, 3)):
        if value < 1 << bits:
            return (value | first << (size * 8 - 2)).to_bytes(size, "big")
    raise ValueError(value)


def frame(kind, payload=b""):
    """A frame of HTTP/3."""
    return varint(kind) + varint(len(payload)) + payload


def settings(*pairs):
    """SETTINGS with these pairs of identifier and value."""
    return frame(SETTINGS, b"".join(varint(id) + varint(value) for id, value in pairs))


def integer(value, bits, first=0):
    """A QPACK integer after the `first` bits of its byte (RFC 9204, section 4.1.1)."""
    limit = (1 << bits) - 1
    if value < limit:
        return bytes([first | value])
    coded, value = [first | limit], value - limit
    while value >= 128:
        coded.append(value & 127 | 128)
        value >>= 7
    return bytes([*coded, value])


def encode(text):
    return text if isinstance(text, bytes) else text.encode("latin-1")


def literal(name, value):
    """A literal field line without references."""
    name, value = encode(name), encode(value)
    return integer(len(name), 3, 0x20) + name + integer(len(value), 7) + value


def insertion(name, value):
    """An instruction of the encoder that inserts a field."""
    name, value = encode(name), encode(value)
    return integer(len(name), 5, 0x40) + name + integer(len(value), 7) + value


def capacity(value):
    """An instruction of the encoder that sets the capacity of the table."""
    return integer(value, 5, 0x20)


def duplicate(index):
    """An instruction of the encoder that inserts an entry again."""
    return integer(index, 5)


NO_REFERENCES = b"\0\0"


def section(fields):
    """A field section of literals; `fields` are pairs."""
    return NO_REFERENCES + b"".join(literal(name, value) for name, value in fields)


def request(method="GET", path="/hello", *fields):
    """The fields of a request."""
    return [(":method", method), (":scheme", "https"), (":authority", "localhost"), (":path", path), *fields]


def head(method="GET", path="/hello", *fields):
    """HEADERS of a request."""
    return frame(HEADERS, section(request(method, path, *fields)))


# Frames of QUIC (RFC 9000, section 19).
PING = b"\x01"


def reset_stream(stream, code=0x10c, size=0):
    return b"\x04" + varint(stream) + varint(code) + varint(size)


def stop_sending(stream, code=0x10c):
    return b"\x05" + varint(stream) + varint(code)


def stream_frame(stream, offset, content=b"", fin=False):
    return (b"\x0f" if fin else b"\x0e") + varint(stream) + varint(offset) + varint(len(content)) + content


def max_data(value):
    return b"\x10" + varint(value)


def max_stream_data(stream, value):
    return b"\x11" + varint(stream) + varint(value)


def new_connection_id(sequence, retire_prior_to=0):
    return b"\x18" + varint(sequence) + varint(retire_prior_to) + b"\x08" + os.urandom(24)


def retire_connection_id(sequence):
    return b"\x19" + varint(sequence)


def path_challenge():
    return b"\x1a" + os.urandom(8)


class ConnectionEnded(Exception):
    """The server has closed the connection; `code` is the name of the code, or "reset" or "silence"."""

    def __init__(self, code, reason=""):
        super().__init__(f"connection closed: {code} {reason}".rstrip())
        self.code = code


class Incoming:
    """What has come on a stream."""

    def __init__(self):
        self.parts = {}
        self.content = bytearray()
        self.bytes = 0
        self.size = None
        self.reset = None

    def take(self, offset, content, fin, keep):
        if fin:
            self.size = offset + len(content)
        self.bytes = max(self.bytes, offset + len(content))
        if not keep:
            return
        self.parts[offset] = content
        while self.parts:
            at = min(self.parts)
            if at > len(self.content):
                return
            part = self.parts.pop(at)
            self.content += part[len(self.content) - at:]

    def is_complete(self):
        return self.size is not None and len(self.content) >= self.size


class Peer:
    """A client connection on a blocking socket that sends any frames.

    `window` and `stream_window` are the credit for responses in bytes, `uni_streams` and `uni_window` that of
    the server's own streams. `opens` are the types of streams that are opened at once.
    """

    def __init__(self, port, *, seconds=10, window=OPEN, stream_window=OPEN, uni_streams=100,
                 uni_window=OPEN, opens=(CONTROL,), idle_seconds=600):
        self.seconds = seconds
        self.flight_max = FLIGHT
        self.acknowledges = True
        self.keeps_content = True
        self.ended = None
        self.incoming = {}
        self.stopped = {}
        self.pings = 0
        self.sent_bytes = self.received_bytes = 0
        self.path_responses = self.retired = 0
        # Packets to send, and packets in flight: the time and the payload of each.
        self.queue = []
        self.queued = 0
        self.flight = {}
        self.retransmits = True
        self.offsets = {}
        self.credit_used = 0
        self.next_request, self.next_uni = 0, 2
        self.own = {}
        self.decoder = None
        self.received = RangeSet()
        self.owes_ack = False
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self.socket.connect(("127.0.0.1", port))
        self.poll = select.poll()
        self.poll.register(self.socket, select.POLLIN)
        self.quic = client(window, stream_window, uni_streams, uni_window, idle_seconds)
        try:
            self._shake_hands()
        except BaseException:
            self.socket.close()
            raise
        for kind in opens:
            self.open(kind)
        self.flush()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # Sending

    def open(self, kind, content=None):
        """Opens a unidirectional stream of this type; the control stream begins with SETTINGS."""
        if content is None:
            content = settings() if kind == CONTROL else b""
        stream = self.next_uni
        end = time.monotonic() + self.seconds
        while stream // 4 >= self.uni_max:
            self.flush()
            self.receive(0.1)
            self.check()
            assert time.monotonic() < end, f"no stream is permitted beyond {self.uni_max}"
        self.next_uni += 4
        self.own.setdefault(kind, stream)
        self.write(stream, varint(kind) + content)
        return stream

    def request(self, content=None, fin=True):
        """Writes to a new request stream; returns its number. Waits until the server permits the stream."""
        stream = self.next_request
        end = time.monotonic() + self.seconds
        while stream // 4 >= self.streams_max:
            self.flush()
            self.receive(0.1)
            self.check()
            assert time.monotonic() < end, f"no stream is permitted beyond {self.streams_max}"
        self.next_request += 4
        self.write(stream, head() if content is None else content, fin)
        return stream

    def write(self, stream, content=b"", fin=False):
        """Queues STREAM frames at the next offset of the stream. Waits until the server permits so much."""
        offset = self.offsets.get(stream, 0)
        end = time.monotonic() + self.seconds
        at = 0
        while True:
            room = min(PAYLOAD_BYTES - 20, self.data_max - self.credit_used)
            part = content[at:at + max(room, 0)]
            at += len(part)
            is_last = at == len(content)
            if part or is_last:
                self.queue_frames(stream_frame(stream, offset, part, fin and is_last))
                offset += len(part)
                self.offsets[stream] = offset
                self.credit_used += len(part)
            if is_last:
                return
            if not part:
                self.flush()
                self.receive(0.1)
                self.check()
                assert time.monotonic() < end, f"no credit beyond {self.data_max}"

    def queue_frames(self, *frames):
        """Queues frames of QUIC."""
        self.queue.extend(frames)

    def send(self, *frames):
        """Sends frames of QUIC, and everything that is queued."""
        self.queue.extend(frames)
        self.flush()

    def flush(self):
        """Sends what is queued; waits while too many packets are in flight."""
        payload = []
        size = 0
        for frame in self.queue:
            if size + len(frame) > PAYLOAD_BYTES:
                self._send_in_turn(b"".join(payload))
                payload, size = [], 0
            payload.append(frame)
            size += len(frame)
        if payload:
            self._send_in_turn(b"".join(payload))
        self.queue.clear()

    def _send_in_turn(self, payload):
        end = time.monotonic() + self.seconds
        while len(self.flight) >= self.flight_max:
            self.receive(0.05)
            self.check()
            if time.monotonic() > end:
                self.ended = ConnectionEnded("silence")
        self.check()
        self.send_packet(payload)

    def send_packet(self, payload):
        """Sends a packet at once."""
        number = self.number
        self.number += 1
        header = bytes([0x41 | self.crypto.key_phase << 2]) + self.peer_id + (number & 0xffff).to_bytes(2, "big")
        datagram = self.crypto.encrypt_packet(header, payload.ljust(4, b"\0"), number)
        if self.retransmits:
            self.flight[number] = (time.monotonic(), payload)
        self.send_datagram(datagram)

    def send_datagram(self, datagram):
        self.sent_bytes += len(datagram)
        # A refused port, or a full buffer.
        with contextlib.suppress(OSError):
            self.socket.send(datagram)

    # Receiving

    def check(self):
        """Raises ConnectionEnded if the server has closed the connection."""
        if self.ended:
            raise self.ended

    def receive(self, seconds=0.0):
        """Handles what has come, and waits for it at most so long. True if something has come."""
        has_come = False
        wait = seconds
        while self._is_readable(wait):
            wait = 0
            has_come = True
            try:
                datagram = self.socket.recv(65_536, socket.MSG_DONTWAIT)
            except OSError:
                break
            self.received_bytes += len(datagram)
            self._take(datagram)
        if self.owes_ack and self.acknowledges and not self.ended:
            self.acknowledge()
        self._resend()
        return has_come

    def acknowledge(self):
        self.owes_ack = False
        buffer = Buffer(capacity=PAYLOAD_BYTES)
        buffer.push_uint_var(2)
        push_ack_frame(buffer, self.received, 0, PAYLOAD_BYTES - 10)
        keeps, self.retransmits = self.retransmits, False
        self.send_packet(buffer.data)
        self.retransmits = keeps
        while len(self.received) > 32:
            self.received.shift()

    def until(self, accept, seconds=None):
        """Receives until `accept()` is true."""
        end = time.monotonic() + (seconds or self.seconds)
        self.flush()
        while not accept():
            self.receive(0.05)
            if accept():
                return
            self.check()
            if time.monotonic() > end:
                raise TimeoutError("the server does not do what is expected")

    def settle(self, seconds=None):
        """Waits until the server has acknowledged everything: then it has processed it."""
        self.send(PING)
        self.until(lambda: not self.flight, seconds)

    def ends(self, seconds=None):
        """Waits until the server closes the connection; returns the name of its code."""
        try:
            self.until(lambda: False, seconds)
        except ConnectionEnded as ended:
            return ended.code

    def response(self, stream, seconds=None):
        """Status and content of a stream; the code if the server has reset it."""
        self.until(lambda: self.is_done(stream), seconds)
        return self.take_response(stream)

    def is_done(self, stream):
        found = self.incoming.get(stream)
        return found is not None and (found.reset is not None or found.is_complete())

    def take_response(self, stream):
        found = self.incoming.pop(stream)
        if found.reset is not None:
            return CODES.get(found.reset, found.reset)
        status, content = None, b""
        buffer = Buffer(data=bytes(found.content))
        while not buffer.eof():
            kind, size = buffer.pull_uint_var(), buffer.pull_uint_var()
            payload = buffer.pull_bytes(size)
            if kind == HEADERS and status in (None, 100):
                self.decoder = self.decoder or pylsqpack.Decoder(0, 0)
                fields = self.decoder.feed_header(stream, payload)[1]
                status = int(dict(fields)[b":status"])
            if kind == DATA:
                content += payload
        return status, content

    def close(self, code=0x100):
        """Closes the connection, so that the server forgets it."""
        if not self.ended:
            with contextlib.suppress(OSError):
                self.send_packet(b"\x1d" + varint(code) + b"\0")
        self.socket.close()

    def abandon(self):
        """Says nothing more."""
        self.socket.close()

    # Internals

    def _shake_hands(self):
        quic = self.quic
        quic.connect(self.socket.getpeername(), time.monotonic())
        end = time.monotonic() + self.seconds
        while not quic._handshake_confirmed:
            now = time.monotonic()
            for datagram, _ in quic.datagrams_to_send(now):
                self.send_datagram(datagram)
            timer = quic.get_timer()
            wait = max(0, min(timer - now if timer else 1, end - now))
            if self._is_readable(wait):
                with contextlib.suppress(ConnectionRefusedError):
                    datagram = self.socket.recv(65_536)
                    self.received_bytes += len(datagram)
                    quic.receive_datagram(datagram, self.socket.getpeername(), time.monotonic())
            elif timer and time.monotonic() >= timer:
                quic.handle_timer(time.monotonic())
            if quic._close_event:
                code = quic._close_event.error_code
                raise ConnectionEnded(TRANSPORT_CODES.get(code, code), quic._close_event.reason_phrase)
            if time.monotonic() > end:
                raise TimeoutError("the handshake is not completed")
        # These datagrams acknowledge the handshake.
        for datagram, _ in quic.datagrams_to_send(time.monotonic()):
            self.send_datagram(datagram)
        space = quic._spaces[Epoch.ONE_RTT]
        for interval in space.ack_queue:
            self.received.add(interval.start, interval.stop)
        self.expected = space.expected_packet_number
        self.crypto = quic._cryptos[Epoch.ONE_RTT]
        self.number = quic._packet_number
        self.peer_id, self.host_id = quic._peer_cid.cid, quic.host_cid
        self.reset_token = quic._peer_cid.stateless_reset_token
        self.data_max = quic._remote_max_data
        self.streams_max = quic._remote_max_streams_bidi
        self.uni_max = quic._remote_max_streams_uni
        for stream, state in quic._streams.items():
            content = state.receiver._buffer
            if content:
                self._incoming(stream).take(state.receiver._buffer_start, bytes(content), False, True)
        while event := quic.next_event():
            if type(event).__name__ == "StreamDataReceived":
                found = self._incoming(event.stream_id)
                found.take(found.bytes, event.data, event.end_stream, True)
        # aioquic is not needed any more, and keeps much.
        self.quic = None

    def _is_readable(self, seconds):
        return bool(self.poll.poll(seconds * 1000))

    def _incoming(self, stream):
        found = self.incoming.get(stream)
        if found is None:
            found = self.incoming[stream] = Incoming()
        return found

    def _take(self, datagram):
        if datagram[0] & 0x80 or len(datagram) < 30:
            return
        try:
            _, plain, number = self.crypto.decrypt_packet(datagram, 1 + len(self.host_id), self.expected)
        except CryptoError:
            if self.reset_token and datagram[-16:] == self.reset_token:
                self.ended = self.ended or ConnectionEnded("reset")
            return
        self.expected = max(self.expected, number + 1)
        is_new = number not in self.received
        self.received.add(number, number + 1)
        if is_new:
            self._frames(plain)

    def _frames(self, plain):
        buffer = Buffer(data=plain)
        pull = buffer.pull_uint_var
        while not buffer.eof():
            kind = pull()
            if kind not in (0x00, 0x02, 0x03, 0x1c, 0x1d):
                self.owes_ack = True
            match kind:
                case 0x00:
                    rest = plain[buffer.tell():].lstrip(b"\0")
                    buffer.seek(len(plain) - len(rest))
                case 0x01:
                    self.pings += 1
                case 0x02 | 0x03:
                    self._acknowledged(pull_ack_frame(buffer)[0])
                    if kind == 0x03:
                        pull(), pull(), pull()
                case 0x04:
                    stream, code = pull(), pull()
                    pull()
                    self._incoming(stream).reset = code
                case 0x05:
                    stream = pull()
                    self.stopped[stream] = pull()
                case 0x06:
                    pull()
                    buffer.pull_bytes(pull())
                case 0x07:
                    buffer.pull_bytes(pull())
                case 0x10:
                    self.data_max = max(self.data_max, pull())
                case 0x11:
                    pull(), pull()
                case 0x12:
                    self.streams_max = max(self.streams_max, pull())
                case 0x13:
                    self.uni_max = max(self.uni_max, pull())
                case 0x14 | 0x16 | 0x17:
                    pull()
                case 0x15:
                    pull(), pull()
                case 0x18:
                    pull(), pull()
                    buffer.pull_bytes(buffer.pull_uint8() + 16)
                case 0x19:
                    self.retired += 1
                    pull()
                case 0x1a:
                    self.queue_frames(b"\x1b" + buffer.pull_bytes(8))
                case 0x1b:
                    self.path_responses += 1
                    buffer.pull_bytes(8)
                case 0x1c:
                    code = pull()
                    pull()
                    reason = buffer.pull_bytes(pull()).decode(errors="replace")
                    self.ended = self.ended or ConnectionEnded(TRANSPORT_CODES.get(code, hex(code)), reason)
                case 0x1d:
                    code = pull()
                    reason = buffer.pull_bytes(pull()).decode(errors="replace")
                    self.ended = self.ended or ConnectionEnded(CODES.get(code, hex(code)), reason)
                case 0x1e:
                    pass
                case _ if 0x08 <= kind <= 0x0f:
                    stream = pull()
                    offset = pull() if kind & 4 else 0
                    size = pull() if kind & 2 else len(plain) - buffer.tell()
                    self._incoming(stream).take(offset, buffer.pull_bytes(size), bool(kind & 1),
                                                self.keeps_content)
                case _:
                    raise AssertionError(f"the server sends a frame of type {kind:#x}")

    def _acknowledged(self, ranges):
        flight = self.flight
        largest = ranges[len(ranges) - 1].stop - 1
        for number in [number for number in flight if number in ranges]:
            del flight[number]
        lost = [number for number in flight if number + LOSS_PACKETS <= largest]
        for number in lost:
            self.send_packet(flight.pop(number)[1])

    def _resend(self):
        """Sends the oldest packet again if nothing was acknowledged for some time."""
        if not self.flight or self.ended:
            return
        number, (at, payload) = next(iter(self.flight.items()))
        if time.monotonic() - at > LOSS_SECONDS:
            del self.flight[number]
            self.send_packet(payload)


def client(window=OPEN, stream_window=OPEN, uni_streams=100, uni_window=OPEN, idle_seconds=600):
    """A connection of aioquic before its handshake."""
    configuration = QuicConfiguration(
        is_client=True, alpn_protocols=["h3"], server_name="localhost", verify_mode=ssl.CERT_NONE,
        max_data=window, max_stream_data=stream_window, idle_timeout=idle_seconds,
        max_datagram_size=DATAGRAM_BYTES)
    quic = QuicConnection(configuration=configuration)
    quic._local_max_streams_uni.value = uni_streams
    quic._local_max_stream_data_uni = uni_window
    return quic


def first_flight(quic=None):
    """The datagrams that a client begins with."""
    quic = quic or client()
    quic.connect(("127.0.0.1", 1), time.monotonic())
    return [datagram for datagram, _ in quic.datagrams_to_send(time.monotonic())]


def assert_served(port, seconds=5):
    """Asserts that the server serves a new client."""
    with Peer(port, seconds=seconds) as peer:
        assert peer.response(peer.request()) == (200, b"Hello, World!")
