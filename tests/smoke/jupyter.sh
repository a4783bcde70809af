#!/usr/bin/env bash
# JupyterLab behind the proxy: Chromium creates a notebook and runs a cell, over HTTP/1.1 and over HTTP/2 with TLS,
# with the kernel's WebSockets, on both drivers.
set -euo pipefail
here=tests/smoke
source "$here/lib.sh"
CHROMIUM=$(command -v chromium) || fail 'chromium is missing'
export NODE_PATH="$tools/node_modules" CHROMIUM

"$BLITZ" cert --out "$scratch" localhost >/dev/null
known=$(openssl x509 -in "$scratch/localhost.pem" -noout -pubkey | openssl pkey -pubin -outform der |
  openssl dgst -sha256 -binary | base64)
upstream=$(free_port)
mkdir "$scratch/notebooks"
data="$(realpath "$tools")/jupyter/share/jupyter"
start jupyter "$upstream" env HOME="$scratch" PYTHONPATH="$(realpath "$tools")/jupyter" JUPYTER_PATH="$data" \
  PYTHONDONTWRITEBYTECODE=1 IPYTHONDIR="$scratch/ipython" python3 -m jupyterlab --no-browser --allow-root \
  --ServerApp.ip=127.0.0.1 --ServerApp.port="$upstream" --ServerApp.port_retries=0 \
  --ServerApp.root_dir="$scratch/notebooks" --IdentityProvider.token=for-this-test --LabApp.app_dir="$data/lab" \
  --LabApp.news_url=None --LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate

for io in uring epoll; do
  plain=$(free_port)
  port=$(free_port)
  start_blitz "blitz-$io" "$plain" --io "$io" --to "http://127.0.0.1:$upstream" \
    --listen-tls "127.0.0.1:$port" --cert "$scratch/localhost.pem" --key "$scratch/localhost.key"
  for protocol in http/1.1 h2; do
    folder="$scratch/$io-${protocol/\//-}"
    mkdir "$folder"
    rm -f "$scratch"/notebooks/*.ipynb
    visit=("http://localhost:$plain" "$folder" "$protocol")
    [ "$protocol" = http/1.1 ] || visit=("https://localhost:$port" "$folder" "$protocol" "$known")
    timeout 80 node "$here/jupyter.cjs" "${visit[@]}" >"$scratch/browser.log" 2>&1 ||
      fail "a notebook over $protocol on $io"
    # Only an HTTP/2 request has such a line (RFC 8441); a WebSocket over HTTP/1.1 is an upgrade.
    [ "$protocol" = http/1.1 ] || grep --quiet '":protocol: websocket"' "$folder/notes.json" ||
      fail "the WebSocket did not use HTTP/2 on $io"
    echo "jupyter: a notebook over $protocol on $io passed"
  done
done
