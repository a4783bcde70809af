"""The servers behind the gateway, and the gateway: processes that end with this one."""

import ctypes
import http.client
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
START_WITHIN = 20.0
STOP_WITHIN = 10.0
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)


def free_port():
    """Below those that the kernel gives to connections. Where it has a network of its own, all are free."""
    for port in random.sample(range(10000, 32000), 1000):
        try:
            for each in (port, port + 1):
                with socket.socket() as probe:
                    probe.bind(("0.0.0.0", each))
        except OSError:
            continue
        return port
    sys.exit("no port is free")


def end_with_parent():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def until(what, condition, seconds=START_WITHIN):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not in time: {what}")
        time.sleep(0.01)


class Process:
    """A process group of its own."""

    def __init__(self, command, log, environment=None):
        self.child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=open(log, "ab"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=end_with_parent,
            env=environment,
        )

    def send(self, number):
        try:
            os.killpg(self.child.pid, number)
        except ProcessLookupError:
            pass

    def is_running(self):
        return self.child.poll() is None

    def stop(self, number=signal.SIGTERM):
        """Ends it in its own way, and waits for that."""
        if self.is_running():
            # A stopped process would not see it.
            self.send(signal.SIGCONT)
            self.child.send_signal(number)
        try:
            self.child.wait(STOP_WITHIN)
        except subprocess.TimeoutExpired:
            pass
        self.kill()

    def kill(self):
        self.send(signal.SIGKILL)
        self.child.wait()

    def pids(self):
        """All processes of the group."""
        found = []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{entry}/stat") as stat:
                    group = int(stat.read().rpartition(")")[2].split()[2])
            except OSError:
                continue
            if group == self.child.pid:
                found.append(int(entry))
        return found


class Member:
    """A server of one kind: nginx, node, go or python. Its name is that of its kind."""

    def __init__(self, kind, folder, address, port, tools, h2c=False, within=None):
        self.kind, self.folder, self.address, self.port, self.h2c = kind, folder, address, port, h2c
        self.smoke_go = tools["go"]
        # Words before its command: those that enter a network namespace.
        self.within = within or []
        self.modes = os.path.join(folder, f"{kind}.mode")
        self.posts = os.path.join(folder, f"{kind}.posts")
        self.process = None

    def command(self):
        words = [self.address, str(self.port), self.kind, self.posts, self.modes]
        version = ["h2c"] * self.h2c
        if self.kind == "nginx":
            return ["nginx", "-e", "stderr", "-c", self.nginx_file()]
        if self.kind == "node":
            return ["node", os.path.join(HERE, "member.mjs"), *words, *version]
        if self.kind == "go":
            return [self.smoke_go, "member", *words, *version]
        return [sys.executable, os.path.join(HERE, "member.py"), *words]

    def nginx_file(self):
        folder = os.path.join(self.folder, "nginx")
        os.makedirs(folder, exist_ok=True)
        file = os.path.join(folder, "conf")
        user = "user root;" if os.geteuid() == 0 else ""
        temporary = " ".join(
            f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        with open(file, "w") as out:
            out.write(
                f"""daemon off;
worker_processes 1;
{user}
pid {folder}/pid;
error_log stderr;
events {{ worker_connections 1000; }}
http {{
  {temporary}
  log_format posts '$request_uri';
  map $request_method $is_post {{ POST 1; default 0; }}
  access_log {self.posts} posts if=$is_post;
  keepalive_requests 50;
  server {{
    listen {self.address}:{self.port} {"http2" if self.h2c else ""};
    add_header X-Member nginx always;
    if (-f {self.modes}) {{ return 500; }}
    location / {{ return 200 "$request_uri"; }}
  }}
}}
"""
            )
        return file

    def start(self):
        self.process = Process(self.within + self.command(), os.path.join(self.folder, f"{self.kind}.log"))
        self.await_ready()

    def await_ready(self):
        def accepts():
            if not self.process.is_running():
                raise RuntimeError(f"{self.kind} has ended")
            try:
                socket.create_connection((self.address, self.port), timeout=1).close()
            except OSError:
                return False
            return True

        until(f"{self.kind} starts", accepts)

    def set_mode(self, mode):
        """`nginx` has `ok` and `500` only."""
        if self.kind == "nginx" and mode == "ok":
            os.remove(self.modes)
            return
        with open(self.modes, "w") as file:
            file.write(mode)
        if self.kind != "nginx":
            self.process.send(signal.SIGUSR2)

    def stop(self):
        """Gracefully: open requests are completed."""
        self.process.stop(signal.SIGQUIT if self.kind == "nginx" else signal.SIGTERM)

    def restart(self):
        self.stop()
        self.start()

    def limit_descriptors(self, number):
        """No descriptor from this number on is opened any more; `None` ends that."""
        for pid in self.process.pids():
            _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (number or hard, hard))

    def posted(self):
        """The paths of the POST requests that it has received."""
        try:
            with open(self.posts) as file:
                return file.read().split()
        except FileNotFoundError:
            return []


class Gateway:
    """The binary under test before members, with a log of all requests."""

    def __init__(self, blitz, folder, io, upstream, tls=None, settings=""):
        self.port, self.port_tls = free_port(), None
        self.log = os.path.join(folder, "access.log")
        listeners = f'listen = ["127.0.0.1:{self.port}"]\n'
        site = ""
        if tls:
            self.port_tls = self.port + 1
            listeners += f'listen_tls = ["127.0.0.1:{self.port_tls}"]\ncertificates = ["{tls}"]\n'
            site = "tls = true\nhttps_redirect = false\n"
        file = os.path.join(folder, "blitz.toml")
        with open(file, "w") as out:
            out.write(
                f"""{listeners}control = false
log.access = "{self.log}"

[server]
cores = 2
io = "{io}"

[upstream.app]
{upstream}
{settings}
[site."{"localhost" if tls else "*"}"]
{site}to = "app"
timeout.response = "1s"
"""
            )
        self.process = Process([blitz, "run", "--config", file], os.path.join(folder, "blitz.log"))

    def await_ready(self):
        def responds():
            if not self.process.is_running():
                raise RuntimeError("the gateway has ended")
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
                connection.request("GET", "/ready", headers={"Host": "localhost"})
                return connection.getresponse().status == 200
            except OSError:
                return False

        until("the gateway responds", responds)
