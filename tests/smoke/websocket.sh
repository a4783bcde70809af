#!/usr/bin/env bash
# WebSocket through the proxy: Python's `websockets` and Node's `ws`, each as client and server, and
# over HTTP/2 to HAProxy and to Blitz itself, both with an HTTP/1.1 upstream.
set -euo pipefail
cd "$(dirname "$0")/../.."
source tests/smoke/lib.sh
export PYTHONPATH="$tools/python" NODE_PATH="$tools/node_modules"

for server in python node; do
  upstream=$(free_port)
  proxy=$(free_port)
  case "$server" in
    python) start "echo-$server" "$upstream" python3 tests/smoke/websocket.py serve "$upstream" ;;
    node) start "echo-$server" "$upstream" node tests/smoke/websocket.cjs serve "$upstream" ;;
  esac
  start_blitz "proxy-$server" "$proxy" --to "http://127.0.0.1:$upstream"
  python3 tests/smoke/websocket.py talk "$proxy" || fail "python's client, $server's server"
  node tests/smoke/websocket.cjs talk "$proxy" || fail "node's client, $server's server"
  echo "websocket: $server as the server passed"
done

via=$(free_port)
cat >"$scratch/haproxy.cfg" <<CONF
defaults
  mode http
  timeout connect 2s
  timeout client 10s
  timeout server 10s
  timeout tunnel 10s
frontend h2c
  bind 127.0.0.1:$via proto h2
  default_backend echo
backend echo
  server echo 127.0.0.1:$upstream
CONF
start haproxy "$via" haproxy -db -f "$scratch/haproxy.cfg"
for hop in "$via" "$proxy"; do
  front=$(free_port)
  start_blitz "front-$hop" "$front" --to "h2c://127.0.0.1:$hop"
  python3 tests/smoke/websocket.py talk "$front" || fail "python's client over HTTP/2"
  node tests/smoke/websocket.cjs talk "$front" || fail "node's client over HTTP/2"
done
echo 'websocket: extended CONNECT to HAProxy and to Blitz passed'
