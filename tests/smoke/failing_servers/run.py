"""Runs the cases of failing members side by side: run.py BLITZ SMOKE_GO [--long] [--only CASE,...]

The short form has one kind of member for each case on each driver. The long one has all kinds, clients with HTTP/2 and
HTTP/3, members with HTTP/2, and waits for the return of the member.
"""

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import namespaces
from cases import CASES

HERE = os.path.dirname(os.path.abspath(__file__))
MET, MISSED, VOID = 0, 1, 75
# Runs wait most of their time.
LANES = 6
WITHIN = {False: 60, True: 180}
# How often a run is repeated that a busy machine has made void.
ATTEMPTS_MAX = 3


def plan(arguments):
    """The runs: the case, and its arguments."""
    runs = []
    for case in CASES:
        if arguments.only and case.name not in arguments.only.split(","):
            continue
        for io in arguments.io.split(","):
            for kind in case.kinds if arguments.long else case.kinds[:1]:
                runs.append((case, kind, ["--io", io]))
            if arguments.long:
                for http in ("2", "3"):
                    runs.append((case, case.kinds[0], ["--io", io, "--http", http]))
                if case.h2c:
                    kind = next(kind for kind in case.kinds if kind != "python")
                    runs.append((case, kind, ["--io", io, "--h2c"]))
    # The longest first.
    return sorted(runs, key=lambda run: -run[0].observed)


def execute(arguments, isolating, run):
    case, kind, words = run
    title = " ".join([case.name, kind, *(word.removeprefix("--") for word in words)])
    if case.needs and not isolating:
        return MET, f"skipped  {title}: it needs a network and mounts of its own"
    command = [*(isolating or []), sys.executable, os.path.join(HERE, "cases.py"), "run", case.name, kind, *words]
    command += ["--blitz", arguments.blitz, "--smoke-go", arguments.smoke_go, "--settings", arguments.settings]
    command += ["--long"] * arguments.long + ["--isolated"] * bool(isolating)
    if arguments.keep:
        command += ["--keep", os.path.join(arguments.keep, title.replace(" ", "-"))]
    for _ in range(ATTEMPTS_MAX):
        code, output = attempt(command, arguments.long)
        if code != VOID:
            break
    word = {MET: "passed", VOID: "void"}.get(code, "failed")
    return code, f"{word:8} {title}: {output.strip()}"


def attempt(command, is_long):
    """The exit code and the output of a run."""
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        output, _ = child.communicate(timeout=WITHIN[is_long])
    except subprocess.TimeoutExpired:
        child.terminate()
        output, _ = child.communicate()
        output += "not in time"
    return child.returncode, output


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("blitz")
    parser.add_argument("smoke_go")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--io", default="uring,epoll")
    parser.add_argument("--settings", default="")
    parser.add_argument("--lanes", type=int, default=LANES)
    parser.add_argument("--keep")
    arguments = parser.parse_args()
    begun = time.monotonic()
    isolating = namespaces.isolating()
    codes = []
    with ThreadPoolExecutor(arguments.lanes) as pool:
        for code, line in pool.map(lambda run: execute(arguments, isolating, run), plan(arguments)):
            codes.append(code)
            print(line, flush=True)
    failed, void = sum(code not in (MET, VOID) for code in codes), codes.count(VOID)
    took = time.monotonic() - begun
    print(f"{len(codes) - failed - void} passed, {failed} failed, {void} void in {took:.0f} s")
    sys.exit(MISSED if failed or not codes else VOID if void else MET)


if __name__ == "__main__":
    main()
