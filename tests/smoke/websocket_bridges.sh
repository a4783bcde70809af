#!/usr/bin/env bash
# WebSockets through the gateway, every version to every version, with and without TLS on both sides.
set -euo pipefail
here=tests/smoke
source "$here/lib.sh"
export NODE_PATH="$tools/node_modules"

"$BLITZ" cert --out "$scratch" localhost >/dev/null
ca="$scratch/ca.pem"
pair=("$scratch/localhost.pem" "$scratch/localhost.key")

# Version of the upstream, and its scheme in --to.
for row in h1:http h1:https h2:h2c h2:https; do
  IFS=: read -r version scheme <<<"$row"
  upstream=$(free_port)
  plain=$(free_port)
  port=$(free_port)
  files=() upstream_tls=()
  [ "$scheme" != https ] || { files=("${pair[@]}") upstream_tls=(--upstream-ca "$ca"); }
  start "upstream-$version-$scheme" "$upstream" \
    node "$here/websocket_bridges.mjs" serve "$version" "$upstream" "${files[@]}"
  start_blitz "front-$version-$scheme" "$plain" --listen-tls "127.0.0.1:$port" \
    --cert "${pair[0]}" --key "${pair[1]}" --to "$scheme://localhost:$upstream" "${upstream_tls[@]}"
  for client in h1 h2; do
    node "$here/websocket_bridges.mjs" talk "$client" "http://127.0.0.1:$plain" ||
      fail "$client in clear text to $version, $scheme"
    node "$here/websocket_bridges.mjs" talk "$client" "https://localhost:$port" "$ca" ||
      fail "$client over TLS to $version, $scheme"
  done
  echo "websocket_bridges: to an upstream of $version, $scheme, passed"
done
