"""Trailers of requests give no client the response to another's request: cheroot, which stops reading at the last
chunk, takes a trailer for its next request, and tornado answers 400 to each request with trailers.

They come from `target/tools/origins`, which `.ci/run tools` installs, or from the folder that ORIGINS names.
"""

import asyncio
import os
import pathlib
import subprocess
import sys

import h1
from blitz import free_port

SECONDS = 120
ATTACKERS = 3
VICTIMS = 6
ATTACK_SECONDS = 5
FOLDER = pathlib.Path(os.environ.get("ORIGINS", "target/tools/origins"))

UPLOAD = (b"POST /upload HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n"
          b"2\r\nhi\r\n0\r\nGET: /smug HTTP/1.1\r\n\r\n")

CHEROOT = """
from cheroot.wsgi import Server
def application(environ, respond):
    environ["wsgi.input"].read()
    body = environ["PATH_INFO"].encode()
    respond("200 OK", [("Content-Length", str(len(body)))])
    return [body]
Server(("127.0.0.1", PORT), application, numthreads=20).start()
"""

TORNADO = """
import asyncio, tornado.web
class Echo(tornado.web.RequestHandler):
    def get(self): self.finish(self.request.path)
    post = get
async def main():
    tornado.web.Application([("/.*", Echo)]).listen(PORT, "127.0.0.1")
    await asyncio.Event().wait()
asyncio.run(main())
"""


async def run(binary):
    notes = []
    for name, program in [("cheroot", CHEROOT), ("tornado", TORNADO)]:
        port = free_port()
        origin = subprocess.Popen([sys.executable, "-c", program.replace("PORT", str(port))],
                                  env={**os.environ, "PYTHONPATH": str(FOLDER.resolve())},
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            await until_listening(port)
            # tornado refuses trailers, so it gets none there.
            for flags in [[], ["--request-trailers"]][:1 if name == "tornado" else 2]:
                async with binary.running("--to", f"http://127.0.0.1:{port}", *flags) as server:
                    notes.append(await attack(server.port, " ".join([name, *flags])))
        finally:
            origin.kill()
            origin.wait()
    return ", ".join(notes)


async def until_listening(port):
    for _ in range(100):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        except OSError:
            await asyncio.sleep(0.1)
    raise AssertionError("the origin does not listen")


async def attack(port, name):
    end = asyncio.get_running_loop().time() + ATTACK_SECONDS
    uploads = [upload(port, end) for _ in range(ATTACKERS)]
    victims = [visit(port, number, end) for number in range(VICTIMS)]
    answers = await asyncio.gather(*uploads, *victims)
    counts = [sum(pairs) for pairs in zip(*answers)]
    right, wrong = counts
    assert right > 100, f"{name}: only {right} responses"
    assert wrong == 0, f"{name}: {wrong} of {right + wrong} responses were not those of the request"
    return f"{name}: {right}"


async def upload(port, end):
    """The numbers of right and wrong responses to requests with trailers."""
    right = wrong = 0
    async with h1.Client.connected(port) as client:
        while asyncio.get_running_loop().time() < end:
            client.writer.write(UPLOAD)
            status, _, body = await client.response()
            is_right = (status, body) == (200, b"/upload")
            right, wrong = right + is_right, wrong + (not is_right)
    return right, wrong


async def visit(port, number, end):
    """The same for a client of its own path."""
    right = wrong = 0
    count = 0
    async with h1.Client.connected(port) as client:
        while asyncio.get_running_loop().time() < end:
            count += 1
            path = f"/victim-{number}-{count}"
            status, body = await client.get(path)
            is_right = (status, body) == (200, path.encode())
            right, wrong = right + is_right, wrong + (not is_right)
    return right, wrong
