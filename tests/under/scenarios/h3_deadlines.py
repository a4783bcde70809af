"""Timeouts of HTTP/3: heads and content that never end, responses that nobody takes, and connections without a
request. All cases run at the same time."""

import asyncio
import concurrent.futures
import functools
import time

import h3
from h1 import Backend, respond_by_path
from h3_attack import assert_idle, running

SECONDS = 120
REQUIRES_ONE = b"\x02\0"


async def run(binary):
    async with Backend(respond_by_path).running() as backend:
        target = f"/upstream=http://127.0.0.1:{backend.port}"
        async with running(binary, "--to", target) as (server, port):
            with concurrent.futures.ThreadPoolExecutor(len(CASES)) as threads:
                start = functools.partial(asyncio.get_running_loop().run_in_executor, threads, within)
                notes = await asyncio.gather(*(start(port, *case) for case in CASES))
            await assert_idle(server)
            await asyncio.to_thread(h3.assert_served, port)
    failures = [f"{name}: {error}" for name, error, _ in notes if error]
    report = "".join(f"\n  {name:<38} {took:5.1f} s" for name, _, took in notes)
    assert not failures, report + "\n  failed:\n  " + "\n  ".join(failures)
    return report


def within(port, case, seconds):
    """Runs a case; returns its name, an error, and its time."""
    begun = time.monotonic()
    error = None
    try:
        with h3.Peer(port, seconds=100, **getattr(case, "options", {})) as peer:
            case(peer)
    except Exception as failure:
        error = f"{type(failure).__name__}: {failure}"
    took = time.monotonic() - begun
    if not error and not seconds - 1 <= took <= seconds + 4:
        error = f"after {took:.1f} s, not {seconds}"
    return case.__name__, error, took


CASES = []


def after(seconds, **options):
    """Registers a case that ends after this time."""
    def register(case):
        case.options = options
        CASES.append((case, seconds))
        return case
    return register


def expect_reset(peer, stream, code):
    found = peer.response(stream)
    assert found == code, f"{found}, not {code}"
    assert peer.response(peer.request()) == (200, b"Hello, World!")


def until_done(peer, stream, act, pause=1.0):
    """Acts once in a while until the server has answered or reset the stream."""
    while not peer.is_done(stream):
        act()
        peer.flush()
        end = time.monotonic() + pause
        while time.monotonic() < end and not peer.is_done(stream):
            peer.receive(0.05)
            peer.check()


@after(10)
def head_without_end(peer):
    expect_reset(peer, peer.request(h3.head()[:-1], fin=False), "REQUEST_REJECTED")


@after(10)
def stream_without_a_byte(peer):
    peer.next_request = 8
    stream = peer.request(b"\1", fin=False)
    # The streams below are open as well.
    expect_reset(peer, stream, "REQUEST_REJECTED")


@after(10)
def head_byte_by_byte(peer):
    content = iter(h3.head("GET", "/hello", ("x", "y" * 100)))
    stream = peer.request(bytes([next(content)]), fin=False)
    until_done(peer, stream, lambda: peer.write(stream, bytes([next(content)])))
    expect_reset(peer, stream, "REQUEST_REJECTED")


@after(10)
def head_with_a_gap(peer):
    """Its first byte is missing."""
    content = h3.head()
    peer.next_request = 4
    peer.queue_frames(h3.stream_frame(0, 1, content[1:], True))
    expect_reset(peer, 0, "REQUEST_REJECTED")


@after(10)
def head_behind_unknown_frames(peer):
    stream = peer.request(h3.frame(0x21), fin=False)
    until_done(peer, stream, lambda: peer.write(stream, h3.frame(0x21)))
    expect_reset(peer, stream, "REQUEST_REJECTED")


@after(10)
def head_that_waits_for_instructions(peer):
    peer.open(h3.ENCODER)
    expect_reset(peer, peer.request(h3.frame(h3.HEADERS, REQUIRES_ONE + b"\x80")), "REQUEST_REJECTED")


