#!/usr/bin/env bash
# The laboratory: reports of two benchmarks, and the agreement of `blitz load` with wrk and h2load. The figures depend on
# the machine and are not judged here; those of the delay do not, because the server waits for 5 ms.
set -euo pipefail
here=tests/smoke
source "$here/lib.sh"

# A set that is void (75) on a busy machine has a report as well; anything else is an error of the laboratory.
bench() {
  local code=0
  "$BLITZ" bench "$@" --out "$scratch/results" >"$scratch/bench.log" 2>&1 || code=$?
  [ "$code" = 0 ] || [ "$code" = 75 ] || fail "blitz bench $*: exit code $code"
}
bench protocols --only page,handshakes --rounds 6 --seconds 1
bench local
python3 "$here/laboratory.py" reports "$scratch/results"
page=$(ls "$scratch"/results/*-protocols.json)
bench regression "$page" "$page"

port=$(free_port)
start_blitz server "$port"
"$BLITZ" bench tuning >"$scratch/tuning.txt"
python3 "$here/laboratory.py" agreement "$BLITZ" "http://127.0.0.1:$port/delay?ms=5"
