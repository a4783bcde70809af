"""1,500 clients that are as slow as the limits allow, and one normal client: its 99th percentile through
Blitz is at most twice that of direct requests to the upstream, while the attackers connect and stay."""

import asyncio
import contextlib
import dataclasses
import multiprocessing
import os
import random
import socket
import statistics
import struct
import time

import h2
from attack import client_cpus, server_cpus
from blitz import use_realtime_priority
from h1 import Backend, respond_by_path

SECONDS = 120
FILES = 8_192
# Duration of the measurement after all attackers have connected.
MEASURED_SECONDS = float(os.environ.get("ATTACK_SECONDS", "30"))
FACTOR = 2.0
WORST_MS_MAX = 500.0
# The number of attackers of each kind.
KINDS = {"slow heads": 375, "slow bodies": 375, "slow readers": 375, "stalled windows": 375}
LARGE = 4 << 20
# Seconds between two steps of an attacker.
PERIOD = 1.0
STREAMS = 8
RESET = struct.pack("ii", 1, 0)

CONTEXT = multiprocessing.get_context("spawn")


async def run(binary):
    # The attackers have a separate upstream, so that they share only Blitz with the normal client.
    with child(serve_attackers) as theirs, child(serve_client) as ours:
        upstream_port, attacked_port = await receive(ours), await receive(theirs)
        async with binary.running("--to", f"http://127.0.0.1:{upstream_port}",
                                  "--to", f"/size=http://127.0.0.1:{attacked_port}",
                                  "--to", f"/slow=http://127.0.0.1:{attacked_port}",
                                  cpus=server_cpus()) as server:
            note, through, direct = await measured(server, upstream_port)
    assert through.p99 <= FACTOR * direct.p99, note
    assert through.worst <= max(FACTOR * direct.worst, WORST_MS_MAX), note
    return note


async def measured(server, upstream_port):
    """The latencies through Blitz and without it, and a note."""
    with child(Client(server.port).run) as through, child(Client(upstream_port).run) as direct:
        for client in (through, direct):
            assert await receive(client) == "started"
        with child(Attackers(server.port, KINDS).run) as attackers:
            connected = await receive(attackers)
            assert connected == sum(KINDS.values()), f"only {connected} attackers have connected"
            cpu, began = server.cpu_seconds(), time.monotonic()
            await asyncio.sleep(MEASURED_SECONDS)
            used = (server.cpu_seconds() - cpu) / (time.monotonic() - began)
            for pipe in (through, direct, attackers):
                pipe.send("stop")
            through, direct, seen = [await receive(pipe) for pipe in (through, direct, attackers)]
    note = (f"{through}, directly {direct}; cpu {used * 100:.0f} %, "
            f"peak RSS {server.peak_rss_bytes() >> 20} MiB, {seen}")
    return note, through, direct


@contextlib.contextmanager
def child(target):
    """Runs `target(pipe)` in a separate process; yields the other end of the pipe."""
    ours, theirs = CONTEXT.Pipe()
    process = CONTEXT.Process(target=target, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours
    finally:
        process.kill()
        process.join()


async def receive(pipe, seconds=30):
    """The next message of the other end."""
    assert await asyncio.to_thread(pipe.poll, seconds), "a process does not report"
    return pipe.recv()


def serve_client(pipe):
    """The upstream of the normal client, with realtime priority."""
    use_realtime_priority()
    serve_attackers(pipe)


def serve_attackers(pipe):
    """An upstream with small responses at once, and large ones as fast as they are read."""
    os.sched_setaffinity(0, client_cpus())

    async def forever():
        async with Backend(answer).running() as backend:
            pipe.send(backend.port)
            await asyncio.Event().wait()

    asyncio.run(forever())


async def answer(request, reader, writer):
    stream = writer.get_extra_info("socket")
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 << 10)
    return await respond_by_path(request, reader, writer)


@dataclasses.dataclass(frozen=True)
class Latency:
    """Percentiles of the latency in milliseconds."""

    p99: float
    median: float
    worst: float

    def __str__(self):
        return f"p99 {self.p99:.2f} ms (median {self.median:.2f}, worst {self.worst:.0f})"


