"""Attacks: the number of frames until the server closes the connection, and the cost of an attack in
memory, CPU time and latency of a normal client.

On a machine with two processors the server has one of its own; the attackers and the measuring client run on
the other. Server and measuring client have realtime priority, if that is permitted. Otherwise the latency
would include that of the attackers and of other programs.
"""

import asyncio
import collections.abc
import contextlib
import dataclasses
import errno
import math
import multiprocessing
import os
import socket
import statistics
import struct
import time

import h2
from blitz import use_realtime_priority, wait_for

# Duration of each attack, and of the latency measurement before it.
SECONDS = float(os.environ.get("ATTACK_SECONDS", "3"))
CALM_SECONDS = 1.0
CONNECTIONS = 20
# The limit of a core's buffers (limits.rs, core_buffer_bytes_max), plus the state of the connections.
GROWTH_MAX = (64 + 16) << 20
# The goal: the 99th percentile less than doubles. A missed goal is noted and fails nothing, because other
# programs share the processors.
FACTOR = 2.0
# A 99th percentile beyond this fails, in milliseconds.
LATENCY_MAX = 250.0
PAUSE = 0.002
# Without a PING, a server that sends nothing for this time has accepted all frames. The second value is the
# time for a GOAWAY, which a slow machine needs.
SILENCE_SECONDS = 0.2
CLOSE_SECONDS = 5.0

CONTEXT = multiprocessing.get_context("spawn")


@dataclasses.dataclass(frozen=True)
class Attack:
    """Frames of one kind, of which a server has to accept `allowed` and no more.

    `each(n)` returns the frames that count as the `n`th, from 1. `setup` is sent before them. `code` is the
    code of the GOAWAY. Without `marker` no PING may come between the frames, and the server's silence shows
    that it accepts them. Without `flood` the cost is not measured. Responses of the server may allow up to
    `slack` more frames.
    """

    name: str
    each: collections.abc.Callable[[int], bytes]
    allowed: int
    code: str = "ENHANCE_YOUR_CALM"
    setup: bytes = b""
    marker: bool = True
    flood: bool = True
    slack: int = 0

    def script(self):
        """All bytes of an attacking connection: twice the allowed number of frames."""
        count = self.allowed * 2 + 50
        return h2.client_preface() + self.setup + b"".join(self.each(n) for n in range(1, count))

    def frames_until_closed(self, port):
        """Checks the limit exactly; returns the number of frames until the server closes."""
        with h2.Peer(port) as peer:
            peer.send(h2.client_preface(), self.setup)
            last = 0
            try:
                for last in range(1, self.allowed + 1):
                    peer.send(self.each(last))
                self._wait_until_accepted(peer, SILENCE_SECONDS)
            except h2.ConnectionEnded as cut:
                raise AssertionError(f"{self.name}: {cut} within {last} frames, "
                                     f"which are allowed") from cut
            most = self.allowed + 1 + self.slack
            peer.send(*(self.each(n) for n in range(last + 1, most + 1)))
            try:
                self._wait_until_accepted(peer, CLOSE_SECONDS)
                raise AssertionError(f"{self.name}: still open after {most} frames")
            except h2.ConnectionEnded as cut:
                assert cut.code == self.code, f"{self.name}: {cut}, not {self.code}"
            assert peer.is_closed(), f"{self.name}: GOAWAY, but the connection stays open"
        return most

    def _wait_until_accepted(self, peer, seconds):
        """Returns when the server has accepted all frames: it acknowledges a PING, or is silent for `seconds`."""
        if self.marker:
            peer.wait_for_ping()
            return
        peer.socket.settimeout(seconds)
        with contextlib.suppress(TimeoutError):
            while True:
                peer.next_frame()


async def table(binary, attacks, *flags, cap=GROWTH_MAX):
    """Runs each attack against a new server: the exact limit first, then a flood."""
    rows = []
    for attack in attacks:
        async with binary.running(*flags, cpus=server_cpus()) as server:
            frames = await asyncio.to_thread(attack.frames_until_closed, server.port)
            row = {"attack": attack.name, "frames": frames}
            if attack.flood:
                flood = Flood(server.port, attack.script())
                row |= await measure_attack(server, flood, cap=cap)
        rows.append(row)
    return format_rows(rows)


@dataclasses.dataclass(frozen=True)
class Flood:
    """Connections that send a script as fast as the server reads it, and reconnect when they are closed.

    With `reads` they read the responses. After the whole script a connection stays open, or with
    `closes_on_response` closes at the first byte of a response. `receive_buffer` is the receive buffer of
    their sockets in bytes; by default the kernel chooses.
    """

    port: int
    script: bytes = dataclasses.field(repr=False)
    connections: int = CONNECTIONS
    reads: bool = True
    receive_buffer: int | None = None
    closes_on_response: bool = False

    def run(self, seconds):
        """Runs in a separate process; returns its counts."""
        os.sched_setaffinity(0, client_cpus())
        with contextlib.suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, -10)
        script = memoryview(self.script)
        slots = [None] * self.connections
        opened = closed = sent = 0
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            moved = False
            for index, slot in enumerate(slots):
                if slot is None:
                    slots[index] = self._connect()
                    opened += slots[index] is not None
                    continue
                try:
                    moved |= self._step(slot, script)
                except OSError:
                    sent += slot[1]
                    slot[0].close()
                    slots[index] = None
                    closed += 1
                    moved = True
            if not moved:
                time.sleep(0.001)
        held = sum(slot is not None for slot in slots)
        sent += sum(slot[1] for slot in slots if slot)
        return {"opened": opened, "closed": closed, "held": held, "sent": sent}

    def _connect(self):
        stream = socket.socket()
        # Closing with RST leaves no port in TIME_WAIT.
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if self.receive_buffer:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_buffer)
        try:
            stream.connect(("127.0.0.1", self.port))
        except OSError:
            stream.close()
            return None
        stream.setblocking(False)
        return [stream, 0]

    def _step(self, slot, script):
        stream, position = slot
        moved = False
        with contextlib.suppress(BlockingIOError):
            if position < len(script):
                taken = stream.send(script[position:position + (1 << 16)])
                slot[1] += taken
                moved = True
        with contextlib.suppress(BlockingIOError):
            if self.reads:
                if not stream.recv(1 << 18) or self.closes_on_response:
                    raise ConnectionResetError(errno.ECONNRESET, "closed")
                moved = True
        return moved


