"""Clients of HTTP/3 that never complete a handshake. Those with a forged address get at most three times their
bytes, and with many incomplete handshakes each client has to prove its address. Incomplete handshakes are limited
in number, end after ten seconds, and a client with a connection is served meanwhile."""

import asyncio
import contextlib
import dataclasses
import os
import select
import socket
import time

import h3
from aioquic.quic.crypto import CryptoPair
from aioquic.quic.packet import QuicProtocolVersion
from attack import client_cpus
from h3_attack import GROWTH_MAX, measure, running

SECONDS = 120
SOURCES = 400
FLOOD_SECONDS = 4.0
RETRY_ABOVE = 256
HANDSHAKE_SECONDS = 10
HELD = 1_500
AMPLIFICATION_MAX = 3
# A handshake while the core completes those of attackers.
CONNECT_SECONDS_MAX = 3.0


class Initials:
    """Initial packets with one ClientHello and any number of connection IDs."""

    def __init__(self):
        quic = h3.client()
        h3.first_flight(quic)
        self.source = quic.host_cid
        # The CRYPTO frame of the ClientHello.
        hello = bytes(quic._crypto_streams[h3.Epoch.INITIAL].sender._buffer)
        self.payload = b"\x06\0" + h3.varint(len(hello)) + hello

    def datagram(self, token=b"", destination=None):
        destination = destination or os.urandom(8)
        keys = CryptoPair()
        keys.setup_initial(destination, is_client=True, version=QuicProtocolVersion.VERSION_1)
        head = (b"\xc1\0\0\0\1" + bytes([8]) + destination + bytes([len(self.source)]) + self.source
                + h3.varint(len(token)) + token)
        size = h3.DATAGRAM_BYTES - len(head) - 4 - 16
        head += (0x4000 | size + 2 + 16).to_bytes(2, "big") + b"\0\0"
        return keys.encrypt_packet(head, self.payload.ljust(size, b"\0"), 0)


def udp(port):
    stream = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    stream.connect(("127.0.0.1", port))
    stream.setblocking(False)
    return stream


@dataclasses.dataclass(frozen=True)
class Forged:
    """First packets from many addresses that answer nothing. The bytes of each address are counted."""

    port: int
    sources: int = SOURCES

    def run(self, seconds):
        os.sched_setaffinity(0, client_cpus())
        initials = Initials()
        sources = [udp(self.port) for _ in range(self.sources)]
        sent, received, retries = [0] * len(sources), [0] * len(sources), 0
        poll = select.epoll()
        index = {}
        for number, source in enumerate(sources):
            poll.register(source, select.EPOLLIN)
            index[source.fileno()] = number

        def receive(timeout):
            nonlocal retries
            for fd, _ in poll.poll(timeout):
                with contextlib.suppress(OSError):
                    while True:
                        datagram = sources[index[fd]].recv(65_536)
                        received[index[fd]] += len(datagram)
                        retries += datagram[0] & 0xf0 == 0xf0
        end = time.monotonic() + seconds
        number = 0
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                sent[number] += sources[number].send(initials.datagram())
            number = (number + 1) % len(sources)
            if number % 20 == 0:
                receive(0)
        # Retransmissions come until the handshakes are given up.
        end = time.monotonic() + HANDSHAKE_SECONDS + 2
        while time.monotonic() < end:
            receive(0.1)
        worst = max(got / of for got, of in zip(received, sent, strict=True) if of)
        for source in sources:
            source.close()
        return {"sent": sum(sent), "received": sum(received), "worst": worst, "retries": retries}


class Holder:
    """A client that proves its address if it has to, and then never completes its handshake."""

    def __init__(self, port):
        self.socket = udp(port)
        self.quic = h3.client()
        # It stays with what the server has sent first.
        self.quic.connect(self.socket.getpeername(), time.monotonic())
        self._send()
        self.answered = False

    def _send(self):
        for datagram, _ in self.quic.datagrams_to_send(time.monotonic()):
            with contextlib.suppress(OSError):
                self.socket.send(datagram)

    def receive(self):
        with contextlib.suppress(OSError):
            while True:
                datagram = self.socket.recv(65_536)
                if datagram[0] & 0xf0 == 0xf0 and not self.answered:
                    self.quic.receive_datagram(datagram, self.socket.getpeername(), time.monotonic())
                    self._send()
                else:
                    self.answered = True


async def run(binary):
    notes = []
    for case in (single_packets, forged_addresses, retry_above_the_limit, held_handshakes):
        async with running(binary) as (server, port):
            notes.append(f"{case.__name__}: {await case(server, port)}")
    return "\n  " + "\n  ".join(notes)


async def single_packets(_, port):
    """One packet of each address, and nothing more: what the server answers until it gives up."""
    return await asyncio.to_thread(answers_to_single_packets, port)


