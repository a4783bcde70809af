"""The ways in which a member fails under load, and how a gateway has to behave.

    cases.py run CASE KIND --io IO ...     one of them; `failing_servers.py` runs all of them side by side

Each case has three members of real kinds behind one route with `timeout.response = "1s"`, and requests with unique ids
at a constant rate, of which every tenth is a POST. The member that fails is of the kind KIND.
"""

import argparse
import asyncio
import datetime
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field

import namespaces
from load import Load
from members import Gateway, Member, free_port, until
from names import NameServer

# `timeout.response` of the route.
TIMEOUT = 1.0
# No GET takes longer.
GET_WITHIN = 2.5
# The spare time of the moment until which a request counts as in flight: clocks, and a busy machine.
SPARE = 0.3
# A member that is slower by 200 ms gets less than this share of the requests after so many seconds.
SLOW_SHARE, SLOW_AFTER = 0.05, 2.0
# Requests that get the wrong response of a member as their own, before it is ejected: several in a row, and those that
# are in flight meanwhile.
LIES_MAX = 20
# A member that is well again gets requests within this time.
RETURNS_WITHIN = 60.0
# A timer that comes later than this says that the machine was busy, and times prove nothing.
LAG_MAX = 0.5

MET, MISSED, VOID = 0, 1, 75


@dataclass
class Case:
    """A fault, and the requests that may fail by it."""

    name: str
    # The kinds of members that can fail in this way; the first one in the short form.
    kinds: list
    # Called with the run: breaks the member, and makes it well again.
    fault: str
    repair: str | None = None
    # Until so long after the fault, or until the first timeout, a POST that was sent to the member may fail; `None`: no
    # POST may.
    posts: float | None = None
    # Wrong responses of the member that clients may get.
    lies: int = 0
    # Seconds of observation after the fault.
    observed: float = 2.5
    posts_every: int = 10
    h2c: bool = True
    needs: str | None = None
    # A further judgement.
    judged: str | None = None


CASES = [
    Case("stopped", ["nginx", "node", "go", "python"], "stop", "resume", posts=TIMEOUT, observed=3.5),
    Case("killed", ["node", "nginx", "go", "python"], "kill", "start", posts=0),
    Case("restarted", ["go", "nginx", "node", "python"], "crash", posts=0),
    Case("refused", ["nginx", "node", "go", "python"], "nothing", "start"),
    Case("black-holed", ["python"], "hole", "heal", posts=TIMEOUT, observed=4, h2c=False),
    Case("unrouted", ["nginx", "node", "go", "python"], "lose", "find", posts=TIMEOUT, observed=4, needs="network"),
    Case("removed-name", ["go", "nginx", "node", "python"], "remove_name", observed=5, needs="names", judged="removed"),
    Case("lost-name", ["node", "nginx", "go", "python"], "lose_names", observed=4, needs="names"),
    Case("error-500", ["nginx", "node", "go", "python"], "answer_500", "heal", lies=LIES_MAX),
    Case("garbage", ["python"], "answer_garbage", "heal", lies=LIES_MAX, h2c=False),
    Case("deaf", ["python"], "deafen", "heal", posts=TIMEOUT, observed=3.5, h2c=False),
    Case("descriptors", ["python", "nginx", "node"], "take_descriptors", "give_descriptors", posts=TIMEOUT, observed=4),
    Case("slower", ["node", "go", "python"], "slow_down", "heal", observed=5, judged="slower"),
    Case("rolling", ["all"], "roll", observed=1, posts_every=0),
]


