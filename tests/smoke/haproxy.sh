#!/usr/bin/env bash
# HAProxy as upstream and as proxy: it parses strictly what Blitz sends as a client and as a server.
set -euo pipefail
cd "$(dirname "$0")/../.."
source tests/smoke/lib.sh
fixed=$(free_port)
front=$(free_port)
blitz_port=$(free_port)
proxy=$(free_port)

cat >"$scratch/haproxy.cfg" <<CONF
global
  maxconn 2000
defaults
  mode http
  timeout connect 2s
  timeout client 10s
  timeout server 10s
frontend fixed
  bind 127.0.0.1:$fixed
  http-request return status 200 content-type text/plain string "from haproxy"
frontend front
  bind 127.0.0.1:$front
  default_backend built_in
backend built_in
  http-reuse always
  server blitz 127.0.0.1:$blitz_port
CONF

start_blitz built-in "$blitz_port"
start haproxy "$fixed" haproxy -db -f "$scratch/haproxy.cfg"
start_blitz proxy "$proxy" --to "http://127.0.0.1:$fixed"
get() { curl --silent --show-error --fail --max-time 10 "$@"; }

expect 'Blitz in front of HAProxy' 'from haproxy' "$(get "http://127.0.0.1:$proxy/anything")"
expect 'HAProxy in front of Blitz' 'Hello, World!' "$(get "http://127.0.0.1:$front/hello")"
expect 'a body' 'name=blitz' "$(get --data name=blitz "http://127.0.0.1:$front/echo/")"
expect 'a streamed body' 500000 "$(get "http://127.0.0.1:$front/data?size=500000" | wc -c)"
for port in "$proxy" "$front"; do
  report=$(wrk --threads 1 --connections 50 --duration 2s "http://127.0.0.1:$port/hello")
  if grep --quiet --extended-regexp 'Socket errors|Non-2xx' <<<"$report"; then fail "$report"; fi
done
echo 'haproxy: passed on both sides'
