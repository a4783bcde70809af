"""Two gateways share limits by a server with the protocol of Redis: redis.py BLITZ SERVER FOLDER"""

import http.client
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time

blitz, server, folder = sys.argv[1:]
os.makedirs(folder)
PASSWORD = "a-password-of-the-test"
RATE, BURST, INSTANCES = 100, 100, 2
# One lease of a process is a quarter of the burst for each of them.
BOUND = 2 * INSTANCES * (BURST // (4 * INSTANCES))
# A request that waits for the server would take at least its timeout.
TIMEOUT = 0.5
SLOW = 0.2


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(what, condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"not in time: {what}")
        time.sleep(0.02)


class Link:
    """A TCP proxy before the server. It can stop forwarding without closing anything, as a partition does."""

    def __init__(self, target):
        self.target = target
        self.forwards = True
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            threading.Thread(target=self.forward, args=(client,), daemon=True).start()

    def forward(self, client):
        while not self.forwards:
            time.sleep(0.02)
        try:
            upstream = socket.create_connection(("127.0.0.1", self.target))
        except OSError:
            return client.close()
        pairs = {client: upstream, upstream: client}
        try:
            while True:
                for ready in select.select(list(pairs), [], [])[0]:
                    data = ready.recv(1 << 16)
                    while not self.forwards:
                        time.sleep(0.02)
                    if not data:
                        return
                    pairs[ready].sendall(data)
        except OSError:
            pass
        finally:
            client.close()
            upstream.close()


class Store:
    def __init__(self):
        self.port = free_port()
        self.process = None

    def start(self):
        arguments = [server, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        arguments += ["--requirepass", PASSWORD, "--dir", folder]
        log = open(os.path.join(folder, "server.log"), "a")
        self.process = subprocess.Popen(arguments, stdout=log, stderr=log)
        wait_for("the server", lambda: self.ask("PING") == b"+PONG\r\n")

    def ask(self, *words):
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                connection.sendall(b"AUTH %s\r\n" % PASSWORD.encode() + " ".join(words).encode() + b"\r\nQUIT\r\n")
                received = b""
                while data := connection.recv(1 << 16):
                    received += data
                return received.removeprefix(b"+OK\r\n").removesuffix(b"+OK\r\n")
        except OSError:
            return b""

    def send(self, number):
        self.process.send_signal(number)


class Gateway:
    def __init__(self, link, name):
        self.port, self.control = free_port(), free_port()
        path = os.path.join(folder, f"{name}.toml")
        with open(path, "w") as file:
            file.write(
                f"""control = {{ listen = "127.0.0.1:{self.control}", socket = false }}
listen = ["127.0.0.1:{self.port}"]
redis = {{ url = "redis://:${{REDIS_PASSWORD}}@127.0.0.1:{link.port}/1", timeout = "{int(TIMEOUT * 1000)}ms" }}

[site."*"]
respond = 204
"/limited".rate_limit = {{ rate = "{RATE}/s", burst = {BURST}, by = "header:x-key", store = "redis" }}
"/slow".rate_limit = {{ rate = "4/h", by = "header:x-key", store = "redis" }}
"/open".rate_limit = {{ rate = "1/h", store = "redis", on_failure = "open" }}
"/closed".rate_limit = {{ rate = "1000000/s", store = "redis", on_failure = "closed" }}
"""
            )
        self.log = os.path.join(folder, f"{name}.log")
        environment = dict(os.environ, REDIS_PASSWORD=PASSWORD)
        arguments = [blitz, "run", "--config", path, "--cores", "1"]
        self.process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=open(self.log, "w"), env=environment)
        wait_for(name, lambda: self.metric("blitz_ready") == 1)

    def metric(self, name):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.control, timeout=10)
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
            connection.close()
        except OSError:
            return None
        values = [line.split()[1] for line in text.splitlines() if line.split(" ")[0] == name]
        return float(values[0]) if values else None

    def is_up(self):
        return self.metric("blitz_rate_limit_store_up") == 1


class Load:
    """Asks a gateway again and again. Keeps the time and status of each response, and how long it took."""

    def __init__(self, gateway, path, key, pause=0.0):
        self.gateway, self.path, self.key, self.pause = gateway, path, key, pause
        self.results, self.ended = [], threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.gateway.port, timeout=30)
        while not self.ended.is_set():
            started = time.monotonic()
            connection.request("GET", self.path, headers={"X-Key": self.key})
            response = connection.getresponse()
            response.read()
            ended = time.monotonic()
            self.results.append((ended, response.status, ended - started))
            time.sleep(self.pause)
        connection.close()

    def end(self):
        self.ended.set()
        self.thread.join()
        return self.results


