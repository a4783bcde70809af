#!/usr/bin/env bash
# TLS handshakes with OpenSSL and Go: suites, key exchange, protocols, names, client certificates, and session
# resumption on any core.
#
# The rejection of tickets from a listener with another client-authentication policy needs two policies in one
# process: crates/http/tests/it/tls_server.rs tests it, with rustls as the client.
set -euo pipefail
here=tests/smoke
source "$here/lib.sh"
go_program

certs="$scratch/certs"
for name in localhost '*.wild.example' one.wild.example client.example; do
  "$BLITZ" cert --out "$certs" "$name" >/dev/null
done
ca="$certs/ca.pem"
"$BLITZ" cert --out "$scratch/foreign" stranger.example >/dev/null
# The same name with an RSA key, so that suites of both kinds can be negotiated.
openssl req -x509 -newkey rsa:2048 -nodes -days 60 -subj /CN=localhost-rsa \
  -addext subjectAltName=DNS:localhost -keyout "$certs/rsa.key" -out "$certs/rsa.pem" 2>/dev/null
pair() { echo "--cert $certs/$1.pem --key $certs/$1.key"; }

plain=$(free_port)
port=$(free_port)
# Without quotes: a pair is four arguments.
start handshakes "$plain" "$BLITZ" run --control-listen off --cores 2 --listen "127.0.0.1:$plain" \
  --listen-tls "127.0.0.1:$port" $(pair localhost) $(pair rsa) \
  $(pair wildcard.wild.example) $(pair one.wild.example)
server=${started[-1]}
client() { openssl s_client -connect "127.0.0.1:$port" -CAfile "$ca" "$@" </dev/null 2>&1 || true; }
expect_contains() { grep --quiet -- "$2" <<<"$3" || fail "openssl: $1: no '$2' in: $3"; }

# Every suite of OpenSSL, one by one. Only the listed suites may be negotiated: no CBC, no RSA key exchange,
# none without forward secrecy.
negotiated_suite() {
  sed -n 's/^New, \(TLSv1.[23]\), Cipher is \(.*\)$/\1 \2/p' | grep --invert-match '(NONE)' || true
}
for suite in $(openssl ciphers 'ALL:COMPLEMENTOFALL:@SECLEVEL=0' | tr : ' '); do
  case "$suite" in
    TLS_*) client -servername localhost -tls1_3 -ciphersuites "$suite" | negotiated_suite ;;
    *) client -servername localhost -tls1_2 -cipher "$suite:@SECLEVEL=0" | negotiated_suite ;;
  esac
done | sort >"$scratch/suites"
sort >"$scratch/wanted" <<'SUITES'
TLSv1.2 ECDHE-ECDSA-AES128-GCM-SHA256
TLSv1.2 ECDHE-ECDSA-AES256-GCM-SHA384
TLSv1.2 ECDHE-ECDSA-CHACHA20-POLY1305
TLSv1.2 ECDHE-RSA-AES128-GCM-SHA256
TLSv1.2 ECDHE-RSA-AES256-GCM-SHA384
TLSv1.2 ECDHE-RSA-CHACHA20-POLY1305
TLSv1.3 TLS_AES_128_GCM_SHA256
TLSv1.3 TLS_AES_256_GCM_SHA384
TLSv1.3 TLS_CHACHA20_POLY1305_SHA256
SUITES
diff "$scratch/wanted" "$scratch/suites" || fail 'the negotiated suites differ from the list'
for version in 1 1_1; do
  expect_contains "TLS $version is refused" 'Cipher is (NONE)' "$(client "-tls$version" -cipher 'ALL:@SECLEVEL=0')"
done
for version in 1_2 1_3; do
  expect_contains "TLS $version is supported" 'Verify return code: 0 (ok)' "$(client "-tls$version" -servername localhost)"
  # A client that prefers HTTP/1.1 gets HTTP/2 as well.
  expect_contains "TLS $version, ALPN" 'ALPN protocol: h2' "$(client "-tls$version" -alpn http/1.1,h2)"
  expect_contains "TLS $version, ALPN" 'ALPN protocol: http/1.1' "$(client "-tls$version" -alpn http/1.1)"
  expect_contains "TLS $version, ALPN" 'No ALPN negotiated' "$(client "-tls$version")"
  expect_contains "TLS $version, ALPN" 'no application protocol' "$(client "-tls$version" -alpn irc)"
done
output=$(client -tls1_2 -servername localhost)
expect_contains 'renegotiation' 'Secure Renegotiation IS supported' "$output"
expect_contains 'the master secret' 'Extended master secret: yes' "$output"

# Certificate selection by name: the name itself, the wildcard of its first label, the default.
subject() {
  openssl s_client -connect "127.0.0.1:$port" "$@" </dev/null 2>/dev/null |
    openssl x509 -noout -subject -nameopt multiline | sed -n 's/^ *commonName *= //p'
}
for row in 'one.wild.example one.wild.example' 'other.wild.example *.wild.example' \
  'OTHER.Wild.example *.wild.example' 'a.b.wild.example localhost' 'wild.example localhost' \
  'unknown.example localhost'; do
  expect "the certificate for ${row%% *}" "${row##* }" "$(subject -servername "${row%% *}")"
done
expect 'the certificate without a name' localhost "$(subject -noservername)"
expect 'the certificate for an RSA-only client' localhost-rsa \
  "$(subject -servername localhost -sigalgs rsa_pss_rsae_sha256)"

# Go: the hybrid key exchange, and resumption on both cores. The voluntary context switches of a core's thread
# show its work: each connection causes at least two.
voluntary_switches() {
  grep --files-with-matches blitz-core /proc/"$server"/task/*/comm | while read -r name; do
    awk '/^voluntary/ { print $2 }' "${name%comm}status"
  done
}
before=($(voluntary_switches))
"$smoke_go" handshakes "127.0.0.1:$port" "$ca" || fail 'go: handshakes'
after=($(voluntary_switches))
expect 'cores' 2 "${#after[@]}"
for core in 0 1; do
  [ $((after[core] - before[core])) -ge 20 ] ||
    fail "core $core had no connections: ${before[*]}, then ${after[*]}"
done

# Client certificates: one of an unknown authority is refused; none is refused if one is required.
own=(-cert "$certs/client.example.pem" -key "$certs/client.example.key")
foreign=(-cert "$scratch/foreign/stranger.example.pem" -key "$scratch/foreign/stranger.example.key")
# get VERSION FLAGS...: sends a request, whose response shows that the handshake completed.
get() {
  { printf 'GET /ping HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n'; sleep 0.3; } |
    openssl s_client -connect "127.0.0.1:$port" -CAfile "$ca" -ign_eof -servername localhost \
      "-tls$1" "${@:2}" 2>&1 || true
}
for mode in optional required; do
  plain=$(free_port)
  port=$(free_port)
  start_blitz "clients-$mode" "$plain" --listen-tls "127.0.0.1:$port" $(pair localhost) \
    --client-ca "$ca" --client-auth "$mode"
  for version in 1_2 1_3; do
    expect_contains "$mode, TLS $version, a valid certificate" '200 OK' "$(get $version "${own[@]}")"
    expect_contains "$mode, TLS $version, an unknown authority" 'alert unknown ca' "$(get $version "${foreign[@]}")"
    output=$(get $version)
    case "$mode" in
      optional) expect_contains "$mode, TLS $version, none" '200 OK' "$output" ;;
      required) expect_contains "$mode, TLS $version, none" 'alert certificate required' "$output" ;;
    esac
  done
done
echo 'handshakes: passed'