class Run:
    """A case with its members, its gateway and its load."""

    def __init__(self, case, arguments, folder):
        self.case, self.arguments, self.folder = case, arguments, folder
        self.backlog = []
        self.distant = self.names = None
        kinds = ["nginx", "node", "go"]
        self.victim_kind = kinds[0] if arguments.kind == "all" else arguments.kind
        if self.victim_kind not in kinds:
            kinds[-1] = self.victim_kind
        tools = {"go": arguments.smoke_go}
        if case.needs == "network":
            self.distant = namespaces.Distant()
        if case.needs == "names":
            namespaces.use_name_server(folder)
            self.names = NameServer(namespaces.NAME_SERVER)
        port = free_port()
        self.members = []
        for index, kind in enumerate(kinds):
            is_distant = self.distant and kind == self.victim_kind
            address = namespaces.MEMBER if is_distant else f"127.0.0.{2 + index}" if self.names else "127.0.0.1"
            own_port = port if self.names else free_port()
            within = self.distant.within if is_distant else []
            self.members.append(Member(kind, folder, address, own_port, tools, arguments.h2c, within))
        self.victim = next(member for member in self.members if member.kind == self.victim_kind)
        self.gateway = self.load = None
        # The longest time by which a timer came late: a busy machine.
        self.lag = 0.0

    def start(self):
        for member in self.members:
            if self.case.fault != "nothing" or member is not self.victim:
                member.start()
        scheme = "h2c" if self.arguments.h2c else "http"
        if self.names:
            self.names.records["members.test"] = [member.address for member in self.members]
            servers = [f"{scheme}://members.test:{self.members[0].port}"]
        else:
            servers = [f"{scheme}://{member.address}:{member.port}" for member in self.members]
        tls = None
        if self.arguments.http != "1.1":
            subprocess.run(
                [self.arguments.blitz, "cert", "--out", self.folder, "localhost"], check=True, capture_output=True
            )
            tls = os.path.join(self.folder, "localhost.pem")
        upstream = f"servers = {json.dumps(servers)}"
        io, settings = self.arguments.io, self.arguments.settings
        self.gateway = Gateway(self.arguments.blitz, self.folder, io, upstream, tls, settings)
        self.gateway.await_ready()

    def end(self):
        for connection in self.backlog:
            connection.close()
        if self.gateway:
            self.gateway.process.stop()
        for member in self.members:
            if member.process:
                member.process.kill()
        if self.distant:
            self.distant.end()

    # The faults.

    def nothing(self):
        pass

    def stop(self):
        self.victim.process.send(signal.SIGSTOP)

    def resume(self):
        self.victim.process.send(signal.SIGCONT)

    def kill(self):
        self.victim.process.kill()

    def begin(self):
        self.victim.start()

    def crash(self):
        self.victim.process.kill()
        time.sleep(0.5)
        self.victim.start()

    def hole(self):
        self.victim.set_mode("hole")
        # It may still accept what is there.
        time.sleep(0.1)
        # Until the backlog is full, and the kernel leaves further connections without an answer.
        for _ in range(16):
            connection = socket.socket()
            connection.settimeout(0.1)
            self.backlog.append(connection)
            try:
                connection.connect((self.victim.address, self.victim.port))
            except OSError:
                return
        raise RuntimeError("the backlog does not get full")

    def lose(self):
        self.distant.lose_packets()

    def find(self):
        self.distant.find_packets()

    def remove_name(self):
        self.names.records["members.test"].remove(self.victim.address)
        # As long as the gateway may still know the address: its TTL, and the time between two look-ups.
        time.sleep(3)
        self.victim.process.kill()

    def lose_names(self):
        del self.names.records["members.test"]
        time.sleep(2)
        self.names.fails = True

    def answer_500(self):
        self.victim.set_mode("500")

    def answer_garbage(self):
        self.victim.set_mode("garbage")

    def deafen(self):
        self.victim.set_mode("deaf")

    def slow_down(self):
        self.victim.set_mode("slow")

    def heal(self):
        for connection in self.backlog:
            connection.close()
        self.victim.set_mode("ok")

    def take_descriptors(self):
        self.victim.limit_descriptors(3)

    def give_descriptors(self):
        self.victim.limit_descriptors(None)

    def roll(self):
        for member in self.members:
            member.restart()
            time.sleep(0.5)

    # The load.

    async def drive(self):
        """Runs the load; when the fault was, and when its observation ended."""
        port = self.gateway.port
        if self.arguments.http == "1.1":
            self.load = Load(port, self.arguments.rate, self.case.posts_every)
        else:
            url = f"https://localhost:{self.gateway.port_tls}"
            self.load = LoadProgram(self.arguments, url, self.case)
        running = asyncio.create_task(self.load.run())
        watching = asyncio.create_task(self.watch_lag())
        await asyncio.sleep(1)
        fault_at, fault_on_clock = time.monotonic(), time.time()
        fault = "begin" if self.case.fault == "start" else self.case.fault
        await asyncio.to_thread(getattr(self, fault))
        until_end = fault_at + self.case.observed - time.monotonic()
        await asyncio.sleep(max(until_end, 0.5))
        ended_on_clock = time.time()
        returned = None
        if self.arguments.long and self.case.repair:
            repair = "begin" if self.case.repair == "start" else self.case.repair
            await asyncio.to_thread(getattr(self, repair))
            returned = await asyncio.to_thread(self.wait_for_return)
        self.load.stop()
        await running
        watching.cancel()
        self.lag = max(self.lag, self.load.lag)
        return fault_at, fault_on_clock, ended_on_clock, returned

    async def watch_lag(self):
        while True:
            expected = time.monotonic() + 0.05
            await asyncio.sleep(0.05)
            self.lag = max(self.lag, time.monotonic() - expected)

    def wait_for_return(self):
        """Seconds until the member gets a tenth of the requests of a second again; `None` if it does not."""
        begun = time.monotonic()
        while time.monotonic() < begun + RETURNS_WITHIN:
            now = time.time()
            time.sleep(1.2)
            lines = [line for line in self.log_lines() if now <= line["at"] < now + 1]
            if lines and sum(line.get("upstream") == self.victim_address() for line in lines) >= len(lines) / 10:
                return time.monotonic() - begun
        return None

    def victim_address(self):
        return f"{self.victim.address}:{self.victim.port}"

    def log_lines(self):
        lines = []
        with open(self.gateway.log) as log:
            for text in log:
                if not text.endswith("\n"):
                    break
                line = json.loads(text)
                line["at"] = datetime.datetime.fromisoformat(line["ts"]).timestamp()
                lines.append(line)
        return lines


