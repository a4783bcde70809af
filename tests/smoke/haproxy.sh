#!/usr/bin/env bash
# HAProxy as upstream and as proxy: it parses strictly what Blitz sends as a client and as a server. Each tells the other
# the client with PROXY protocol.
set -euo pipefail
cd "$(dirname "$0")/../.."
source tests/smoke/lib.sh
fixed=$(free_port)
front=$(free_port)
blitz_port=$(free_port)
proxy=$(free_port)
proxied=$(free_port)
proxied_tls=$(free_port)
accepting=$(free_port)
announcing=$(free_port)
declare -A sending=([v1]=$(free_port) [v2]=$(free_port) [tls]=$(free_port))

cat >"$scratch/haproxy.cfg" <<CONF
global
  maxconn 2000
defaults
  mode http
  timeout connect 2s
  timeout client 10s
  timeout server 10s
frontend fixed
  bind 127.0.0.1:$fixed
  http-request return status 200 content-type text/plain string "from haproxy"
frontend front
  bind 127.0.0.1:$front
  default_backend built_in
backend built_in
  http-reuse always
  server blitz 127.0.0.1:$blitz_port
frontend v1
  bind 127.0.0.1:${sending[v1]}
  default_backend v1
backend v1
  server blitz 127.0.0.1:$proxied send-proxy
frontend v2
  bind 127.0.0.1:${sending[v2]}
  default_backend v2
backend v2
  server blitz 127.0.0.1:$proxied send-proxy-v2
frontend tls
  mode tcp
  bind 127.0.0.1:${sending[tls]}
  default_backend tls
backend tls
  mode tcp
  server blitz 127.0.0.1:$proxied_tls send-proxy-v2
frontend accepting
  bind 127.0.0.1:$accepting accept-proxy
  http-request return status 200 content-type text/plain lf-string "%[src]"
CONF
"$BLITZ" cert --out "$scratch" localhost >/dev/null
cat >"$scratch/proxied.toml" <<CONF
control = false
listen = [{ address = "127.0.0.1:$proxied", proxy_protocol = true }]
listen_tls = [{ address = "127.0.0.1:$proxied_tls", proxy_protocol = true }]
trusted_proxies = ["127.0.0.1"]
certificates = [{ cert = "localhost.pem", key = "localhost.key" }]

[site]
"*" = { respond = "200 {client}" }
"localhost" = { tls = true, https_redirect = false, respond = "200 {client}" }
CONF
cat >"$scratch/announcing.toml" <<CONF
control = false
listen = ["127.0.0.1:$announcing"]

[site."*"]
"/v1" = "v1"
"/v2" = "v2"

[upstream.v1]
servers = ["http://127.0.0.1:$accepting"]
proxy_protocol = "v1"

[upstream.v2]
servers = ["http://127.0.0.1:$accepting"]
proxy_protocol = "v2"
CONF

start_blitz built-in "$blitz_port"
start proxied "$proxied" "$BLITZ" run --control-listen off --config "$scratch/proxied.toml" --cores 1
start announcing "$announcing" "$BLITZ" run --control-listen off --config "$scratch/announcing.toml" --cores 1
start haproxy "$fixed" haproxy -db -f "$scratch/haproxy.cfg"
start_blitz proxy "$proxy" --to "http://127.0.0.1:$fixed"
get() { curl --silent --show-error --fail --max-time 10 "$@"; }

expect 'Blitz in front of HAProxy' 'from haproxy' "$(get "http://127.0.0.1:$proxy/anything")"
expect 'HAProxy in front of Blitz' 'Hello, World!' "$(get "http://127.0.0.1:$front/hello")"
expect 'a body' 'name=blitz' "$(get --data name=blitz "http://127.0.0.1:$front/echo/")"
expect 'a streamed body' 500000 "$(get "http://127.0.0.1:$front/data?size=500000" | wc -c)"
for client in 127.0.0.1 127.0.0.9; do
  for version in v1 v2; do
    expect "the client that HAProxy tells with $version" "$client" \
      "$(get --interface "$client" "http://127.0.0.1:${sending[$version]}/")"
    expect "the client that Blitz tells with $version" "$client" \
      "$(get --interface "$client" "http://127.0.0.1:$announcing/$version")"
  done
  expect 'the client of a connection with TLS' "$client" \
    "$(get --interface "$client" --ipv4 --cacert "$scratch/ca.pem" "https://localhost:${sending[tls]}/")"
done
if get "http://127.0.0.1:$proxied/" 2>/dev/null; then fail 'a connection without header got a response'; fi
for port in "$proxy" "$front" "${sending[v2]}" "$announcing/v1"; do
  report=$(wrk --threads 1 --connections 50 --duration 2s "http://127.0.0.1:$port/hello")
  if grep --quiet --extended-regexp 'Socket errors|Non-2xx' <<<"$report"; then fail "$report"; fi
done
echo 'haproxy: passed on both sides'
