#!/usr/bin/env bash
# Python's http.server leaves the content of a GET unread and takes it for the next request: no client gets the response to
# what another one has sent as content.
set -euo pipefail
cd "$(dirname "$0")/../.."
source tests/smoke/lib.sh
origin=$(free_port)
start origin "$origin" python3 tests/smoke/unread_content.py serve "$origin"
for io in uring epoll; do
  proxy=$(free_port)
  start_blitz "$io" "$proxy" --io "$io" --to "http://127.0.0.1:$origin"
  python3 tests/smoke/unread_content.py attack "$proxy" || fail "$io: a client got another one's response"
done
echo 'unread_content: no client got the response of another one'
