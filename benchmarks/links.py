#!/usr/bin/env python3
"""The same work over emulated links with `blitz load`, curl and h2load: whether others see what we publish.

    cargo build --profile dist --package blitz-cli --package blitz-bench --bin blitz --example link
    sudo benchmarks/links.py                         # 50 ms, 100 Mbit/s; 0, 1 and 3 % of loss; about 25 minutes
    sudo benchmarks/links.py --rounds 3 --loss 0     # a part of it
    sudo benchmarks/links.py --check                 # fails if `blitz load` is slower than others; two minutes

Each run has new connections. Prints tables in Markdown: the median and the range of whole times. Clients take turns.
Server and clients share a processor, and the emulator has the others. curl over HTTP/3 is PyPI's pycurl with ngtcp2,
which `.ci/tools` installs. Exits with 75 if the emulator was late: the tables are void.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
BLITZ = os.environ.get("BLITZ", TARGET / "dist/blitz")
LINK = TARGET / "dist/examples/link"

# Name, sizes of the responses, requests at once, connections of HTTP/1.1: as in `blitz bench protocols`.
PAGE = [61_440] + 12 * [40_960] + 25 * [15_360] + 32 * [4_096]
WORK = [
    ("500 responses of 1 KiB, 50 at once", 500 * [1024], 50, 50),
    ("2 responses of 512 KiB, one after the other", 2 * [512 * 1024], 1, 1),
    ("a page of 70 objects, 1.1 MB", PAGE, 70, 6),
]
VERSIONS = ["1.1", "2", "3"]
CLIENTS = ["blitz load", "curl", "h2load"]
UNKNOWN = "-"

# The largest ratio of the times of `blitz load` and the fastest other client, without loss: a client with waits of its
# own would distort every comparison of versions.
SLOWER_MAX = 1.05

# EX_TEMPFAIL of sysexits(3): the result is void.
VOID = 75


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=6)
    arguments.add_argument("--loss", type=int, nargs="*", default=[0, 1, 3], help="per cent")
    arguments.add_argument("--check", action="store_true", help="two rounds without loss; fails if clients disagree")
    arguments.add_argument("--client", metavar="ADDRESS", help=argparse.SUPPRESS)
    arguments.add_argument("--http3", nargs=2, metavar=("FILE", "AT_ONCE"), help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.http3:
        file, at_once = options.http3
        return print(http3_seconds(pathlib.Path(file).read_text().split(), int(at_once)))
    if options.client:
        return client(options.client, options.rounds, options.check)
    check = []
    if options.check:
        options.loss, options.rounds, check = [0], 2, ["--check"]
    # The emulator's thread finds a processor of its own.
    processor = f"taskset --cpu-list {max(os.sched_getaffinity(0))}"
    codes = []
    for loss in options.loss:
        link = "rtt=50ms,rate=100mbit" + (f",loss={loss}%" if loss else "")
        print(f"\n## `{link}`\n", flush=True)
        server = f"{processor} {BLITZ} run --cores 1 --listen-tls $SERVER:8443 >/dev/null 2>&1"
        command = [LINK, "--link", link, "--wait", "2s", "--server", server]
        own = [sys.executable, __file__, "--client", "$SERVER", "--rounds", options.rounds, *check]
        command += ["--client", f"{processor} {' '.join(str(word) for word in own)}"]
        codes.append(subprocess.run([str(word) for word in command], check=False).returncode)
    late = [] if options.check else [code for code in codes if code == VOID]
    return 1 if set(codes) - {0, VOID} else VOID if late else 0


def client(address, rounds, is_check):
    """Runs beyond the link, and prints a table for each work. The number of rows that disagree."""
    disagreements = 0
    for title, sizes, at_once, connections in WORK:
        urls = [f"https://{address}:8443/data?size={size}" for size in sizes]
        times = {}
        for number in range(rounds):
            for version in VERSIONS:
                for name in CLIENTS[number % 3:] + CLIENTS[:number % 3]:
                    if (name, version) != ("h2load", "3"):
                        print(f"{title}: HTTP/{version}, {name}", end="\r", file=sys.stderr)
                        seconds = whole_time(name, version, urls, at_once, connections)
                        times.setdefault((version, name), []).append(seconds)
        print(f"{title}:\n\n| client | {' | '.join('HTTP/' + version for version in VERSIONS)} | HTTP/3 to HTTP/2 |")
        print("|---|---|---|---|---|")
        for name in CLIENTS:
            cells = [cell(times.get((version, name))) for version in VERSIONS]
            print(f"| {name} | {' | '.join(cells)} | {ratio(times.get(('3', name)), times.get(('2', name)))} |")
        print(flush=True)
        for version in VERSIONS:
            own, *others = [min(times[version, name]) for name in CLIENTS if (version, name) in times]
            if is_check and own > min(others) * SLOWER_MAX:
                print(f"{title}: HTTP/{version}: blitz load takes {own:.3f} s, others {min(others):.3f} s")
                disagreements += 1
    return disagreements


def cell(times):
    if not times:
        return UNKNOWN
    return f"{statistics.median(times):.3f} s ({min(times):.3f} to {max(times):.3f})"


def ratio(times, before):
    """The median of the rounds, and their range."""
    if not times:
        return UNKNOWN
    ratios = [one / other for one, other in zip(times, before)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def whole_time(name, version, urls, at_once, connections):
    """Seconds from the first connection to the last byte of the last response."""
    file = pathlib.Path(f"/tmp/blitz-links-{os.getpid()}")
    file.write_text("\n".join(urls))
    connections = connections if version == "1.1" else 1
    streams = 1 if version == "1.1" else at_once
    counts = ["-c", connections, "-t", 1, "-m", streams, "-n", len(urls)]
    try:
        if name == "blitz load":
            flags = ["--json", "-", "--quiet", "--insecure", "--http", version]
            # It tries each line once before it begins.
            flags += ["--requests-file", file] if len(set(urls)) > 1 else []
            # 75: the machine was busy.
            printed = run(BLITZ, "load", *flags, *counts, urls[0], good=(0, 75))
            result = json.loads(printed)
            received = sum(int(url.split("size=")[1]) for url in urls)
            assert result["counts"]["content_bytes_received"] == received, result["counts"]
            return result["duration_s"]
        if name == "h2load":
            flags = ["--h1"] if version == "1.1" else []
            printed = run("h2load", *flags, *counts, "-i", file)
            assert f"{len(urls)} succeeded" in printed, printed
            return seconds_of(printed.split("finished in ")[1].split(",")[0])
        if version == "3":
            environment = {**os.environ, "PYTHONPATH": str(TARGET / "tools/http3")}
            return float(run(sys.executable, __file__, "--http3", file, at_once, env=environment))
        flags = ["--http2"] if version == "2" else ["--http1.1"]
        flags += ["--no-progress-meter", "--insecure", "--fail", "--parallel", "--parallel-max", at_once]
        if version == "1.1":
            flags[-1] = connections
        begun = time.perf_counter()
        run("curl", *flags, *(word for url in urls for word in ("-o", "/dev/null", url)))
        return time.perf_counter() - begun
    finally:
        file.unlink()


def seconds_of(text):
    """h2load's times, such as `95.21ms` and `1.20s`."""
    for unit, factor in (("ms", 1e-3), ("us", 1e-6), ("s", 1)):
        if text.endswith(unit):
            return float(text[:-len(unit)]) * factor
    raise ValueError(text)


