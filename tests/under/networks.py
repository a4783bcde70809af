"""Network namespaces: a program in one of its own, and pairs of them. They need `unshare` and `ip`, and root or
permission to make namespaces of users."""

import asyncio
import subprocess
import sys

# As root, and as another user.
WAYS = [["--net"], ["--user", "--map-root-user", "--net"]]
WITH_LOOPBACK = ["sh", "-c", "ip link set lo up && exec \"$@\"", "sh"]


def way():
    """The arguments of `unshare` that work here."""
    refused = []
    for arguments in WAYS:
        tried = subprocess.run(["unshare", *arguments, *WITH_LOOPBACK, "true"], capture_output=True, text=True)
        if tried.returncode == 0:
            return arguments
        refused.append(tried.stderr.strip())
    raise RuntimeError(f"a network namespace is required: {'; '.join(refused)}")


async def run_alone(program, *arguments):
    """Runs a Python program in a new namespace; returns its output."""
    child = await asyncio.create_subprocess_exec(
        "unshare", *way(), *WITH_LOOPBACK, sys.executable, program, *arguments,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        output, errors = await child.communicate()
    except asyncio.CancelledError:
        # It has to stop its own children.
        child.terminate()
        await child.communicate()
        raise
    if child.returncode != 0:
        raise RuntimeError(f"{program} failed: {errors.decode(errors='replace')[-2000:].strip()}")
    return output.decode()


async def start_beyond(addresses, own, program, *arguments):
    """Starts a Python program in another new namespace, which has `addresses` and a link to this one, which has
    the address `own`. Addresses have their prefix length. The program begins with a line of output, and may wait
    for a line of input until its caller is ready."""
    child = await asyncio.create_subprocess_exec(
        "unshare", "--net", sys.executable, program, *arguments,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        # Its namespace exists then.
        if not await child.stdout.readline():
            raise RuntimeError((await child.stderr.read()).decode(errors="replace"))
        ip("link", "add", "here", "type", "veth", "peer", "name", "beyond", "netns", str(child.pid))
        ip("addr", "add", own, "dev", "here")
        ip("link", "set", "here", "up")
        beyond = ["nsenter", "--net", f"--target={child.pid}", "ip"]
        for address in addresses:
            subprocess.run([*beyond, "addr", "add", address, "dev", "beyond"], check=True)
        subprocess.run([*beyond, "link", "set", "beyond", "up"], check=True)
    except BaseException:
        child.kill()
        raise
    return child


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True)
