#!/usr/bin/env python3
"""CPU time of static files beside nginx and Caddy, by wrk (HTTP/1.1), h2load (HTTP/2) and `blitz load` (HTTP/3).

    cargo build --profile dist --package blitz-cli --bin blitz
    benchmarks/files.py                          # all rows, 7 rounds of 2 s; about 20 minutes
    benchmarks/files.py --rounds 2 --only h1     # a part of it

Servers run on processor 0, one at a time and with one thread, clients on processor 1; nothing else may run. The servers
take turns within a round. A figure is the user and system time of the server's processes for each response; ratios are
those of a round, with their median and range. Programs that are not installed are left out.
"""

import argparse
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
BLITZ = os.environ.get("BLITZ", str(TARGET / "dist/blitz"))
CLEAR = {"blitz": 18601, "epoll": 18602, "nginx": 18603}
TLS = {"blitz": 18611, "epoll": 18612, "nginx": 18613, "caddy": 18614}

# Name, client, path, servers; the ratios are to the first.
ROWS = [
    ("h1-1k", "wrk", "/1k", ["hello", "blitz", "epoll", "nginx"]),
    ("h1-1m", "wrk", "/1m", ["nginx", "blitz", "epoll"]),
    ("h1-tls-1m", "wrk-tls", "/1m", ["nginx", "blitz"]),
    ("h2-1k", "h2load", "/1k", ["nginx", "blitz", "caddy"]),
    ("h2-1m", "h2load", "/1m", ["nginx", "blitz", "caddy"]),
    ("h3-1k", "load-h3", "/1k", ["caddy", "blitz"]),
    ("h3-1m", "load-h3", "/1m", ["caddy", "blitz"]),
]


def configure(folder):
    """Writes the files to serve and the configurations of the servers."""
    www = folder / "www"
    www.mkdir()
    (www / "1k").write_bytes(os.urandom(1 << 10))
    (www / "1m").write_bytes(os.urandom(1 << 20))
    subprocess.run([BLITZ, "cert", "--out", folder, "localhost"], check=True, stdout=subprocess.DEVNULL)
    cert, key = folder / "localhost.pem", folder / "localhost.key"
    for name in ("blitz", "epoll"):
        (folder / f"{name}.toml").write_text(
            f"""listen = ["127.0.0.1:{CLEAR[name]}"]
listen_tls = ["127.0.0.1:{TLS[name]}"]
certificates = ["{cert}"]
control = false
server.cores = 1
[site."*"]
files = "{www}"
"/hello".respond = "200 Hello"
[site."localhost"]
files = "{www}"
tls = true
https_redirect = false
"""
        )
    (folder / "nginx.conf").write_text(
        f"""worker_processes 1; daemon off; pid {folder}/nginx.pid; error_log stderr;
events {{ worker_connections 1024; }}
http {{ sendfile on; tcp_nopush on; access_log off; keepalive_requests 1000000000;
 default_type application/octet-stream;
 server {{ listen 127.0.0.1:{CLEAR["nginx"]}; listen 127.0.0.1:{TLS["nginx"]} ssl http2; root {www};
  ssl_certificate {cert}; ssl_certificate_key {key}; ssl_protocols TLSv1.3; }} }}
"""
    )
    (folder / "Caddyfile").write_text(
        f"""{{
	admin off
	auto_https off
}}
https://localhost:{TLS["caddy"]} {{
	tls {cert} {key}
	root * {www}
	file_server
}}
"""
    )
    folder.chmod(0o755)


def command(server, folder):
    if server == "nginx":
        return ["nginx", "-e", "stderr", "-c", folder / "nginx.conf"]
    if server == "caddy":
        return ["caddy", "run", "--config", folder / "Caddyfile", "--adapter", "caddyfile"]
    name = "epoll" if server == "epoll" else "blitz"
    driver = ["--io", "epoll"] if server == "epoll" else []
    return [BLITZ, "run", "--config", folder / f"{name}.toml", *driver]


def processes(root):
    """The process and its children."""
    found = [root]
    for entry in os.listdir("/proc"):
        try:
            stat = pathlib.Path(f"/proc/{entry}/stat").read_text()
        except OSError:
            continue
        if entry.isdigit() and int(stat.rpartition(")")[2].split()[1]) == root:
            found.append(int(entry))
    return found


def cpu_seconds(root):
    ticks = 0
    for process in processes(root):
        fields = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def load(client, server, path, seconds):
    """The number of good responses."""
    name = "blitz" if server == "hello" else server
    path = "/hello" if server == "hello" else path
    clear, tls = f"http://127.0.0.1:{CLEAR.get(name)}{path}", f"https://localhost:{TLS.get(name)}{path}"
    commands = {
        "wrk": ["wrk", "-t1", "-c32", f"-d{seconds}", clear],
        "wrk-tls": ["wrk", "-t1", "-c32", f"-d{seconds}", tls],
        "h2load": ["h2load", "-t1", "-c8", "-m8", "-w24", "-W26", "-D", str(seconds), tls],
        "load-h3": [BLITZ, "load", "--http", "3", "--insecure", "-t", "1", "-c", "8", "-m", "8", "--warm-up", "0s"]
        + ["-d", f"{seconds}s", "--expect-status", "200", tls],
    }
    ran = subprocess.run(["taskset", "-c", "1", *commands[client]], capture_output=True, text=True)
    patterns = {
        "wrk": r"(\d+) requests in",
        "wrk-tls": r"(\d+) requests in",
        "h2load": r"(\d+) succeeded, 0 failed",
        "load-h3": r"Requests +([\d,]+) ",
    }
    found = re.search(patterns[client], ran.stdout)
    if not found or "Errors" in ran.stdout or "Non-2xx" in ran.stdout or "Socket errors" in ran.stdout:
        sys.exit(f"{client} at {server}:\n{ran.stdout}{ran.stderr}")
    return int(re.sub(r"\D", "", found[1]))


def measure(server, client, path, folder, seconds):
    """Microseconds of CPU time for each response."""
    process = subprocess.Popen(
        ["taskset", "-c", "0", *command(server, folder)],
        cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    try:
        time.sleep(1.5)
        load(client, server, path, 1)
        before = cpu_seconds(process.pid)
        responses = load(client, server, path, seconds)
        return (cpu_seconds(process.pid) - before) / responses * 1e6
    finally:
        for child in reversed(processes(process.pid)):
            os.kill(child, signal.SIGTERM)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            # Caddy waits for connections of HTTP/3 that are gone.
            process.kill()
            process.wait()


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--seconds", type=int, default=2)
    arguments.add_argument("--only", default="", help="beginning of the names of rows")
    arguments = arguments.parse_args()
    print("| row | server | µs for a response | ratio to the first | range |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        configure(folder)
        for name, client, path, servers in ROWS:
            if not name.startswith(arguments.only):
                continue
            servers = [server for server in servers if server not in ("nginx", "caddy") or shutil.which(server)]
            times = {server: [] for server in servers}
            for _ in range(arguments.rounds):
                for server in servers:
                    times[server].append(measure(server, client, path, folder, arguments.seconds))
            for server in servers:
                ratios = [time / first for time, first in zip(times[server], times[servers[0]])]
                median, ratio = statistics.median(times[server]), statistics.median(ratios)
                spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
                print(f"| {name} | {server} | {median:.1f} | {ratio:.2f} | {spread} |", flush=True)


if __name__ == "__main__":
    main()
