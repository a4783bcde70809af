#!/usr/bin/env bash
# socket.io through the proxy: long polling, WebSockets, the upgrade from one to the other, events with bytes in both
# directions, and a client that reconnects after the server has restarted; in clear text and over TLS, on both drivers.
set -euo pipefail
here=tests/smoke
source "$here/lib.sh"
export NODE_PATH="$tools/node_modules"

"$BLITZ" cert --out "$scratch" localhost >/dev/null
talks=()
for io in uring epoll; do
  for scheme in http https; do
    upstream=$(free_port)
    plain=$(free_port)
    port=$(free_port)
    start_blitz "blitz-$io-$scheme" "$plain" --io "$io" --to "http://127.0.0.1:$upstream" \
      --listen-tls "127.0.0.1:$port" --cert "$scratch/localhost.pem" --key "$scratch/localhost.key"
    base=("http://127.0.0.1:$plain")
    [ "$scheme" = http ] || base=("https://localhost:$port" "$scratch/ca.pem")
    timeout 60 node "$here/socket_io.cjs" talk "$upstream" "${base[@]}" >"$scratch/talk-$io-$scheme.log" 2>&1 &
    started+=("$!")
    talks+=("$io-$scheme:$!")
  done
done
for talk in "${talks[@]}"; do
  wait "${talk##*:}" || fail "socket.io, ${talk%%:*}"
  echo "socket_io: ${talk%%:*} passed"
done
