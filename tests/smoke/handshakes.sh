#!/usr/bin/env bash
# TLS handshakes, seen by OpenSSL and Go: suites, key exchange, protocols, names, client certificates,
# and sessions that resume on whichever core answers.
#
# That a ticket of an open listener is worth nothing where certificates are demanded needs two
# policies in one process: crates/http/tests/it/tls_server.rs has that, with rustls as the client.
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
# The same name with another kind of key, so that suites of both kinds could be agreed on.
openssl req -x509 -newkey rsa:2048 -nodes -days 60 -subj /CN=localhost-rsa \
  -addext subjectAltName=DNS:localhost -keyout "$certs/rsa.key" -out "$certs/rsa.pem" 2>/dev/null
pair() { echo "--cert $certs/$1.pem --key $certs/$1.key"; }

plain=$(free_port)
port=$(free_port)
# Without the quotes: a pair is four arguments.
start handshakes "$plain" "$BLITZ" run --cores 2 --listen "127.0.0.1:$plain" \
  --listen-tls "127.0.0.1:$port" $(pair localhost) $(pair rsa) \
  $(pair wildcard.wild.example) $(pair one.wild.example)
server=${started[-1]}
client() { openssl s_client -connect "127.0.0.1:$port" -CAfile "$ca" "$@" </dev/null 2>&1 || true; }
says() { grep --quiet -- "$2" <<<"$3" || fail "openssl: $1: no '$2' in: $3"; }

# Every suite that OpenSSL has, one by one. No CBC, no key exchange by RSA, nothing without forward
# secrecy: only what is listed here.
agreed() {
  sed -n 's/^New, \(TLSv1.[23]\), Cipher is \(.*\)$/\1 \2/p' | grep --invert-match '(NONE)' || true
}
for suite in $(openssl ciphers 'ALL:COMPLEMENTOFALL:@SECLEVEL=0' | tr : ' '); do
  case "$suite" in
    TLS_*) client -servername localhost -tls1_3 -ciphersuites "$suite" | agreed ;;
    *) client -servername localhost -tls1_2 -cipher "$suite:@SECLEVEL=0" | agreed ;;
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
diff "$scratch/wanted" "$scratch/suites" || fail 'these are not the suites that we speak'
for version in 1 1_1; do
  says "TLS $version is refused" 'Cipher is (NONE)' "$(client "-tls$version" -cipher 'ALL:@SECLEVEL=0')"
done
for version in 1_2 1_3; do
  says "TLS $version is spoken" 'Verify return code: 0 (ok)' "$(client "-tls$version" -servername localhost)"
  # A client that would like another protocol more gets HTTP/2 nevertheless.
  says "TLS $version, ALPN" 'ALPN protocol: h2' "$(client "-tls$version" -alpn http/1.1,h2)"
  says "TLS $version, ALPN" 'ALPN protocol: http/1.1' "$(client "-tls$version" -alpn http/1.1)"
  says "TLS $version, ALPN" 'No ALPN negotiated' "$(client "-tls$version")"
  says "TLS $version, ALPN" 'no application protocol' "$(client "-tls$version" -alpn irc)"
done
said=$(client -tls1_2 -servername localhost)
says 'renegotiation' 'Secure Renegotiation IS supported' "$said"
says 'the master secret' 'Extended master secret: yes' "$said"

# The certificate follows the name: itself, the wildcard of its first label, the default.
subject() {
  openssl s_client -connect "127.0.0.1:$port" "$@" </dev/null 2>/dev/null |
    openssl x509 -noout -subject -nameopt multiline | sed -n 's/^ *commonName *= //p'
}
for row in 'one.wild.example one.wild.example' 'other.wild.example *.wild.example' \
  'OTHER.Wild.example *.wild.example' 'a.b.wild.example localhost' 'wild.example localhost' \
  'nobody.example localhost'; do
  expect "the certificate for ${row%% *}" "${row##* }" "$(subject -servername "${row%% *}")"
done
expect 'the certificate without a name' localhost "$(subject -noservername)"
expect 'the certificate for a client that knows RSA only' localhost-rsa \
  "$(subject -servername localhost -sigalgs rsa_pss_rsae_sha256)"

# Go: the hybrid key exchange, and sessions that resume on both cores. How often a core's thread went
# to sleep says how much it had to do: a connection wakes it at least twice.
naps() {
  grep --files-with-matches blitz-core /proc/"$server"/task/*/comm | while read -r name; do
    awk '/^voluntary/ { print $2 }' "${name%comm}status"
  done
}
before=($(naps))
"$smoke_go" handshakes "127.0.0.1:$port" "$ca" || fail 'go: handshakes'
after=($(naps))
expect 'cores' 2 "${#after[@]}"
for core in 0 1; do
  [ $((after[core] - before[core])) -ge 20 ] ||
    fail "core $core had nothing to do: ${before[*]}, then ${after[*]}"
done

# Client certificates: a stranger's is refused, and so is nobody's if one is demanded.
own=(-cert "$certs/client.example.pem" -key "$certs/client.example.key")
foreign=(-cert "$scratch/foreign/stranger.example.pem" -key "$scratch/foreign/stranger.example.key")
# get VERSION FLAGS...: a request whose answer shows that the handshake was accepted to its end.
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
    says "$mode, TLS $version, a good certificate" '200 OK' "$(get $version "${own[@]}")"
    says "$mode, TLS $version, a stranger's" 'alert unknown ca' "$(get $version "${foreign[@]}")"
    said=$(get $version)
    case "$mode" in
      optional) says "$mode, TLS $version, none" '200 OK' "$said" ;;
      required) says "$mode, TLS $version, none" 'alert certificate required' "$said" ;;
    esac
  done
done
echo 'handshakes: everything is fine'
