"""Request smuggling from HTTP/2 to HTTP/1.1: for any input the upstream receives one unambiguous request,
or none, or one that ends before it is complete."""

import asyncio
import re

import h2

SECONDS = 60
TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
VISIBLE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
CONNECTION_FIELDS = (b"connection", b"keep-alive", b"proxy-connection", b"upgrade")

SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: evil\r\n\r\n"


class Recorder:
    """An upstream that records every byte per connection and responds to complete requests."""

    def __init__(self):
        self.connections = []

    async def serve(self, reader, writer):
        seen = Recording()
        self.connections.append(seen)
        answered = 0
        try:
            while part := await reader.read(1 << 16):
                seen.received += part
                complete = seen.complete()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
                             * (complete - answered))
                answered = complete
        except (ConnectionError, asyncio.CancelledError):
            pass  # The proxy closed the connection, or the scenario is over.
        seen.has_ended = True
        writer.close()


class Recording:
    """The bytes of one upstream connection."""

    def __init__(self):
        self.received = b""
        self.checked = 0
        self.has_ended = False

    def complete(self):
        """The number of complete requests; 0 for malformed bytes."""
        try:
            return len(requests_in(self.received)[0])
        except AssertionError:
            return 0


def requests_in(seen):
    """The requests in these bytes, parsed strictly, and the remaining bytes."""
    found = []
    while b"\r\n\r\n" in seen:
        head, rest = seen.split(b"\r\n\r\n", 1)
        line, *fields = head.split(b"\r\n")
        method, target, version = line.split(b" ")
        assert TOKEN.fullmatch(method) and version == b"HTTP/1.1", line
        assert re.fullmatch(rb"/[\x21-\x7e]*|\*", target), f"target {target}"
        values = check_fields(fields, CONNECTION_FIELDS)
        assert len(values.get(b"host", [])) == 1, f"Host: {values.get(b'host')}"
        lengths, codings = values.get(b"content-length", []), values.get(b"transfer-encoding", [])
        assert len(lengths) + len(codings) <= 1, f"{lengths} and {codings}"
        body = b""
        if codings:
            assert codings == [b"chunked"], codings
            body, rest = unchunked(rest)
        elif lengths:
            assert lengths[0].isdigit(), lengths
            length = int(lengths[0])
            body, rest = (rest[:length], rest[length:]) if len(rest) >= length else (None, rest)
        if body is None:
            break  # Not complete.
        found.append((method, target, values, body))
        seen = rest
    return found, seen


def check_fields(fields, unwanted):
    """The values of each field, all of them well-formed."""
    values = {}
    for field in fields:
        name, colon, value = field.partition(b":")
        assert colon and TOKEN.fullmatch(name), f"field {field}"
        assert VISIBLE.fullmatch(value), f"value {field}"
        assert value == b" " + value.strip(), f"space in {field}"
        # RFC 9110, section 10.1.4: TE requires a TE connection option.
        assert name.lower() not in unwanted or field == b"Connection: TE", field
        values.setdefault(name.lower(), []).append(value.strip())
    return values


def unchunked(rest):
    """The content and the remaining bytes; None if it is not complete."""
    body = b""
    while b"\r\n" in rest:
        size, after = rest.split(b"\r\n", 1)
        assert re.fullmatch(rb"[0-9A-Fa-f]+", size), f"chunk size {size}"
        length = int(size, 16)
        if length == 0:
            trailers, end, rest = (b"\r\n" + after).partition(b"\r\n\r\n")
            check_fields(trailers.split(b"\r\n")[1:], (b"content-length", b"transfer-encoding"))
            return (body, rest) if end else (None, after)
        if len(after) < length + 2:
            break
        assert after[length:length + 2] == b"\r\n", "a chunk without its end"
        body, rest = body + after[:length], after[length + 2:]
    return None, rest


def head(*fields, method="GET", flags=h2.WHOLE):
    return h2.headers(1, h2.request(method, "/victim", "test", *fields), flags)


def content(length, *parts):
    """A request that declares a length, and its content."""
    return (head(("content-length", length), method="POST", flags=h2.END_HEADERS)
            + b"".join(h2.data(1, part) for part in parts[:-1])
            + h2.data(1, parts[-1], h2.END_STREAM))


def pseudo(*fields):
    return h2.headers(1, list(fields))


M, S, A, P = (":method", "GET"), (":scheme", "http"), (":authority", "test"), (":path", "/victim")
INJECTIONS = ["\r\n", "\n", "\r", "\0", "\r\n\r\n" + SMUGGLED.decode()]

