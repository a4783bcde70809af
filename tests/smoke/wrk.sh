#!/usr/bin/env bash
# wrk: a hundred connections for three seconds without a failed request.
set -euo pipefail
base=$1
report=$(wrk --threads 1 --connections 100 --duration 3s "$base/hello")
echo "$report"
if grep --quiet --extended-regexp 'Socket errors|Non-2xx' <<<"$report"; then
  echo 'some requests failed' >&2
  exit 1
fi
requests=$(sed --quiet 's/^ *\([0-9]*\) requests in .*/\1/p' <<<"$report")
[ "${requests:-0}" -gt 1000 ] || { echo "only ${requests:-0} requests" >&2; exit 1; }
