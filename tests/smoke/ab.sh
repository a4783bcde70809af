#!/usr/bin/env bash
# ab uses HTTP/1.0: once with a connection per request, once with keep-alive.
set -euo pipefail
base=$1
for keep_alive in '' -k; do
  report=$(ab -q -n 2000 -c 20 -s 10 $keep_alive "$base/hello")
  echo "$report"
  grep --quiet --extended-regexp '^Complete requests: +2000$' <<<"$report"
  grep --quiet --extended-regexp '^Failed requests: +0$' <<<"$report"
  if grep --quiet 'Non-2xx' <<<"$report"; then echo 'some requests were refused' >&2; exit 1; fi
  [ -z "$keep_alive" ] || grep --quiet --extended-regexp '^Keep-Alive requests: +2000$' <<<"$report"
done
