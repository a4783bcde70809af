#!/usr/bin/env bash
# HTTP/2 with the clients of Go and Node and with nghttp, with TLS and without, on the built-in endpoints,
# directly and through the gateway.
set -euo pipefail
here=tests/smoke
source "$here/lib.sh"
go_program

"$BLITZ" cert --out "$scratch" localhost >/dev/null
ca="$scratch/ca.pem"
cert=(--cert "$scratch/localhost.pem" --key "$scratch/localhost.key")
built_in=$(free_port)
built_in_tls=$(free_port)
start_blitz built-in "$built_in" --listen-tls "127.0.0.1:$built_in_tls" "${cert[@]}"

# try NAME PORT TLS_PORT: runs every client on both ports.
try() {
  for base in "http://127.0.0.1:$2" "https://localhost:$3"; do
    "$smoke_go" client "$base" "$ca" || fail "go: $1: $base"
    case "$base" in
      https:*) node "$here/node_http2.mjs" built-in "$base" "$ca" || fail "node: $1: $base" ;;
      *) node "$here/node_http2.mjs" built-in "$base" || fail "node: $1: $base" ;;
    esac
    nghttp --null-out --stat "$base/hello" "$base/data?size=1000000" "$base/ping" >"$scratch/nghttp"
    expect "nghttp: $1: $base" 3 "$(grep --count ' 200 ' "$scratch/nghttp")"
    echo "http2_clients: $1: $base passed"
  done
}

try 'built-in endpoints' "$built_in" "$built_in_tls"
for scheme in http h2c; do
  front=$(free_port)
  front_tls=$(free_port)
  start_blitz "front-$scheme" "$front" --listen-tls "127.0.0.1:$front_tls" "${cert[@]}" \
    --to "$scheme://127.0.0.1:$built_in"
  try "$scheme:// through the gateway" "$front" "$front_tls"
done
