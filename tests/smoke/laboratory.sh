#!/usr/bin/env bash
# The laboratory: reports of two benchmarks, the agreement of `blitz load` with wrk and h2load, and requests that nginx
# refuses. The figures depend on the machine and are not judged here; those of the delay do not, because the server waits
# for 5 ms.
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
bench models --quick
python3 "$here/laboratory.py" reports "$scratch/results"
page=$(ls "$scratch"/results/*-protocols.json.gz)
bench regression "$page" "$page"

port=$(free_port)
start_blitz server "$port"
"$BLITZ" bench tuning >"$scratch/tuning.txt"
python3 "$here/laboratory.py" agreement "$BLITZ" "http://127.0.0.1:$port/delay?ms=5"

# nginx ends each connection after 50 requests, and refuses those that are on their way.
port=$(free_port)
start_nginx limited "$port" <<CONF
  log_format ids '\$status \$http_x_id';
  server {
    listen 127.0.0.1:$port http2;
    keepalive_requests 50;
    access_log $scratch/ids ids;
    location / { return 200 "Hello, World!"; }
  }
CONF
python3 "$here/laboratory.py" refused "$BLITZ" "http://127.0.0.1:$port/" "$scratch/ids"