def http3_seconds(urls, at_once):
    """curl's multi interface: all requests on one connection."""
    import pycurl
    multi = pycurl.CurlMulti()
    multi.setopt(pycurl.M_MAX_HOST_CONNECTIONS, 1)
    waiting, open_now = list(reversed(urls)), 0
    begun = time.perf_counter()
    done = 0
    while done < len(urls):
        while waiting and open_now < at_once:
            one = pycurl.Curl()
            for name, value in {
                "URL": waiting.pop(), "HTTP_VERSION": 31, "SSL_VERIFYPEER": 0, "SSL_VERIFYHOST": 0, "PIPEWAIT": 1,
                "WRITEFUNCTION": lambda piece: None, "TIMEOUT": 60,
            }.items():
                one.setopt(getattr(pycurl, name), value)
            multi.add_handle(one)
            open_now += 1
        multi.perform()
        _, finished, failed = multi.info_read()
        assert not failed, failed
        for one in finished:
            assert one.getinfo(pycurl.RESPONSE_CODE) == 200
            multi.remove_handle(one)
            one.close()
        done += len(finished)
        open_now -= len(finished)
        if not finished:
            multi.select(0.1)
    return time.perf_counter() - begun


def run(*command, good=(0,), **options):
    done = subprocess.run([str(word) for word in command], check=False, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=90, **options)
    assert done.returncode in good, (command, done.returncode, done.stderr)
    return done.stdout


sys.exit(main())
