"""A minimal HTTP/2 client: frames as bytes, field blocks of literals, a connection without any checks."""

import collections
import socket
import ssl
import struct

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS = 0, 1, 2, 3, 4
PING, GOAWAY, WINDOW_UPDATE, CONTINUATION, PRIORITY_UPDATE = 6, 7, 8, 9, 16

ACK = END_STREAM = 0x1
END_HEADERS = 0x4
PADDED = 0x8
DEPENDS = 0x20
WHOLE = END_STREAM | END_HEADERS

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
CODES = ["NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT",
         "STREAM_CLOSED", "FRAME_SIZE_ERROR", "REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR",
         "CONNECT_ERROR", "ENHANCE_YOUR_CALM", "INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED"]
WINDOW_MAX = (1 << 31) - 1

INITIAL_WINDOW_SIZE = 4

Frame = collections.namedtuple("Frame", "kind flags stream payload")


def frame(kind, flags=0, stream=0, payload=b""):
    """A whole frame."""
    head = struct.pack(">IBBI", len(payload), kind, flags, stream)
    return head[1:] + payload


def u32(value):
    """The payload of RST_STREAM and WINDOW_UPDATE."""
    return struct.pack(">I", value)


def settings(**values):
    """SETTINGS with `window=`, the initial window of streams, and `table=`, the size of the HPACK table."""
    ids = {"table": 1, "window": INITIAL_WINDOW_SIZE}
    payload = b"".join(struct.pack(">HI", ids[name], value) for name, value in values.items())
    return frame(SETTINGS, 0, 0, payload)


def client_preface(**values):
    """The connection preface of a client: the magic bytes and SETTINGS."""
    return PREFACE + settings(**values)


def integer(value, bits, first=0):
    """An HPACK integer after the `first` bits of its byte (RFC 7541, section 5.1)."""
    limit = (1 << bits) - 1
    if value < limit:
        return bytes([first | value])
    coded, value = [first | limit], value - limit
    while value >= 128:
        coded.append(value & 127 | 128)
        value >>= 7
    return bytes([*coded, value])


def text(value):
    """An HPACK string without Huffman coding."""
    value = value if isinstance(value, bytes) else value.encode("latin-1")
    return integer(len(value), 7) + value


def literal(name, value):
    """A literal field without indexing."""
    return b"\0" + text(name) + text(value)


def indexing(name, value):
    """A literal field with incremental indexing."""
    return b"\x40" + text(name) + text(value)


def indexed(index):
    """An indexed field."""
    return integer(index, 7, 0x80)


def block(fields):
    """A field block of literals; `fields` are pairs."""
    return b"".join(literal(name, value) for name, value in fields)


def request(method="GET", path="/hello", authority="localhost", *fields):
    """The fields of a request."""
    return [(":method", method), (":scheme", "http"), (":authority", authority),
            (":path", path), *fields]


def headers(stream, fields, flags=WHOLE):
    """HEADERS with these fields, as pairs or as a finished block."""
    payload = fields if isinstance(fields, bytes) else block(fields)
    return frame(HEADERS, flags, stream, payload)


def get(stream, path="/hello"):
    """A whole request."""
    return headers(stream, request("GET", path))


def post(stream, path, *fields):
    """The head of a request with content."""
    return headers(stream, request("POST", path, "localhost", *fields), END_HEADERS)


def data(stream, payload=b"", flags=0):
    """DATA."""
    return frame(DATA, flags, stream, payload)


def client_stream(count):
    """The identifier of the client's stream number `count`, from 1."""
    return count * 2 - 1


class ConnectionEnded(Exception):
    """The server has closed the connection; `code` is the error code of its GOAWAY, or None."""

    def __init__(self, code):
        super().__init__(f"connection closed: {code}")
        self.code = code


