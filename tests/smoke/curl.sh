#!/usr/bin/env bash
# curl: every built-in endpoint, uploads with and without a length, HEAD, keep-alive, refusals.
set -euo pipefail
base=$1

get() { curl --silent --show-error --fail --max-time 10 "$@"; }
expect() {
  [ "$2" = "$3" ] || { echo "$1: expected '$2', got '$3'" >&2; exit 1; }
}
status() { curl --silent --output /dev/null --max-time 10 --write-out '%{http_code}' "$@"; }

expect /hello 'Hello, World!' "$(get "$base/hello")"
expect /ping pong "$(get "$base/ping")"
expect /echo /echo/some/path "$(get "$base/echo/some/path")"
expect 'a small body' 'name=blitz' "$(get --data 'name=blitz' "$base/echo/")"
get "$base/health" | grep --quiet '{' || { echo '/health is not JSON' >&2; exit 1; }
get "$base/json" | python3 -c 'import json, sys; json.load(sys.stdin)'
get "$base/" >/dev/null

# 8 MiB both ways: once with Content-Length (and curl's Expect: 100-continue), once chunked.
body=$(mktemp)
response=$(mktemp)
trap 'rm -f "$body" "$response"' EXIT
head -c 8388608 /dev/urandom >"$body"
get --data-binary "@$body" --output "$response" "$base/echo/"
cmp "$body" "$response"
get --upload-file - --request POST --header 'Transfer-Encoding: chunked' --output "$response" \
  "$base/echo/" <"$body"
cmp "$body" "$response"
# curl sends no content before 100 Continue.
waited=$(get --include --header 'Expect: 100-continue' --expect100-timeout 60 --data waiting "$base/echo/")
expect 'Expect: 100-continue' 'HTTP/1.1 100 Continue waiting' \
  "$(echo "$waited" | tr --delete '\r' | sed -n '1p;$p' | paste --serial --delimiters ' ')"
expect /data 1048576 "$(get "$base/data?size=1048576" | wc -c)"

expect 'HEAD' 200 "$(status --head "$base/hello")"
expect 'an unknown path' 404 "$(status "$base/nothing/here")"
expect 'an unsupported method' 405 "$(status --request DELETE "$base/hello")"
expect 'an unknown expectation' 417 "$(status --header 'Expect: tea' --data x "$base/echo/")"

# Two requests, one connection.
connects=$(curl --silent --max-time 10 --output /dev/null --output /dev/null \
  --write-out '%{num_connects}\n' "$base/hello" "$base/ping" | paste --serial --delimiters ' ')
expect 'connections made' '1 0' "$connects"
