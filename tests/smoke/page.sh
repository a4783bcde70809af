#!/usr/bin/env bash
# The page of the control interface in Chromium, at three widths, light and dark: its numbers are those of the load that
# was sent, it reports no error, and it asks the control interface only. `PAGE_SCREENSHOTS=FOLDER` keeps pictures.
set -euo pipefail
here=tests/smoke
source "$here/lib.sh"
export NODE_PATH="$tools/node_modules"
CHROMIUM=$(command -v chromium)
export CHROMIUM

"$BLITZ" cert --out "$scratch" app.example >/dev/null
upstream=$(free_port)
refusing=$(free_port)
port=$(free_port)
tls_port=$(free_port)
control=$(free_port)
start upstream "$upstream" node "$here/page_upstream.mjs" "$upstream"
cat >"$scratch/blitz.toml" <<TOML
listen = ["127.0.0.1:$port"]
listen_tls = ["127.0.0.1:$tls_port"]
certificates = ["$scratch/app.example.pem"]

[control]
listen = "127.0.0.1:$control"
socket = "$scratch/control.sock"

[site."app.example"]
tls = true
https_redirect = false
to = "http://127.0.0.1:$upstream"
"/slow" = "http://127.0.0.1:$upstream"
"/broken" = "http://127.0.0.1:$refusing"
"/gone" = { respond = 404 }

[upstream.pair]
servers = ["http://127.0.0.1:$upstream", "http://localhost:$upstream"]

[site."pair.example"]
to = "pair"
TOML
start blitz "$port" "$BLITZ" run --config "$scratch/blitz.toml" --cores 1
node "$here/page.cjs" "http://127.0.0.1:$control/" "$port" "${started[-1]}" "$scratch" "${PAGE_SCREENSHOTS:-}" ||
  fail 'the page is wrong'
echo 'page: passed'
