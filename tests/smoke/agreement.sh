#!/usr/bin/env bash
# The access log and the metrics against the counts of load generators: h2load over HTTP/1.1 and HTTP/2, `blitz load` over
# HTTP/3, on both drivers, while the configuration is read again; then with a pipe that nobody reads.
set -euo pipefail
cd "$(dirname "$0")/../.."
source tests/smoke/lib.sh
# Of each version and path.
requests=2000

upstream=$(free_port)
start_blitz upstream "$upstream"
"$BLITZ" cert --out "$scratch/certs" localhost >"$scratch/cert.log" 2>&1 || fail 'blitz cert fails'

# wait_until COMMAND...: waits until the command succeeds, for at most ten seconds.
wait_until() {
  local tries
  for tries in $(seq 100); do
    ! "$@" || return 0
    sleep 0.1
  done
  return 1
}

get() { curl --silent --show-error --fail --max-time 10 "$@"; }

# sum NAME LABEL CONTROL_PORT: the sum of all samples of a metric that have this label.
sum() {
  get "http://127.0.0.1:$3/metrics" |
    awk -v name="$1" -v label="$2" \
      '(index($1, name "{") == 1 || $1 == name) && (label == "" || index($1, label)) { sum += $NF } END { print sum + 0 }'
}

# One line per request, counted by version and status. `$log` has as many as h2load and `blitz load` have counted.
agree() {
  local io=$1 port tls control log pid reloading path protocol status lines count
  port=$(free_port)
  tls=$(free_port)
  control=$(free_port)
  log="$scratch/$io.log.json"
  cat >"$scratch/$io.toml" <<CONF
control = { listen = "127.0.0.1:$control", socket = false }
listen = ["127.0.0.1:$port"]
listen_tls = ["127.0.0.1:$tls"]
certificates = ["$scratch/certs/localhost.pem"]
log.access = "$log"
server.io = "$io"

[site."*"]
to = "http://127.0.0.1:$upstream"
"/closed" = { allow = ["192.0.2.0/24"], respond = 204 }
"/down" = "http://127.0.0.1:1"
CONF
  start "$io" "$port" "$BLITZ" run --config "$scratch/$io.toml" --cores 2
  pid=${started[-1]}
  (
    while kill -HUP "$pid" 2>/dev/null; do sleep 0.2; done
  ) &
  reloading=$!
  started+=("$reloading")
  for path in /hello /missing /closed /down; do
    for protocol in --h1 --no-tls-proto=h2c; do
      h2load --requests="$requests" --clients=20 "$protocol" "http://127.0.0.1:$port$path" >"$scratch/h2load" 2>&1 ||
        fail "h2load: $(cat "$scratch/h2load")"
      grep -q "$requests done" "$scratch/h2load" || fail "h2load: $(cat "$scratch/h2load")"
      # `status codes: 2000 2xx, 0 3xx, 0 4xx, 0 5xx`
      grep '^status codes' "$scratch/h2load" >>"$scratch/$io.statuses"
    done
  done
  "$BLITZ" load --http 3 --requests "$requests" --connections 20 --insecure --address "127.0.0.1:$tls" \
    "https://localhost:$tls/hello" \
    >"$scratch/load.log" 2>&1 || [ "$?" -eq 75 ] || fail "blitz load: $(cat "$scratch/load.log")"
  kill "$reloading"
  wait "$reloading" 2>/dev/null || true

  # The generators' own counts.
  declare -A wanted=()
  for status in 2xx 4xx 5xx; do
    wanted[$status]=$(sed -n "s/.* \([0-9]*\) $status.*/\1/p" "$scratch/$io.statuses" | awk '{ sum += $1 } END { print sum }')
  done
  # `blitz load` sends two requests before the run.
  wanted[2xx]=$((${wanted[2xx]} + requests + 2))
  count=$((${wanted[2xx]} + ${wanted[4xx]} + ${wanted[5xx]}))
  expect "responses of $io" $((9 * requests + 2)) "$count"
  has_all() { [ "$(wc -l <"$log")" -ge "$count" ]; }
  wait_until has_all || fail "$io: $(wc -l <"$log") lines of $count requests"
  expect "lines of $io" "$count" "$(wc -l <"$log")"
  for status in 2xx 4xx 5xx; do
    lines=$(grep -c "\"status\":${status%xx}[0-9][0-9]," "$log")
    expect "lines with $status of $io" "${wanted[$status]}" "$lines"
    expect "counts of $status of $io" "${wanted[$status]}" \
      "$(sum http_server_request_duration_seconds_count "status=\"$status\"" "$control")"
  done
  kill "$pid"
  wait "$pid" || fail "$io ended with an error"
  expect "lines of $io at its end" "$count" "$(wc -l <"$log")"
  echo "$io: $count requests, as many lines and counts"
}
agree uring
agree epoll

# Nobody reads standard output. Each line has more than 3 KiB, and 8 MiB of them wait.
port=$(free_port)
control=$(free_port)
text=$(printf 'x%.0s' $(seq 1000))
mkfifo "$scratch/pipe"
(
  while [ ! -e "$scratch/read" ]; do sleep 0.1; done
  cat >"$scratch/piped"
) <"$scratch/pipe" &
reader=$!
started+=("$reader")
"$BLITZ" run --cores 2 --control off --control-listen "127.0.0.1:$control" --listen "127.0.0.1:$port" \
  --to "http://127.0.0.1:$upstream" --access-log stdout >"$scratch/pipe" 2>"$scratch/pipe.log" &
pid=$!
started+=("$pid")
accepts() { (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; }
wait_until accepts || fail 'the gateway with the pipe does not accept connections'
requests=8000
h2load --requests="$requests" --clients=20 --h1 --header="User-Agent: $text" --header="Referer: $text" \
  "http://127.0.0.1:$port/hello/$text" >"$scratch/h2load" 2>&1 || fail "h2load: $(cat "$scratch/h2load")"
grep -q "$requests done" "$scratch/h2load" || fail "h2load: $(cat "$scratch/h2load")"
expect 'requests that were counted' "$requests" "$(sum http_server_request_duration_seconds_count '' "$control")"
sleep 0.5
dropped=$(sum blitz_access_log_lines_dropped_total '' "$control")
[ "$dropped" -gt 0 ] || fail 'no line was dropped, although nobody reads them'
touch "$scratch/read"
# The start message has lines of its own.
piped() { { grep '^{' "$scratch/piped" 2>/dev/null || true; } | wc -l; }
has_rest() { [ "$(piped)" -ge $((requests - dropped)) ]; }
wait_until has_rest || true
expect 'lines behind a pipe that is read late' $((requests - dropped)) "$(piped)"
is_told() { grep -q 'dropped' "$scratch/pipe.log"; }
wait_until is_told || fail 'dropped lines are not told'
kill "$pid"
wait "$pid" || fail 'the gateway with the pipe ended with an error'
expect 'lines after the end' $((requests - dropped)) "$(piped)"
echo "unread pipe: $requests requests, $((requests - dropped)) lines and $dropped counted as dropped"
