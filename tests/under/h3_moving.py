"""Clients of HTTP/3 that move, in a network namespace of their own: the program of the scenario h3_moves.

    unshare --net python3 tests/under/h3_moving.py serve BINARY DRIVER    the server; starts the clients
    python3 tests/under/h3_moving.py visit CA                             the clients

Both print their results as JSON.
"""

import asyncio
import contextlib
import hashlib
import itertools
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile

import networks
from blitz import Binary
from h3_endpoint import Client

PORT = 8443
SERVER = "10.9.0.1"
CLIENTS = [f"10.9.0.{number}" for number in range(2, 7)]
MOVES = 10
# Every third move is to another host, so that there are at most four within 10 s: Blitz ignores further ones.
HOST_EVERY = 3
PIECES, PIECE_BYTES, PIECE_SECONDS = 110, 20_000, 0.1
DOWNLOAD_BYTES = 60_000_000
CONNECTIONS, LINKS = 100, 10
BUSY_SECONDS = 12
# The content that the upstream repeats.
BLOCK = random.Random(1).randbytes(65_521)
RELOAD_SECONDS = 1.5


# The server.

async def serve(path, driver):
    # SIGTERM cancels this task, which then stops the server.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asyncio.current_task().cancel)
    # The summary is a line of this level.
    os.environ["UNDER_LOG"] = "info"
    with tempfile.TemporaryDirectory() as folder:
        authority = f"{folder}/ca.pem"
        issue(path, folder)
        flags = ["--listen-tls", f"{SERVER}:{PORT}", "--cert", f"{folder}/localhost.pem",
                 "--key", f"{folder}/localhost.key"]
        backend = await asyncio.start_server(upstream, "127.0.0.1", 0)
        flags += ["--to", f"/data=http://127.0.0.1:{backend.sockets[0].getsockname()[1]}"]
        addresses = [f"{client}/24" for client in CLIENTS]
        visitors = await networks.start_beyond(addresses, f"{SERVER}/24", __file__, "visit", authority)
        try:
            async with Binary(path, driver).running(*flags, cores=2) as server:
                # The link and the server are there.
                visitors.stdin.write(b"\n")
                reloads = asyncio.create_task(reload(server, path, folder))
                output, errors = await visitors.communicate()
                reloads.cancel()
                assert visitors.returncode == 0, errors.decode(errors="replace")
                results = json.loads(output)
                results["reloads"] = reloads_of(server)
                counters = server.stop()
                results["log"] = [line for line in log_of(server) if "since the last summary" in line]
                results["counters"] = {name: counters[name] for name in counters if "datagrams" in name}
        finally:
            with contextlib.suppress(ProcessLookupError):
                visitors.kill()
    print(json.dumps(results))


