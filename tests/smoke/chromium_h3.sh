#!/usr/bin/env bash
# Chromium over HTTP/3: the page of browser.mjs with its fifty concurrent fetches and its upload; its WebSocket uses
# TCP, because Chromium has none over HTTP/3. A screenshot of the page is target/ci/chromium_h3.png.
set -euo pipefail
here=tests/smoke
source "$here/lib.sh"
export NODE_PATH="$tools/node_modules"

"$BLITZ" cert --out "$scratch" localhost >/dev/null
upstream=$(free_port)
plain=$(free_port)
port=$(free_port)
start upstream "$upstream" node "$here/browser.mjs" "$upstream"
# As the default listeners: over HTTP/3 Chromium tries ::1 only, if localhost has both addresses.
listeners=(--listen-tls "127.0.0.1:$port")
if grep -q ' lo$' /proc/net/if_inet6 2>/dev/null; then listeners+=(--listen-tls "[::1]:$port"); fi
start_blitz front "$plain" "${listeners[@]}" --to "http://127.0.0.1:$upstream" \
  --cert "$scratch/localhost.pem" --key "$scratch/localhost.key"

# The key of the certificate that the browser accepts without an authority.
known=$(openssl x509 -in "$scratch/localhost.pem" -noout -pubkey | openssl pkey -pubin -outform der |
  openssl dgst -sha256 -binary | base64)
picture="$(dirname "$tools")/ci/chromium_h3.png"
mkdir -p "$(dirname "$picture")"
rm -f "$picture"
notes="$scratch/notes.json"
# Without the origin in the list, Chromium would refuse QUIC with an authority that is not well known.
HOME="$scratch" timeout 60 chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
  --no-first-run --disable-background-networking --disable-component-update --disable-sync \
  --user-data-dir="$scratch/profile" --ignore-certificate-errors-spki-list="$known" \
  --enable-quic --origin-to-force-quic-on="localhost:$port" \
  --log-net-log="$notes" \
  --window-size=900,500 --timeout=40000 --screenshot="$picture" "https://localhost:$port/" \
  >"$scratch/chromium.log" 2>&1 || fail "chromium ended with $?"
expect 'the report of the page' \
  '{"problems":[],"protocols":["h3"],"things":50,"subprotocol":"chat.v1","close":4001}' \
  "$(grep '^{' "$scratch/upstream.log")"
grep --quiet '"QUIC_SESSION' "$notes" || fail 'the network log has no QUIC session'
[ -s "$picture" ] || fail 'there is no screenshot'
echo "chromium_h3: passed, $picture"
