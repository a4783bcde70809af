"""Attacks over HTTP/3: the number of actions until the server closes the connection, and the cost of an attack
in memory, CPU time and latency of a normal client of HTTP/3."""

import asyncio
import collections.abc
import contextlib
import dataclasses
import importlib
import math
import os
import time

import h3
from attack import GROWTH_MAX, PAUSE, client_cpus, format_rows, measure_attack, server_cpus
from blitz import listening_tls, use_realtime_priority

CONNECTIONS = 20
# Actions of a connection before another one has its turn.
TURN = 50
CLOSE_SECONDS = 5.0
# CPU time that an idle server may use in a second.
IDLE_CPU_MAX = 0.03


@contextlib.asynccontextmanager
async def running(binary, *flags, **options):
    """A server with HTTP/3 on a processor of its own, and the port."""
    with listening_tls(binary) as (tls, port, _):
        async with binary.running(*tls, *flags, cpus=server_cpus(), **options) as server:
            yield server, port


@dataclasses.dataclass(frozen=True)
class Attack:
    """Actions of one kind, of which a server has to accept `allowed` and no more.

    `each(peer, n)` is the `n`th action, from 1. `setup(peer)` comes before them. `code` is the code of the close.
    Without `flood` the cost is not measured. Without `is_limited` the server may accept all actions of the flood,
    and `allowed` is how many are checked before it. `options` are those of the peer. The server may accept up to
    `slack` more actions.
    """

    name: str
    each: collections.abc.Callable[[h3.Peer, int], None]
    allowed: int
    code: str = "EXCESSIVE_LOAD"
    setup: collections.abc.Callable[[h3.Peer], None] = lambda peer: None
    flood: bool = True
    slack: int = 0
    is_limited: bool = True
    options: dict = dataclasses.field(default_factory=dict)

    def actions_until_closed(self, port):
        """Checks the limit exactly; returns the number of actions until the server closes."""
        with h3.Peer(port, **self.options) as peer:
            last = 0
            try:
                self.setup(peer)
                peer.settle()
                for last in range(1, self.allowed + 1):
                    self.each(peer, last)
                peer.settle()
            except h3.ConnectionEnded as cut:
                raise AssertionError(f"{self.name}: {cut} within {last} actions, which are allowed") from cut
            if not self.is_limited:
                return "not limited"
            most = self.allowed + 1 + self.slack
            with contextlib.suppress(h3.ConnectionEnded):
                for n in range(last + 1, most + 1):
                    self.each(peer, n)
                peer.flush()
            try:
                code = peer.ends(CLOSE_SECONDS)
            except TimeoutError as error:
                raise AssertionError(f"{self.name}: still open after {most} actions") from error
            assert code == self.code, f"{self.name}: {code}, not {self.code}"
        return most


async def table(binary, module, *flags, cap=GROWTH_MAX):
    """Runs each attack of a module's `ATTACKS` against a new server: the exact limit first, then a flood. All
    failures are reported together."""
    rows, failures = [], []
    for number, attack in enumerate(importlib.import_module(module).ATTACKS):
        row = {"attack": attack.name, "frames": "failed"}
        try:
            async with running(binary, *flags) as (server, port):
                row["frames"] = await asyncio.to_thread(attack.actions_until_closed, port)
                if attack.flood:
                    row |= await measure(server, port, Flood(port, module, number), cap=cap)
        except Exception as error:
            failures.append(f"{attack.name}: {type(error).__name__}: {error}")
        rows.append(row)
    report = format_rows(rows)
    assert not failures, report + "\n  " + "\n  ".join(failures)
    return report


async def measure(server, port, *floods, **options):
    """As `measure_attack`, with a normal client of HTTP/3; the server must be idle afterwards."""
    cost = await measure_attack(server, *floods, client=(send_requests, port), **options)
    await asyncio.to_thread(h3.assert_served, port)
    await assert_idle(server)
    return cost


async def assert_idle(server, seconds=5):
    """Asserts that the server soon uses almost no CPU time."""
    for _ in range(seconds):
        before = server.cpu_seconds()
        await asyncio.sleep(1)
        used = server.cpu_seconds() - before
        if used <= IDLE_CPU_MAX:
            return
    raise AssertionError(f"the server uses {used * 100:.0f} % of a processor while nothing happens")


@dataclasses.dataclass(frozen=True)
class Flood:
    """Connections that act as fast as the server acknowledges it, and reconnect when they are closed.

    The attack is the one of this number in the `ATTACKS` of a module, because functions cannot be sent to another
    process. After twice the allowed number of actions a connection stays open.
    """

    port: int
    module: str
    number: int
    connections: int = CONNECTIONS

    def run(self, seconds):
        """Runs in a separate process; returns its counts."""
        attack = importlib.import_module(self.module).ATTACKS[self.number]
        return flood(self.port, attack, self.connections, seconds)


def flood(port, attack, connections, seconds):
    os.sched_setaffinity(0, client_cpus())
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, -10)
    count = attack.allowed * 2 + 50 if attack.is_limited else math.inf
    slots = [None] * connections
    opened = closed = sent = received = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        has_acted = False
        for index, slot in enumerate(slots):
            try:
                if slot is None:
                    peer = h3.Peer(port, seconds=2, **attack.options)
                    slots[index] = slot = [peer, 0]
                    opened += 1
                    attack.setup(peer)
                    peer.flush()
                peer, done = slot
                peer.receive()
                peer.check()
                if done < count:
                    for n in range(done + 1, done + TURN + 1):
                        attack.each(peer, n)
                    slot[1] += TURN
                    peer.flush()
                    has_acted = True
            except (h3.ConnectionEnded, AssertionError, TimeoutError):
                if slot:
                    sent += slot[0].sent_bytes
                    received += slot[0].received_bytes
                    slot[0].close()
                    closed += 1
                slots[index] = None
        if not has_acted:
            time.sleep(0.001)
    held = [slot[0] for slot in slots if slot]
    sent += sum(peer.sent_bytes for peer in held)
    received += sum(peer.received_bytes for peer in held)
    for peer in held:
        peer.close()
    return {"opened": opened, "closed": closed, "held": len(held), "sent": sent, "received": received}


def send_requests(port, pipe):
    """Requests /hello every two milliseconds, and reports the latencies."""
    os.sched_setaffinity(0, client_cpus())
    use_realtime_priority()
    times = []
    try:
        with h3.Peer(port) as peer:
            content = h3.head()
            pipe.send("started")
            while not pipe.poll():
                at = time.monotonic()
                stream = peer.request(content)
                assert peer.response(stream) == (200, b"Hello, World!")
                times.append((at, time.monotonic() - at))
                time.sleep(PAUSE)
        pipe.send(times)
    except Exception as error:  # The scenario reports it.
        pipe.send(f"{type(error).__name__}: {error} after {len(times)} responses")
