"""A file system that waits, and the clients that show what it holds up.

    slow_disk.py mount FOLDER           mounts it and serves it until it is stopped; needs root
    slow_disk.py check PORT METRICS     asks a running Blitz, which serves the folder as /slow and another one as /fast

The file system speaks the protocol of FUSE with the kernel itself (linux/fuse.h). It has the files 0 to 9999 of 256
KiB. Looking for one and each read take as long as WAIT says.
"""

import ctypes
import http.client
import os
import re
import struct
import sys
import threading
import time

WAIT = 3.0
SIZE = 256 * 1024
ROOT, FIRST = 1, 10
LOOKUP, FORGET, GETATTR, OPEN, READ, STATFS, RELEASE = 1, 2, 3, 14, 15, 17, 18
FLUSH, INIT, OPENDIR, INTERRUPT, DESTROY, BATCH_FORGET = 25, 26, 27, 36, 38, 42
ENOENT, ENOSYS = 2, 38
# Reads, and look-ups in a folder, come at the same time (FUSE_ASYNC_READ, FUSE_PARALLEL_DIROPS).
CONCURRENT = 1 | 1 << 18


def attributes(node):
    mode, size = (0o40755, 0) if node == ROOT else (0o100644, SIZE)
    return struct.pack("=6Q10I", node, size, 1, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def answer(op, node, body):
    """The error and the content of the reply; None if there is none."""
    if op == INIT:
        return 0, struct.pack("=4I2H2I2H8I", 7, 31, 128 * 1024, CONCURRENT, 100, 75, 128 * 1024, 1, 32, 0, *[0] * 8)
    if op == LOOKUP:
        name = body.rstrip(b"\0")
        if not re.fullmatch(rb"\d{1,4}", name):
            return ENOENT, b""
        time.sleep(WAIT)
        # Neither the name nor the attributes are remembered by the kernel.
        return 0, struct.pack("=4Q2I", FIRST + int(name), 0, 0, 0, 0, 0) + attributes(FIRST + int(name))
    if op == GETATTR:
        return 0, struct.pack("=Q2I", 0, 0, 0) + attributes(node)
    if op in (OPEN, OPENDIR):
        return 0, struct.pack("=Q2I", 0, 0, 0)
    if op == READ:
        _, offset, length = struct.unpack_from("=2QI", body)
        time.sleep(WAIT)
        return 0, bytes([node % 251]) * max(0, min(length, SIZE - offset))
    if op == STATFS:
        return 0, bytes(80)
    if op in (RELEASE, FLUSH, DESTROY):
        return 0, b""
    return None if op in (FORGET, BATCH_FORGET, INTERRUPT) else (ENOSYS, b"")


def serve(fuse, request):
    _, op, unique, node = struct.unpack_from("=2I2Q", request)
    reply = answer(op, node, request[40:])
    if reply is not None:
        error, content = reply
        try:
            os.write(fuse, struct.pack("=IiQ", 16 + len(content), -error, unique) + content)
        except OSError:
            pass  # The request was interrupted, or the file system is gone.


def mount(folder):
    libc = ctypes.CDLL(None, use_errno=True)
    fuse = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={fuse},rootmode=40000,user_id=0,group_id=0,allow_other"
    if libc.mount(b"slow", folder.encode(), b"fuse", 0, options.encode()) != 0:
        sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")
    print("mounted", flush=True)
    while True:
        try:
            request = os.read(fuse, 1 << 20)
        except OSError:
            return  # It was unmounted.
        threading.Thread(target=serve, args=(fuse, request), daemon=True).start()


def get(port, path, timeout=120):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    connection.request("GET", path, headers={"Host": f"localhost:{port}"})
    response = connection.getresponse()
    return response.status, response.getheader("Retry-After"), response.read()


def check(port, metrics):
    expected = bytes([(FIRST + 1) % 251]) * SIZE
    assert get(port, "/slow/1")[2] == expected, "a file of the slow disk"
    outcomes, lock = [], threading.Lock()

    def ask(number):
        outcome = get(port, f"/slow/{number}")
        with lock:
            outcomes.append((*outcome, number))

    # More than may wait; each holds a thread of the pool for WAIT at least.
    clients = [threading.Thread(target=ask, args=(number,), daemon=True) for number in range(300)]
    for client in clients:
        client.start()
    slowest = 0
    until = time.monotonic() + 2 * WAIT
    asked = 0
    while time.monotonic() < until:
        for path, size in [("/fast/small", 1000), ("/fast/large", 1 << 20), ("/hello", 5)]:
            since = time.monotonic()
            status, _, content = get(port, path)
            assert status == 200 and len(content) == size, f"{path}: {status}, {len(content)} bytes"
            slowest = max(slowest, time.monotonic() - since)
            asked += 1
        # Spilled to a file by the pool of blocking threads.
        since = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST", "/buffered", body=bytes(4 << 20), headers={"Host": f"localhost:{port}"})
        assert connection.getresponse().status == 502
        slowest = max(slowest, time.monotonic() - since)
        time.sleep(0.02)
    with lock:
        refused = [outcome for outcome in outcomes if outcome[0] == 503]
        assert len(refused) == len([outcome for outcome in outcomes if outcome[0] != 200]), outcomes
    # 4 are looked for and 256 wait.
    assert 30 <= len(refused) <= 40, f"{len(refused)} of 300 were refused"
    assert all(retry == "1" for _, retry, _, _ in refused), refused
    text = get(metrics, "/metrics")[2].decode()
    counted = re.search(r'^blitz_files_refused_total\{limit="waiting"\} (\d+)', text, re.M)
    assert counted and int(counted[1]) == len(refused), counted
    assert slowest < WAIT / 2, f"another request took {slowest:.1f} s"
    print(f"slow disk: {asked} other requests, the slowest {slowest * 1000:.0f} ms; {len(refused)} refused")


if sys.argv[1] == "mount":
    mount(sys.argv[2])
else:
    check(int(sys.argv[2]), int(sys.argv[3]))
