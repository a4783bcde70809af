#!/usr/bin/env bash
# h3spec, the conformance test of QUIC and HTTP/3 for servers: all cases, on both drivers, on the built-in endpoints and
# through the gateway.
#
# No case is left out. A run takes less than a second. It is repeated if it hangs, or if a case ended in h3spec's own
# timeout: its client has a race and sometimes does not notice a CONNECTION_CLOSE that its log shows as received.
set -euo pipefail
here=tests/smoke
source "$here/lib.sh"

"$BLITZ" cert --out "$scratch" localhost >/dev/null
report="$scratch/report"
cases=45

# only_timeouts: whether each failure in the report is a timeout of h3spec's client.
only_timeouts() {
  [ "$(grep --count 'ConnectionIsTimeout' "$report")" -eq "$(grep --count '^ *To rerun use:' "$report")" ]
}

# run PORT: runs h3spec; its report is in $report.
run() {
  local try
  for try in $(seq 8); do
    ! timeout 5 "$tools/h3spec/h3spec" 127.0.0.1 "$1" >"$report" 2>&1 || return 0
    # Without an end, or with a timeout and no other failure.
    ! grep --quiet ' examples, ' "$report" || only_timeouts || return 1
    echo "h3spec: try $try ended in a timeout of its client"
  done
  return 1
}

# try NAME FLAGS...: starts Blitz with the flags and runs h3spec.
try() {
  local name=$1 plain port
  shift
  plain=$(free_port)
  port=$(free_port)
  start_blitz "$name" "$plain" --listen-tls "127.0.0.1:$port" --cert "$scratch/localhost.pem" \
    --key "$scratch/localhost.key" "$@"
  run "$port" || fail "$name: $(cat "$report")"
  grep --quiet "^$cases examples, 0 failures" "$report" || fail "$name: not all cases ran: $(cat "$report")"
  echo "h3spec: $name: $(tail -n 1 "$report")"
  expect "$name: the server afterwards" 'Hello, World!' "$(curl --silent --max-time 10 "http://127.0.0.1:$plain/hello")"
}

for io in uring epoll; do try "$io" --io "$io"; done
upstream=$(free_port)
start_blitz upstream "$upstream"
try gateway --to "http://127.0.0.1:$upstream"
# RFC 9001, section 4.6: servers decide whether they accept early data. Blitz does not, so the case about it ends with
# this warning and counts as passed.
grep --quiet '0-RTT is not possible' "$report" || fail 'early data is accepted'
