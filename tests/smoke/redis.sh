#!/usr/bin/env bash
# Limits that two gateways share by real servers, Redis and Valkey: the limit holds, and a server that is killed, paused
# or partitioned under load holds up no request.
set -euo pipefail
cd "$(dirname "$0")/../.."
source tests/smoke/lib.sh

for server in redis-server "$tools/valkey/usr/bin/valkey-server"; do
  python3 tests/smoke/redis.py "$BLITZ" "$server" "$scratch/$(basename "$server")" ||
    fail "$(basename "$server")"
done
