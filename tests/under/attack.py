"""What every attack has in common: after how many frames it is cut off, and what it does meanwhile
to the server's memory and processor and to the latency of somebody who behaves well.

The server has a core of its own where there are two. Attackers and the client who measures are
processes on the other. Server and measuring client run as soon as they want to, if that is permitted:
else the latency would be that of the attacker, and of whatever else runs on this machine.
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
from blitz import prefer, settles

# How long each attack goes on, and how long the latency is measured before.
SECONDS = float(os.environ.get("ATTACK_SECONDS", "3"))
CALM_SECONDS = 1.0
CONNECTIONS = 20
# What a core may buffer (limits.rs, core_buffer_bytes_max), and the machines of the connections.
GROWTH_MAX = (64 + 16) << 20
# The goal: the 99th percentile less than doubles. It is judged in the note and fails nothing,
# since cores are shared with whatever else runs on this machine.
FACTOR = 2.0
PAUSE = 0.002
# Without a PING a server that says nothing for so long has taken all of it: for proof of life, and where
# it is due to say GOAWAY, for which a slow machine gets its time.
SILENCE_SECONDS = 0.2
CUT_OFF_SECONDS = 5.0

CONTEXT = multiprocessing.get_context("spawn")


@dataclasses.dataclass(frozen=True)
class Attack:
    """Frames of one kind, of which a server has to take `allowed` and not one more.

    `each(n)` are the frames that count as the `n`th, from 1. `setup` comes before them. `code` is
    that of the GOAWAY. Without `marker` no PING may come between: the server's silence is proof
    enough that it takes them. Without `flood` nobody measures what it costs. What the server sends
    may earn the client up to `slack` more.
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
        """The whole of what an attacker's connection sends: twice as much as is allowed."""
        count = self.allowed * 2 + 50
        return h2.start() + self.setup + b"".join(self.each(n) for n in range(1, count))

    def cut_off(self, port):
        """Asserts that the limit is where it is said to be; the number of frames until then."""
        with h2.Peer(port) as peer:
            peer.send(h2.start(), self.setup)
            last = 0
            try:
                for last in range(1, self.allowed + 1):
                    peer.send(self.each(last))
                self._is_alive(peer, SILENCE_SECONDS)
            except h2.CutOff as cut:
                raise AssertionError(f"{self.name}: {cut} within {last} frames, "
                                     f"which are allowed") from cut
            most = self.allowed + 1 + self.slack
            peer.send(*(self.each(n) for n in range(last + 1, most + 1)))
            try:
                self._is_alive(peer, CUT_OFF_SECONDS)
                raise AssertionError(f"{self.name}: not cut off after {most} frames")
            except h2.CutOff as cut:
                assert cut.code == self.code, f"{self.name}: {cut}, not {self.code}"
            assert peer.is_over(), f"{self.name}: GOAWAY, but the connection stays"
        return most

    def _is_alive(self, peer, seconds):
        """Returns if the server has taken everything: it answers a PING, or is silent for `seconds`."""
        if self.marker:
            peer.pong()
            return
        peer.socket.settimeout(seconds)
        with contextlib.suppress(TimeoutError):
            while True:
                peer.next_frame()


async def table(binary, attacks, *flags, cap=GROWTH_MAX):
    """Each attack against a fresh server: exact limits first, then a flood of those that are one."""
    rows = []
    for attack in attacks:
        async with binary.running(*flags, cpus=server_cpus()) as server:
            frames = await asyncio.to_thread(attack.cut_off, server.port)
            row = {"attack": attack.name, "frames": frames}
            if attack.flood:
                flood = Flood(server.port, attack.script())
                row |= await suffers(server, flood, cap=cap)
        rows.append(row)
    return show(rows)


@dataclasses.dataclass(frozen=True)
class Flood:
    """Connections that send a script as fast as the server takes it, and begin anew when cut off.

    `reads` is whether they take what the server answers. One that was sent completely is held, or
    with `hangs_up` given up at the first byte of an answer. `receive_buffer` is that of their
    sockets, in bytes, unless it is the kernel's choice.
    """

    port: int
    script: bytes = dataclasses.field(repr=False)
    connections: int = CONNECTIONS
    reads: bool = True
    receive_buffer: int | None = None
    hangs_up: bool = False

    def run(self, seconds):
        """Runs in a process of its own; what it did."""
        os.sched_setaffinity(0, client_cpus())
        with contextlib.suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, -10)
        script = memoryview(self.script)
        slots = [None] * self.connections
        opened = cut = sent = 0
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
                    cut += 1
                    moved = True
            if not moved:
                time.sleep(0.001)
        held = sum(slot is not None for slot in slots)
        sent += sum(slot[1] for slot in slots if slot)
        return {"opened": opened, "cut": cut, "held": held, "sent": sent}

    def _connect(self):
        stream = socket.socket()
        # With RST at the end no port is kept back for a minute.
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
                if not stream.recv(1 << 18) or self.hangs_up:
                    raise ConnectionResetError(errno.ECONNRESET, "closed")
                moved = True
        return moved


