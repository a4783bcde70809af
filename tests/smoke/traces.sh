#!/usr/bin/env bash
# OpenTelemetry's collector takes the spans and log records of two gateways in a row, one over gRPC and one over HTTP.
set -euo pipefail
cd "$(dirname "$0")/../.."
source tests/smoke/lib.sh
requests=400

build_go tests/smoke/collector collector
collector=$go_binary
grpc=$(free_port)
http=$(free_port)
cat >"$scratch/collector.yaml" <<CONF
receivers:
  otlp:
    protocols:
      grpc: { endpoint: "127.0.0.1:$grpc" }
      http: { endpoint: "127.0.0.1:$http" }
exporters:
  file/traces: { path: "$scratch/traces.json", append: true }
  file/logs: { path: "$scratch/logs.json", append: true }
service:
  telemetry: { metrics: { level: none } }
  pipelines:
    traces: { receivers: [otlp], exporters: [file/traces] }
    logs: { receivers: [otlp], exporters: [file/logs] }
CONF
start_collector() {
  start collector "$grpc" "$collector" --config "$scratch/collector.yaml"
  collector_pid=${started[-1]}
}
start_collector

upstream=$(free_port)
inner=$(free_port)
outer=$(free_port)
control=$(free_port)
start_blitz upstream "$upstream"
cat >"$scratch/inner.toml" <<CONF
control = false
listen = ["127.0.0.1:$inner"]
tracing = { otlp = "http://127.0.0.1:$http", protocol = "http", sample = 0, service = "inner", logs = true }

[site."*"]
to = "http://127.0.0.1:$upstream"
CONF
cat >"$scratch/outer.toml" <<CONF
control = { listen = "127.0.0.1:$control", socket = false }
listen = ["127.0.0.1:$outer"]
tracing = { otlp = "http://127.0.0.1:$grpc", service = "outer", logs = true }

[site."*"]
to = "http://127.0.0.1:$inner"
"/closed" = { allow = ["192.0.2.0/24"], respond = 204 }
CONF
start inner "$inner" "$BLITZ" run --config "$scratch/inner.toml" --cores 1
start outer "$outer" "$BLITZ" run --config "$scratch/outer.toml" --cores 2

load() {
  local protocol
  for protocol in --h1 --no-tls-proto=h2c; do
    h2load --requests=$((requests / 2)) --clients=10 "$protocol" "http://127.0.0.1:$outer/hello?token=secret" \
      >"$scratch/h2load" 2>&1 || fail "h2load: $(cat "$scratch/h2load")"
    grep -q "$((requests / 2)) done" "$scratch/h2load" || fail "h2load: $(cat "$scratch/h2load")"
  done
}

# check REQUESTS: waits until the collector has all spans and log records of as many requests.
check() {
  local tries
  for tries in $(seq 100); do
    python3 tests/smoke/traces.py "$scratch/traces.json" "$scratch/logs.json" "$1" >"$scratch/check.log" 2>&1 &&
      return
    sleep 0.2
  done
  fail "$(cat "$scratch/check.log")"
}

load
check "$requests"
curl --silent --show-error --output "$scratch/response" "http://127.0.0.1:$outer/closed"

# While the collector is away, spans wait, and the requests do not.
kill "$collector_pid"
wait "$collector_pid" || true
load
sleep 2
start_collector
check $((2 * requests))
for kind in spans 'log records'; do
  expect "warnings that the collector is gone: $kind" 1 "$(grep -c "does not take $kind" "$scratch/outer.log")"
  for tries in $(seq 50); do ! grep -q "takes $kind again" "$scratch/outer.log" || break; sleep 0.1; done
  expect "warnings that it is back: $kind" 1 "$(grep -c "takes $kind again" "$scratch/outer.log")"
done
metrics=$(curl --silent --show-error --fail --max-time 10 "http://127.0.0.1:$control/metrics")
exported=$(sed -n 's/^blitz_trace_spans_exported_total //p' <<<"$metrics")
# Two for each request, and one for the request that was refused.
expect 'exported spans' $((4 * requests + 1)) "$exported"
! grep -q '^blitz_trace_spans_dropped_total [1-9]' <<<"$metrics" || fail 'spans were dropped'
grep -q 'duration_seconds_bucket.* # {trace_id="' <<<"$metrics" || fail 'no histogram has an example'
text=$(curl --silent --show-error --fail --max-time 10 --header 'Accept: text/plain; version=0.0.4' \
  "http://127.0.0.1:$control/metrics")
promtool check metrics <<<"$text" || fail 'promtool finds mistakes'
echo "traces: $((2 * requests)) requests, their spans and log records are in the collector"
