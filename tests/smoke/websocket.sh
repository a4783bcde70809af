#!/usr/bin/env bash
# WebSocket through the proxy: Python's `websockets` and Node's `ws`, each as client and server.
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
  echo "websocket: $server as the server is fine"
done
