#!/usr/bin/env python3
"""Clients that outlive reloads.

reload_clients.py sockets URL... CA NUMBER FILE    WebSockets that echo, NUMBER at each URL, until the file exists
reload_clients.py download URL CA VERSION FILE     a download that is slow until the file exists, then fast

Once all of it has begun, there is a file FILE-sockets or FILE-VERSION.
"""

import asyncio
import os
import ssl
import sys
import time

LINE = b"".join(b"%d" % (column % 10) for column in range(63)) + b"\n"
# A piece of the download, and the pause behind it.
PIECE_BYTES = 32 << 10
PAUSE_SECONDS = 0.05


def has_begun(file, name):
    open(f"{file}-{name}", "w").close()


async def talk(url, context, file, first_message):
    """One WebSocket; returns the number of messages that came back, and calls the function for the first one."""
    from websockets.asyncio.client import connect

    count = 0
    async with connect(url, ssl=context if url.startswith("wss:") else None) as socket:
        while not os.path.exists(file):
            message = f"{count} of {url}"
            await socket.send(message)
            async with asyncio.timeout(20):
                assert await socket.recv() == message
            count += 1
            if count == 1:
                first_message()
            await asyncio.sleep(0.05)
    assert socket.close_code == 1000, socket.close_code
    return count


async def sockets(urls, authority, number, file):
    context = ssl.create_default_context(cafile=authority)
    silent = len(urls) * number

    def first_message():
        nonlocal silent
        silent -= 1
        if silent == 0:
            has_begun(file, "sockets")

    talks = [talk(url, context, file, first_message) for url in urls for _ in range(number)]
    counts = await asyncio.gather(*talks)
    assert min(counts) > 0, counts
    print(f"{len(counts)} WebSockets, {sum(counts)} messages")


def download(url, authority, version, file):
    import pycurl

    received = 0
    pattern = LINE * (PIECE_BYTES // len(LINE) + 2)

    def take(content):
        nonlocal received
        if received == 0:
            has_begun(file, version)
        begin = received % len(LINE)
        assert content == pattern[begin : begin + len(content)], f"wrong content at {received}"
        before, received = received, received + len(content)
        if before // PIECE_BYTES != received // PIECE_BYTES and not os.path.exists(file):
            time.sleep(PAUSE_SECONDS)

    # HTTP/3 and nothing else is 31.
    versions = {"1.1": pycurl.CURL_HTTP_VERSION_1_1, "2": pycurl.CURL_HTTP_VERSION_2_0, "3": 31}
    transfer = pycurl.Curl()
    for name, value in {
        "URL": url, "CAINFO": authority, "HTTP_VERSION": versions[version], "WRITEFUNCTION": take,
        "IPRESOLVE": pycurl.IPRESOLVE_V4, "FAILONERROR": True,
    }.items():
        transfer.setopt(getattr(pycurl, name), value)
    transfer.perform()
    wanted = int(url.rsplit("=", 1)[1])
    assert received == wanted, f"{received} bytes of {wanted}"
    print(f"{received} bytes over HTTP/{version}")


role, *arguments = sys.argv[1:]
if role == "sockets":
    *urls, authority, number, file = arguments
    asyncio.run(sockets(urls, authority, int(number), file))
else:
    download(*arguments)
