#!/usr/bin/env bash
# promtool: the metrics at the control address are well-formed, and have the requests that h2load counted. With 10,000
# sites a reading costs no more than its goals.
set -euo pipefail
cd "$(dirname "$0")/../.."
source tests/smoke/lib.sh
requests=2000

upstream=$(free_port)
port=$(free_port)
control=$(free_port)
start_blitz upstream "$upstream"
cat >"$scratch/blitz.toml" <<CONF
listen = ["127.0.0.1:$port"]
control = { listen = "127.0.0.1:$control", socket = "$scratch/control.sock" }

[site."*"]
to = "http://127.0.0.1:$upstream"
"/closed" = { allow = ["192.0.2.0/24"], respond = 204 }
CONF
start blitz "$port" "$BLITZ" run --config "$scratch/blitz.toml" --cores 2
base="http://127.0.0.1:$port"
metrics="http://127.0.0.1:$control/metrics"

get() { curl --silent --show-error --fail --max-time 10 "$@"; }
# The sum of all samples of a metric that have these labels.
sum() {
  awk -v name="$1" -v labels="${2:-}" \
    '(index($1, name "{") == 1 || $1 == name) && (labels == "" || index($1, labels)) { sum += $NF } END { print sum + 0 }'
}

for path in /hello /closed; do
  for protocol in --h1 --no-tls-proto=h2c; do
    h2load --requests=$((requests / 4)) --clients=10 "$protocol" "$base$path" >"$scratch/h2load" 2>&1 ||
      fail "h2load: $(cat "$scratch/h2load")"
    grep -q "$((requests / 4)) done" "$scratch/h2load" || fail "h2load: $(cat "$scratch/h2load")"
  done
done
text=$(get --header 'Accept: text/plain; version=0.0.4' "$metrics")
promtool check metrics <<<"$text" || fail 'promtool finds mistakes'
name=http_server_request_duration_seconds_count
expect requests "$requests" "$(sum "$name" <<<"$text")"
expect 'requests that were answered' $((requests / 2)) "$(sum "$name" 'status="2xx"' <<<"$text")"
expect 'requests that were refused' $((requests / 2)) "$(sum "$name" 'status="4xx"' <<<"$text")"

open=$(get --header 'Accept: application/openmetrics-text; version=1.0.0' "$metrics")
expect 'the end of the text' '# EOF' "$(tail -n 1 <<<"$open")"
echo "promtool: $requests requests, as many counted, no mistake"

benchmarks/metrics.py --check 1 "$BLITZ" || fail 'reading the metrics costs too much'
