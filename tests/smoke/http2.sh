#!/usr/bin/env bash
# HTTP/2 without TLS: curl and nghttp as clients, h2load under load, h2spec for conformity.
#
# One of h2spec's cases cannot pass on a port that also speaks HTTP/1.1: what begins with something
# else than HTTP/2's preface gets HTTP/1.1's 400 before the connection closes. On a listener that
# speaks HTTP/2 only, all pass.
set -euo pipefail
here=tests/smoke
source "$here/lib.sh"
export PATH="$tools/bin:$PATH"

port=$(free_port)
only=$(free_port)
start_blitz http2 "$port" --h2c-upgrade --listen "h2c://127.0.0.1:$only"
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

# By Upgrade, as RFC 7540 had it and --h2c-upgrade allows: curl asks, and so does nghttp, for a POST after OPTIONS.
upgraded() { curl --silent --show-error --fail --max-time 10 --http2 "$@"; }
expect 'curl: Upgrade' 'Hello, World!' "$(upgraded "$base/hello")"
expect 'curl: version after Upgrade' 2 \
  "$(upgraded --output /dev/null --write-out '%{http_version}' "$base/hello")"
upgraded --output "$answer" "$base/data?size=8388608"
expect 'curl: bytes after Upgrade' 8388608 "$(stat --format=%s "$answer")"
nghttp --no-dep --upgrade --stat "$base/hello" "$base/ping" >"$answer"
expect 'nghttp: Upgrade' 2 "$(grep --count ' 200 ' "$answer")"
nghttp --no-dep --upgrade --data="$body" "$base/echo/" >"$answer"
cmp "$body" "$answer"

timeout 10 nghttp --no-dep --expect-continue --data="$body" "$base/echo/" >"$answer" ||
  fail 'nghttp: no 100 Continue'
cmp "$body" "$answer"
waited=$(get --include --header 'Expect: 100-continue' --expect100-timeout 60 --data waiting "$base/echo/")
expect 'curl: Expect: 100-continue' 'HTTP/2 100  waiting' \
  "$(echo "$waited" | tr --delete '\r' | sed -n '1p;$p' | paste --serial --delimiters ' ')"

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

expect 'curl: HTTP/2 only' 'Hello, World!' "$(get "http://127.0.0.1:$only/hello")"
code=0
curl --silent --max-time 10 --http1.1 "http://127.0.0.1:$only/hello" >"$answer" || code=$?
case "$code" in
  # Not HTTP/1, nothing, or a reset.
  1 | 52 | 56) ;;
  0) fail "HTTP/1.1 was answered: $(cat "$answer")" ;;
  *) fail "HTTP/1.1 was not refused: curl ended with $code" ;;
esac
# Read as if it were HTTP/0.9: GOAWAY with PROTOCOL_ERROR comes last, and then the connection is closed.
curl --silent --max-time 10 --http0.9 --http1.1 "http://127.0.0.1:$only/hello" >"$answer" ||
  fail "after HTTP/1.1 the connection was not closed: curl ended with $?"
expect 'what HTTP/1.1 gets' '0000080700000000000000000000000001' \
  "$(tail --bytes 17 "$answer" | od --address-radix n --format x1 | tr --delete ' \n')"
for mode in '' --strict; do
  h2spec --host 127.0.0.1 --port "$only" --path /hello --timeout 3 $mode >"$answer" ||
    fail "h2spec $mode, HTTP/2 only: $(sed -n '/^Failures:/,$p' "$answer")"
  grep --quiet ', 0 failed' "$answer" || fail "h2spec $mode: $(tail -n 1 "$answer")"
  echo "h2spec ${mode:-in full}, HTTP/2 only: $(tail -n 1 "$answer")"
done