def answers_to_single_packets(port):
    initials = Initials()
    sources = [udp(port) for _ in range(100)]
    sent, received = [], [0] * len(sources)
    for source in sources:
        sent.append(source.send(initials.datagram()))
    end = time.monotonic() + HANDSHAKE_SECONDS + 2
    while time.monotonic() < end:
        for number, source in enumerate(sources):
            with contextlib.suppress(BlockingIOError):
                received[number] += len(source.recv(65_536))
        time.sleep(0.005)
    for source in sources:
        source.close()
    worst = max(got / of for got, of in zip(received, sent, strict=True))
    assert 1 <= worst <= AMPLIFICATION_MAX, f"{worst:.2f} times the bytes of an address"
    return f"{sum(received) / sum(sent):.2f} times the bytes on average, at most {worst:.2f} times"


async def forged_addresses(server, port):
    """At most three times the bytes for each address, and a new client is served during the flood."""
    took = asyncio.create_task(asyncio.to_thread(connect_during, port))
    cost = await measure(server, port, Forged(port), seconds=FLOOD_SECONDS)
    waited = await took
    result = cost["results"][0]
    note = (f"{result['sent'] / 1e6:.1f} MB sent, {result['received'] / 1e6:.1f} MB received, worst address"
            f" {result['worst']:.2f} times, {result['retries']} Retry packets,"
            f" RSS +{cost['growth'] / (1 << 20):.1f} MiB,"
            f" cpu {cost['cpu'] * 100:.0f} %, p99 {cost['p99']:.2f} -> {cost['p99 during']:.2f} ms,"
            f" new client after {max(waited):.2f} s")
    assert result["worst"] <= AMPLIFICATION_MAX, note
    assert result["retries"] > 0, f"no Retry with more than {RETRY_ABOVE} incomplete handshakes; {note}"
    assert max(waited) < CONNECT_SECONDS_MAX, note
    return note


def connect_during(port):
    """The times of handshakes and requests of new clients, while the attack lasts."""
    time.sleep(1.5)
    times = []
    for _ in range(10):
        begun = time.monotonic()
        h3.assert_served(port, 10)
        times.append(time.monotonic() - begun)
        time.sleep(0.2)
    return times


async def retry_above_the_limit(_, port):
    """The handshakes up to the limit are begun at once, later ones are answered with Retry."""
    return await asyncio.to_thread(count_retries, port)


def count_retries(port):
    initials = Initials()
    kinds = []
    with udp(port) as source:
        for _ in range(RETRY_ABOVE + 50):
            source.send(initials.datagram())
            time.sleep(0.001)
            with contextlib.suppress(OSError):
                while True:
                    datagram = source.recv(65_536)
                    # Long header: Initial is 0, Retry 3.
                    kinds.append(datagram[0] >> 4 & 3)
    first = kinds.index(3) if 3 in kinds else None
    retries = kinds.count(3)
    assert retries == 50, f"{retries} Retry packets for 50 handshakes beyond the limit, the first after {first}"
    h3.assert_served(port)
    return f"{retries} Retry packets for {RETRY_ABOVE + 50} first packets"


async def held_handshakes(server, port):
    """Incomplete handshakes of true addresses end in time; one that is served stays so."""
    return await asyncio.to_thread(hold, server, port)


def hold(server, port):
    with h3.Peer(port) as good:
        before = server.rss_bytes()
        begun = time.monotonic()
        holders = []
        for _ in range(HELD):
            holders.append(Holder(port))
            if len(holders) % 20 == 0:
                for holder in holders:
                    holder.receive()
                assert good.response(good.request()) == (200, b"Hello, World!")
        opened = time.monotonic()
        longest = 0.0
        new_client = None
        while time.monotonic() < opened + HANDSHAKE_SECONDS + 4 and new_client is None:
            at = time.monotonic()
            assert good.response(good.request()) == (200, b"Hello, World!")
            longest = max(longest, time.monotonic() - at)
            for holder in holders:
                holder.receive()
            with contextlib.suppress(TimeoutError):
                h3.assert_served(port, 1)
                new_client = time.monotonic() - opened
        growth = server.peak_rss_bytes() - before
        answered = sum(holder.answered for holder in holders)
        assert new_client is not None, "new clients are locked out for longer than the handshakes last"
        # The rest ends as well.
        time.sleep(max(0, opened + HANDSHAKE_SECONDS + 1 - time.monotonic()))
        for holder in holders:
            holder.socket.close()
        after = server.rss_bytes()
        note = (f"{HELD} begun in {opened - begun:.1f} s, {answered} answered, RSS +{growth / (1 << 20):.1f} MiB,"
                f" {after >> 20} MiB afterwards, a new client is served {new_client:.1f} s after them,"
                f" slowest request of another {longest * 1000:.1f} ms")
        # At the limit they replace each other, but not younger ones than 1 s: memory is the bound.
        assert new_client < 2, note
        assert growth < GROWTH_MAX, note
        return note
