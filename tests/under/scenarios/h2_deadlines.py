"""Timeouts of HTTP/2 and TLS: heads, content, handshakes and records that never end, and clients that read
nothing. All cases run at the same time."""

import asyncio
import concurrent.futures
import functools
import socket
import time

import h2
from blitz import client_hello, listening_tls
from h1 import Backend, respond_by_path

SECONDS = 100
OPEN_WINDOW = h2.frame(h2.WINDOW_UPDATE, 0, 0, h2.u32(1 << 30))


async def run(binary):
    async with Backend(respond_by_path).running() as backend:
        with listening_tls(binary) as (flags, tls_port, context):
            target = f"/upstream=http://127.0.0.1:{backend.port}"
            return await run_all(binary, tls_port, context, "--to", target, *flags)


async def run_all(binary, tls_port, context, *flags):
    with concurrent.futures.ThreadPoolExecutor(20) as threads:
        start = functools.partial(asyncio.get_running_loop().run_in_executor, threads, within)
        async with binary.running(*flags) as server:
            slow = [
                half_a_preface, settings_not_acknowledged, head_without_end, head_byte_by_byte,
                head_by_continuations, frame_byte_by_byte, slow_content, window_that_stays_closed,
                unread_response, pings_but_reads_nothing,
            ]
            secure = [silence, half_a_client_hello, client_hello_only, half_a_record]
            took = await asyncio.gather(
                *(start(case, server.port) for case in slow),
                *(start(case, tls_port, context) for case in secure))
    return "\n" + "\n".join(f"  {case.__name__:<26} {seconds:5.1f} s"
                            for case, seconds in zip(slow + secure, took, strict=True))


def within(case, *arguments):
    """Runs a case; asserts that it ended in time, and returns the time."""
    begun = time.monotonic()
    try:
        case(*arguments)
    except TimeoutError as error:
        raise AssertionError(f"{case.__name__}: the connection stays open") from error
    took = time.monotonic() - begun
    assert case.seconds - 1 <= took <= case.seconds + 4, f"{case.__name__}: closed after {took:.1f} s"
    return took


def closed_after(seconds):
    def mark(case):
        case.seconds = seconds
        return case
    return mark


def send_slowly(peer, parts, pause):
    """Sends parts with pauses, for longer than any deadline, until the server closes."""
    peer.socket.settimeout(pause)
    for part in parts:
        peer.send(part)
        try:
            while True:
                peer.next_frame()
        except TimeoutError:
            pass
        except h2.ConnectionEnded:
            return
    raise AssertionError("the server never closed the connection")


def preface_with_ack(**settings):
    """The preface and a SETTINGS acknowledgement: without it that timeout would hide the others."""
    return h2.client_preface(**settings) + h2.frame(h2.SETTINGS, h2.ACK)


@closed_after(10)
def settings_not_acknowledged(port):
    """With a request in progress, so that the connection is not idle."""
    with h2.Peer(port, seconds=30) as peer:
        peer.send(h2.client_preface(), h2.get(1, "/delay?ms=30000"))
        try:
            peer.until(lambda _: False)
        except h2.ConnectionEnded as cut:
            assert cut.code == "SETTINGS_TIMEOUT", cut


@closed_after(10)
def half_a_preface(port):
    with h2.Peer(port, seconds=30) as peer:
        peer.send(h2.PREFACE[:10])
        assert peer.is_closed()


@closed_after(10)
def head_without_end(port):
    with h2.Peer(port, seconds=30) as peer:
        peer.send(preface_with_ack(), h2.headers(1, h2.request(), h2.END_STREAM))
        assert peer.is_closed()


@closed_after(10)
def head_byte_by_byte(port):
    with h2.Peer(port) as peer:
        peer.send(preface_with_ack())
        frame = h2.headers(1, [*h2.request(), ("x", "y" * 100)])
        send_slowly(peer, (bytes([byte]) for byte in frame), 0.3)


