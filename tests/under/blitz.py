"""The process under test: started on a free port, observed through /proc, killed by its id."""

import asyncio
import contextlib
import json
import os
import resource
import socket
import ssl
import subprocess
import tempfile

START_SECONDS = 5
STOP_SECONDS = 40


class Binary:
    """A binary and its driver."""

    def __init__(self, path, io):
        self.path = path
        self.io = io

    @contextlib.asynccontextmanager
    async def running(self, *flags, cores=1, nofile=None, cpus=None):
        """Runs `blitz run` on 127.0.0.1 until the block is left.

        With `cpus` it runs on these processors only, with realtime priority.
        """

        def prepare():
            if nofile:
                limit_files(nofile)
            if cpus:
                os.sched_setaffinity(0, cpus)
                use_realtime_priority()

        port = free_port()
        command = [self.path, "run", "--control-listen", "off", "--listen", f"127.0.0.1:{port}", "--io", self.io,
                   "--cores", str(cores), "--log", os.environ.get("UNDER_LOG", "warn"), *flags]
        with tempfile.TemporaryFile() as log:
            child = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                     preexec_fn=prepare,
                                     env={**os.environ, "BLITZ_REACTOR_COUNTERS": "1"})
            try:
                await wait_until_listening(port, child, log)
                process = Process(child, port, log)
                yield process
                assert process.is_stopped or child.poll() is None, \
                    f"blitz ended unexpectedly: {text_of(log)}"
            finally:
                child.kill()
                child.wait()

    def proxy_to(self, backend, **options):
        """Runs a proxy to `backend`."""
        return self.running("--to", f"http://127.0.0.1:{backend.port}", **options)


class Process:
    """A running blitz."""

    def __init__(self, child, port, log):
        self.child = child
        self.pid = child.pid
        self.port = port
        self.log = log
        self.is_stopped = False

    def stop(self):
        """Stops it with TERM; returns the counters of its reactor."""
        self.is_stopped = True
        self.child.terminate()
        self.child.wait(STOP_SECONDS)
        lines = [line for line in text_of(self.log).splitlines() if line.startswith("{")]
        return json.loads(lines[-1])

    def rss_bytes(self):
        return self._status("VmRSS")

    def peak_rss_bytes(self):
        return self._status("VmHWM")

    def open_files(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def cpu_seconds(self):
        with open(f"/proc/{self.pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _status(self, name):
        with open(f"/proc/{self.pid}/status") as file:
            for line in file:
                if line.startswith(name + ":"):
                    return int(line.split()[1]) * 1024
        raise ValueError(f"no {name} in the status of {self.pid}")


@contextlib.contextmanager
def listening_tls(binary):
    """Flags for a TLS listener, its port, and a client context that trusts its certificate."""
    port = free_port_of_both()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([binary.path, "cert", "--out", folder, "localhost"], check=True,
                       stdout=subprocess.DEVNULL)
        flags = ["--listen-tls", f"127.0.0.1:{port}", "--cert", f"{folder}/localhost.pem",
                 "--key", f"{folder}/localhost.key"]
        yield flags, port, client_context(f"{folder}/ca.pem")


def client_context(ca):
    """A TLS context of an HTTP/2 client."""
    context = ssl.create_default_context(cafile=ca)
    context.set_alpn_protocols(["h2"])
    return context


def client_hello(context):
    """The first TLS message of a client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


async def wait_for(read, accept, seconds=5):
    """Waits until `accept(read())` is true, at most `seconds`; returns the last value of `read()`."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not accept(value := read()) and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(0.05)
    return value


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def free_port_of_both():
    """A port that is free for TCP, and for the UDP of HTTP/3."""
    while True:
        port = free_port()
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind(("127.0.0.1", port))
            return port


def use_realtime_priority():
    """Gives this process realtime priority, if that is permitted."""
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def raise_file_limit(count):
    """Raises the file limit of this process and its children to `count`. Blitz uses its whole limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        raise RuntimeError(f"{count} open files are required, and the hard limit is {hard}:"
                           f" `ulimit -Hn {count}`, as root")
    if soft != resource.RLIM_INFINITY and soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def limit_files(count):
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))


async def wait_until_listening(port, child, log):
    for _ in range(START_SECONDS * 100):
        assert child.poll() is None, f"blitz did not start: {text_of(log)}"
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.01)
            continue
        writer.close()
        return
    raise AssertionError(f"blitz does not listen after {START_SECONDS} s: {text_of(log)}")


def text_of(log):
    log.seek(0)
    return log.read().decode(errors="replace")[-2000:].strip()
