#!/usr/bin/env bash
# promtool: the metrics at the control address are well-formed, and have the requests that were sent.
# Usage: metrics.sh BASE [PORT of the control address]
set -euo pipefail
base=$1
metrics="http://127.0.0.1:${2:-9180}/metrics"

get() { curl --silent --show-error --fail --max-time 10 "$@"; }
# The sum of all samples of a metric.
sum() { awk -v name="$1" 'index($1, name "{") == 1 || $1 == name { sum += $NF } END { print sum + 0 }'; }

for _ in 1 2 3; do get "$base/hello" >/dev/null; done
text=$(get --header 'Accept: text/plain; version=0.0.4' "$metrics")
promtool check metrics <<<"$text"
requests=$(sum http_server_request_duration_seconds_count <<<"$text")
[ "$requests" -ge 3 ] || { echo "$requests requests are counted, at least 3 were sent" >&2; exit 1; }

open=$(get --header 'Accept: application/openmetrics-text; version=1.0.0' "$metrics")
[ "$(tail -n 1 <<<"$open")" = '# EOF' ] || { echo 'the text of OpenMetrics has no end' >&2; exit 1; }