# Refused requests, of which no byte reaches the upstream.
REFUSED = {
    "transfer-encoding: chunked": head(("transfer-encoding", "chunked")),
    "transfer-encoding with content": head(
        ("transfer-encoding", "chunked"), method="POST", flags=h2.END_HEADERS)
        + h2.data(1, b"0\r\n\r\n" + SMUGGLED, h2.END_STREAM),
    "transfer-encoding: identity": head(("transfer-encoding", "identity")),
    "connection": head(("connection", "x-real"), ("x-real", "1")),
    "connection: close": head(("connection", "close")),
    "keep-alive": head(("keep-alive", "timeout=5")),
    "proxy-connection": head(("proxy-connection", "keep-alive")),
    "upgrade": head(("upgrade", "websocket")),
    "te: gzip": head(("te", "gzip")),
    "upper-case Transfer-Encoding": head(("Transfer-Encoding", "chunked")),
    "upper-case name": head(("X-a", "b")),
    "two content-length": head(("content-length", "1"), ("content-length", "2"), method="POST"),
    "two equal content-length": head(("content-length", "0"), ("content-length", "0"),
                                     method="POST"),
    "content-length: +1": head(("content-length", "+1"), method="POST"),
    "content-length: 1,1": head(("content-length", "1,1"), method="POST"),
    "content-length: 0x1": head(("content-length", "0x1"), method="POST"),
    "content-length without digits": head(("content-length", ""), method="POST"),
    "content-length: 2^64": head(("content-length", str(1 << 64)), method="POST"),
    "content-length, and an end at once": head(("content-length", "5"), method="POST"),
    "no :method": pseudo(S, A, P),
    "no :scheme": pseudo(M, A, P),
    "no :path": pseudo(M, S, A),
    "empty :path": pseudo(M, S, A, (":path", "")),
    "empty :method": pseudo((":method", ""), S, A, P),
    "two :method": pseudo(M, M, S, A, P),
    "two :path": pseudo(M, S, A, P, (":path", "/smuggled")),
    "two :authority": pseudo(M, S, A, (":authority", "evil"), P),
    ":path after a field": pseudo(M, S, A, ("x", "y"), P),
    ":status in a request": pseudo(M, S, A, P, (":status", "200")),
    "unknown pseudo-header": pseudo(M, S, A, P, (":victim", "1")),
    "no authority and no host": pseudo(M, S, P),
    "another host": head(("host", "evil")),
    "two hosts": pseudo(M, S, P, ("host", "test"), ("host", "evil")),
    "userinfo in :authority": pseudo(M, S, (":authority", "test@evil"), P),
    "space in :authority": pseudo(M, S, (":authority", "test evil"), P),
    "slash in :authority": pseudo(M, S, (":authority", "test/evil"), P),
    "space in :method": pseudo((":method", "GET /smuggled HTTP/1.1"), S, A, P),
    "line in :method": pseudo((":method", "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET"), S, A, P),
    "space in :path": pseudo(M, S, A, (":path", "/victim HTTP/1.1")),
    "fragment in :path": pseudo(M, S, A, (":path", "/victim#x")),
    "absolute :path": pseudo(M, S, A, (":path", "http://evil/victim")),
    ":path without a slash": pseudo(M, S, A, (":path", "victim")),
    ":path above the root": pseudo(M, S, A, (":path", "/../victim")),
    "%00 in :path": pseudo(M, S, A, (":path", "/victim%00")),
    "empty name": head(("", "x")),
    "colon in a name": head(("a:b", "x")),
    "space in a name": head(("transfer-encoding ", "chunked")),
    "space before a name": head((" transfer-encoding", "chunked")),
    "tab in a name": head(("a\tb", "x")),
    "high byte in a name": head(("\xe9", "x")),
    "space before a value": head(("x", " y")),
    "space after a value": head(("x", "y ")),
    "tab after a value": head(("x", "y\t")),
    "CONNECT with a path": pseudo((":method", "CONNECT"), S, A, P),
    **{f"{text!r} in a value": head(("x", f"a{text}b")) for text in INJECTIONS},
    **{f"{text!r} in a name": head((f"a{text}b", "x")) for text in INJECTIONS},
    **{f"{text!r} in :path": pseudo(M, S, A, (":path", f"/victim{text}b")) for text in INJECTIONS},
    **{f"{text!r} in :authority": pseudo(M, S, (":authority", f"a{text}b"), P)
       for text in INJECTIONS},
    **{f"{text!r} in :scheme": pseudo(M, (":scheme", f"http{text}b"), A, P)
       for text in INJECTIONS},
}

# Requests that break off while they are forwarded: they never become complete at the upstream.
INCOMPLETE = {
    "less content than declared": content("100", b"GET /"),
    "more content than declared": content("3", b"abc" + SMUGGLED),
    "more content than declared, in the next frame": content("3", b"abc", SMUGGLED),
    "trailers with :path": head(method="POST", flags=h2.END_HEADERS) + h2.data(1, b"abc")
        + h2.headers(1, [(":path", "/smuggled")]),
    "a line in a trailer": head(method="POST", flags=h2.END_HEADERS) + h2.data(1, b"abc")
        + h2.headers(1, [("x", "a\r\n\r\n" + SMUGGLED.decode())]),
    "trailers that do not end": head(method="POST", flags=h2.END_HEADERS) + h2.data(1, b"abc")
        + h2.headers(1, [("x", "y")], h2.END_HEADERS),
}

