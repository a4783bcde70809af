#!/usr/bin/env bash
# An MCP server with the protection against DNS rebinding that its SDK has by default, under another host name: the SDK's
# client gets each message of a running tool when it is sent, over HTTP/1.1 on both drivers.
set -euo pipefail
here=tests/smoke
source "$here/lib.sh"
sdk=$(realpath "$tools/mcp/node_modules") || fail 'the MCP SDK is missing: .ci/tools applications'
# Modules are found beside the file that imports them.
cp "$here/mcp_server.mjs" "$here/mcp_client.mjs" "$scratch"
ln -s "$sdk" "$scratch/node_modules"

upstream=$(free_port)
start server "$upstream" node "$scratch/mcp_server.mjs" "$upstream"
for io in uring epoll; do
  port=$(free_port)
  cat >"$scratch/blitz.toml" <<TOML
control = false
listen = ["127.0.0.1:$port"]
server.io = "$io"

[site."mcp.example"]
to = "http://127.0.0.1:$upstream"
host = "upstream"
compress = true

[site."kept.example"]
to = "http://127.0.0.1:$upstream"
TOML
  start "blitz-$io" "$port" "$BLITZ" run --config "$scratch/blitz.toml" --cores 1
  kept=$(curl --silent --max-time 20 --output /dev/null --write-out '%{http_code}' --header 'Host: kept.example' \
    --json '{}' "http://127.0.0.1:$port/mcp")
  expect 'a host that the server does not know' 403 "$kept"
  timeout 60 node "$scratch/mcp_client.mjs" "http://mcp.example:$port/mcp" "http://127.0.0.1:$upstream" \
    >"$scratch/client.log" 2>&1 || fail "the client on $io"
  echo "mcp: $io passed"
done
