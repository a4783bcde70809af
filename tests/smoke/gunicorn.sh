#!/usr/bin/env bash
# gunicorn with one worker that reads whole requests: a slow upload with `buffer_request` leaves the worker to others, and
# a chunked upload reaches WSGI with its length.
set -euo pipefail
cd "$(dirname "$0")/../.."
here=tests/smoke
source "$here/lib.sh"
export PYTHONPATH="$tools/django:$here" PYTHONDONTWRITEBYTECODE=1

upstream=$(free_port)
start gunicorn "$upstream" python3 -m gunicorn --bind "127.0.0.1:$upstream" --workers 1 --no-control-socket \
  --worker-tmp-dir "$scratch" gunicorn_site:application
head -c 300000 /dev/urandom >"$scratch/file"

for io in uring epoll; do
  port=$(free_port)
  cat >"$scratch/blitz.toml" <<CONF
control = false
listen = ["127.0.0.1:$port"]
server.io = "$io"

[site."*"]
to = "http://127.0.0.1:$upstream"
buffer_request = "1m"
"/small".buffer_request = "1k"
"/file".buffer_request = { memory = "64k", file = "1m" }
CONF
  start "blitz-$io" "$port" "$BLITZ" run --control-listen off --config "$scratch/blitz.toml" --cores 1
  base="http://127.0.0.1:$port"
  get() { curl --silent --show-error --max-time 10 "$@"; }

  # Takes two seconds.
  get --fail --limit-rate 150k --data-binary "@$scratch/file" --output "$scratch/slow" "$base/" &
  slow=$!
  started+=("$slow")
  sleep 0.3
  for number in $(seq 20); do
    expect "quick request $number" '0 of none' "$(get --max-time 1 "$base/")"
  done
  kill -0 "$slow" 2>/dev/null || fail 'the slow upload was not slow'
  wait "$slow" || fail 'the slow upload failed'
  expect 'the slow upload' '300000 of 300000' "$(cat "$scratch/slow")"

  expect 'a chunked upload' '300000 of 300000' \
    "$(get --header 'Transfer-Encoding: chunked' --data-binary "@$scratch/file" "$base/")"
  expect 'a chunked upload through a file' '300000 of 300000' \
    "$(get --header 'Transfer-Encoding: chunked' --data-binary "@$scratch/file" "$base/file")"
  expect 'an upload beyond the size' 413 \
    "$(get --output /dev/null --write-out '%{http_code}' --data-binary "@$scratch/file" "$base/small")"
  echo "gunicorn: $io passed"
done