# Unusual but valid requests, which arrive as exactly one request with this content.
FORWARDED = {
    "content with a request in it": (content(str(len(SMUGGLED)), SMUGGLED), SMUGGLED),
    "content without a length": (head(method="POST", flags=h2.END_HEADERS)
                                 + h2.data(1, b"0\r\n\r\n" + SMUGGLED, h2.END_STREAM),
                                 b"0\r\n\r\n" + SMUGGLED),
    "GET with content": (head(flags=h2.END_HEADERS) + h2.data(1, SMUGGLED, h2.END_STREAM),
                         SMUGGLED),
    "padding": (head(method="POST", flags=h2.END_HEADERS) + h2.data(
        1, bytes([len(SMUGGLED)]) + b"abc" + SMUGGLED, h2.PADDED | h2.END_STREAM), b"abc"),
    "trailers": (head(method="POST", flags=h2.END_HEADERS) + h2.data(1, b"abc")
                 + h2.headers(1, [("content-length", "9"), ("x", "y")]), b"abc"),
    "te: trailers": (head(("te", "trailers")), b""),
    "the same host": (head(("host", "test")), b""),
    "host alone": (pseudo(M, S, P, ("host", "test")), b""),
    "cookie crumbs": (head(("cookie", "a=b"), ("cookie", "c=d")), b""),
    "expect": (head(("expect", "100-continue"), ("content-length", "0"), method="POST"), b""),
    "http2-settings": (head(("http2-settings", "AAMAAABk")), b""),
    "x-forwarded-for, twice": (head(("x-forwarded-for", "a"), ("x-forwarded-for", "b")), b""),
}


async def run(binary):
    recorder = Recorder()
    upstream = await asyncio.start_server(recorder.serve, "127.0.0.1", 0)
    port = upstream.sockets[0].getsockname()[1]
    failures, passed = [], 0
    async with binary.running("--to", f"http://127.0.0.1:{port}") as proxy:
        for kind, cases in [(refused, REFUSED), (incomplete, INCOMPLETE), (forwarded, FORWARDED)]:
            for name, case in cases.items():
                try:
                    await kind(proxy.port, recorder, case)
                    passed += 1
                except AssertionError as error:
                    failures.append(f"  {name}: {error}")
    upstream.close()
    assert not failures, "\n" + "\n".join(failures)
    return f"{passed} requests, none of which was split"


async def refused(port, recorder, case):
    """Nothing reaches the upstream."""
    response = await asyncio.to_thread(send_request, port, case)
    found, rest = await received_requests(port, recorder)
    assert response != b"ok", "the upstream has responded"
    assert not found and not rest, f"the upstream saw {found or rest}"


async def incomplete(port, recorder, case):
    """The request never becomes complete at the upstream."""
    response = await asyncio.to_thread(send_request, port, case)
    found, _ = await received_requests(port, recorder)
    assert response != b"ok", "the upstream has responded"
    assert not found, f"the upstream saw {found}"


async def forwarded(port, recorder, case):
    """Exactly one request reaches the upstream."""
    frames, body = case
    response = await asyncio.to_thread(send_request, port, frames)
    found, rest = await received_requests(port, recorder)
    assert response == b"ok", f"the response is {response}"
    assert len(found) == 1 and not rest, f"the upstream saw {found} and {rest}"
    assert found[0][1] == b"/victim" and found[0][3] == body, found[0]


def send_request(port, frames):
    """The content of the response; None if the request was reset."""
    with h2.Peer(port, seconds=3) as peer:
        peer.send(h2.client_preface(), frames)
        try:
            response = peer.response(1)
            return response and response[1]
        except h2.ConnectionEnded:
            return None
        except TimeoutError:
            raise AssertionError("no response") from None


async def received_requests(port, recorder):
    """Sends a valid request after the bad one and checks that it arrives unchanged. Returns the other
    requests that the upstream received, and the bytes of incomplete requests on ended connections."""
    canary = h2.headers(1, h2.request("GET", "/canary"))
    assert await asyncio.to_thread(send_request, port, canary) == b"ok", "a valid request gets no response"
    everything, left = [], b""
    for seen in recorder.connections:
        for _ in range(100):
            found, rest = requests_in(seen.received[seen.checked:])
            if not rest or seen.has_ended:
                break
            await asyncio.sleep(0.02)
        assert not rest or seen.has_ended, f"an open upstream connection holds {rest}"
        seen.checked = len(seen.received)
        everything += found
        left += rest
    canaries = [found for found in everything if found[1] == b"/canary"]
    assert len(canaries) == 1, f"the valid request arrived {len(canaries)} times: {everything}"
    return [found for found in everything if found[1] != b"/canary"], left
