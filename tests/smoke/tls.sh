#!/usr/bin/env bash
# HTTPS with common tools: curl, openssl, h2load and h2spec; and certificate reloads under load.
set -euo pipefail
here=tests/smoke
source "$here/lib.sh"
export PATH="$tools/bin:$PATH" XDG_STATE_HOME="$scratch/state"

certs="$scratch/certs"
for name in localhost a.example client.example; do "$BLITZ" cert --out "$certs" "$name" >/dev/null; done
ca="$certs/ca.pem"
pair() { echo "--cert $certs/$1.pem --key $certs/$1.key"; }

port=$(free_port)
plain=$(free_port)
# Without quotes: a pair is four arguments.
start_blitz tls "$plain" --listen-tls "127.0.0.1:$port" $(pair localhost) $(pair a.example)
server=${started[-1]}
base="https://localhost:$port"
get() { curl --silent --show-error --fail --max-time 10 --cacert "$ca" --ipv4 "$@"; }

# curl: both versions of HTTP, large bodies, certificate selection by name.
for version in 1.1 2; do
  expect "curl: /hello over HTTP/$version" 'Hello, World!' "$(get "--http$version" "$base/hello")"
  expect 'curl: version' "$version" \
    "$(get "--http$version" --output /dev/null --write-out '%{http_version}' "$base/hello")"
  head -c 8388608 /dev/urandom >"$scratch/body"
  get "--http$version" --data-binary "@$scratch/body" --output "$scratch/response" "$base/echo/"
  cmp "$scratch/body" "$scratch/response"
done
expect 'curl: another name' pong \
  "$(get --resolve "a.example:$port:127.0.0.1" "https://a.example:$port/ping")"
expect 'curl: a host that the certificate does not cover' 421 \
  "$(curl --silent --cacert "$ca" --ipv4 --output /dev/null --write-out '%{http_code}' \
    --header 'Host: b.example' "$base/ping")"
expect 'curl: clear text' 400 \
  "$(curl --silent --output /dev/null --write-out '%{http_code}' "http://127.0.0.1:$port/")"

# openssl: versions, names, the key exchange, resumption.
client() { openssl s_client -connect "127.0.0.1:$port" -CAfile "$ca" "$@" </dev/null 2>&1 || true; }
expect_contains() { grep --quiet -- "$2" <<<"$3" || fail "openssl: $1: no '$2' in: $3"; }
for version in 1_2 1_3; do
  output=$(client "-tls$version" -servername localhost -verify_return_error -alpn h2)
  expect_contains "TLS $version" 'Verify return code: 0 (ok)' "$output"
  expect_contains "TLS $version" 'ALPN protocol: h2' "$output"
  expect_contains "TLS $version" "TLSv${version/_/.}" "$output"
done
for version in 1 1_1; do
  expect_contains "TLS $version is refused" 'Cipher is (NONE)' "$(client "-tls$version" -cipher 'ALL:@SECLEVEL=0')"
done
expect_contains 'a name' 'subject=CN *= *a.example' "$(client -servername a.example)"
expect_contains 'an unknown name' 'subject=CN *= *localhost' "$(client -servername b.example)"
expect_contains 'no name' 'subject=CN *= *localhost' "$(client -noservername)"
client -tls1_2 -servername localhost -sess_out "$scratch/session" >/dev/null
expect_contains 'a session resumes' 'Reused, TLSv1.2' \
  "$(client -tls1_2 -servername localhost -sess_in "$scratch/session")"

# The authority's key can issue certificates only for the names in its constraints.
forge() {
  openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$1" \
    -keyout "$scratch/forged.key" -out "$scratch/forged.csr" 2>/dev/null
  openssl x509 -req -in "$scratch/forged.csr" -CA "$ca" -CAkey "$certs/ca.key" -CAcreateserial -days 1 \
    -extfile <(echo "extendedKeyUsage=serverAuth"; [ -z "$2" ] || echo "subjectAltName=$2") \
    -out "$scratch/forged.pem" 2>/dev/null
  openssl verify -CAfile "$ca" "$scratch/forged.pem" 2>&1 || true
}
expect_contains 'the authority is constrained' 'X509v3 Name Constraints: critical' "$(openssl x509 -in "$ca" -noout -text)"
for name in DNS:localhost DNS:a.example DNS:www.a.example; do
  expect_contains "a certificate for $name" ': OK' "$(forge forged "$name")"
done
for name in DNS:example.com DNS:example DNS:a.example.com IP:127.0.0.1 IP:::1; do
  expect_contains "a forged certificate for $name" 'subtree violation' "$(forge forged "$name")"
done
expect_contains 'a forged certificate without alternative names' 'subtree violation' "$(forge evil.example '')"

# h2load and h2spec over TLS.
h2load --requests=20000 --clients=16 --max-concurrent-streams=32 --threads=1 "$base/hello" >"$scratch/response"
grep --quiet '20000 succeeded, 0 failed, 0 errored, 0 timeout' "$scratch/response" ||
  fail "h2load: $(tail -n 12 "$scratch/response")"
for mode in '' --strict; do
  # Without quotes: an empty mode is no argument.
  h2spec -t -k --host 127.0.0.1 --port "$port" --path /hello --timeout 3 $mode >"$scratch/response" ||
    fail "h2spec $mode: $(sed -n '/^Failures:/,$p' "$scratch/response")"
  grep --quiet ', 0 failed' "$scratch/response" || fail "h2spec $mode: $(tail -n 1 "$scratch/response")"
  echo "h2spec ${mode:-in full}: $(tail -n 1 "$scratch/response")"
done

# The certificate is replaced under load; no request fails, and the server presents the new one.
serial() { client -servername localhost | openssl x509 -noout -serial; }
before=$(serial)
repeat loop get --output /dev/null "$base/hello"
loop=${started[-1]}
h2load --duration=4 --clients=8 --max-concurrent-streams=8 --threads=1 "$base/hello" >"$scratch/load" &
load=$!
started+=("$load")
for turn in 1 2 3; do
  sleep 1
  rm "$certs/localhost.pem" "$certs/localhost.key"
  "$BLITZ" cert --out "$certs" localhost >/dev/null
  kill -HUP "$server"
done
wait "$load" || fail "h2load: $(cat "$scratch/load")"
touch "$scratch/stop"
wait "$loop" || fail "curl failed while the certificate changed: $(cat "$scratch/loop.log")"
all_succeeded "$scratch/load" || fail "h2load: $(cat "$scratch/load")"
after=$(serial)
[ "$before" != "$after" ] || fail "the certificate did not change: $after"
expect 'the number of reloads' 3 "$(grep --count 'read again' "$scratch/tls.log")"

# Client certificates.
port=$(free_port)
plain=$(free_port)
start_blitz clients "$plain" --listen-tls "127.0.0.1:$port" $(pair localhost) --client-ca "$ca" --redirect-https
own=(--cert "$certs/client.example.pem" --key "$certs/client.example.key")
expect 'curl: with a certificate' pong "$(get "${own[@]}" "https://localhost:$port/ping")"
if get "https://localhost:$port/ping" 2>/dev/null; then fail 'curl: accepted without a certificate'; fi
expect_contains 'a certificate is required' 'alert certificate required' "$(client -tls1_3 -ign_eof)"
expect 'curl: from clear text to HTTPS' "https://localhost:$port/ping?x" \
  "$(curl --silent --ipv4 --output /dev/null --write-out '%{redirect_url}' "http://localhost:$plain/ping?x")"
echo "tls: passed"
