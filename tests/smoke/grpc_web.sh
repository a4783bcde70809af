#!/usr/bin/env bash
# gRPC-Web with its official client, through the proxy to a tonic server.
set -euo pipefail
cd "$(dirname "$0")/../.."
source tests/smoke/lib.sh
export NODE_PATH="$tools/node_modules"

upstream=$(free_port)
start_grpc_server "$upstream"
proxy=$(free_port)
start_blitz proxy "$proxy" --to "h2c://127.0.0.1:$upstream"
nowhere=$(free_port)
dead=$(free_port)
start_blitz dead "$dead" --to "h2c://127.0.0.1:$nowhere"
timeout 60 node tests/smoke/grpc_web.cjs "http://127.0.0.1:$proxy" "http://127.0.0.1:$dead" ||
  fail "the gRPC-Web client failed"
echo "grpc-web: passed"
