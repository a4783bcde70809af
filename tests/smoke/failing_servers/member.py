"""A member in Python, which can also lie: member.py ADDRESS PORT NAME POSTS MODES

It responds with the path of the request, and appends the paths of POST requests to the file POSTS. At SIGUSR2 it reads
its mode from the file MODES:

    ok        responds after 5 ms
    slow      responds after 205 ms
    500       responds with 500
    garbage   responds with bytes that are no HTTP
    deaf      accepts connections, and reads nothing
    hole      reads nothing, and accepts nothing: with a full backlog further connections get no answer
"""

import asyncio
import random
import signal
import socket
import sys

address, port, name, posts, modes = sys.argv[1:]
# Requests of a connection. Clients have to connect again and again.
REQUESTS_PER_CONNECTION = 20
mode = "ok"
# Opened now: later there may be no descriptor left.
log = open(posts, "a", buffering=1)
ends = asyncio.Event()
connections = set()


class Acceptor:
    """Accepts in a task, which `hole` ends."""

    def __init__(self):
        self.listener = socket.create_server((address, int(port)), backlog=128)
        self.listener.setblocking(False)
        self.task = None

    def start(self):
        self.listener.listen(128)
        self.task = self.task or asyncio.create_task(self.accept())

    def stop(self):
        if self.task:
            self.task.cancel()
        self.task = None
        # The kernel keeps one connection more than this.
        self.listener.listen(0)

    async def accept(self):
        while True:
            try:
                connection, _ = await asyncio.get_running_loop().sock_accept(self.listener)
            except OSError:
                # As most servers do without descriptors.
                await asyncio.sleep(0.1)
                continue
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            reader, writer = await asyncio.open_connection(sock=connection)
            task = asyncio.create_task(serve(reader, writer))
            connections.add((writer, task))
            task.add_done_callback(lambda task, writer=writer: connections.discard((writer, task)))


def change(acceptor):
    global mode
    with open(modes) as file:
        mode = file.read().strip()
    for writer, _ in connections:
        if mode in ("deaf", "hole"):
            writer.transport.pause_reading()
        else:
            writer.transport.resume_reading()
    if mode == "hole":
        acceptor.stop()
    else:
        acceptor.start()


async def respond(reader, writer, left):
    """Whether the connection stays open."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    method, path, _ = head.split(" ", 2)
    for line in head.lower().split("\r\n"):
        if line.startswith("content-length: "):
            await reader.readexactly(int(line[16:]))
    if method == "POST":
        print(path, file=log)
    await asyncio.sleep(0.205 if mode == "slow" else 0.005)
    if mode == "garbage":
        writer.write(random.randbytes(200))
        return False
    status = "500 Internal Server Error" if mode == "500" else "200 OK"
    closes = left == 0 or ends.is_set()
    fields = f"X-Member: {name}\r\nContent-Length: {len(path)}\r\n" + "Connection: close\r\n" * closes
    writer.write(f"HTTP/1.1 {status}\r\n{fields}\r\n{path}".encode())
    return not closes


async def serve(reader, writer):
    if mode == "deaf":
        writer.transport.pause_reading()
    try:
        for left in range(REQUESTS_PER_CONNECTION - 1, -1, -1):
            if not await respond(reader, writer, left):
                break
    except (OSError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def main():
    acceptor = Acceptor()
    acceptor.start()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR2, change, acceptor)
    loop.add_signal_handler(signal.SIGTERM, ends.set)
    await ends.wait()
    acceptor.stop()
    acceptor.listener.close()
    # Responses that are due, and the next one on each connection.
    await asyncio.sleep(0.5)


asyncio.run(main())
