"""HTTP/2 by hand: frames as bytes, field blocks of plain literals, a connection that obeys nothing."""

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


def number(value):
    """The payload of RST_STREAM and WINDOW_UPDATE."""
    return struct.pack(">I", value)


def settings(**values):
    """SETTINGS with `window=`, the initial window of streams, and `table=`, the size of HPACK's."""
    ids = {"table": 1, "window": INITIAL_WINDOW_SIZE}
    payload = b"".join(struct.pack(">HI", ids[name], value) for name, value in values.items())
    return frame(SETTINGS, 0, 0, payload)


def start(**values):
    """What a client begins with."""
    return PREFACE + settings(**values)


def integer(value, bits, first=0):
    """An integer of HPACK behind the `first` bits of its byte (RFC 7541, section 5.1)."""
    limit = (1 << bits) - 1
    if value < limit:
        return bytes([first | value])
    coded, value = [first | limit], value - limit
    while value >= 128:
        coded.append(value & 127 | 128)
        value >>= 7
    return bytes([*coded, value])


def text(value):
    """A string of HPACK without Huffman."""
    value = value if isinstance(value, bytes) else value.encode("latin-1")
    return integer(len(value), 7) + value


def literal(name, value):
    """A field that no table keeps."""
    return b"\0" + text(name) + text(value)


def indexing(name, value):
    """A field that the dynamic table is to keep."""
    return b"\x40" + text(name) + text(value)


def indexed(index):
    """A field of a table."""
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
    """The head of a request whose content is to follow."""
    return headers(stream, request("POST", path, "localhost", *fields), END_HEADERS)


def data(stream, payload=b"", flags=0):
    """DATA."""
    return frame(DATA, flags, stream, payload)


def odd(count):
    """The number of the client's stream that comes `count`th, from 1."""
    return count * 2 - 1


class CutOff(Exception):
    """The server has ended the connection; `code` names why, or is None without a GOAWAY."""

    def __init__(self, code):
        super().__init__(f"cut off: {code}")
        self.code = code


class Peer:
    """A client's connection on blocking sockets, which says what the scenario wants it to say."""

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
        """Sends bytes; whether they could be. Why the server has closed is found out by reading."""
        try:
            self.socket.sendall(b"".join(frames))
        except (ConnectionError, ssl.SSLError):
            return False
        return True

    def next_frame(self):
        """The next frame; raises CutOff at GOAWAY with an error and at the end."""
        while len(self.received) < 9 or len(self.received) < 9 + self._length():
            try:
                part = self.socket.recv(1 << 16)
            except (ConnectionError, ssl.SSLError):
                part = b""
            if not part:
                raise CutOff(None)
            self.received += part
        end = 9 + self._length()
        _, kind, flags, stream = struct.unpack(">IBBI", b"\0" + self.received[:9])
        found = Frame(kind, flags, stream & WINDOW_MAX, bytes(self.received[9:end]))
        del self.received[:end]
        if found.kind == GOAWAY and (code := int.from_bytes(found.payload[4:8], "big")):
            raise CutOff(CODES[code])
        return found

    def until(self, accept):
        """Frames up to the first that `accept` takes, which is the last of them."""
        frames = [self.next_frame()]
        while not accept(frames[-1]):
            frames.append(self.next_frame())
        return frames

    def pong(self, content=b"are you?"):
        """Waits until the server has dealt with all that was sent."""
        self.send(frame(PING, 0, 0, content))
        return self.until(lambda got: got.kind == PING and got.flags & ACK
                          and got.payload == content)

    def answer(self, stream):
        """The whole answer of a stream: block of fields and content; None if it was reset."""
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

    def is_over(self):
        """Whether the server has closed, with nothing more to read."""
        try:
            while True:
                self.next_frame()
        except CutOff:
            pass
        except TimeoutError:
            return False
        try:
            return self.socket.recv(1) == b""
        except (ConnectionError, ssl.SSLError):
            return True

    def abort(self):
        """Closes with RST: after FIN the server would still finish what it was asked for."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def _length(self):
        return int.from_bytes(self.received[:3], "big")


def is_served(port):
    """Asserts that somebody who comes now is answered."""
    with Peer(port) as peer:
        peer.send(start(), get(1))
        assert peer.answer(1)[1] == b"Hello, World!"


STATUS_BY_INDEX = {8: 200, 9: 204, 10: 206, 11: 304, 12: 400, 13: 404, 14: 500}
# How digits begin in Huffman's code (RFC 7541, appendix B): those of 5 bits and those of 6.
DIGITS = {"00000": "0", "00001": "1", "00010": "2", "011001": "3", "011010": "4",
          "011011": "5", "011100": "6", "011101": "7", "011110": "8", "011111": "9"}


def status_of(fields):
    """The status that the first answer of a connection begins with."""
    while fields[0] & 0xe0 == 0x20:  # The size of the table, which may come first.
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
