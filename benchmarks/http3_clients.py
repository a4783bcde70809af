#!/usr/bin/env python3
"""What a request over HTTP/2 and HTTP/3 costs a server, with clients of ours and of others.

    cargo build --profile dist --package blitz-cli --bin blitz
    cargo build --profile dist --package blitz-http --example http3_load
    benchmarks/http3_clients.py                      # two loads, five rounds; four minutes

Server and client have a processor each. The client of others is h2load over HTTP/2, and one with the crates `h3` and
`quinn` over HTTP/3. Prints a table in Markdown with the medians: CPU time of the server, its system calls (counted with
`perf stat`, as root), its share of idle time, and the packets and UDP datagrams of both directions for a request.
"""

import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
BLITZ = os.environ.get("BLITZ", TARGET / "dist/blitz")
CLIENT = TARGET / "dist/examples/http3_load"
PORT = 18443
TICKS = os.sysconf("SC_CLK_TCK")
SECONDS = 4
# Connections and requests at once on each.
LOADS = [(32, 32), (1, 16)]
CLIENTS = ["blitz load, HTTP/2", "h2load, HTTP/2", "blitz load, HTTP/3", "h3 and quinn, HTTP/3"]


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--io", default="uring", choices=["uring", "epoll"])
    options = arguments.parse_args()
    for connections, streams in LOADS:
        runs = {name: [] for name in CLIENTS}
        for number in range(options.rounds):
            for name in CLIENTS[number % 4:] + CLIENTS[:number % 4]:
                runs[name].append(run(name, options.io, connections, streams))
        print(f"\n`-c {connections} -m {streams}`, {options.io}:\n")
        print("| client | CPU µs/req | HTTP/3 to HTTP/2 | req/s | idle | system calls/req | packets/req | datagrams/req |")
        print("|---|---|---|---|---|---|---|---|")
        for name in CLIENTS:
            cpu, rate, idle, calls, packets, datagrams = map(statistics.median, zip(*runs[name]))
            over_http2 = runs[CLIENTS[CLIENTS.index(name) - 2]]
            ratios = [one[0] / other[0] for one, other in zip(runs[name], over_http2)]
            ratio = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
            print(f"| {name} | {cpu:.2f} | {ratio if 'HTTP/3' in name else ''} | {rate:,.0f} | {idle:.0%} "
                  f"| {calls:.4f} | {packets:.3f} | {datagrams:.3f} |")


def run(name, io, connections, streams):
    with tempfile.TemporaryDirectory() as state:
        environment = {**os.environ, "XDG_STATE_HOME": state}
        quiet = {"env": environment, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        listen = ["--cores", "1", "--listen-tls", f"127.0.0.1:{PORT}"]
        server = subprocess.Popen(["taskset", "-c", "0", BLITZ, "run", "--io", io, *listen], **quiet)
        try:
            time.sleep(1)
            return measure(name, server.pid, pathlib.Path(state) / "blitz/ca.pem", connections, streams, environment)
        finally:
            server.terminate()
            server.wait()


def measure(name, server, authority, connections, streams, environment):
    url = f"https://localhost:{PORT}/hello"
    load = ["-c", connections, "-m", streams, "-t", 1]
    if name.startswith("blitz"):
        command = [BLITZ, "load", "--json", "-", "--quiet", "--insecure", "--warm-up", "0s", "-d", f"{SECONDS}s", *load,
                   "--http", name[-1], url]
    elif name.startswith("h2load"):
        command = ["h2load", *load, "-D", SECONDS, "--warm-up-time=0", url]
    else:
        command = [CLIENT, url, "--ca", authority, "-c", connections, "-m", streams, "-t", SECONDS, "--json"]
    perf = subprocess.Popen(["perf", "stat", "-x,", "-e", "raw_syscalls:sys_enter", "-p", str(server)],
                            stderr=subprocess.PIPE, text=True)
    time.sleep(0.3)
    before = cpu_seconds(server), packets(), datagrams()
    done = subprocess.run(["taskset", "-c", "1", *map(str, command)], env=environment, text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    after = cpu_seconds(server), packets(), datagrams()
    perf.send_signal(signal.SIGINT)
    counted = perf.communicate()[1].split(",")[0]
    if not counted.isdigit():
        sys.exit(f"perf counts no system calls; run this as root with perf for this kernel: {counted}")
    calls = int(counted)
    assert done.returncode in (0, 75), (command, done.stderr)
    if name.startswith("blitz"):
        requests = json.loads(done.stdout)["counts"]["completed"]
    elif name.startswith("h2load"):
        requests = int(done.stdout.split(" succeeded")[0].rsplit(" ", 1)[1])
    else:
        requests = json.loads(done.stdout)["requests"]
    cpu, packet, datagram = (now - then for now, then in zip(after, before))
    return (cpu / requests * 1e6, requests / SECONDS, 1 - cpu / SECONDS, calls / requests, packet / requests,
            datagram / requests)


def cpu_seconds(process):
    user, system = pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
    return (int(user) + int(system)) / TICKS


def packets():
    """Those of the loopback interface."""
    lines = pathlib.Path("/proc/net/dev").read_text().splitlines()
    return int(next(line for line in lines if line.strip().startswith("lo:")).split(":")[1].split()[1])


def datagrams():
    names, values = [line.split() for line in pathlib.Path("/proc/net/snmp").read_text().splitlines()
                     if line.startswith("Udp:")]
    return int(values[names.index("InDatagrams")])


main()
