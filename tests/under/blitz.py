"""The process under test: started on a free port, watched through /proc, ended by its id."""

import asyncio
import contextlib
import os
import resource
import socket
import subprocess
import tempfile

START_SECONDS = 5


class Binary:
    """A binary and the driver it is to use."""

    def __init__(self, path, io):
        self.path = path
        self.io = io

    @contextlib.asynccontextmanager
    async def running(self, *flags, nofile=None):
        """Runs `blitz run` on one core of 127.0.0.1; leaving the block ends it."""
        port = free_port()
        command = [self.path, "run", "--listen", f"127.0.0.1:{port}", "--io", self.io,
                   "--cores", "1", "--log", "warn", *flags]
        with tempfile.TemporaryFile() as log:
            child = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                     preexec_fn=nofile and (lambda: limit_files(nofile)))
            try:
                await accepts(port, child, log)
                process = Process(child.pid, port)
                yield process
                assert child.poll() is None, f"blitz ended by itself: {text_of(log)}"
            finally:
                child.kill()
                child.wait()

    def to(self, backend, **options):
        """A proxy in front of `backend`."""
        return self.running("--to", f"http://127.0.0.1:{backend.port}", **options)


class Process:
    """A running blitz."""

    def __init__(self, pid, port):
        self.pid = pid
        self.port = port

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


async def settles(read, accept, seconds=5):
    """Waits until `accept(read())` holds; returns the last value read, held or not."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not accept(value := read()) and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(0.05)
    return value


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def limit_files(count):
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))


async def accepts(port, child, log):
    for _ in range(START_SECONDS * 100):
        assert child.poll() is None, f"blitz did not start: {text_of(log)}"
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.01)
            continue
        writer.close()
        return
    raise AssertionError(f"blitz does not accept after {START_SECONDS} s: {text_of(log)}")


def text_of(log):
    log.seek(0)
    return log.read().decode(errors="replace")[-2000:].strip()
