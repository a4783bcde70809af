#!/usr/bin/env bash
# nginx as an upstream with keep-alive, and as a proxy in front of the built-in endpoints.
set -euo pipefail
cd "$(dirname "$0")/../.."
source tests/smoke/lib.sh
nginx_port=$(free_port)
front=$(free_port)
blitz_port=$(free_port)
proxy=$(free_port)
accepting=$(free_port)
announcing=$(free_port)
mkdir -p "$scratch/www"
head -c 3000000 /dev/urandom >"$scratch/www/file"

start_blitz built-in "$blitz_port"
start_nginx nginx "$nginx_port" <<CONF
  upstream built_in { server 127.0.0.1:$blitz_port; keepalive 8; }
  server {
    listen 127.0.0.1:$nginx_port;
    root $scratch/www;
    location = /headers { return 200 "\$http_x_forwarded_for|\$http_x_forwarded_proto|\$http_host"; }
    location = /moved { return 302 /file; }
    location = /no-content { return 204; }
  }
  server {
    listen 127.0.0.1:$accepting proxy_protocol;
    location / { return 200 "\$proxy_protocol_addr \$proxy_protocol_server_port"; }
  }
  server {
    listen 127.0.0.1:$front;
    location / {
      proxy_pass http://built_in;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
    }
  }
CONF
start_blitz proxy "$proxy" --to "http://127.0.0.1:$nginx_port"
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
start announcing "$announcing" "$BLITZ" run --control-listen off --config "$scratch/announcing.toml" --cores 1
base="http://127.0.0.1:$proxy"
get() { curl --silent --show-error --fail --max-time 10 "$@"; }

# Blitz in front of nginx.
get --output "$scratch/response" "$base/file"
cmp "$scratch/www/file" "$scratch/response" || fail 'the file changed on the way'
get --range 100-199 "$base/file" | cmp - <(tail -c +101 "$scratch/www/file" | head -c 100) ||
  fail 'the range changed on the way'
expect 'forwarding fields' "127.0.0.1|http|127.0.0.1:$proxy" "$(get "$base/headers")"
expect 'a redirect' 302 "$(curl -s -o /dev/null -w '%{http_code}' --max-time 10 "$base/moved")"
expect 'no content' 204 "$(curl -s -o /dev/null -w '%{http_code}' --max-time 10 "$base/no-content")"
report=$(wrk --threads 1 --connections 50 --duration 2s "$base/headers")
if grep --quiet --extended-regexp 'Socket errors|Non-2xx' <<<"$report"; then fail "$report"; fi
for version in v1 v2; do
  for client in 127.0.0.1 127.0.0.9; do
    expect "the client that Blitz tells with $version" "$client $announcing" \
      "$(get --interface "$client" "http://127.0.0.1:$announcing/$version")"
  done
done

# nginx in front of Blitz.
expect 'behind nginx' 'Hello, World!' "$(get "http://127.0.0.1:$front/hello")"
get --data-binary "@$scratch/www/file" --output "$scratch/response" "http://127.0.0.1:$front/echo/"
cmp "$scratch/www/file" "$scratch/response" || fail 'the body changed on the way'

# nginx that forwards Upgrade, with an access rule: no request bypasses it by an upgrade to h2c.
declare -A behind=([off]='' [forwarded]='--h2c-upgrade' [trusted]='--h2c-upgrade --trusted-proxies 127.0.0.1'
  [exposed]='--h2c-upgrade')
declare -A via=()
for case in "${!behind[@]}"; do
  port=$(free_port)
  # Without quotes: several flags.
  start_blitz "h2c-$case" "$port" ${behind[$case]}
  via[$case]=$(free_port)
  cat <<CONF
  server {
    listen 127.0.0.1:${via[$case]};
    location /json { deny all; }
    location / {
      proxy_pass http://127.0.0.1:$port;
      proxy_http_version 1.1;
      proxy_set_header Upgrade \$http_upgrade;
      proxy_set_header Connection \$http_connection;
      $([ "$case" != forwarded ] || echo 'proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;')
    }
  }
CONF
done >"$scratch/h2c-servers"
start_nginx h2c "${via[off]}" <"$scratch/h2c-servers"
for case in "${!behind[@]}"; do
  # The case `exposed` shows that this nginx would pass an upgraded connection.
  wanted='200 refused'
  [ "$case" != exposed ] || wanted='101 passed'
  expect "h2c behind nginx, $case" "$wanted" "$(python3 tests/smoke/h2c_upgrade.py "${via[$case]}" /hello /json)"
done
echo 'nginx: passed on both sides'
