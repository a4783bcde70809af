#!/usr/bin/env bash
# Vite's development server under another host name, which it refuses by itself: Chromium loads a page and gets a changed
# module by Vite's WebSocket, without loading the page again, over HTTP/1.1 and over HTTP/2 with TLS.
set -euo pipefail
here=tests/smoke
source "$here/lib.sh"
CHROMIUM=$(command -v chromium) || fail 'chromium is missing'
vite=$(realpath "$tools/vite/node_modules") || fail 'vite is missing: .ci/tools applications'
export NODE_PATH="$tools/node_modules" CHROMIUM

"$BLITZ" cert --out "$scratch" vite.example >/dev/null
known=$(openssl x509 -in "$scratch/vite.example.pem" -noout -pubkey | openssl pkey -pubin -outform der |
  openssl dgst -sha256 -binary | base64)
mkdir "$scratch/project"
echo '<!doctype html><title>vite</title><p id="text"></p><script type="module" src="/main.js"></script>' \
  >"$scratch/project/index.html"
cat >"$scratch/project/main.js" <<'JS'
import { text } from './text.js'
const show = (text) => (document.getElementById('text').textContent = text)
show(text)
import.meta.hot.accept('./text.js', (changed) => show(changed.text))
JS
echo "export const text = 'first'" >"$scratch/project/text.js"
upstream=$(free_port)
# No file but those of the project: it has no configuration.
start vite "$upstream" node "$vite/vite/bin/vite.js" "$scratch/project" --host 127.0.0.1 --port "$upstream" --strictPort

plain=$(free_port)
secure=$(free_port)
cat >"$scratch/blitz.toml" <<TOML
control = false
listen = ["127.0.0.1:$plain"]
listen_tls = ["127.0.0.1:$secure"]
certificates = ["$scratch/vite.example.pem"]

[site."vite.example"]
tls = true
https_redirect = false
to = "http://127.0.0.1:$upstream"
host = "upstream"

[site."kept.example"]
to = "http://127.0.0.1:$upstream"
TOML
start blitz "$plain" "$BLITZ" run --config "$scratch/blitz.toml" --cores 1

status() { curl --silent --max-time 20 --output /dev/null --write-out '%{http_code}' --header "Host: $1" "http://127.0.0.1:$plain/"; }
expect 'the page of a host that Vite does not know' 403 "$(status kept.example)"
expect 'the page of a host that it gets another name for' 200 "$(status vite.example)"
for protocol in http/1.1 h2; do
  url="http://vite.example:$plain/"
  [ "$protocol" = http/1.1 ] || url="https://vite.example:$secure/"
  echo "export const text = 'first'" >"$scratch/project/text.js"
  timeout 60 node "$here/vite.cjs" "$url" "$protocol" "$scratch/project/text.js" "$scratch/profile-${url%%:*}" "$known" \
    >"$scratch/browser.log" 2>&1 || fail "$url"
  echo "vite: a changed module over $protocol"
done
