#!/usr/bin/env bash
# Certificates of clients that openssl makes, with curl over HTTP/1.1 and HTTP/2: authorities by site, identity for the
# upstream, other hosts on a connection, other authorities after a reload.
set -euo pipefail
cd "$(dirname "$0")/../.."
source tests/smoke/lib.sh

certs="$scratch/certs"
"$BLITZ" cert --out "$certs" admin.example app.example >/dev/null
server="$certs/admin.example"

authority() {
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=$1" \
    -addext 'keyUsage=critical,keyCertSign' -keyout "$scratch/$1.key" -out "$scratch/$1.pem" 2>/dev/null
}
# issue AUTHORITY NAME DAYS
issue() {
  openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/O=Staff/CN=$2" \
    -keyout "$scratch/$2.key" -out "$scratch/$2.csr" 2>/dev/null
  openssl x509 -req -in "$scratch/$2.csr" -CA "$scratch/$1.pem" -CAkey "$scratch/$1.key" -CAcreateserial \
    -days "$3" -extfile <(echo 'extendedKeyUsage=clientAuth') -out "$scratch/$2.pem" 2>/dev/null
}
authority staff
authority others
issue staff alice 2
issue others eve 2
cp "$scratch/staff.pem" "$scratch/ca.pem"

port=$(free_port)
cat >"$scratch/blitz.toml" <<TOML
listen = []
listen_tls = ["127.0.0.1:$port"]
certificates = [{ cert = "$server.pem", key = "$server.key" }]
control.socket = "$scratch/control.sock"
control.listen = false
server.cores = 1

[site."admin.example"]
respond = "200 {client_cert.subject} {client_cert.fingerprint}"
tls = { client_ca = "ca.pem" }

[site."app.example"]
respond = "200 open"
tls = { client_ca = "ca.pem", client_auth = "optional", min = "1.3" }
client_cert = false
"/admin".client_cert = true
TOML
"$BLITZ" check "$scratch/blitz.toml" >"$scratch/check.txt" 2>&1 || fail "$(cat "$scratch/check.txt")"
start blitz "$port" "$BLITZ" run --config "$scratch/blitz.toml"

for host in admin.example app.example; do places+=(--resolve "$host:$port:127.0.0.1"); done
get() { curl --silent --max-time 20 --cacert "$certs/ca.pem" "${places[@]}" "$@"; }
status() { get --output /dev/null --write-out '%{http_code}' "$@" || true; }
as() { echo "--cert $scratch/$1.pem --key $scratch/$1.key"; }
expect() { [ "$2" = "$3" ] || fail "$1: expected $2, got $3"; }

print=$(openssl x509 -in "$scratch/alice.pem" -noout -fingerprint -sha256 | cut -d= -f2 | tr -d : | tr A-F a-f)
for version in 1.1 2; do
  admin="https://admin.example:$port/" app="https://app.example:$port/"
  # Without quotes: two flags with their values.
  expect "alice over HTTP/$version" "alice $print" "$(get "--http$version" $(as alice) "$admin")"
  expect "nobody over HTTP/$version" 000 "$(status "--http$version" "$admin")"
  expect "eve over HTTP/$version" 000 "$(status "--http$version" $(as eve) "$admin")"
  expect "an open page over HTTP/$version" open "$(get "--http$version" "$app")"
  expect "a page for staff over HTTP/$version" 403 "$(status "--http$version" "${app}admin")"
  expect "alice at a page for staff over HTTP/$version" 200 "$(status "--http$version" $(as alice) "${app}admin")"
  expect "eve at an open page over HTTP/$version" 000 "$(status "--http$version" $(as eve) "$app")"
  expect "another host over HTTP/$version" 421 "$(status "--http$version" --header 'Host: admin.example' "$app")"
  expect "the open host over HTTP/$version" 421 \
    "$(status "--http$version" $(as alice) --header 'Host: app.example' "$admin")"
done
expect 'TLS 1.2 where it suffices' 200 "$(status --tls-max 1.2 $(as alice) "$admin")"
expect 'TLS 1.2 where 1.3 is demanded' 000 "$(status --tls-max 1.2 "$app")"

# A session of the open site does not resume in the other one.
client() { openssl s_client -connect "127.0.0.1:$port" -CAfile "$certs/ca.pem" "$@" 2>&1 || true; }
printf 'GET / HTTP/1.1\r\nHost: app.example\r\nConnection: close\r\n\r\n' |
  client -quiet -servername app.example -sess_out "$scratch/session" >/dev/null
[ -s "$scratch/session" ] || fail 'openssl got no session'
printf 'GET / HTTP/1.1\r\nHost: admin.example\r\nConnection: close\r\n\r\n' |
  client -ign_eof -servername admin.example -sess_in "$scratch/session" >"$scratch/resumed.txt"
! grep --quiet '^HTTP/1.1 200' "$scratch/resumed.txt" || fail 'a session without a certificate was resumed'

# Other authorities after a reload.
cp "$scratch/others.pem" "$scratch/ca.pem"
"$BLITZ" reload --control "$scratch/control.sock" >/dev/null
expect 'eve after the reload' 200 "$(status $(as eve) "$admin")"
expect 'alice after the reload' 000 "$(status $(as alice) "$admin")"
echo 'client certificates: fine'
