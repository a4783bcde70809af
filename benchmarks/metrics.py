#!/usr/bin/env python3
"""The cost of reading metrics: time of the thread that answers, time of the cores, memory and size.

    cargo xtask dist
    benchmarks/metrics.py target/x86_64-unknown-linux-gnu/dist/blitz
    benchmarks/metrics.py --check 1 BLITZ       # fails beyond the goals; 5 allows five times as much

A gateway with 10,000 sites, an upstream and two cores: first with the default of metrics.series_max, which is reached,
then with room for a series of each site. Prints a table in Markdown. Times are those of the scheduler, not of a clock.
"""

import argparse
import contextlib
import http.client
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time

SITES = 10_000
CORES = 2
# More than the 500 series that a core has by default.
VISITED = 1_200
READINGS = 20
BATCH = 100
# Milliseconds of a reading: of the thread that answers, and of a core at a time.
GOALS = {"answer": 100.0, "core": 1.0}
# Series that a core copies in a turn of its loop.
SERIES_PER_TURN = 256
OPEN_METRICS = "application/openmetrics-text; version=1.0.0"
PROTOBUF = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextlib.contextmanager
def server(port, *command):
    """A server that accepts connections, killed at the end."""
    child = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
    try:
        for _ in range(400):
            if child.poll() is not None:
                sys.exit(f"{command[0]} has ended with {child.returncode}")
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.05)
        yield child.pid
    finally:
        child.kill()
        child.wait()


def visit(port, sites):
    """Requests for these sites on one connection, and so on one core."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        for first in range(0, len(sites), BATCH):
            batch = sites[first:first + BATCH]
            client.sendall(b"".join(b"GET /ping HTTP/1.1\r\nHost: s%d.example\r\n\r\n" % site for site in batch))
            received = b""
            while received.count(b"HTTP/1.1 200 OK\r\n") < len(batch) or not received.endswith(b"pong"):
                piece = client.recv(1 << 20)
                if not piece or b"HTTP/1.1 4" in piece or b"HTTP/1.1 5" in piece:
                    sys.exit(f"a request failed: {piece[:200]}")
                received += piece


def resident_kib(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status).group(1))


def cpu_ms(pid):
    """Processor time of the gateway's cores and of all other threads."""
    threads = sorted(pathlib.Path(f"/proc/{pid}/task").iterdir(), key=lambda folder: int(folder.name))
    times = []
    for thread in threads:
        nanoseconds = int((thread / "schedstat").read_text().split()[0])
        times.append(((thread / "comm").read_text().strip(), nanoseconds / 1e6))
    # The core of the control interface has the same name, and is older.
    control = next(index for index, (name, _) in enumerate(times) if name == "blitz-core-0")
    cores = [ms for index, (name, ms) in enumerate(times) if name.startswith("blitz-core-") and index != control]
    return cores, sum(ms for _, ms in times) - sum(cores)


def read(control, form=OPEN_METRICS):
    connection = http.client.HTTPConnection("127.0.0.1", control, timeout=60)
    connection.request("GET", "/metrics", headers={"Accept": form})
    response = connection.getresponse()
    content = response.read()
    assert response.status == 200, response.status
    return content


def value(text, name):
    return float(re.search(rf"^{name} (\S+)$", text, re.MULTILINE).group(1))


def measure(blitz, folder, series_max, visited):
    upstream, port, control = free_port(), free_port(), free_port()
    sites = "".join(f'"s{site}.example" = "http://127.0.0.1:{upstream}"\n' for site in range(SITES))
    file = folder / "blitz.toml"
    file.write_text(f'listen = ["127.0.0.1:{port}"]\ncontrol = {{ listen = "127.0.0.1:{control}", socket = false }}\n'
                    f"metrics.series_max = {series_max}\n[site]\n{sites}")
    with server(upstream, blitz, "run", "--listen", f"127.0.0.1:{upstream}", "--cores", 1, "--control-listen", "off"), \
            server(port, blitz, "run", "--config", file, "--cores", CORES) as pid:
        # Each core gets some of the connections.
        for _ in range(16):
            visit(port, [0])
        before = resident_kib(pid)
        for _ in range(16):
            visit(port, range(visited))
        after = resident_kib(pid)
        text = read(control).decode()
        after_reading = resident_kib(pid)
        cores_before, others_before = cpu_ms(pid)
        begun = time.monotonic()
        for _ in range(READINGS):
            content = read(control)
        wall = (time.monotonic() - begun) * 1e3 / READINGS
        cores, others = cpu_ms(pid)
        protobuf = read(control, PROTOBUF)
    series_of_core = max(1, min(visited, series_max // 20))
    turns = -(-series_of_core // SERIES_PER_TURN)
    core = max(now - then for now, then in zip(cores, cores_before)) / READINGS
    return {
        "`metrics.series_max`": f"{series_max:,}",
        "series of each core": f"{series_of_core:,}",
        "lines of requests": f"{value(text, 'blitz_metrics_series'):,.0f}",
        "size as text, as protobuf": f"{len(content) / 1e6:.2f} MB, {len(protobuf) / 1e6:.2f} MB",
        "processor time of the thread that answers": f"{(others - others_before) / READINGS:.1f} ms",
        "time until the answer has come": f"{wall:.1f} ms",
        "processor time of a core": f"{core:.2f} ms in {turns} turns",
        "memory for the first reading": f"{(after_reading - after) / 1024:.1f} MiB",
    }, {"answer": (others - others_before) / READINGS, "core": core / turns, "grown": after - before}


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("blitz", type=pathlib.Path)
    arguments.add_argument("--check", type=float, metavar="FACTOR")
    arguments = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bound, costs = measure(arguments.blitz, pathlib.Path(folder), 10_000, VISITED)
        columns = [("at the default bound", bound)]
        if arguments.check is None:
            large, with_series = measure(arguments.blitz, pathlib.Path(folder), 50 * SITES, SITES)
            _, without = measure(arguments.blitz, pathlib.Path(folder), 1, SITES)
            columns.append(("a series for each site", large))
    print(f"| a reading | {' | '.join(title for title, _ in columns)} |")
    print(f"|---|{'---|' * len(columns)}")
    for name in bound:
        print(f"| {name} | {' | '.join(column[name] for _, column in columns)} |")
    if arguments.check is None:
        of_series = (with_series["grown"] - without["grown"]) * 1024 / CORES / SITES
        print(f"\nA series takes {of_series:,.0f} bytes on each core: beyond the memory of a process without them.")
    for name, goal in GOALS.items():
        if arguments.check is not None and costs[name] > goal * arguments.check:
            sys.exit(f"{name}: {costs[name]:.2f} ms, at most {goal * arguments.check:.1f} are allowed")


if __name__ == "__main__":
    main()
