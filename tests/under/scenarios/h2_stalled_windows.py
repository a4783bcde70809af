"""Clients that request much and read nothing (CVE-2019-9511, CVE-2019-9517): the server's buffers stay within
the limit of a core, and other clients are served. The clients do not acknowledge SETTINGS."""

import socket

import h2
from attack import Attack, Flood, format_rows, measure_attack, server_cpus, table
from h1 import Backend, respond_by_path

SECONDS = 90
CONNECTIONS = 100
STREAMS = 100
SIZE = 1 << 30
OPEN_WINDOW = h2.frame(h2.WINDOW_UPDATE, 0, 0, h2.u32(h2.WINDOW_MAX - (1 << 16)))

SMALL_UPDATES = [
    Attack("a window that opens byte by byte", lambda _: h2.frame(
        h2.WINDOW_UPDATE, 0, 1, h2.u32(1)), 2_000,
        setup=h2.settings(window=0) + h2.get(1, f"/data?size={SIZE}"), slack=20),
]


def requests(path, **settings):
    """The preface and as many requests as are allowed at once."""
    gets = b"".join(h2.get(h2.client_stream(n), path) for n in range(1, STREAMS + 1))
    return h2.client_preface(**settings) + OPEN_WINDOW + gets


async def run(binary):
    rows = []
    path = f"/data?size={SIZE}"
    for name, flood in {
        "windows of 0": dict(script=requests(path, window=0)),
        "windows of 1": dict(script=requests(path, window=1)),
        "open windows, unread": dict(
            script=requests(path, window=h2.WINDOW_MAX), reads=False, receive_buffer=4096),
    }.items():
        async with binary.running(cpus=server_cpus()) as server:
            rows.append(await stalled(name, server, **flood))
    rows.append(await behind_upstream(binary))
    return await table(binary, SMALL_UPDATES) + format_rows(rows)


async def behind_upstream(binary):
    """The same with an upstream that sends much at once."""
    async def answer(request, reader, writer):
        # A kernel that buffers the whole response would prove nothing about the proxy.
        stream = writer.get_extra_info("socket")
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 << 10)
        await respond_by_path(request, reader, writer)

    async with Backend(answer).running() as backend:
        target = f"/size=http://127.0.0.1:{backend.port}"
        async with binary.running("--to", target, cpus=server_cpus()) as server:
            script = requests("/size/10000000", window=0)
            # Each stream needs an upstream connection in this process.
            return await stalled("windows of 0, with an upstream", server, script=script,
                                 connections=CONNECTIONS // 4)


async def stalled(name, server, connections=CONNECTIONS, **flood):
    cost = await measure_attack(server, Flood(server.port, connections=connections, **flood))
    # No connection is closed before its timeout; their number is limited.
    assert cost["closed"] == 0, f"{name}: {cost['closed']} connections were closed"
    each = cost["growth"] / connections / STREAMS
    return {"attack": name, "frames": f"{each / 1024:.2f} KiB per stream"} | cost