@dataclasses.dataclass(frozen=True)
class Client:
    """Sends small requests until it is stopped; every tenth request opens a new connection."""

    port: int

    def run(self, pipe):
        os.sched_setaffinity(0, client_cpus())
        use_realtime_priority()
        stream = connect(self.port)
        times = []
        pipe.send("started")
        while not pipe.poll():
            began = time.monotonic()
            if len(times) % 10 == 9:
                stream.close()
                stream = connect(self.port)
            path = b"/%d" % len(times)
            stream.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: normal\r\n\r\n")
            received = b""
            while not received.endswith(b"\r\n\r\n" + path):
                part = stream.recv(4096)
                assert part, f"closed after {received}"
                received += part
            times.append((time.monotonic() - began) * 1000)
            time.sleep(0.002)
        percentiles = statistics.quantiles(times, n=100)
        pipe.send(Latency(percentiles[98], percentiles[49], max(times)))


def connect(port, receive_buffer=None):
    stream = socket.socket()
    if receive_buffer:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # Closing with RST leaves no port in TIME_WAIT.
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    stream.settimeout(10)
    stream.connect(("127.0.0.1", port))
    return stream


@dataclasses.dataclass(frozen=True)
class Attackers:
    """All attackers: each takes one step per PERIOD and reconnects when it is closed."""

    port: int
    kinds: dict

    def run(self, pipe):
        os.sched_setaffinity(0, client_cpus())
        random_source = random.Random(1)
        attackers = [KIND_STEPS[kind](self.port) for kind, count in self.kinds.items() for _ in range(count)]
        random_source.shuffle(attackers)
        for attacker in attackers:
            attacker.begin()
        pipe.send(sum(attacker.stream is not None for attacker in attackers))
        reconnected, turn = 0, 0
        began = time.monotonic()
        while not pipe.poll():
            attacker = attackers[turn % len(attackers)]
            try:
                attacker.step()
            except BlockingIOError:
                pass
            except OSError:
                reconnected += 1
                attacker.begin()
            turn += 1
            ahead = began + turn * PERIOD / len(attackers) - time.monotonic()
            if ahead > 0:
                time.sleep(ahead)
        pipe.send(f"{turn} steps of attackers, {reconnected} reconnected")


class Attacker:
    """A connection that takes one step per PERIOD."""

    receive_buffer = None

    def __init__(self, port):
        self.port = port
        self.stream = None
        self.steps = 0

    def begin(self):
        if self.stream:
            self.stream.close()
        self.stream = connect(self.port, self.receive_buffer)
        self.stream.setblocking(False)
        self.steps = 0
        self.stream.send(self.opening())

    def opening(self):
        return b""

    def read(self, size):
        if not self.stream.recv(size):
            raise ConnectionResetError


class SlowHead(Attacker):
    """A head that arrives byte by byte until its timeout."""

    HEAD = b"GET /never HTTP/1.1\r\nHost: slow\r\nX-Slow: " + b"x" * 1000

    def step(self):
        self.stream.send(self.HEAD[self.steps:self.steps + 1])
        self.steps += 1
        self.read(1000)


class SlowBody(Attacker):
    """An upload a little above the minimum rate."""

    def opening(self):
        return b"POST /slow HTTP/1.1\r\nHost: slow\r\nContent-Length: 1000000\r\n\r\n"

    def step(self):
        self.stream.send(b"x" * 260)
        self.read(1000)


class SlowReader(Attacker):
    """Reads some bytes of a large response."""

    receive_buffer = 4096

    def opening(self):
        return b"GET /size/%d HTTP/1.1\r\nHost: slow\r\n\r\n" % LARGE

    def step(self):
        self.read(700)


class StalledWindows(Attacker):
    """HTTP/2 streams whose windows open by a few bytes."""

    def opening(self):
        gets = b"".join(h2.get(h2.client_stream(n), f"/size/{LARGE}") for n in range(1, STREAMS + 1))
        return h2.client_preface(window=0) + gets

    def step(self):
        self.steps += 1
        stream = h2.client_stream(self.steps % STREAMS + 1)
        self.stream.send(h2.frame(h2.WINDOW_UPDATE, 0, stream, h2.u32(100)))
        self.read(1 << 16)


KIND_STEPS = {"slow heads": SlowHead, "slow bodies": SlowBody, "slow readers": SlowReader,
              "stalled windows": StalledWindows}