def limit_holds(gateways, key, seconds=10):
    """As many requests as the gateways take, for a key that is new. Counts those that pass."""
    started = time.monotonic()
    loads = [Load(gateway, "/limited", key, 0.001) for gateway in gateways]
    time.sleep(seconds)
    results = [result for load in loads for result in load.end()]
    elapsed = max(ended for ended, _, _ in results) - started
    passed = sum(status == 204 for _, status, _ in results)
    assert {status for _, status, _ in results} <= {204, 429}, "another status"
    limit = BURST + RATE * elapsed
    print(f"{passed} of {len(results)} requests passed in {elapsed:.2f} s; the limit is {limit:.0f}, and the bound {BOUND} above")
    assert passed <= limit + BOUND, "more than the limit and the bound"
    assert passed >= limit * 0.85, "much less than the limit"


def slow_client_has_the_limit(gateway):
    """Requests with pauses in which tokens go back to the server: as many pass as the limit allows."""
    statuses = []
    for _ in range(6):
        load = Load(gateway, "/slow", "slow", 2)
        time.sleep(0.1)
        statuses += [status for _, status, _ in load.end()]
    print(f"one request in two seconds with four in an hour: {statuses}")
    assert statuses == [204] * 4 + [429] * 2, statuses


def keys(store):
    return set(store.ask("SELECT 1\r\nKEYS blitz:rate:*").decode().split())


def survives(name, gateways, break_it, repair_it):
    """The server fails under load, and comes back."""
    plan = [("/limited", "a"), ("/limited", "b"), ("/open", "c"), ("/closed", "d")]
    loads = [(gateway, path, Load(gateway, path, key + name, 0.002)) for gateway in gateways for path, key in plan]
    time.sleep(1)
    # Keys that are new all the time.
    failed = time.monotonic()
    break_it()
    wait_for(f"{name}: the failure is noticed", lambda: not any(gateway.is_up() for gateway in gateways))
    time.sleep(2)
    noticed = [gateway.metric("blitz_rate_limit_store_up") for gateway in gateways]
    repaired = time.monotonic()
    repair_it()
    wait_for(f"{name}: recovery", lambda: all(gateway.is_up() for gateway in gateways))
    time.sleep(1)
    times = []
    for _, path, load in loads:
        results = load.end()
        statuses = {status for _, status, _ in results}
        allowed = {"/limited": {204, 429}, "/open": {204, 429}, "/closed": {204, 429, 503}}[path]
        assert statuses <= allowed, f"{name}: {path} had {statuses}"
        times += [took for _, _, took in results]
        during = [status for ended, status, _ in results if failed + TIMEOUT + 1 < ended < repaired]
        if path == "/open":
            assert set(during) == {204}, f"{name}: /open had {set(during)}"
        if path == "/closed":
            assert set(during) == {503}, f"{name}: /closed had {set(during)}"
            assert results[-1][1] == 204, f"{name}: /closed is {results[-1][1]} after the recovery"
        if path == "/limited":
            assert 204 in during, f"{name}: no share of the limit"
    assert noticed == [0, 0], noticed
    times.sort()
    p99 = times[len(times) * 99 // 100]
    print(f"{name}: {len(times)} requests, p99 {p99 * 1000:.2f} ms, longest {times[-1] * 1000:.2f} ms")
    assert p99 < SLOW / 4 and times[-1] < TIMEOUT, f"{name}: a request waited"
    for gateway in gateways:
        text = open(gateway.log).read()
        assert text.count("does not answer") >= 1 and text.count("answers again") >= 1, f"{name}: the log lacks a line"
        assert PASSWORD not in text, "the password is in the log"


def main():
    store = Store()
    store.start()
    link = Link(store.port)
    gateways = [Gateway(link, f"gateway-{number}") for number in range(INSTANCES)]
    try:
        wait_for("both", lambda: all(one.metric("blitz_rate_limit_store_instances") == INSTANCES for one in gateways))
        limit_holds(gateways, "first")
        names = store.ask("SELECT 1\r\nKEYS *").decode()
        assert "blitz:rate:" in names and "first" not in names, names
        slow_client_has_the_limit(gateways[0])
        survives("killed", gateways, lambda: (store.send(signal.SIGKILL), store.process.wait()), store.start)
        survives("paused", gateways, lambda: store.send(signal.SIGSTOP), lambda: store.send(signal.SIGCONT))

        def set_forwarding(forwards):
            link.forwards = forwards

        survives("partitioned", gateways, lambda: set_forwarding(False), lambda: set_forwarding(True))
        wait_for("both", lambda: all(one.metric("blitz_rate_limit_store_instances") == INSTANCES for one in gateways))
        before = keys(store)
        limit_holds(gateways, "last")
        # Keys expire; those of limits per hour do so later.
        wait_for("keys expire", lambda: not any(key.startswith("blitz:rate:") for key in keys(store) - before))
    finally:
        store.send(signal.SIGCONT)
        for process in [gateway.process for gateway in gateways] + [store.process]:
            process.terminate()
            process.wait()


main()
