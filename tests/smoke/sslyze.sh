#!/usr/bin/env bash
# sslyze: a listener measured against Mozilla's intermediate profile, and against the modern one, which it
# has to find fault with.
set -euo pipefail
here=tests/smoke
source "$here/lib.sh"
export PYTHONPATH="$tools/sslyze" PYTHONWARNINGS=ignore

"$BLITZ" cert --out "$scratch" localhost >/dev/null
plain=$(free_port)
port=$(free_port)
start_blitz sslyze "$plain" --listen-tls "127.0.0.1:$port" \
  --cert "$scratch/localhost.pem" --key "$scratch/localhost.key"

# ids PROFILE: what of Mozilla's profile is not kept, an id per line.
ids() {
  python3 -m sslyze --mozilla_config="$1" --certinfo_ca_file="$scratch/ca.pem" \
    "localhost:$port" >"$scratch/sslyze-$1.log" || true
  grep --quiet --extended-regexp 'OK - Compliant|FAILED - Not compliant' "$scratch/sslyze-$1.log" ||
    fail 'sslyze did not do its work'
  sed -n '/^ COMPLIANCE/,$s/^ *\* \([a-z_0-9]*\): .*/\1/p' "$scratch/sslyze-$1.log"
}
ids intermediate | python3 "$here/findings.py" sslyze "$here/findings.txt" ||
  fail "$(sed -n '/^ COMPLIANCE/,$p' "$scratch/sslyze-intermediate.log")"
# The modern profile has no TLS 1.2, which we speak.
ids modern | grep --quiet tls_versions || fail 'sslyze does not see that TLS 1.2 is spoken'