async def suffers(server, *floods, cap=GROWTH_MAX, seconds=SECONDS):
    """Lets floods loose on a server while somebody well-behaved measures; what it cost.

    A flood is anything with `run(seconds)` that can be sent to another process.
    """
    with measuring(server.port) as measure:
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
    left = await settles(server.open_files, lambda count: count <= files)
    assert left <= files, f"{left - files} connections of the attackers are still open"
    h2.is_served(server.port)
    return {
        "cut": sum(result.get("cut", 0) for result in done),
        "MB": sum(result.get("sent", 0) for result in done) / 1e6,
        "cpu": used / (ended - began),
        "growth": growth,
        "p99": percentile(before),
        "p99 during": percentile(during),
    }


def in_process(flood, seconds):
    """What `flood.run(seconds)` returns, from a process of its own."""
    ours, theirs = CONTEXT.Pipe()
    child = CONTEXT.Process(target=run_flood, args=(flood, seconds, theirs), daemon=True)
    child.start()
    theirs.close()
    try:
        assert ours.poll(seconds + 20), "an attacker does not come back"
        return ours.recv()
    finally:
        child.kill()
        child.join()


def run_flood(flood, seconds, pipe):
    pipe.send(flood.run(seconds))


class Measure:
    """When each request was sent and how long its answer took, in seconds."""

    def __init__(self):
        self.times = []


@contextlib.contextmanager
def measuring(port):
    """Asks for /hello every other millisecond while the block runs."""
    measure = Measure()
    ours, theirs = CONTEXT.Pipe()
    child = CONTEXT.Process(target=ask_often, args=(port, theirs), daemon=True)
    child.start()
    theirs.close()
    try:
        assert ours.poll(10) and ours.recv() == "begun", "the measuring client does not start"
        yield measure
        ours.send("enough")
        assert ours.poll(20), "the measuring client does not come back"
        result = ours.recv()
        assert isinstance(result, list), f"the well-behaved client was not served: {result}"
        measure.times = result
    finally:
        child.kill()
        child.join()


def ask_often(port, pipe):
    os.sched_setaffinity(0, client_cpus())
    prefer()
    times = []
    try:
        with h2.Peer(port) as peer:
            peer.send(h2.start(), h2.frame(h2.WINDOW_UPDATE, 0, 0, h2.number(1 << 30)))
            stream = 1
            pipe.send("begun")
            while not pipe.poll():
                at = time.monotonic()
                peer.send(h2.get(stream))
                assert peer.answer(stream)[1] == b"Hello, World!"
                times.append((at, time.monotonic() - at))
                stream += 2
                time.sleep(PAUSE)
        pipe.send(times)
    except Exception as error:  # Whatever it is, the scenario says so.
        pipe.send(f"{type(error).__name__}: {error} after {len(times)} answers")


def percentile(times):
    """The 99th, in milliseconds; NaN if there are too few to have one."""
    return statistics.quantiles(times, n=100)[98] * 1000 if len(times) > 100 else math.nan


def show(rows):
    """Rows as lines of text; a row that was only looked at for its limit has no cost."""
    lines = []
    for row in rows:
        line = f"  {row['attack']:<38} cut off after {row['frames']:>5}"
        if isinstance(row["frames"], str):
            line = f"  {row['attack']:<38} {row['frames']:>19}"
        if "cpu" in row:
            line += (f"  {row['cut']:>6} cut  {row['MB']:7.1f} MB  cpu {row['cpu'] * 100:3.0f} %"
                     f"  RSS +{row['growth'] / (1 << 20):.1f} MiB"
                     f"  p99 {judged(row['p99'], row['p99 during'])}")
        lines.append(line)
    return "\n" + "\n".join(lines)


def judged(before, during):
    """Two percentiles, and what is to be said of them."""
    said = " -> ".join("too few answers" if math.isnan(p99) else f"{p99:.2f} ms"
                       for p99 in (before, during))
    return f"{said}  (more than doubled)" if during > before * FACTOR else said


def server_cpus():
    """Where the server runs: the first of at least two that we may use."""
    return sorted(os.sched_getaffinity(0))[:1]


def client_cpus():
    """Where everybody else runs."""
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[1:] or allowed
