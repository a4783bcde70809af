#!/usr/bin/env bash
# Firefox over HTTP/3, which it finds by Alt-Svc: the page of browser.mjs with its fifty concurrent fetches and its
# upload; its WebSocket uses TCP. Firefox trusts the authority of the certificate, and compresses fields with QPACK's
# dynamic table. A screenshot of the page is target/ci/firefox_h3.png.
set -euo pipefail
here=tests/smoke
source "$here/lib.sh"
FIREFOX=$(command -v firefox-esr) || fail 'firefox-esr is missing'
export NODE_PATH="$tools/node_modules" FIREFOX

"$BLITZ" cert --out "$scratch" localhost >/dev/null
mkdir "$scratch/profile"
certutil -N -d "sql:$scratch/profile" --empty-password
certutil -A -d "sql:$scratch/profile" -n authority -t C,, -i "$scratch/ca.pem"
upstream=$(free_port)
plain=$(free_port)
port=$(free_port)
start upstream "$upstream" node "$here/browser.mjs" "$upstream"
start_blitz front "$plain" --listen-tls "127.0.0.1:$port" --to "http://127.0.0.1:$upstream" \
  --cert "$scratch/localhost.pem" --key "$scratch/localhost.key"

picture="$(dirname "$tools")/ci/firefox_h3.png"
mkdir -p "$(dirname "$picture")"
rm -f "$picture"
timeout 120 node "$here/firefox_h3.cjs" "https://localhost:$port/" "$scratch" "$picture" \
  >"$scratch/firefox.log" 2>&1 || fail "firefox_h3.cjs ended with $?"
# A part of Blitz's acknowledgements of entries, in a log of Firefox.
grep --quiet insert_count_increment "$scratch"/qlog_*/* || fail "Firefox did not use QPACK's dynamic table"
[ -s "$picture" ] || fail 'there is no screenshot'
cat "$scratch/firefox.log"
echo "firefox_h3: passed, $picture"
