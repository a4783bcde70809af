#!/usr/bin/env bash
# Chromium over HTTPS: a page from an HTTP/1.1 upstream with fifty concurrent fetches, an upload and a
# WebSocket, all over HTTP/2. The browser's network log shows the protocol of the WebSocket.
set -euo pipefail
here=tests/smoke
source "$here/lib.sh"
export NODE_PATH="$tools/node_modules"

"$BLITZ" cert --out "$scratch" localhost >/dev/null
upstream=$(free_port)
plain=$(free_port)
port=$(free_port)
start upstream "$upstream" node "$here/browser.mjs" "$upstream"
start_blitz front "$plain" --listen-tls "127.0.0.1:$port" --to "http://127.0.0.1:$upstream" \
  --cert "$scratch/localhost.pem" --key "$scratch/localhost.key"

# The key of the certificate that the browser accepts without an authority.
known=$(openssl x509 -in "$scratch/localhost.pem" -noout -pubkey | openssl pkey -pubin -outform der |
  openssl dgst -sha256 -binary | base64)
notes="$scratch/notes.json"
HOME="$scratch" chromium --headless --no-sandbox --disable-gpu --disable-quic --disable-dev-shm-usage \
  --no-first-run --disable-background-networking --disable-component-update --disable-sync \
  --user-data-dir="$scratch/profile" --ignore-certificate-errors-spki-list="$known" \
  --log-net-log="$notes" "https://localhost:$port/" >"$scratch/chromium.log" 2>&1 &
started+=("$!")
for wait in $(seq 400); do
  ! grep --quiet '^{' "$scratch/upstream.log" || break
  kill -0 "${started[-1]}" 2>/dev/null || fail 'chromium ended unexpectedly'
  sleep 0.1
done
expect 'the report of the page' \
  '{"problems":[],"protocols":["h2"],"things":50,"subprotocol":"chat.v1","close":4001}' \
  "$(grep '^{' "$scratch/upstream.log")"
# Only an HTTP/2 request has such a line (RFC 8441); a WebSocket over HTTP/1.1 is an upgrade.
for wait in $(seq 100); do
  ! grep --quiet '":protocol: websocket"' "$notes" || break
  sleep 0.1
done
grep --quiet '":protocol: websocket"' "$notes" || fail 'the WebSocket did not use HTTP/2'
echo 'chromium: passed'
