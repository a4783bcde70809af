"""Streams that the client resets (CVE-2023-44487), or that the server resets because of a protocol error
on each (CVE-2025-8671): the limit is 200 in ten seconds."""

import h2
from attack import Attack, table

SECONDS = 120
ALLOWED = 200
# A late response, so that the reset comes before it.
SLOW = "/delay?ms=10000"
PATTERN = h2.request("GET", SLOW)


def cancelled(n):
    stream = h2.client_stream(n)
    return h2.get(stream, SLOW) + h2.frame(h2.RST_STREAM, 0, stream, h2.u32(8))


def provoked(fault, ended=False, fields=()):
    """A request, followed by a fault that makes the server reset it."""
    def each(n):
        stream = h2.client_stream(n)
        flags = h2.WHOLE if ended else h2.END_HEADERS
        return h2.headers(stream, h2.request("GET", SLOW, "test", *fields), flags) + fault(stream)
    return each


FAULTS = {
    "WINDOW_UPDATE of 0": provoked(
        lambda stream: h2.frame(h2.WINDOW_UPDATE, 0, stream, bytes(4))),
    "a window beyond 31 bits": provoked(
        lambda stream: h2.frame(h2.WINDOW_UPDATE, 0, stream, h2.u32(h2.WINDOW_MAX))),
    "DATA after the end": provoked(lambda stream: h2.data(stream, b"late"), ended=True),
    "HEADERS after the end": provoked(lambda stream: h2.headers(stream, [("x", "y")]), ended=True),
    "more than content-length": provoked(
        lambda stream: h2.data(stream, b"xx"), fields=[("content-length", "1")]),
    "less than content-length": provoked(
        lambda stream: h2.data(stream, b"", h2.END_STREAM), fields=[("content-length", "1")]),
    "trailers that do not end": provoked(
        lambda stream: h2.headers(stream, [("x", "y")], h2.END_HEADERS)),
    "trailers with :path": provoked(lambda stream: h2.headers(stream, [(":path", "/")])),
    "no :method": lambda n: h2.headers(h2.client_stream(n), PATTERN[1:]),
    "an upper-case name": lambda n: h2.headers(h2.client_stream(n), [*PATTERN, ("X", "y")]),
    "empty HEADERS": lambda n: h2.headers(h2.client_stream(n), b""),
}


def all_faults(n):
    faults = list(FAULTS.values())
    return faults[n % len(faults)](n)


ATTACKS = [
    Attack("rapid reset", cancelled, ALLOWED),
    *(Attack(f"reset by the server: {name}", each, ALLOWED, flood=False)
      for name, each in FAULTS.items()),
    Attack("reset by the server: all of these", all_faults, ALLOWED),
    # A hundred streams are open. Further streams are refused, which counts like a reset.
    Attack("more streams than allowed", lambda n: h2.get(h2.client_stream(n), SLOW), 100 + ALLOWED),
]


async def run(binary):
    return await table(binary, ATTACKS)