async def upstream(reader, writer):
    """An HTTP/1.1 connection whose responses have the size in the query."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while head := await reader.readuntil(b"\r\n\r\n"):
            size = int(head.split()[1].partition(b"=")[2])
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size + data(size))
            await writer.drain()
    writer.close()


def data(size):
    return (BLOCK * (size // len(BLOCK) + 1))[:size]


def issue(path, folder):
    """Issues a new certificate from the authority in the folder."""
    for name in ("localhost.pem", "localhost.key"):
        pathlib.Path(folder, name).unlink(missing_ok=True)
    subprocess.run([path, "cert", "--out", folder, "localhost"], check=True, stdout=subprocess.DEVNULL)


async def reload(server, path, folder):
    while True:
        await asyncio.sleep(RELOAD_SECONDS)
        issue(path, folder)
        os.kill(server.pid, signal.SIGHUP)


def log_of(server):
    server.log.seek(0)
    return server.log.read().decode(errors="replace").splitlines()


def reloads_of(server):
    return sum("certificates were read again" in line for line in log_of(server))


# The clients.

async def visit(authority):
    client = Client((SERVER, PORT), authority)
    jobs = {"upload": upload(client), "download": download(client), "shared socket": share(client),
            "new connections": come_and_go(client)}
    done = await asyncio.gather(*jobs.values(), return_exceptions=True)
    results = {"failures": []}
    for name, result in zip(jobs, done):
        if isinstance(result, BaseException):
            results["failures"].append(f"{name}: {type(result).__name__}: {result}")
        else:
            results |= result
    print(json.dumps(results))


class Mover:
    """Moves a connection: to a new port, to a new port with a new connection ID, to another host."""

    def __init__(self, client, connection):
        self.client, self.connection = client, connection
        self.hosts = itertools.cycle(CLIENTS[1:])
        self.host = CLIENTS[0]
        self.moves = 0

    async def move(self):
        self.moves += 1
        to_other_host = self.moves % HOST_EVERY == 0
        if to_other_host:
            self.host = next(self.hosts)
        old = self.connection.link
        self.connection.move(self.client.link(self.host), to_other_host or self.moves % 2 == 0)
        self.client.unlink(old)
        if to_other_host:
            # Blitz notices a move to another host by a datagram of at least 400 bytes, as clients send to probe the
            # path (RFC 9000, section 8.2.1).
            await self.connection.get("/hello", ("x-filler", random.randbytes(400).hex()))


async def upload(client):
    """A slow upload that comes back, with moves between its pieces."""
    connection = await client.connect(client.link(CLIENTS[0]))
    mover = Mover(client, connection)
    stream = connection.open("POST", "/echo", end=False)
    sent = hashlib.sha256()
    for number in range(PIECES):
        piece = random.randbytes(PIECE_BYTES)
        sent.update(piece)
        connection.send(stream, piece, number == PIECES - 1)
        await asyncio.sleep(PIECE_SECONDS)
        if number % (PIECES // MOVES) == 5:
            await mover.move()
    content = await connection.response(stream)
    assert hashlib.sha256(content).digest() == sent.digest(), "the content has changed"
    connection.close()
    return {"upload_moves": mover.moves, "upload_bytes": len(content)}


async def download(client):
    """A long download, with moves at equal shares of its content."""
    connection = await client.connect(client.link(CLIENTS[0]))
    mover = Mover(client, connection)
    stream = connection.open("GET", f"/data?size={DOWNLOAD_BYTES}")
    response = connection.responses[stream]
    while not response.done.done():
        if len(response.content) > (mover.moves + 1) * DOWNLOAD_BYTES // (MOVES + 1):
            await mover.move()
        await asyncio.sleep(0.02)
    content = await connection.response(stream)
    assert content == data(DOWNLOAD_BYTES), "the content has changed"
    connection.close()
    return {"download_moves": mover.moves, "download_bytes": len(content)}


async def share(client):
    """Connections that were made on several sockets, so that both cores have some, and then have one."""
    links = [client.link(CLIENTS[0]) for _ in range(LINKS)]
    connections = [await client.connect(links[number % LINKS]) for number in range(CONNECTIONS)]
    shared = client.link(CLIENTS[0])
    for connection in connections:
        connection.move(shared, False)
    for link in links:
        client.unlink(link)
    end = asyncio.get_running_loop().time() + BUSY_SECONDS

    async def use(connection):
        count = 0
        while asyncio.get_running_loop().time() < end:
            size = random.choice([1, 900, 3_000, 20_000])
            content = await connection.get(f"/data?size={size:05}")
            assert content == data(size), f"{size} bytes have changed"
            count += 1
        connection.close()
        return count

    counts = await asyncio.gather(*map(use, connections))
    return {"shared_requests": sum(counts), "fewest": min(counts)}


async def come_and_go(client):
    """Connections one after the other, some of which get a certificate that was read again."""
    certificates = []
    end = asyncio.get_running_loop().time() + BUSY_SECONDS
    while asyncio.get_running_loop().time() < end:
        link = client.link(random.choice(CLIENTS))
        connection = await client.connect(link)
        certificates.append(connection.certificate)
        assert await connection.get("/hello") == b"Hello, World!"
        connection.close()
        await asyncio.sleep(0.2)
        client.unlink(link)
    return {"new_connections": len(certificates), "certificates": len(set(certificates))}


def main():
    role, *arguments = sys.argv[1:]
    if role == "serve":
        asyncio.run(serve(*arguments))
        return
    print("ready", flush=True)
    sys.stdin.readline()
    asyncio.run(visit(*arguments))


if __name__ == "__main__":
    main()