@closed_after(10)
def head_by_continuations(port):
    """Each frame is complete; only the head as a whole is late."""
    with h2.Peer(port) as peer:
        peer.send(preface_with_ack(), h2.headers(1, h2.request(), h2.END_STREAM))
        send_slowly(peer, [h2.frame(h2.CONTINUATION, 0, 1, h2.literal("a", "b"))] * 15, 1)


@closed_after(10)
def frame_byte_by_byte(port):
    """With a request in progress, so that the connection is not idle."""
    with h2.Peer(port) as peer:
        peer.send(preface_with_ack(), h2.get(1, "/delay?ms=30000"))
        frame = h2.frame(h2.PING, 0, 0, bytes(8)) + h2.frame(0xfa, 0, 0, bytes(100))
        send_slowly(peer, (bytes([byte]) for byte in frame[:16] * 10), 0.9)


@closed_after(5)
def slow_content(port):
    """One byte per second: the stream gets 408, the connection continues."""
    with h2.Peer(port) as peer:
        peer.send(preface_with_ack(), h2.post(1, "/upstream/", ("content-length", "100")))
        fields = None
        for _ in range(20):
            peer.send(h2.data(1, b"x"))
            peer.socket.settimeout(1)
            try:
                fields = peer.until(lambda got: got.kind == h2.HEADERS)[-1].payload
                break
            except TimeoutError:
                continue
        assert fields and h2.status_of(fields) == 408, fields
        peer.send(h2.get(3))
        assert peer.response(3)[1] == b"Hello, World!"


@closed_after(60)
def window_that_stays_closed(port):
    """The stream is reset, the connection continues."""
    with h2.Peer(port, seconds=80) as peer:
        peer.send(preface_with_ack(window=0), h2.get(1, "/data?size=1000000"))
        frames = peer.until(lambda got: got.kind == h2.RST_STREAM)
        assert frames[-1].payload == h2.u32(h2.CODES.index("CANCEL")), frames[-1]
        peer.send(h2.settings(window=1 << 16), h2.get(3))
        assert peer.response(3)[1] == b"Hello, World!"


@closed_after(60)
def unread_response(port):
    """All windows are open and the socket is full, so the server can only send RST."""
    with h2.Peer(port, receive_buffer=4096) as peer:
        peer.send(preface_with_ack(window=h2.WINDOW_MAX), OPEN_WINDOW, h2.get(1, "/data?size=1000000000"))
        for _ in range(400):
            if has_failed(peer.socket):
                return
            time.sleep(0.2)
    raise AssertionError("the server never closed the connection")


@closed_after(60)
def pings_but_reads_nothing(port):
    """PING frames do not count as reading."""
    with h2.Peer(port, receive_buffer=4096) as peer:
        peer.send(preface_with_ack(window=h2.WINDOW_MAX), OPEN_WINDOW, h2.get(1, "/data?size=1000000000"))
        for _ in range(80):
            if has_failed(peer.socket) or not peer.send(h2.frame(h2.PING, 0, 0, bytes(8))):
                return
            time.sleep(1)
    raise AssertionError("the server never closed the connection")


def has_failed(stream):
    """Whether the server has sent RST; reads nothing."""
    return stream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0


@closed_after(10)
def silence(port, _):
    with h2.Peer(port, seconds=30) as peer:
        assert peer.is_closed()


@closed_after(10)
def half_a_client_hello(port, context):
    with h2.Peer(port, seconds=30) as peer:
        peer.send(client_hello(context)[:100])
        assert peer.is_closed()


@closed_after(10)
def client_hello_only(port, context):
    with h2.Peer(port, seconds=30) as peer:
        peer.send(client_hello(context))
        while peer.socket.recv(1 << 16):
            pass


@closed_after(10)
def half_a_record(port, context):
    """After a complete handshake and a request."""
    with h2.Peer(port, context, seconds=30) as peer:
        peer.send(preface_with_ack(), h2.get(1))
        assert peer.response(1)[1] == b"Hello, World!"
        raw = peer.socket.detach()
        with socket.socket(fileno=raw) as stream:
            stream.settimeout(30)
            stream.sendall(b"\x17\x03\x03\x40\x00" + bytes(100))
            while stream.recv(1 << 16):
                pass