class Peer:
    """A client connection on a blocking socket that sends any bytes."""

    def __init__(self, port, tls=None, receive_buffer=None, seconds=10):
        stream = socket.socket()
        if receive_buffer:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        stream.settimeout(seconds)
        try:
            stream.connect(("127.0.0.1", port))
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.socket = tls.wrap_socket(stream, server_hostname="localhost") if tls else stream
        except BaseException:
            stream.close()
            raise
        self.received = bytearray()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, *frames):
        """Sends bytes; False if the server has closed. The reason is found by reading."""
        try:
            self.socket.sendall(b"".join(frames))
        except (ConnectionError, ssl.SSLError):
            return False
        return True

    def next_frame(self):
        """The next frame; raises ConnectionEnded at GOAWAY with an error and at the end."""
        while len(self.received) < 9 or len(self.received) < 9 + self._length():
            try:
                part = self.socket.recv(1 << 16)
            except (ConnectionError, ssl.SSLError):
                part = b""
            if not part:
                raise ConnectionEnded(None)
            self.received += part
        end = 9 + self._length()
        _, kind, flags, stream = struct.unpack(">IBBI", b"\0" + self.received[:9])
        found = Frame(kind, flags, stream & WINDOW_MAX, bytes(self.received[9:end]))
        del self.received[:end]
        if found.kind == GOAWAY and (code := int.from_bytes(found.payload[4:8], "big")):
            raise ConnectionEnded(CODES[code])
        return found

    def until(self, accept):
        """Frames up to and including the first that `accept` accepts."""
        frames = [self.next_frame()]
        while not accept(frames[-1]):
            frames.append(self.next_frame())
        return frames

    def wait_for_ping(self, content=b"are you?"):
        """Sends PING and waits for its acknowledgement: then the server has processed all sent frames."""
        self.send(frame(PING, 0, 0, content))
        return self.until(lambda got: got.kind == PING and got.flags & ACK
                          and got.payload == content)

    def response(self, stream):
        """The whole response of a stream: field block and content; None if it was reset."""
        fields, content = b"", b""
        while True:
            got = self.next_frame()
            if got.stream != stream:
                continue
            if got.kind == RST_STREAM:
                return None
            if got.kind == HEADERS:
                fields += got.payload
            if got.kind == DATA:
                content += got.payload
            if got.kind in (HEADERS, DATA) and got.flags & END_STREAM:
                return fields, content

    def is_closed(self):
        """Whether the server has closed the connection without further bytes."""
        try:
            while True:
                self.next_frame()
        except ConnectionEnded:
            pass
        except TimeoutError:
            return False
        try:
            return self.socket.recv(1) == b""
        except (ConnectionError, ssl.SSLError):
            return True

    def abort(self):
        """Closes with RST; after FIN the server would still complete the responses."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def _length(self):
        return int.from_bytes(self.received[:3], "big")


def assert_served(port):
    """Asserts that the server serves a new client."""
    with Peer(port) as peer:
        peer.send(client_preface(), get(1))
        assert peer.response(1)[1] == b"Hello, World!"


STATUS_BY_INDEX = {8: 200, 9: 204, 10: 206, 11: 304, 12: 400, 13: 404, 14: 500}
# The Huffman codes of digits (RFC 7541, appendix B): 5 or 6 bits.
DIGITS = {"00000": "0", "00001": "1", "00010": "2", "011001": "3", "011010": "4",
          "011011": "5", "011100": "6", "011101": "7", "011110": "8", "011111": "9"}


def status_of(fields):
    """The status of the first response of a connection."""
    while fields[0] & 0xe0 == 0x20:  # Dynamic table size updates may come first.
        fields = fields[1:]
    if fields[0] & 0x80:
        return STATUS_BY_INDEX[fields[0] & 0x7f]
    length = fields[1] & 0x7f
    digits = fields[2:2 + length]
    if not fields[1] & 0x80:
        return int(digits)
    bits, status = "".join(f"{byte:08b}" for byte in digits), ""
    while len(status) < 3:
        size = 5 if bits[:5] in DIGITS else 6
        status += DIGITS[bits[:size]]
        bits = bits[size:]
    return int(status)