class LoadProgram:
    """`blitz load` over HTTP/2 or HTTP/3: GET requests, of which it counts those that fail."""

    def __init__(self, arguments, url, case):
        self.case, self.lag = case, 0.0
        self.longest = self.failures = self.completed = None
        self.command = [arguments.blitz, "load", "--http", arguments.http, "--rate", str(arguments.rate)]
        self.command += ["--duration", "10m", "--warm-up", "0s", "--connections", "4", "--streams", "100", "--quiet"]
        self.command += ["--keep-going", "--insecure", "--cores", "1", "--timeout", "15s", "--check", "status"]
        self.command += ["--json", "-", url + "/id/{{n}}"]
        self.child = None

    async def run(self):
        pipe = asyncio.subprocess.PIPE
        self.child = await asyncio.create_subprocess_exec(*self.command, stdout=pipe, stderr=pipe)
        output, errors = await self.child.communicate()
        try:
            result = json.loads(output)
        except ValueError:
            raise RuntimeError(f"blitz load: {errors.decode()}") from None
        counts = result["counts"]
        self.completed = counts["completed"]
        self.failures = {**counts["wrong"], **counts["failed"]}
        self.longest = result["times"]["latency"]["max_ns"] / 1e9

    def stop(self):
        self.child.send_signal(signal.SIGINT)


@dataclass
class Verdict:
    """The findings about a run."""

    missed: list = field(default_factory=list)
    # Missed by times alone.
    late: list = field(default_factory=list)
    figures: list = field(default_factory=list)


