"""Clients who ask for much and take nothing (CVE-2019-9511, CVE-2019-9517): what the server keeps for
them stays within the cap of a core, and others are served. None of them acknowledges settings."""

import socket

import h2
from attack import Attack, Flood, server_cpus, show, suffers, table
from wire import Backend, answer_by_path

SECONDS = 90
CONNECTIONS = 100
STREAMS = 100
SIZE = 1 << 30
OPEN_WINDOW = h2.frame(h2.WINDOW_UPDATE, 0, 0, h2.number(h2.WINDOW_MAX - (1 << 16)))

DRIBBLES = [
    Attack("a window that opens byte by byte", lambda _: h2.frame(
        h2.WINDOW_UPDATE, 0, 1, h2.number(1)), 2_000,
        setup=h2.settings(window=0) + h2.get(1, f"/data?size={SIZE}"), slack=20),
]


def asking(path, **settings):
    """Asks for as much as can be asked for at once."""
    gets = b"".join(h2.get(h2.odd(n), path) for n in range(1, STREAMS + 1))
    return h2.start(**settings) + OPEN_WINDOW + gets


async def run(binary):
    rows = []
    path = f"/data?size={SIZE}"
    for name, flood in {
        "windows of 0": dict(script=asking(path, window=0)),
        "windows of 1": dict(script=asking(path, window=1)),
        "open windows, nobody reads": dict(
            script=asking(path, window=h2.WINDOW_MAX), reads=False, receive_buffer=4096),
    }.items():
        async with binary.running(cpus=server_cpus()) as server:
            rows.append(await stalled(name, server, **flood))
    rows.append(await behind_upstream(binary))
    return await table(binary, DRIBBLES) + show(rows)


async def behind_upstream(binary):
    """The same with an upstream that has much to send at once."""
    async def answer(request, reader, writer):
        # A kernel that takes the whole answer for us would prove nothing about the proxy.
        stream = writer.get_extra_info("socket")
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 << 10)
        await answer_by_path(request, reader, writer)

    async with Backend(answer).running() as backend:
        target = f"/size=http://127.0.0.1:{backend.port}"
        async with binary.running("--to", target, cpus=server_cpus()) as server:
            script = asking("/size/10000000", window=0)
            # A connection of the upstream for each of their streams, in this process.
            return await stalled("windows of 0, with an upstream", server, script=script,
                                 connections=CONNECTIONS // 4)


async def stalled(name, server, connections=CONNECTIONS, **flood):
    cost = await suffers(server, Flood(server.port, connections=connections, **flood))
    # Nobody was cut off: they are held until a deadline, and their number is bounded.
    assert cost["cut"] == 0, f"{name}: {cost['cut']} connections were cut off"
    each = cost["growth"] / connections / STREAMS
    return {"attack": name, "frames": f"{each / 1024:.2f} KiB a stream"} | cost
