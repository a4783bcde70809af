#!/usr/bin/env bash
# Chromium and policies: a page from a folder asks an API of another origin, with preflights, rate limit and compression;
# events and lines come one by one through it.
set -euo pipefail
here=tests/smoke
source "$here/lib.sh"

"$BLITZ" cert --out "$scratch" app.localhost api.localhost >/dev/null
certificate=("$scratch"/*.pem)
upstream=$(free_port)
port=$(free_port)
start upstream "$upstream" node "$here/browser_policies.mjs" "$upstream"
mkdir "$scratch/www"
cp "$here/browser_policies.js" "$scratch/www/app.js"
echo '<!doctype html><title>policies</title><script src="/app.js"></script>' >"$scratch/www/index.html"
cat >"$scratch/blitz.toml" <<TOML
listen = []
listen_tls = ["127.0.0.1:$port"]
certificates = ["${certificate[0]}"]
control = false

[defaults]
tls = true
compress = { types = ["text/css", "text/event-stream", "application/x-ndjson"] }

[site."app.localhost"]
files = "$scratch/www"
"=/style.css" = { to = "http://127.0.0.1:$upstream" }
"=/events" = { to = "http://127.0.0.1:$upstream" }
"=/lines" = { to = "http://127.0.0.1:$upstream" }
"=/next" = { to = "http://127.0.0.1:$upstream" }
"=/report" = { to = "http://127.0.0.1:$upstream" }

[site."api.localhost"]
to = "http://127.0.0.1:$upstream"
headers.Server-Timing = "a"
cors = { origins = ["https://app.localhost:$port"], expose = ["ETag"] }
"/fixed".cors = { origins = ["https://app.localhost:$port"], methods = ["GET"] }
"/closed".cors = ["https://other.localhost:$port"]
"/none".cors = false
"/limited".rate_limit = { rate = "1/h", burst = 1 }
TOML
start blitz "$port" "$BLITZ" run --config "$scratch/blitz.toml" --cores 1

known=$(openssl x509 -in "${certificate[0]}" -noout -pubkey | openssl pkey -pubin -outform der |
  openssl dgst -sha256 -binary | base64)
HOME="$scratch" chromium --headless --no-sandbox --disable-gpu --disable-quic --disable-dev-shm-usage \
  --no-first-run --disable-background-networking --disable-component-update --disable-sync \
  --user-data-dir="$scratch/profile" --ignore-certificate-errors-spki-list="$known" \
  "https://app.localhost:$port/" >"$scratch/chromium.log" 2>&1 &
started+=("$!")
for wait in $(seq 400); do
  ! grep --quiet '^{' "$scratch/upstream.log" || break
  kill -0 "${started[-1]}" 2>/dev/null || fail 'chromium ended unexpectedly'
  sleep 0.1
done
expect 'the report of the page' '{"problems":[]}' "$(grep '^{' "$scratch/upstream.log")"
echo 'browser_policies: passed'
