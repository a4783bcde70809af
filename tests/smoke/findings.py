#!/usr/bin/env python3
"""Compares the findings of a scanner with a list: `findings.py TOOL LIST <ids`, an id per line."""

import sys


def main(tool, path):
    found = set(sys.stdin.read().split())
    listed = set()
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            if line.strip() and not line.startswith("#"):
                of, name, reason = line.split(None, 2)
                assert reason.strip(), f"{name} needs a reason"
                if of == tool:
                    listed.add(name)
    problems = [f"{name} is new" for name in sorted(found - listed)]
    problems += [f"{name} is listed but not found" for name in sorted(listed - found)]
    if problems:
        sys.exit(f"{tool}: " + "; ".join(problems))
    print(f"{tool}: {len(found)} findings, all in the list")


main(sys.argv[1], sys.argv[2])