async def measure_attack(server, *floods, cap=GROWTH_MAX, seconds=SECONDS, client=None):
    """Runs floods against a server while a normal client measures its latency; returns the cost.

    A flood is an object with `run(seconds)` that can be sent to another process. `client` is a function that
    sends requests as `send_requests` does, and its port.
    """
    with measuring(*client or (send_requests, server.port)) as measure:
        await asyncio.sleep(CALM_SECONDS)
        files = server.open_files()
        memory, cpu, began = server.rss_bytes(), server.cpu_seconds(), time.monotonic()
        done = await asyncio.gather(*(asyncio.to_thread(in_process, flood, seconds)
                                      for flood in floods))
        ended = time.monotonic()
        used, growth = server.cpu_seconds() - cpu, server.peak_rss_bytes() - memory
    before = [took for at, took in measure.times if at < began]
    during = [took for at, took in measure.times if began <= at < ended]
    assert growth < cap, f"resident memory grew by {growth >> 20} MiB"
    left = await wait_for(server.open_files, lambda count: count <= files)
    assert left <= files, f"{left - files} connections of attackers are still open"
    h2.assert_served(server.port)
    assert math.isnan(took := percentile(during)) or took < LATENCY_MAX, f"p99 of {took:.1f} ms"
    return {
        "closed": sum(result.get("closed", 0) for result in done),
        "MB": sum(result.get("sent", 0) for result in done) / 1e6,
        "cpu": used / (ended - began),
        "growth": growth,
        "p99": percentile(before),
        "p99 during": percentile(during),
        "results": done,
    }


def in_process(flood, seconds):
    """Runs `flood.run(seconds)` in a separate process and returns its result."""
    ours, theirs = CONTEXT.Pipe()
    child = CONTEXT.Process(target=run_flood, args=(flood, seconds, theirs), daemon=True)
    child.start()
    theirs.close()
    try:
        assert ours.poll(seconds + 20), "an attacking process does not end"
        return ours.recv()
    finally:
        child.kill()
        child.join()


def run_flood(flood, seconds, pipe):
    pipe.send(flood.run(seconds))


class Latencies:
    """Send time and latency of each request, in seconds."""

    def __init__(self):
        self.times = []


@contextlib.contextmanager
def measuring(send, port):
    """Requests /hello every two milliseconds while the block runs: `send` does so in another process."""
    measure = Latencies()
    ours, theirs = CONTEXT.Pipe()
    child = CONTEXT.Process(target=send, args=(port, theirs), daemon=True)
    child.start()
    theirs.close()
    try:
        assert ours.poll(10) and ours.recv() == "started", "the measuring client does not start"
        yield measure
        ours.send("stop")
        assert ours.poll(20), "the measuring client does not end"
        result = ours.recv()
        assert isinstance(result, list), f"the normal client was not served: {result}"
        measure.times = result
    finally:
        child.kill()
        child.join()


def send_requests(port, pipe):
    os.sched_setaffinity(0, client_cpus())
    use_realtime_priority()
    times = []
    try:
        with h2.Peer(port) as peer:
            peer.send(h2.client_preface(), h2.frame(h2.WINDOW_UPDATE, 0, 0, h2.u32(1 << 30)))
            stream = 1
            pipe.send("started")
            while not pipe.poll():
                at = time.monotonic()
                peer.send(h2.get(stream))
                assert peer.response(stream)[1] == b"Hello, World!"
                times.append((at, time.monotonic() - at))
                stream += 2
                time.sleep(PAUSE)
        pipe.send(times)
    except Exception as error:  # The scenario reports it.
        pipe.send(f"{type(error).__name__}: {error} after {len(times)} responses")


def percentile(times):
    """The 99th percentile in milliseconds; NaN for fewer than 100 values."""
    return statistics.quantiles(times, n=100)[98] * 1000 if len(times) > 100 else math.nan


def format_rows(rows):
    """Formats rows as lines of text; a row without a flood has no cost."""
    lines = []
    for row in rows:
        line = f"  {row['attack']:<46} closed after {row['frames']:>5}"
        if isinstance(row["frames"], str):
            line = f"  {row['attack']:<46} {row['frames']:>19}"
        if "cpu" in row:
            line += (f"  {row['closed']:>6} closed  {row['MB']:7.1f} MB  cpu {row['cpu'] * 100:3.0f} %"
                     f"  RSS +{row['growth'] / (1 << 20):.1f} MiB"
                     f"  p99 {format_percentiles(row['p99'], row['p99 during'])}")
        lines.append(line)
    return "\n" + "\n".join(lines)


def format_percentiles(before, during):
    """Two percentiles and a verdict."""
    text = " -> ".join("too few responses" if math.isnan(p99) else f"{p99:.2f} ms"
                       for p99 in (before, during))
    return f"{text}  (more than doubled)" if during > before * FACTOR else text


def server_cpus():
    """The server's processor: the first of those that this process may use."""
    return sorted(os.sched_getaffinity(0))[:1]


def client_cpus():
    """The processors of all other processes."""
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[1:] or allowed
