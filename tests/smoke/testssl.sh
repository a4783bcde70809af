#!/usr/bin/env bash
# testssl.sh: protocols, suites, preferences, the certificate, headers and all known attacks. Every finding
# must be listed in findings.txt with a reason.
set -euo pipefail
here=tests/smoke
source "$here/lib.sh"

"$BLITZ" cert --out "$scratch" localhost >/dev/null
plain=$(free_port)
port=$(free_port)
start_blitz testssl "$plain" --listen-tls "127.0.0.1:$port" \
  --cert "$scratch/localhost.pem" --key "$scratch/localhost.key"

# Simulated clients and the list of all suites are left out: they take longer and find nothing more. The exit
# code counts findings, which the report lists as well. Its openssl sometimes ends before it has read a ticket;
# resumption is then untested, and the scan is repeated.
report="$scratch/report.json"
program=$(command -v testssl || command -v testssl.sh)
for _ in 1 2 3; do
  rm -f "$report"
  "$program" --quiet --color 0 --nodns none --warnings batch --ip 127.0.0.1 --add-ca "$scratch/ca.pem" \
    --protocols --std --fs --server-preference --server-defaults --headers --vulnerable \
    --jsonfile "$report" "https://localhost:$port/" >"$scratch/testssl.log" 2>&1 || true
  grep -q 'check failed because of connect problem' "$report" || break
done

python3 - "$report" >"$scratch/ids" <<'PYTHON' || fail 'testssl.sh did not complete'
import json
import sys

with open(sys.argv[1], encoding="utf-8") as report:
    findings = {row["id"]: (row["severity"], row["finding"]) for row in json.load(report)}
# An incomplete scan has no bad findings, so some findings of a complete scan are required.
for name in ("TLS1_3", "ALPN_HTTP2", "cipherlist_NULL", "cert_chain_of_trust", "secure_client_renego",
             "heartbleed", "LUCKY13", "RC4"):
    assert findings.get(name, ("",))[0] == "OK", f"{name}: {findings.get(name)}"
# About the machine's openssl, which has no GOST suites, and not about Blitz.
findings.pop("engine_problem", None)
# Its openssl has ended early each time. The smoke tests tls and handshakes resume sessions with other clients.
if "connect problem" in findings.get("sessionresumption_ticket", ("", ""))[1]:
    print("testssl: resumption is not tested", file=sys.stderr)
    findings.pop("sessionresumption_ticket")
for name, (severity, finding) in findings.items():
    if severity not in ("OK", "INFO", "DEBUG"):
        print(name)
        print(f"testssl: {severity} {name}: {finding}", file=sys.stderr)
PYTHON
python3 "$here/findings.py" testssl "$here/findings.txt" <"$scratch/ids" || fail 'the findings differ from the list'
