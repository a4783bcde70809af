"""Slowness over HTTP/2 and TLS: heads, content, handshakes and records that never come to an end, and
clients that take nothing. Each has its deadline, and all of them go on at the same time."""

import asyncio
import concurrent.futures
import functools
import socket
import time

import h2
from blitz import client_hello, listening_tls
from wire import Backend, answer_by_path

SECONDS = 100
OPEN_WINDOW = h2.frame(h2.WINDOW_UPDATE, 0, 0, h2.number(1 << 30))


async def run(binary):
    async with Backend(answer_by_path).running() as backend:
        with listening_tls(binary) as (flags, tls_port, context):
            target = f"/upstream=http://127.0.0.1:{backend.port}"
            return await play_all(binary, tls_port, context, "--to", target, *flags)


async def play_all(binary, tls_port, context, *flags):
    with concurrent.futures.ThreadPoolExecutor(20) as threads:
        start = functools.partial(asyncio.get_running_loop().run_in_executor, threads, within)
        async with binary.running(*flags) as server:
            slow = [
                half_a_preface, settings_not_acknowledged, head_without_end, head_byte_by_byte,
                head_by_continuations, frame_byte_by_byte, slow_content, window_that_stays_closed,
                answer_nobody_reads, pings_but_reads_nothing,
            ]
            secure = [silence, half_a_client_hello, client_hello_only, half_a_record]
            took = await asyncio.gather(
                *(start(play, server.port) for play in slow),
                *(start(play, tls_port, context) for play in secure))
    return "\n" + "\n".join(f"  {play.__name__:<26} {seconds:5.1f} s"
                            for play, seconds in zip(slow + secure, took, strict=True))


def within(play, *arguments):
    """Plays one of them; asserts that it was over when it should, and says when."""
    begun = time.monotonic()
    try:
        play(*arguments)
    except TimeoutError as error:
        raise AssertionError(f"{play.__name__}: the connection stays") from error
    took = time.monotonic() - begun
    assert play.seconds - 1 <= took <= play.seconds + 4, f"{play.__name__}: over after {took:.1f} s"
    return took


def over_after(seconds):
    def mark(play):
        play.seconds = seconds
        return play
    return mark


def dribbles(peer, parts, pause):
    """Sends parts with pauses, for longer than any deadline, until the server has enough."""
    peer.socket.settimeout(pause)
    for part in parts:
        peer.send(part)
        try:
            while True:
                peer.next_frame()
        except TimeoutError:
            pass
        except h2.CutOff:
            return
    raise AssertionError("it was never cut off")


def begin(**settings):
    """What a client begins with who acknowledges settings: else that deadline would hide the others."""
    return h2.start(**settings) + h2.frame(h2.SETTINGS, h2.ACK)


@over_after(10)
def settings_not_acknowledged(port):
    """Beside a request that goes on, so that the connection is not idle."""
    with h2.Peer(port, seconds=30) as peer:
        peer.send(h2.start(), h2.get(1, "/delay?ms=30000"))
        try:
            peer.until(lambda _: False)
        except h2.CutOff as cut:
            assert cut.code == "SETTINGS_TIMEOUT", cut


@over_after(10)
def half_a_preface(port):
    with h2.Peer(port, seconds=30) as peer:
        peer.send(h2.PREFACE[:10])
        assert peer.is_over()


@over_after(10)
def head_without_end(port):
    with h2.Peer(port, seconds=30) as peer:
        peer.send(begin(), h2.headers(1, h2.request(), h2.END_STREAM))
        assert peer.is_over()


@over_after(10)
def head_byte_by_byte(port):
    with h2.Peer(port) as peer:
        peer.send(begin())
        frame = h2.headers(1, [*h2.request(), ("x", "y" * 100)])
        dribbles(peer, (bytes([byte]) for byte in frame), 0.3)


@over_after(10)
def head_by_continuations(port):
    """Each frame is complete, so that only the head as a whole is late."""
    with h2.Peer(port) as peer:
        peer.send(begin(), h2.headers(1, h2.request(), h2.END_STREAM))
        dribbles(peer, [h2.frame(h2.CONTINUATION, 0, 1, h2.literal("a", "b"))] * 15, 1)


@over_after(10)
def frame_byte_by_byte(port):
    """Beside a request that goes on, so that the connection is not idle."""
    with h2.Peer(port) as peer:
        peer.send(begin(), h2.get(1, "/delay?ms=30000"))
        frame = h2.frame(h2.PING, 0, 0, bytes(8)) + h2.frame(0xfa, 0, 0, bytes(100))
        dribbles(peer, (bytes([byte]) for byte in frame[:16] * 10), 0.9)


@over_after(5)
def slow_content(port):
    """A byte a second: the stream gets a 408, the connection goes on."""
    with h2.Peer(port) as peer:
        peer.send(begin(), h2.post(1, "/upstream/", ("content-length", "100")))
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
        assert peer.answer(3)[1] == b"Hello, World!"


@over_after(60)
def window_that_stays_closed(port):
    """The stream is given up, the connection goes on."""
    with h2.Peer(port, seconds=80) as peer:
        peer.send(begin(window=0), h2.get(1, "/data?size=1000000"))
        frames = peer.until(lambda got: got.kind == h2.RST_STREAM)
        assert frames[-1].payload == h2.number(h2.CODES.index("CANCEL")), frames[-1]
        peer.send(h2.settings(window=1 << 16), h2.get(3))
        assert peer.answer(3)[1] == b"Hello, World!"


@over_after(60)
def answer_nobody_reads(port):
    """All windows are open, and the socket is full: nothing can be said any more but RST."""
    with h2.Peer(port, receive_buffer=4096) as peer:
        peer.send(begin(window=h2.WINDOW_MAX), OPEN_WINDOW, h2.get(1, "/data?size=1000000000"))
        for _ in range(400):
            if has_failed(peer.socket):
                return
            time.sleep(0.2)
    raise AssertionError("it was never cut off")


@over_after(60)
def pings_but_reads_nothing(port):
    """Frames that come now and then do not make it a client who takes something."""
    with h2.Peer(port, receive_buffer=4096) as peer:
        peer.send(begin(window=h2.WINDOW_MAX), OPEN_WINDOW, h2.get(1, "/data?size=1000000000"))
        for _ in range(80):
            if has_failed(peer.socket) or not peer.send(h2.frame(h2.PING, 0, 0, bytes(8))):
                return
            time.sleep(1)
    raise AssertionError("it was never cut off")


def has_failed(stream):
    """Whether RST has come; nothing is read."""
    return stream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0


@over_after(10)
def silence(port, _):
    with h2.Peer(port, seconds=30) as peer:
        assert peer.is_over()


@over_after(10)
def half_a_client_hello(port, context):
    with h2.Peer(port, seconds=30) as peer:
        peer.send(client_hello(context)[:100])
        assert peer.is_over()


@over_after(10)
def client_hello_only(port, context):
    with h2.Peer(port, seconds=30) as peer:
        peer.send(client_hello(context))
        while peer.socket.recv(1 << 16):
            pass


@over_after(10)
def half_a_record(port, context):
    """Behind a good handshake and a request."""
    with h2.Peer(port, context, seconds=30) as peer:
        peer.send(begin(), h2.get(1))
        assert peer.answer(1)[1] == b"Hello, World!"
        raw = peer.socket.detach()
        with socket.socket(fileno=raw) as stream:
            stream.settimeout(30)
            stream.sendall(b"\x17\x03\x03\x40\x00" + bytes(100))
            while stream.recv(1 << 16):
                pass
