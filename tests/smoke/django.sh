#!/usr/bin/env bash
# A Django site on gunicorn behind the proxy, used by curl as by a browser, over HTTP/1.1 and over HTTP/2 with TLS,
# on both drivers: addresses, a form with its CSRF checks, a session, redirects, an upload and a stream.
set -euo pipefail
here=tests/smoke
source "$here/lib.sh"
export PYTHONPATH="$tools/django:$here" PYTHONDONTWRITEBYTECODE=1

upstream=$(free_port)
start gunicorn "$upstream" python3 -m gunicorn --bind "127.0.0.1:$upstream" --threads 4 --no-control-socket \
  --forwarded-allow-ips 192.0.2.1 --worker-tmp-dir "$scratch" django_site:application
"$BLITZ" cert --out "$scratch" localhost >/dev/null
head -c 8000000 /dev/urandom >"$scratch/ünïcode file.bin"
digest=$(sha256sum <"$scratch/ünïcode file.bin")

# visit VERSION BASE: all checks over one version of HTTP.
visit() {
  local version=$1 base=$2 jar="$scratch/jar" token tag stream wait
  local scheme=${base%%:*} secure=false
  [ "$scheme" = http ] || secure=true
  rm -f "$jar"
  get() {
    curl --silent --show-error --max-time 20 --ipv4 "--http$version" --cacert "$scratch/ca.pem" \
      --cookie "$jar" --cookie-jar "$jar" "$@"
  }
  status() { get --output "$scratch/response" --write-out '%{http_code} %{redirect_url}' "$@"; }

  expect 'the facts that Django sees' \
    "{\"url\": \"$base/facts/?a=%2F\", \"secure\": $secure, \"client\": \"127.0.0.1\", \"peer\": \"127.0.0.1\"}" \
    "$(get --header 'X-Forwarded-For: 192.0.2.1' --header 'X-Forwarded-Host: evil.example' \
      --header 'X-Forwarded-Proto: https, http' "$base/facts/?a=%2F")"
  expect 'the version' "$version" "$(get --output /dev/null --write-out '%{http_version}' "$base/greeting/")"
  expect 'the redirect to the slash' "301 $base/form/?x=1" "$(status "$base/form?x=1")"

  # The form, compressed; then as a browser sends it, and as another site would.
  token=$(get --compressed "$base/form/" | sed -n 's/.*value="\([^"]*\)".*/\1/p')
  [ -n "$token" ] || fail 'the form has no token'
  post() { status --data-urlencode 'name=Zoë & co' --data "csrfmiddlewaretoken=$token" "$@" "$base/form/"; }
  expect 'the form with the origin' "302 $base/greeting/" "$(post --header "Origin: $base")"
  expect 'the session' 'Hello, Zoë & co!' "$(get "$base/greeting/")"
  expect 'the form with the referrer' "302 $base/greeting/" "$(post --referer "$base/form/")"
  expect 'the form from another origin' '403 ' "$(post --header "Origin: $scheme://other.example")"
  expect 'the form without a token' '403 ' "$(status --data name=x --header "Origin: $base" "$base/form/")"
  [ "$scheme" = http ] || expect 'the form without a referrer' '403 ' "$(post)"
  expect 'the redirect that is followed' 'Hello, second!' \
    "$(get --location --data "name=second&csrfmiddlewaretoken=$token" --header "Origin: $base" "$base/form/")"

  tag=$(get --dump-header - --output /dev/null "$base/greeting/" | sed -n 's/^etag: \(.*\)\r$/\1/Ip')
  expect 'an unchanged page' '304 ' "$(status --header "If-None-Match: $tag" "$base/greeting/")"

  get --fail --form 'note=ein Gruß' --form "file=@$scratch/ünïcode file.bin" --header "Origin: $base" \
    --form "csrfmiddlewaretoken=$token" --dump-header "$scratch/head" --output "$scratch/response" "$base/upload/" ||
    fail 'the upload failed'
  expect 'the digest of the upload' "${digest%% *}" "$(sed -n 's/^x-digest: \(.*\)\r$/\1/Ip' "$scratch/head")"
  expect 'the digest of the download' "$digest" "$(sha256sum <"$scratch/response")"
  expect 'the note' 'ein Gru\xdf' "$(sed -n 's/^x-note: \(.*\)\r$/\1/Ip' "$scratch/head")"
  expect 'the name' '\xfcn\xefcode file.bin' "$(sed -n 's/^x-name: \(.*\)\r$/\1/Ip' "$scratch/head")"

  # The first line of the stream arrives before the second exists.
  get --no-buffer --output "$scratch/stream" "$base/stream/" &
  stream=$!
  started+=("$stream")
  for wait in $(seq 100); do
    [ ! -s "$scratch/stream" ] || break
    sleep 0.05
  done
  expect 'the beginning of the stream' first "$(cat "$scratch/stream")"
  expect 'the release' '204 ' "$(status "$base/release/")"
  wait "$stream" || fail 'the stream failed'
  expect 'the whole stream' $'first\nsecond' "$(cat "$scratch/stream")"
  rm "$scratch/stream"
}

for io in uring epoll; do
  plain=$(free_port)
  port=$(free_port)
  start_blitz "blitz-$io" "$plain" --io "$io" --to "http://127.0.0.1:$upstream" \
    --listen-tls "127.0.0.1:$port" --cert "$scratch/localhost.pem" --key "$scratch/localhost.key"
  visit 1.1 "http://localhost:$plain"
  visit 2 "https://localhost:$port"
  echo "django: $io passed"
done