@after(5)
def slow_content(peer):
    """One byte per second: 408, and the connection goes on."""
    stream = peer.request(h3.head("POST", "/upstream/", ("content-length", "100")), fin=False)
    until_done(peer, stream, lambda: peer.write(stream, h3.frame(h3.DATA, b"x")))
    status = peer.take_response(stream)
    assert status[0] == 408, status
    assert peer.response(peer.request()) == (200, b"Hello, World!")


@after(5)
def slow_content_in_a_large_frame(peer):
    """The same within one DATA frame."""
    stream = peer.request(h3.head("POST", "/upstream/", ("content-length", "100"))
                          + h3.frame(h3.DATA, bytes(100))[:3], fin=False)
    until_done(peer, stream, lambda: peer.write(stream, b"x"))
    status = peer.take_response(stream)
    assert status[0] == 408, status


@after(5)
def content_with_a_gap(peer):
    """The first byte of the content is missing, and PING goes on."""
    stream = peer.request(h3.head("POST", "/upstream/", ("content-length", "100")), fin=False)
    peer.queue_frames(h3.stream_frame(stream, peer.offsets[stream] + 1, b"x" * 50))
    until_done(peer, stream, lambda: peer.queue_frames(h3.PING))
    status = peer.take_response(stream)
    assert status[0] == 408, status


@after(60, stream_window=0)
def no_credit_for_the_stream(peer):
    stream = peer.request(h3.head("GET", "/data?size=1000000"))
    until_done(peer, stream, lambda: peer.queue_frames(h3.PING))
    code = peer.take_response(stream)
    assert code == "REQUEST_CANCELLED", code


@after(60, window=10_000)
def no_credit_for_the_connection(peer):
    stream = peer.request(h3.head("GET", "/data?size=1000000"))
    until_done(peer, stream, lambda: peer.queue_frames(h3.PING))
    code = peer.take_response(stream)
    assert code == "REQUEST_CANCELLED", code


@after(60)
def no_acknowledgement_of_a_small_response(peer):
    """PING goes on, and only what the server sends is not acknowledged."""
    peer.settle()
    peer.acknowledges = False
    peer.request()
    code = ping_until_closed(peer)
    assert code == "EXCESSIVE_LOAD", code


@after(60)
def no_acknowledgement_of_a_large_response(peer):
    peer.settle()
    peer.keeps_content = False
    stream = peer.request(h3.head("GET", "/data?size=10000000"))
    peer.until(lambda: stream in peer.incoming and peer.incoming[stream].bytes > 100_000)
    wait_without_acknowledgements(peer, stream)


@after(60)
def no_acknowledgement_from_the_start(peer):
    peer.settle()
    peer.acknowledges = False
    stream = peer.request(h3.head("GET", "/data?size=10000000"))
    peer.keeps_content = False
    wait_without_acknowledgements(peer, stream)


def wait_without_acknowledgements(peer, stream):
    """Waits for 62 s, and then expects the reset: before, it would exceed the congestion window."""
    peer.acknowledges = False
    begin = time.monotonic() + 62

    def act():
        peer.acknowledges = time.monotonic() > begin
        peer.send_packet(h3.PING)
    until_done(peer, stream, act)
    code = peer.take_response(stream)
    assert code == "REQUEST_CANCELLED", code


@after(75)
def no_request_but_pings(peer):
    code = ping_until_closed(peer)
    assert code == "NO_ERROR", code


@after(75, opens=())
def no_control_stream_and_pings(peer):
    code = ping_until_closed(peer)
    assert code == "NO_ERROR", code


@after(75)
def priorities_and_unknown_streams(peer):
    """Neither frames beside requests nor streams of unknown types renew the idle timeout."""
    def act(n):
        peer.write(peer.own[h3.CONTROL], h3.frame(h3.PRIORITY_UPDATE, h3.varint(n * 4) + b"u=1"))
        peer.write(peer.open(0x21), b"", True)
    code = ping_until_closed(peer, act)
    assert code == "NO_ERROR", code


def ping_until_closed(peer, act=lambda n: None):
    peer.flight_max = 1 << 30
    for n in range(100):
        try:
            act(n)
            peer.send(h3.PING)
            end = time.monotonic() + 1
            while time.monotonic() < end:
                peer.receive(0.1)
                peer.check()
        except h3.ConnectionEnded as ended:
            return ended.code
    return "nothing"
