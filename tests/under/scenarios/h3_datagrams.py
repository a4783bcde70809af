"""Datagrams that belong to no connection, or were changed on their way: they cost little, no connection ends, and
nothing is left to do afterwards."""

import asyncio
import contextlib
import dataclasses
import os
import random
import socket
import time

import h3
from attack import client_cpus
from h3_attack import assert_idle, measure, running

SECONDS = 120
SEED = 1
COUNT = 100_000
FLOOD_SECONDS = 3.0
GROWTH_MAX = 16 << 20


def garbage(random_source, _):
    return random_source.randbytes(random_source.randrange(1, 1_500))


def short_headers(random_source, _):
    """Packets of connections that do not exist, which a stateless reset may answer."""
    return bytes([0x40 | random_source.randrange(64)]) + random_source.randbytes(random_source.randrange(20, 1_200))


def mutated(random_source, samples):
    """A valid datagram with some bits changed."""
    datagram = bytearray(random_source.choice(samples))
    for _ in range(random_source.randrange(1, 4)):
        datagram[random_source.randrange(len(datagram))] ^= 1 << random_source.randrange(8)
    return bytes(datagram)


def truncated(random_source, samples):
    datagram = random_source.choice(samples)
    return datagram[:random_source.randrange(1, len(datagram))]


def repeated(random_source, samples):
    return random_source.choice(samples)


def unknown_versions(random_source, samples):
    """Each is answered with Version Negotiation."""
    datagram = bytearray(samples[0])
    datagram[1:5] = random_source.randbytes(4)
    return bytes(datagram)


def empty(_, __):
    return b""


KINDS = [garbage, short_headers, mutated, truncated, repeated, unknown_versions, empty]


@dataclasses.dataclass(frozen=True)
class Flood:
    """Datagrams of one kind from a single address, as fast as possible, beside a connection that must survive."""

    port: int
    number: int

    def run(self, seconds):
        os.sched_setaffinity(0, client_cpus())
        random_source = random.Random(SEED)
        make = KINDS[self.number]
        peer = h3.Peer(self.port)
        samples = recorded(peer)
        sent = received = count = 0
        end = time.monotonic() + seconds
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stream:
            stream.connect(("127.0.0.1", self.port))
            stream.setblocking(False)
            while time.monotonic() < end and count < COUNT:
                datagram = make(random_source, samples)
                with contextlib.suppress(OSError):
                    sent += stream.send(datagram)
                count += 1
                # The same from the address of the connection.
                if count % 4 == 0:
                    with contextlib.suppress(OSError):
                        sent += peer.socket.send(datagram)
                if count % 64 == 0:
                    received += drained(stream)
                    peer.receive()
            time.sleep(0.2)
            received += drained(stream)
        is_alive = peer.response(peer.request()) == (200, b"Hello, World!")
        peer.close()
        return {"sent": sent, "received": received, "count": count, "alive": is_alive}


def recorded(peer):
    """Datagrams of a first flight, and of the connection."""
    samples = h3.first_flight()
    send = peer.send_datagram

    def record(datagram):
        samples.append(datagram)
        send(datagram)
    peer.send_datagram = record
    for path in ("/hello", "/data?size=20000", "/hello"):
        peer.response(peer.request(h3.head("GET", path)))
    del peer.send_datagram
    return samples


def drained(stream):
    received = 0
    with contextlib.suppress(OSError):
        while True:
            received += len(stream.recv(65_536))
    return received


async def run(binary):
    lines = []
    for number, kind in enumerate(KINDS):
        async with running(binary) as (server, port):
            cost = await measure(server, port, Flood(port, number), seconds=FLOOD_SECONDS, cap=GROWTH_MAX)
            result = cost["results"][0]
            assert result["alive"], kind.__name__
            lines.append(f"{kind.__name__:<18} {result['count']:>7} datagrams  {result['sent'] / 1e6:6.1f} MB sent"
                         f"  {result['received'] / 1e6:6.2f} MB received  cpu {cost['cpu'] * 100:3.0f} %"
                         f"  RSS +{cost['growth'] / (1 << 20):.1f} MiB"
                         f"  p99 {cost['p99']:.2f} -> {cost['p99 during']:.2f} ms")
            assert result["received"] <= 3 * max(result["sent"], 1), lines[-1]
    async with running(binary) as (server, port):
        lines.append(await asyncio.to_thread(empty_datagrams, server, port))
        lines.append(await asyncio.to_thread(other_hosts, port))
        await assert_idle(server)
    return "\n  " + "\n  ".join(lines)


def empty_datagrams(server, port):
    """All of them, while another client is served."""
    with h3.Peer(port) as peer, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stream:
        stream.connect(("127.0.0.1", port))
        before, begun = server.cpu_seconds(), time.monotonic()
        for count in range(COUNT):
            with contextlib.suppress(OSError):
                stream.send(b"")
            if count % 10_000 == 0:
                assert peer.response(peer.request()) == (200, b"Hello, World!")
        took, used = time.monotonic() - begun, server.cpu_seconds() - before
        return f"{COUNT} empty datagrams in {took:.1f} s: {used:.2f} s of CPU time"


def other_hosts(port):
    """Packets of a connection from other hosts, which its client may have forged: each host gets at most three times
    its bytes, however small and many the packets are."""
    worst = 0.0
    for size in (30, 200, 400, 1_150):
        with h3.Peer(port) as peer:
            stream = peer.request(h3.head("GET", "/data?size=1000000"))
            peer.keeps_content = False
            own = peer.socket
            hosts = []
            for number in range(2, 12):
                host = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                host.bind((f"127.0.0.{number}", 0))
                host.connect(("127.0.0.1", port))
                host.setblocking(False)
                hosts.append([host, 0, 0])
            peer.retransmits = False
            for _ in range(5):
                for entry in hosts:
                    peer.socket = entry[0]
                    before = peer.sent_bytes
                    peer.send_packet(h3.path_challenge() + h3.PING + bytes(max(0, size - 40)))
                    entry[1] += peer.sent_bytes - before
                    time.sleep(0.002)
            time.sleep(1)
            for entry in hosts:
                entry[2] += drained(entry[0])
                entry[0].close()
            peer.socket = own
            peer.retransmits = True
            ratio = max(received / sent for _, sent, received in hosts)
            assert ratio <= 3, f"another host gets {ratio:.1f} times the bytes of packets of {size} bytes"
            worst = max(worst, ratio)
            # The client is served where it is.
            stream = peer.request()
            peer.keeps_content = True
            assert peer.response(stream) == (200, b"Hello, World!")
    return f"another host gets at most {worst:.2f} times its bytes"
