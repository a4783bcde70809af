"""Five thousand idle TLS 1.3 connections, each after a handshake and a request: less than eight KiB of
resident memory each, with HTTP/1.1 and with HTTP/2."""

import asyncio
import multiprocessing
import ssl

import h2
from blitz import client_context, listening_tls

SECONDS = 240
FIRST = 200
ALL = 5_000
WORKERS = 2
BYTES_MAX = 8 * 1024
# Blitz accepts connections for 90 % of its file limit.
FILES = 6_000

CONTEXT = multiprocessing.get_context("spawn")


async def run(binary):
    return "; ".join([await measured(binary, protocol) for protocol in ("http/1.1", "h2")])


async def measured(binary, protocol):
    with listening_tls(binary) as (flags, port, context):
        ca = flags[-1].replace("localhost.key", "ca.pem")
        async with binary.running(*flags) as server:
            workers = [Worker(port, ca, protocol) for _ in range(WORKERS)]
            try:
                await open_connections(workers, FIRST // WORKERS)
                await asyncio.sleep(2)
                before = server.rss_bytes()
                await open_connections(workers, (ALL - FIRST) // WORKERS)
                await asyncio.sleep(5)
                after = server.rss_bytes()
                assert server.open_files() >= ALL
                # Idle connections are still served; a sample is checked.
                await open_connections(workers, 0)
            finally:
                for worker in workers:
                    worker.child.kill()
                    worker.child.join()
    each = (after - before) / (ALL - FIRST)
    note = f"{protocol}: {each / 1024:.2f} KiB each, total RSS {after >> 20} MiB"
    assert each < BYTES_MAX, note
    return note


async def open_connections(workers, count):
    """Makes each worker open `count` connections."""
    for worker in workers:
        worker.pipe.send(count)
    for worker in workers:
        result = await asyncio.to_thread(worker.pipe.recv)
        assert result == "done", result


class Worker:
    """A process that opens connections and keeps them open."""

    def __init__(self, port, ca, protocol):
        self.pipe, theirs = CONTEXT.Pipe()
        self.child = CONTEXT.Process(target=hold, args=(port, ca, protocol, theirs), daemon=True)
        self.child.start()
        theirs.close()


def hold(port, ca, protocol, pipe):
    context = client_context(ca)
    context.set_alpn_protocols([protocol])
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    peers = []
    try:
        while True:
            count = pipe.recv()
            for _ in range(count):
                peers.append(h2.Peer(port, context))
                send_request(peers[-1], protocol, 1)
            if count == 0:
                for peer in peers[::100]:
                    send_request(peer, protocol, 3)
            pipe.send("done")
    except Exception as error:  # The scenario reports it.
        pipe.send(f"{type(error).__name__}: {error} after {len(peers)} connections")


def send_request(peer, protocol, stream):
    if protocol == "h2":
        if stream == 1:
            peer.send(h2.client_preface(), h2.frame(h2.SETTINGS, h2.ACK))
        peer.send(h2.get(stream))
        assert peer.response(stream)[1] == b"Hello, World!"
        return
    peer.send(b"GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n")
    answer = b""
    while not answer.endswith(b"Hello, World!"):
        answer += peer.socket.recv(1 << 16)
