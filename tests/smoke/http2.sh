#!/usr/bin/env bash
# HTTP/2 without TLS: curl and nghttp as clients, h2load under load, h2spec for conformity.
#
# One of h2spec's cases cannot pass on a port that also speaks HTTP/1.1: what begins with something
# else than HTTP/2's preface gets HTTP/1.1's 400 before the connection closes.
set -euo pipefail
here=tests/smoke
source "$here/lib.sh"
export PATH="$tools/bin:$PATH"

port=$(free_port)
start_blitz http2 "$port"
base="http://127.0.0.1:$port"
get() { curl --silent --show-error --fail --max-time 10 --http2-prior-knowledge "$@"; }

expect 'curl: /hello' 'Hello, World!' "$(get "$base/hello")"
expect 'curl: version' 2 "$(get --output /dev/null --write-out '%{http_version}' "$base/hello")"
body="$scratch/body"
answer="$scratch/answer"
head -c 8388608 /dev/urandom >"$body"
get --data-binary "@$body" --output "$answer" "$base/echo/"
cmp "$body" "$answer"
get --upload-file - --request POST --output "$answer" "$base/echo/" <"$body"
cmp "$body" "$answer"
code=$(curl --silent --output /dev/null --http2-prior-knowledge --write-out '%{http_code}' "$base/nothing")
expect 'curl: a page that is not there' 404 "$code"

nghttp --no-dep --stat "$base/hello" "$base/ping" "$base/json" >"$answer"
grep --quiet ' 200 ' "$answer" || fail "nghttp: $(cat "$answer")"

h2load --requests=50000 --clients=32 --max-concurrent-streams=32 --threads=1 "$base/hello" >"$answer"
grep --quiet '50000 succeeded, 0 failed, 0 errored, 0 timeout' "$answer" ||
  fail "h2load: $(tail -n 12 "$answer")"

for mode in '' --strict; do
  # Without the quotes: no mode is no argument.
  h2spec --host 127.0.0.1 --port "$port" --path /hello --timeout 3 $mode >"$answer" || true
  failures=$(sed -n '/^Failures:/,$p' "$answer")
  echo "$failures" | grep --quiet 'Sends invalid connection preface' &&
    [ "$(echo "$failures" | grep --count '×')" -eq 1 ] || fail "h2spec $mode: $failures"
  echo "h2spec ${mode:-in full}: $(tail -n 1 "$answer"), which is the one named above"
done