def judge(run, moments):
    fault_at, fault_on_clock, ended_on_clock, returned = moments
    case, load = run.case, run.load
    lines = run.log_lines()
    verdict = Verdict()
    if isinstance(load, LoadProgram):
        judge_program(case, load, verdict)
    else:
        judge_requests(run, (fault_at, fault_on_clock), lines, verdict)
    judge_posted(run, verdict)
    shares(run, (fault_on_clock, ended_on_clock), lines, verdict)
    if run.arguments.long and case.repair:
        if returned is None:
            verdict.missed.append(f"no requests within {RETURNS_WITHIN:.0f} s after it was well again")
        else:
            verdict.figures.append(f"back after {returned:.1f} s")
    return verdict


def judge_program(case, load, verdict):
    failed = sum(load.failures.values())
    verdict.figures.append(f"{load.completed + failed} GET, {failed} failed, longest {load.longest:.2f} s")
    if failed > case.lies:
        verdict.missed.append(f"{failed} GET failed: {load.failures}")
    if load.longest > GET_WITHIN:
        verdict.late.append(f"a GET took {load.longest:.2f} s")


def first_timeout(run, fault_on_clock, lines):
    """When the gateway first gave up a response after the fault, in seconds from it; `None` if it did not."""
    gave_up = [
        line["at"] + TIMEOUT - fault_on_clock
        for line in lines
        if line["at"] > fault_on_clock - TIMEOUT
        and line.get("duration", 0) >= TIMEOUT * 0.9
        and (line.get("attempts", 1) > 1 or line.get("upstream") == run.victim_address())
    ]
    return min(gave_up, default=None)


def judge_requests(run, fault, lines, verdict):
    """Each request: only those may fail that may not be repeated, and each has a line in the log."""
    fault_at, fault_on_clock = fault
    case, outcomes = run.case, run.load.outcomes
    logged = {line["path"]: line for line in lines if "path" in line}
    gets = [one for one in outcomes if one.method == "GET"]
    failed = [one for one in outcomes if one.failure]
    longest = max((one.took for one in gets), default=0)
    counts = {method: sum(one.method == method for one in failed) for method in ("GET", "POST")}
    verdict.figures.append(
        f"{len(outcomes)} requests, {counts['GET']} GET and {counts['POST']} POST failed, longest GET {longest:.2f} s"
    )
    if not outcomes:
        verdict.missed.append("there were no requests")
    if longest > GET_WITHIN:
        late = sum(one.took > GET_WITHIN for one in gets)
        verdict.late.append(f"{late} GET took more than {GET_WITHIN} s, the longest {longest:.2f} s")
    without_line = [one.number for one in failed if not explains(logged.get(f"/id/{one.number}"), one)]
    if without_line:
        verdict.missed.append(f"without a line in the log that says why: {without_line[:5]}")
    if case.lies:
        if len(failed) > case.lies:
            verdict.missed.append(f"{len(failed)} failed, more than {case.lies}: {reasons(failed, fault_at)}")
        return
    if counts["GET"]:
        own = [one for one in failed if one.method == "GET"]
        verdict.missed.append(f"{len(own)} GET failed: {reasons(own, fault_at)}")
    posts = [one for one in failed if one.method == "POST"]
    if case.posts is None and posts:
        verdict.missed.append(f"{len(posts)} POST failed: {reasons(posts, fault_at)}")
    elif posts:
        elsewhere = [
            one for one in posts if logged.get(f"/id/{one.number}", {}).get("upstream") != run.victim_address()
        ]
        if elsewhere:
            verdict.missed.append(f"{len(elsewhere)} POST failed elsewhere: {reasons(elsewhere, fault_at)}")
        known_after = case.posts
        if case.posts:
            known_after = max(known_after, first_timeout(run, fault_on_clock, lines) or 0)
        late = [one for one in posts if one.started > fault_at + known_after + SPARE]
        if late:
            verdict.late.append(f"{len(late)} POST failed that were sent later: {reasons(late, fault_at)}")


def explains(line, one):
    """Whether the line of a request has the status that its client got, and the member or the cause."""
    if line is None:
        return False
    return line.get("status") == one.status and bool(line.get("cause") or line.get("upstream"))


