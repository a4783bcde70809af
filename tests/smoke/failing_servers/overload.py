"""Three times as many requests as a backend can answer, with `shed = true`.

    overload.py run BLITZ IO SECONDS       goodput, p99 of the accepted requests, and the time of recovery
    overload.py backend PORT               the backend: 8 requests at once, 20 ms each; others wait in it
"""

import asyncio
import heapq
import os
import sys
import tempfile
import time

from load import Load
from members import Process, free_port, until

AT_ONCE, TAKES = 8, 0.020
CAPACITY = AT_ONCE / TAKES
OVERLOAD = 3 * CAPACITY
UNLOADED = CAPACITY / 4
# The time in which the limit finds its value; goodput counts from then on.
SETTLES = 1.0
GOODPUT_SHARE, P99_FACTOR, RECOVERY = 0.9, 3.0, 2.0
# A timer of the client that comes later than this says that the machine was busy, and times prove nothing.
LAG_MAX = 0.03
# How often a void run is repeated.
ATTEMPTS_MAX = 3
MET, MISSED, VOID = 0, 1, 75
# The diagnostics of a binary without the key.
NO_KEY = ("unknown key `shed`", "`shed` is not in this version")
KEYS = "docs/keys.md"


async def serve(port):
    # When each place is free: the capacity is exact, however late timers are.
    free_at = [0.0] * AT_ONCE
    now = asyncio.get_running_loop().time

    async def connection(reader, writer):
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                path = head.split(b" ", 2)[1]
                done_at = max(now(), heapq.heappop(free_at)) + TAKES
                heapq.heappush(free_at, done_at)
                await asyncio.sleep(done_at - now())
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(path), path))
        except (OSError, asyncio.IncompleteReadError):
            writer.close()

    server = await asyncio.start_server(connection, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


def p99(outcomes):
    took = sorted(one.took for one in outcomes if not one.failure)
    return took[len(took) * 99 // 100] if took else float("inf")


async def load(port, rate, seconds):
    running = Load(port, rate)
    task = asyncio.create_task(running.run())
    await asyncio.sleep(seconds)
    running.stop()
    # The next load begins now, while these requests end.
    return running, task


async def drive(port, seconds):
    """The outcomes without overload, with it, and after it; when it began and ended, and the lag of the client."""
    before, task = await load(port, UNLOADED, min(seconds / 4, 5))
    await task
    begun = time.monotonic()
    during, during_task = await load(port, OVERLOAD, seconds)
    ended = time.monotonic()
    after, after_task = await load(port, UNLOADED, 4)
    await asyncio.gather(during_task, after_task)
    lag = max(one.lag for one in (before, during, after))
    return before.outcomes, during.outcomes, after.outcomes, begun, ended, lag


def judge(before, during, after, begun, ended, lag):
    unloaded = p99(before)
    counted = [one for one in during if begun + SETTLES <= one.ended <= ended]
    goodput = sum(not one.failure for one in counted) / (ended - begun - SETTLES)
    accepted = p99([one for one in during if one.started >= begun + SETTLES])
    limit = unloaded * P99_FACTOR
    # The last request after the end that was refused or slow.
    late = [one.started - ended for one in after if one.failure or one.took > limit]
    recovery = max(late, default=0)
    missed = []
    if goodput < CAPACITY * GOODPUT_SHARE:
        missed.append(f"the goodput is {goodput / CAPACITY:.1%} of the capacity")
    if accepted > limit:
        missed.append(f"p99 is {accepted / unloaded:.1f} times that without load")
    if recovery > RECOVERY:
        missed.append(f"a request {recovery:.1f} s after the overload was refused or slow")
    if any(one.failure for one in before):
        missed.append("requests failed before the overload")
    refused = sum(one.status == 503 for one in during)
    other = sum(bool(one.failure) and one.status != 503 for one in during)
    if other:
        missed.append(f"{other} requests failed in another way than with 503")
    figures = (
        f"goodput {goodput:.0f}/s of {CAPACITY:.0f}/s, p99 {accepted * 1000:.0f} ms, {unloaded * 1000:.0f} ms without load, "
        f"recovery after {recovery:.1f} s, {refused} of {len(during)} refused, a timer {lag * 1000:.0f} ms late"
    )
    print("; ".join(missed + [figures]))
    if missed and lag > LAG_MAX:
        print("void, because the machine was busy")
        return VOID
    return MISSED if missed else MET


def has_key(log):
    """Whether the binary has the key. One that lacks what the documents promise is a failure."""
    with open(log) as file:
        text = file.read()
    if not any(phrase in text for phrase in NO_KEY):
        sys.exit(f"the gateway does not start: {text}")
    with open(KEYS) as file:
        if any(line.startswith("| `shed`") and "not yet" not in line for line in file):
            sys.exit(f"{KEYS} has the key `shed`, and the binary does not")
    return False


def run(blitz, io, seconds):
    port, backend_port = free_port(), free_port()
    with tempfile.TemporaryDirectory(prefix="blitz-overload-") as folder:
        file, log = os.path.join(folder, "blitz.toml"), os.path.join(folder, "blitz.log")
        with open(file, "w") as out:
            out.write(
                f"""listen = ["127.0.0.1:{port}"]
control = false
server = {{ cores = 1, io = "{io}" }}

[upstream.limited]
servers = ["http://127.0.0.1:{backend_port}"]
shed = true

[site."*"]
to = "limited"
"""
            )
        command = [sys.executable, os.path.abspath(__file__), "backend", str(backend_port)]
        processes = [Process(command, os.path.join(folder, "backend.log"))]
        try:
            processes.append(Process([blitz, "run", "--config", file], log))
            gateway = processes[-1]

            def is_ready():
                try:
                    asyncio.run(probe(port))
                    asyncio.run(probe(backend_port))
                except OSError:
                    return not gateway.is_running()
                return True

            until("the gateway and its backend", is_ready)
            if not gateway.is_running() and not has_key(log):
                print("skipped: this version has no key `shed`")
                return MET
            for _ in range(ATTEMPTS_MAX):
                outcome = judge(*asyncio.run(drive(port, seconds)))
                if outcome != VOID:
                    break
            return outcome
        finally:
            for process in reversed(processes):
                process.stop()


async def probe(port):
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()


if sys.argv[1] == "backend":
    asyncio.run(serve(int(sys.argv[2])))
else:
    sys.exit(run(sys.argv[2], sys.argv[3], float(sys.argv[4])))
