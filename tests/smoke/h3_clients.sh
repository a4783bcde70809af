#!/usr/bin/env bash
# HTTP/3 with curl (ngtcp2), aioquic and quic-go: on the built-in endpoints, directly and through the gateway, with
# both drivers and with several cores; how clients discover it; WebSockets and trailers; requests during a drain.
set -euo pipefail
here=tests/smoke
source "$here/lib.sh"
export PYTHONPATH="$tools/http3:$tools/python"
go_program
build_go "$here/go_h3" smoke-go-h3
smoke_go_h3=$go_binary

"$BLITZ" cert --out "$scratch" localhost >/dev/null
ca="$scratch/ca.pem"
cert=(--cert "$scratch/localhost.pem" --key "$scratch/localhost.key")

# front NAME FLAGS...: starts Blitz with HTTP/3 on port $tls and without TLS on port $clear; its process id is $pid.
front() {
  local name=$1
  shift
  clear=$(free_port)
  tls=$(free_port)
  start "$name" "$clear" "$BLITZ" run --control-listen off --listen "127.0.0.1:$clear" --listen-tls "127.0.0.1:$tls" "${cert[@]}" "$@"
  pid=${started[-1]}
}

# try NAME: runs every client on that of `front`.
try() {
  local base="https://localhost:$tls" failed=()
  python3 "$here/h3_curl.py" requests "$base" "$ca" || failed+=(curl)
  python3 "$here/h3_aioquic.py" endpoints "$tls" "$ca" "$clear" || failed+=(aioquic)
  "$smoke_go_h3" client "$base" "$ca" || failed+=(quic-go)
  [ "${#failed[@]}" -eq 0 ] || fail "$1: ${failed[*]} failed"
  echo "h3_clients: $1 passed"
}

# drain NAME: TERM while requests run on that of `front`. What is lost is reported at the end.
problems=()
drain() {
  local code=0
  if ! "$smoke_go_h3" drain "https://localhost:$tls" "$ca" "$pid"; then
    problems+=("drain of $1 lost requests")
    # It may have failed before TERM.
    kill "$pid" 2>/dev/null || true
  fi
  wait "$pid" || code=$?
  expect "the exit code after the drain of $1" 0 "$code"
}

front built-in --cores 1 --io epoll
built_in=$clear
try 'built-in endpoints, epoll'
front cores --cores 2
try 'built-in endpoints, two cores'
drain 'built-in endpoints'
for scheme in http h2c; do
  front "$scheme" --cores 1 --to "$scheme://127.0.0.1:$built_in"
  try "$scheme:// through the gateway"
  drain "a gateway to $scheme://"
done

# Trailers, informational responses and broken responses of an HTTP/2 upstream.
upstream=$(free_port)
start pages "$upstream" "$smoke_go" serve "127.0.0.1:$upstream" 0
front trailers --cores 1 --request-trailers --to "h2c://127.0.0.1:$upstream"
python3 "$here/h3_aioquic.py" trailers "$tls" "$ca" || fail 'aioquic: trailers'
"$smoke_go_h3" trailers "https://localhost:$tls" "$ca" || fail 'quic-go: trailers'

# WebSockets by extended CONNECT (RFC 9220), to an HTTP/1.1 upstream.
upstream=$(free_port)
start websocket "$upstream" python3 "$here/websocket.py" serve "$upstream"
front tunnels --cores 1 --to "http://127.0.0.1:$upstream"
python3 "$here/h3_aioquic.py" websocket "$tls" "$ca" || fail 'aioquic: a WebSocket'
echo 'h3_clients: trailers and WebSockets passed'

# Discovery by Alt-Svc with curl's cache: the second request uses HTTP/3.
cache="$scratch/alt-svc"
discover() { python3 "$here/h3_curl.py" discover "https://localhost:$1/hello" "$ca" "$cache"; }
alt_svc() {
  curl --silent --max-time 10 --ipv4 --cacert "$ca" --dump-header - --output /dev/null "https://localhost:$1/hello" |
    tr --delete '\r' | sed -n 's/^alt-svc: //p'
}
front discovered --cores 1
known=$tls
expect 'Alt-Svc' "h3=\":$known\"; ma=3600" "$(alt_svc "$known")"
expect 'the first request' 2 "$(discover "$known")"
grep --quiet " h3 localhost $known " "$cache" || fail "curl has not noted HTTP/3: $(cat "$cache")"
expect 'the second request' 3 "$(discover "$known")"

# Without HTTP/3 on the same port, a client forgets it.
kill "$pid"
wait "$pid" || true
start_blitz forgotten "$clear" --listen-tls "127.0.0.1:$known" "${cert[@]}" --http3 off
expect 'Alt-Svc with --http3 off' clear "$(alt_svc "$known")"
expect 'a request after --http3 off' 2 "$(discover "$known")"
! grep --quiet " h3 localhost $known " "$cache" || fail "curl still notes HTTP/3: $(cat "$cache")"

# The port of another listener, as if it were mapped.
front target --cores 1
target=$tls
front mapped --cores 1 --alt-svc-port "$target" --alt-svc-max-age 5m
expect 'Alt-Svc with another port' "h3=\":$target\"; ma=300" "$(alt_svc "$tls")"
expect 'the first request' 2 "$(discover "$tls")"
expect 'the second request, to another port' 3 "$(discover "$tls")"
front silent --cores 1 --alt-svc-max-age 0
expect 'Alt-Svc with --alt-svc-max-age 0' '' "$(alt_svc "$tls")"

[ "${#problems[@]}" -eq 0 ] || fail "$(printf '%s; ' "${problems[@]}")"
echo 'h3_clients: passed'