def reasons(failed, fault_at):
    """The failures by their reason, each with the first and the last start after the fault."""
    by_reason = {}
    for one in failed:
        by_reason.setdefault(one.failure, []).append(one.started - fault_at)
    texts = [f"{len(at)} × {reason} from {min(at):+.2f} to {max(at):+.2f} s" for reason, at in by_reason.items()]
    return ", ".join(texts)


def judge_posted(run, verdict):
    """No POST has reached two members, or one of them twice."""
    posted = [path for member in run.members for path in member.posted()]
    twice = sorted({path for path in posted if posted.count(path) > 1})
    if twice:
        verdict.missed.append(f"processed twice: {twice[:5]}")


def shares(run, observed, lines, verdict):
    """The share of the member among the requests between two moments after the fault."""
    fault, end = observed
    addresses = [f"{member.address}:{member.port}" for member in run.members]

    def share(begin):
        within = [line for line in lines if begin <= line["at"] < end and line.get("upstream") in addresses]
        own = sum(line["upstream"] == run.victim_address() for line in within)
        return own, len(within)

    if run.case.judged == "slower":
        own, all_of_them = share(fault + SLOW_AFTER)
        verdict.figures.append(f"{own} of {all_of_them} to the slow one after {SLOW_AFTER:.0f} s")
        if not all_of_them or own >= all_of_them * SLOW_SHARE:
            verdict.missed.append(f"the slow member got {own} of {all_of_them} requests")
    if run.case.judged == "removed":
        own, all_of_them = share(fault + 3)
        if not all_of_them or own:
            verdict.missed.append(f"the removed address got {own} of {all_of_them} requests")
    before = [line for line in lines if line["at"] < fault and line.get("upstream") in addresses]
    used = {line["upstream"] for line in before}
    expected = len(addresses) - (run.case.fault == "nothing")
    if len(used) < expected:
        verdict.missed.append(f"before the fault only {sorted(used)} got requests")


def execute(arguments):
    case = next(case for case in CASES if case.name == arguments.case)
    if arguments.isolated:
        namespaces.bring_up()
    with tempfile.TemporaryDirectory(prefix="blitz-failing-") as folder:
        os.chmod(folder, 0o755)
        run = None
        try:
            run = Run(case, arguments, folder)
            run.start()
            moments = asyncio.run(run.drive())
            run.gateway.process.stop()
            verdict = judge(run, moments)
        except (OSError, RuntimeError, TimeoutError, subprocess.CalledProcessError) as error:
            verdict = Verdict(missed=[f"{type(error).__name__}: {error}"])
        finally:
            if run:
                run.end()
        if arguments.keep and (verdict.missed or verdict.late):
            subprocess.run(["cp", "-r", folder, arguments.keep], check=False)
    lag = run.lag if run else 0
    outcome = MISSED if verdict.missed or verdict.late else MET
    if verdict.late and not verdict.missed and lag > LAG_MAX:
        verdict.late.append(f"the machine was busy: a timer came {lag:.2f} s late")
        outcome = VOID
    print("; ".join(verdict.missed + verdict.late + verdict.figures))
    return outcome


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["run"])
    parser.add_argument("case", choices=[case.name for case in CASES])
    parser.add_argument("kind")
    parser.add_argument("--blitz", required=True)
    parser.add_argument("--smoke-go", required=True)
    parser.add_argument("--io", default="auto")
    parser.add_argument("--http", default="1.1")
    parser.add_argument("--h2c", action="store_true")
    parser.add_argument("--rate", type=int, default=100)
    parser.add_argument("--settings", default="", help="further lines of the upstream")
    parser.add_argument("--long", action="store_true", help="observe the return of the member")
    parser.add_argument("--isolated", action="store_true", help="this process has a network and mounts of its own")
    parser.add_argument("--keep", help="a folder for the files of a run that fails")
    # The processes that it has started end with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(MISSED))
    sys.exit(execute(parser.parse_args()))


if __name__ == "__main__":
    main()
