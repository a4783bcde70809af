#!/usr/bin/env bash
# One of three members (nginx, Node, Go, Python) fails under load: it is stopped, killed, restarted, refuses, loses its
# packets or its name, answers 500 or no HTTP, reads nothing, has no descriptors, is slow; then all are restarted. Only
# requests fail that may not be repeated, none takes long, and each failure has a line in the log.
#
# FAILING_SERVERS=--long has all kinds of members, versions of HTTP, and the return of the member. As root, or where
# user namespaces are allowed, each case has a network of its own.
set -euo pipefail
here=tests/smoke
source "$here/lib.sh"
go_program
read -r -a words <<<"${FAILING_SERVERS:-}"
code=0
python3 "$here/failing_servers/run.py" "$(realpath "$BLITZ")" "$smoke_go" "${words[@]}" || code=$?
exit "$code"
