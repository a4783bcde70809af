#!/usr/bin/env python3
"""CPU time that policies add to a proxied request over HTTP/1.1, by wrk.

    cargo xtask dist
    BLITZ=target/x86_64-unknown-linux-gnu/dist/blitz benchmarks/policies.py     # 9 rounds of 3 s; about 4 minutes

The gateway runs on processor 0 with one core, wrk and the upstream (nginx) on processor 1; nothing else may run. All
requests have the same fields, and differ in their paths only; the routes take turns within a round. A figure is the
user and system time of the gateway for each response, the difference is that to the route without policies of the same
round.
"""

import argparse
import base64
import hashlib
import hmac
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

from files import BLITZ, cpu_seconds

GATEWAY, UPSTREAM = 18621, 18622
# More tokens than a core remembers.
TOKENS = 20_000
SECRET = b"0123456789abcdef0123456789abcdef"
# Name, path, goal in microseconds.
ROUTES = [
    ("no policy", "/plain", None),
    ("rate_limit", "/limited", None),
    ("cors", "/cors", None),
    ("jwt: ES256, remembered", "/token", None),
    ("jwt: ES256, remembered, rate_limit, cors", "/all", 0.6),
    ("jwt: HS256, not remembered", "/fresh", 2.0),
]
# Each request has both tokens, so that heads have the same length: `/fresh` takes that of the cookie.
SCRIPT = """
local tokens, at = {}, 0
for line in io.lines("FOLDER/tokens") do tokens[#tokens + 1] = line end
request = function()
  at = at % #tokens + 1
  wrk.headers["Cookie"] = "t=" .. tokens[at]
  return wrk.format("GET", wrk.path)
end
"""


def text(raw):
    return base64.urlsafe_b64encode(raw).rstrip(b"=")


def token(algorithm, claims, sign):
    parts = [text(json.dumps(part).encode()) for part in ({"alg": algorithm, "typ": "JWT"}, claims)]
    signed = b".".join(parts)
    return (signed + b"." + text(sign(signed))).decode()


def es256(folder):
    """A token, and the set with its key."""
    key = folder / "key.pem"
    subprocess.run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key], check=True)
    public = subprocess.run(["openssl", "ec", "-in", key, "-pubout", "-outform", "DER"], check=True,
                            capture_output=True).stdout
    keys = {"keys": [{"kty": "EC", "crv": "P-256", "alg": "ES256", "x": text(public[-64:-32]).decode(),
                      "y": text(public[-32:]).decode()}]}

    def sign(signed):
        der = subprocess.run(["openssl", "dgst", "-sha256", "-sign", key], input=signed, check=True,
                             capture_output=True).stdout
        # SEQUENCE of two INTEGER.
        first = 4 + der[3]
        numbers = der[4:first], der[first + 2:]
        return b"".join(number.lstrip(b"\0").rjust(32, b"\0") for number in numbers)

    return token("ES256", {"sub": "1", "exp": int(time.time()) + 86_400}, sign), json.dumps(keys)


def configure(folder):
    es, keys = es256(folder)
    (folder / "keys.json").write_text(keys)
    (folder / "secret").write_bytes(SECRET)
    expires = int(time.time()) + 86_400
    hs = [token("HS256", {"sub": str(number), "exp": expires}, lambda signed: hmac.digest(SECRET, signed, hashlib.sha256))
          for number in range(TOKENS)]
    (folder / "tokens").write_text("\n".join(hs))
    (folder / "fresh.lua").write_text(SCRIPT.replace("FOLDER", str(folder)))
    (folder / "blitz.toml").write_text(
        f"""listen = ["127.0.0.1:{GATEWAY}"]
control = false
server.cores = 1
[site."*"]
to = "http://127.0.0.1:{UPSTREAM}"
[site."*"."/limited"]
rate_limit = "1000000/s"
[site."*"."/cors"]
cors = ["https://app.example"]
[site."*"."/token"]
jwt = {{ keys_file = "{folder}/keys.json" }}
[site."*"."/all"]
jwt = {{ keys_file = "{folder}/keys.json" }}
rate_limit = "1000000/s"
cors = ["https://app.example"]
[site."*"."/fresh"]
jwt = {{ secret_file = "{folder}/secret", from = "cookie:t" }}
"""
    )
    (folder / "nginx.conf").write_text(
        f"""worker_processes 1; daemon off; pid {folder}/nginx.pid; error_log stderr;
events {{ worker_connections 1024; }}
http {{ access_log off; keepalive_requests 1000000000;
 server {{ listen 127.0.0.1:{UPSTREAM}; location / {{ return 200 "ok"; }} }} }}
"""
    )
    return es


def load(folder, path, seconds, es):
    """The number of responses."""
    command = ["taskset", "-c", "1", "wrk", "-t1", "-c32", f"-d{seconds}", "-H", "Origin: https://app.example",
               "-H", f"Authorization: Bearer {es}", "-s", folder / "fresh.lua", f"http://127.0.0.1:{GATEWAY}{path}"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"(\d+) requests in", ran.stdout)
    if not found or "Non-2xx" in ran.stdout or "Socket errors" in ran.stdout:
        sys.exit(f"wrk {path}:\n{ran.stdout}{ran.stderr}")
    return int(found[1])


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=9)
    arguments.add_argument("--seconds", type=int, default=3)
    arguments = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        es = configure(folder)
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        upstream = subprocess.Popen(["taskset", "-c", "1", "nginx", "-e", "stderr", "-c", folder / "nginx.conf"], **quiet)
        gateway = subprocess.Popen(["taskset", "-c", "0", BLITZ, "run", "--config", folder / "blitz.toml"], **quiet)
        times = {name: [] for name, _, _ in ROUTES}
        try:
            time.sleep(1.5)
            for number in range(arguments.rounds + 1):
                for name, path, _ in ROUTES:
                    before = cpu_seconds(gateway.pid)
                    responses = load(folder, path, arguments.seconds if number else 1, es)
                    # The first round warms up.
                    if number:
                        times[name].append((cpu_seconds(gateway.pid) - before) / responses * 1e6)
        finally:
            for process in (gateway, upstream):
                process.terminate()
                process.wait(20)
    print("| route | µs for a response | µs more than without | range | goal |\n|---|---|---|---|---|")
    for name, _, goal in ROUTES:
        more = [time - plain for time, plain in zip(times[name], times[ROUTES[0][0]])]
        spread = f"{min(more):.2f} to {max(more):.2f}"
        print(f"| {name} | {statistics.median(times[name]):.2f} | {statistics.median(more):.2f} | {spread} | {goal or ''} |")


if __name__ == "__main__":
    main()
