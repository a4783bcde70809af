#!/usr/bin/env python3
"""Tests of Blitz under hostile conditions, on both drivers. They need only Python and Blitz, and those of
HTTP/3 aioquic, which `.ci/run tools` installs. `h3_moves` also needs network namespaces.

    tests/under/run.py target/release/blitz                  all scenarios
    tests/under/run.py target/release/blitz soak             one scenario
    tests/under/run.py target/release/blitz half_close --io epoll

A scenario is a module in scenarios/ with `async def run(binary)`, a time limit `SECONDS`, and `FILES` if
a process needs more open files than the default. A scenario fails by raising; its return value is printed
after its name. Each attack lasts ATTACK_SECONDS.
"""

import argparse
import asyncio
import importlib
import pathlib
import sys
import time

from blitz import Binary, raise_file_limit

SCENARIOS = pathlib.Path(__file__).parent / "scenarios"
# A separate step of .ci/run.
NOT_BY_DEFAULT = {"soak"}
# Default: the largest other scenario has 2,500 connections, and 90 % of Blitz's files may be connections.
FILES = 4_096


def main():
    names = sorted(path.stem for path in SCENARIOS.glob("*.py"))
    parser = argparse.ArgumentParser(description="Blitz under hostile conditions.")
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("scenario", nargs="*", metavar="scenario", help=", ".join(names))
    parser.add_argument("--io", choices=["uring", "epoll"], action="append")
    arguments = parser.parse_intermixed_args()
    if unknown := set(arguments.scenario) - set(names):
        parser.error(f"there is no scenario {', '.join(sorted(unknown))}")

    wanted = arguments.scenario or [name for name in names if name not in NOT_BY_DEFAULT]
    failed = 0
    passed = 0
    for name in wanted:
        for io in arguments.io or ["uring", "epoll"]:
            if run_scenario(name, Binary(arguments.binary.resolve(), io)):
                passed += 1
            else:
                failed += 1
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


def run_scenario(name, binary):
    """Runs one scenario within its time limit; True if it passed."""
    scenario = importlib.import_module(f"scenarios.{name}")
    start = time.monotonic()
    try:
        raise_file_limit(getattr(scenario, "FILES", FILES))
        note = asyncio.run(asyncio.wait_for(scenario.run(binary), scenario.SECONDS))
        verdict = "passed"
    except TimeoutError as error:
        verdict, note = "failed", f"{error or f'not done after {scenario.SECONDS} s'}"
    except Exception as error:  # The other scenarios run in any case.
        verdict, note = "failed", f"{type(error).__name__}: {error}"
    took = time.monotonic() - start
    print(f"{verdict}  {name:<24} {binary.io:<6} {took:6.1f} s  {note or ''}", flush=True)
    return verdict == "passed"


if __name__ == "__main__":
    main()
