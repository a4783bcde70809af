#!/usr/bin/env bash
# testssl.sh: protocols, suites, preferences, the certificate, headers and all known attacks. What it
# finds is in findings.txt with a reason, or the test fails.
set -euo pipefail
here=tests/smoke
source "$here/lib.sh"

"$BLITZ" cert --out "$scratch" localhost >/dev/null
plain=$(free_port)
port=$(free_port)
start_blitz testssl "$plain" --listen-tls "127.0.0.1:$port" \
  --cert "$scratch/localhost.pem" --key "$scratch/localhost.key"

# Without the simulated clients and the list of every suite, which take longer and find nothing more.
# Its exit code counts what is odd, as the report does. Its openssl ends at times before it has read a
# ticket to come back with; then it has not tried to resume, and has to scan again.
report="$scratch/report.json"
program=$(command -v testssl || command -v testssl.sh)
for _ in 1 2 3; do
  rm -f "$report"
  "$program" --quiet --color 0 --nodns none --warnings batch --ip 127.0.0.1 --add-ca "$scratch/ca.pem" \
    --protocols --std --fs --server-preference --server-defaults --headers --vulnerable \
    --jsonfile "$report" "https://localhost:$port/" >"$scratch/testssl.log" 2>&1 || true
  grep -q 'check failed because of connect problem' "$report" || break
done

python3 - "$report" >"$scratch/ids" <<'PYTHON' || fail 'testssl.sh did not do its work'
import json
import sys

with open(sys.argv[1], encoding="utf-8") as report:
    said = {row["id"]: (row["severity"], row["finding"]) for row in json.load(report)}
# A scan that was cut short finds nothing bad: some of what only a whole one says.
for name in ("TLS1_3", "ALPN_HTTP2", "cipherlist_NULL", "cert_chain_of_trust", "secure_client_renego",
             "heartbleed", "LUCKY13", "RC4"):
    assert said.get(name, ("",))[0] == "OK", f"{name}: {said.get(name)}"
# Of the machine's openssl, which has no suites of GOST to offer; not of Blitz.
said.pop("engine_problem", None)
for name, (severity, finding) in said.items():
    if severity not in ("OK", "INFO", "DEBUG"):
        print(name)
        print(f"testssl: {severity} {name}: {finding}", file=sys.stderr)
PYTHON
python3 "$here/findings.py" testssl "$here/findings.txt" <"$scratch/ids" || fail 'the list is not what was found'
