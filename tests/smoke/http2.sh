#!/usr/bin/env bash
# HTTP/2 without TLS: curl and nghttp as clients, h2load for load, h2spec for conformance.
#
# One case of h2spec cannot pass on a port that also accepts HTTP/1.1: input without the HTTP/2 preface gets an
# HTTP/1.1 400 before the connection closes. On an HTTP/2-only listener all cases pass.
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
response="$scratch/response"
head -c 8388608 /dev/urandom >"$body"
get --data-binary "@$body" --output "$response" "$base/echo/"
cmp "$body" "$response"
get --upload-file - --request POST --output "$response" "$base/echo/" <"$body"
cmp "$body" "$response"
code=$(curl --silent --output /dev/null --http2-prior-knowledge --write-out '%{http_code}' "$base/nothing")
expect 'curl: an unknown path' 404 "$code"

# Upgrade: h2c as in RFC 7540, enabled by --h2c-upgrade, with curl and nghttp (whose POST follows OPTIONS).
upgraded() { curl --silent --show-error --fail --max-time 10 --http2 "$@"; }
expect 'curl: Upgrade' 'Hello, World!' "$(upgraded "$base/hello")"
expect 'curl: version after Upgrade' 2 \
  "$(upgraded --output /dev/null --write-out '%{http_version}' "$base/hello")"
upgraded --output "$response" "$base/data?size=8388608"
expect 'curl: bytes after Upgrade' 8388608 "$(stat --format=%s "$response")"
nghttp --no-dep --upgrade --stat "$base/hello" "$base/ping" >"$response"
expect 'nghttp: Upgrade' 2 "$(grep --count ' 200 ' "$response")"
nghttp --no-dep --upgrade --data="$body" "$base/echo/" >"$response"
cmp "$body" "$response"

timeout 10 nghttp --no-dep --expect-continue --data="$body" "$base/echo/" >"$response" ||
  fail 'nghttp: no 100 Continue'
cmp "$body" "$response"
waited=$(get --include --header 'Expect: 100-continue' --expect100-timeout 60 --data waiting "$base/echo/")
expect 'curl: Expect: 100-continue' 'HTTP/2 100  waiting' \
  "$(echo "$waited" | tr --delete '\r' | sed -n '1p;$p' | paste --serial --delimiters ' ')"

nghttp --no-dep --stat "$base/hello" "$base/ping" "$base/json" >"$response"
grep --quiet ' 200 ' "$response" || fail "nghttp: $(cat "$response")"

h2load --requests=50000 --clients=32 --max-concurrent-streams=32 --threads=1 "$base/hello" >"$response"
grep --quiet '50000 succeeded, 0 failed, 0 errored, 0 timeout' "$response" ||
  fail "h2load: $(tail -n 12 "$response")"

for mode in '' --strict; do
  # Without quotes: an empty mode is no argument.
  h2spec --host 127.0.0.1 --port "$port" --path /hello --timeout 3 $mode >"$response" || true
  failures=$(sed -n '/^Failures:/,$p' "$response")
  echo "$failures" | grep --quiet 'Sends invalid connection preface' &&
    [ "$(echo "$failures" | grep --count '×')" -eq 1 ] || fail "h2spec $mode: $failures"
  echo "h2spec ${mode:-in full}: $(tail -n 1 "$response"), the known case"
done

expect 'curl: HTTP/2 only' 'Hello, World!' "$(get "http://127.0.0.1:$only/hello")"
code=0
curl --silent --max-time 10 --http1.1 "http://127.0.0.1:$only/hello" >"$response" || code=$?
case "$code" in
  # No HTTP/1 response, an empty one, or a reset.
  1 | 52 | 56) ;;
  0) fail "HTTP/1.1 got a response: $(cat "$response")" ;;
  *) fail "HTTP/1.1 was not refused: curl ended with $code" ;;
esac
# Read as HTTP/0.9: the last bytes are GOAWAY with PROTOCOL_ERROR, then the connection closes.
curl --silent --max-time 10 --http0.9 --http1.1 "http://127.0.0.1:$only/hello" >"$response" ||
  fail "after HTTP/1.1 the connection was not closed: curl ended with $?"
expect 'the response to HTTP/1.1' '0000080700000000000000000000000001' \
  "$(tail --bytes 17 "$response" | od --address-radix n --format x1 | tr --delete ' \n')"
for mode in '' --strict; do
  h2spec --host 127.0.0.1 --port "$only" --path /hello --timeout 3 $mode >"$response" ||
    fail "h2spec $mode, HTTP/2 only: $(sed -n '/^Failures:/,$p' "$response")"
  grep --quiet ', 0 failed' "$response" || fail "h2spec $mode: $(tail -n 1 "$response")"
  echo "h2spec ${mode:-in full}, HTTP/2 only: $(tail -n 1 "$response")"
done
