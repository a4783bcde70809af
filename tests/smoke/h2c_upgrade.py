"""h2c_upgrade.py PORT PUBLIC SECRET: requests PUBLIC with Upgrade: h2c, then SECRET on stream 3.

Prints the status of the first response, and whether the second request passed.
"""

import socket
import struct
import sys

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS = 0, 1, 4
END_STREAM, END_HEADERS, ACK = 1, 4, 1


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def literal(name, value):
    """A literal field without indexing (RFC 7541, section 6.2.2)."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def get(path):
    return b"".join([
        literal(b":method", b"GET"), literal(b":scheme", b"http"),
        literal(b":path", path.encode()), literal(b":authority", b"localhost"),
    ])


def frames(stream):
    """The received frames until the connection ends."""
    while len(head := stream.read(9)) == 9:
        length = int.from_bytes(head[:3], "big")
        kind, flags, number = struct.unpack(">BBI", head[3:])
        yield kind, flags, number, stream.read(length)


def main():
    port, public, secret = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
        client.sendall(
            f"GET {public} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\n"
            "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n".encode())
        stream = client.makefile("rb")
        status = stream.readline().split()[1].decode()
        while stream.readline().strip():
            pass
        if status != "101":
            print(status, "refused")
            return
        client.sendall(PREFACE + frame(SETTINGS, 0, 0)
                       + frame(HEADERS, END_STREAM | END_HEADERS, 3, get(secret)))
        for kind, flags, number, _ in frames(stream):
            if kind == SETTINGS and not flags & ACK:
                client.sendall(frame(SETTINGS, ACK, 0))
            if kind == DATA and number == 3:
                print(status, "passed")
                return
        print(status, "refused")


main()
