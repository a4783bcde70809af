"""A network of this test alone, with its own name server settings, and a member whose packets can be lost."""

import os
import subprocess

GATEWAY, MEMBER = "10.77.0.1", "10.77.0.2"
NAME_SERVER = "127.0.0.53"


def isolating():
    """The words before a command that give it a network and mounts of its own; `None` where that is not allowed."""
    for user in ([], ["--user", "--map-root-user"]):
        words = ["unshare", *user, "--net", "--mount"]
        try:
            if subprocess.run([*words, "ip", "link", "set", "lo", "up"], capture_output=True).returncode == 0:
                return words
        except OSError:
            return None
    return None


def run(*words):
    subprocess.run(words, check=True, capture_output=True)


def bring_up():
    """The loopback interface, which is down in a new network."""
    run("ip", "link", "set", "lo", "up")


def use_name_server(folder):
    """The files of this mount namespace name the server of the test."""
    for name, text in [("resolv.conf", f"nameserver {NAME_SERVER}\n"), ("hosts", "127.0.0.1 localhost\n")]:
        file = os.path.join(folder, name)
        with open(file, "w") as out:
            out.write(text)
        run("mount", "--bind", file, f"/etc/{name}")


class Distant:
    """A network namespace behind a pair of interfaces. It ends with the process that holds it."""

    def __init__(self):
        self.holder = subprocess.Popen(["unshare", "--net", "sleep", "600"])
        # The namespace of `unshare` differs once it has made its own.
        own = os.readlink("/proc/self/ns/net")
        while os.readlink(f"/proc/{self.holder.pid}/ns/net") == own:
            pass
        run("ip", "link", "add", "near", "type", "veth", "peer", "name", "far", "netns", str(self.holder.pid))
        run("ip", "address", "add", f"{GATEWAY}/30", "dev", "near")
        run("ip", "link", "set", "near", "up")
        self.within = ["nsenter", "--net", "--target", str(self.holder.pid)]
        run(*self.within, "ip", "link", "set", "lo", "up")
        run(*self.within, "ip", "address", "add", f"{MEMBER}/30", "dev", "far")
        run(*self.within, "ip", "link", "set", "far", "up")

    def lose_packets(self):
        """Nothing comes back, and nobody is told. Without the entry the neighbour would soon count as unreachable."""
        for line in subprocess.run(["ip", "-o", "neigh"], capture_output=True, text=True).stdout.splitlines():
            words = line.split()
            if words[0] == MEMBER and "lladdr" in words:
                hardware = words[words.index("lladdr") + 1]
                run("ip", "neigh", "replace", MEMBER, "lladdr", hardware, "dev", "near", "nud", "permanent")
        run(*self.within, "ip", "route", "add", "blackhole", f"{GATEWAY}/32")

    def find_packets(self):
        run(*self.within, "ip", "route", "del", "blackhole", f"{GATEWAY}/32")

    def end(self):
        self.holder.kill()
        self.holder.wait()
