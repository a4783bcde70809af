#!/usr/bin/env bash
# sslyze: checks a listener against Mozilla's intermediate profile, and against the modern one, which must
# fail.
set -euo pipefail
here=tests/smoke
source "$here/lib.sh"
export PYTHONPATH="$tools/sslyze" PYTHONWARNINGS=ignore

"$BLITZ" cert --out "$scratch" localhost >/dev/null
plain=$(free_port)
port=$(free_port)
start_blitz sslyze "$plain" --listen-tls "127.0.0.1:$port" \
  --cert "$scratch/localhost.pem" --key "$scratch/localhost.key"

# ids PROFILE: prints the violations of Mozilla's profile, an id per line.
ids() {
  python3 -m sslyze --mozilla_config="$1" --certinfo_ca_file="$scratch/ca.pem" \
    "localhost:$port" >"$scratch/sslyze-$1.log" || true
  grep --quiet --extended-regexp 'OK - Compliant|FAILED - Not compliant' "$scratch/sslyze-$1.log" ||
    fail 'sslyze did not complete'
  sed -n '/^ COMPLIANCE/,$s/^ *\* \([a-z_0-9]*\): .*/\1/p' "$scratch/sslyze-$1.log"
}
ids intermediate | python3 "$here/findings.py" sslyze "$here/findings.txt" ||
  fail "$(sed -n '/^ COMPLIANCE/,$p' "$scratch/sslyze-intermediate.log")"
# The modern profile excludes TLS 1.2, which Blitz supports.
ids modern | grep --quiet tls_versions || fail 'sslyze does not report TLS 1.2'
