#!/usr/bin/env bash
# Files that htpasswd and openssl write, and keys of `blitz api-key`, with curl and Python as clients; a changed password
# after a reload.
set -euo pipefail
cd "$(dirname "$0")/../.."
source tests/smoke/lib.sh

users="$scratch/users.htpasswd"
password='correct horse: bättery'
htpasswd -b -c -B -C 5 "$users" bcrypt "$password" 2>/dev/null
htpasswd -b -m "$users" md5 "$password" 2>/dev/null
htpasswd -b -s "$users" sha1 "$password" 2>/dev/null
echo "sha256:$(openssl passwd -5 "$password")" >>"$users"
echo "sha512:$(openssl passwd -6 "$password")" >>"$users"
key=$("$BLITZ" api-key billing 2>&1 >"$scratch/keys")
[[ $key == blitz_* ]] || fail "this is no key: $key"
! grep --quiet --fixed-strings "$key" "$scratch/keys" || fail 'the key is in the file'

port=$(free_port)
cat >"$scratch/blitz.toml" <<TOML
listen = ["127.0.0.1:$port"]
control.socket = "$scratch/control.sock"
control.listen = false
server.cores = 1

[site."*"]
respond = "200 in"
basic_auth = { users_file = "users.htpasswd", realm = "staff" }

"/keys" = { basic_auth = false, api_keys = { file = "keys" } }
TOML
"$BLITZ" check "$scratch/blitz.toml" >"$scratch/check.txt" 2>&1 || fail "$(cat "$scratch/check.txt")"
grep --quiet 'weak-hash' "$scratch/check.txt" || fail 'no warning of weak hashes'
start blitz "$port" "$BLITZ" run --config "$scratch/blitz.toml"

base="http://127.0.0.1:$port"
status() { curl --silent --output /dev/null --max-time 20 --write-out '%{http_code}' "$@"; }
expect() { [ "$2" = "$3" ] || fail "$1: expected $2, got $3"; }

expect 'no password' 401 "$(status "$base/")"
for user in bcrypt md5 sha1 sha256 sha512; do
  expect "$user" 200 "$(status --user "$user:$password" "$base/")"
  expect "$user, known" 200 "$(status --user "$user:$password" "$base/")"
  expect "$user, wrong" 401 "$(status --user "$user:$password!" "$base/")"
  # It asks without a password first, and answers the challenge.
  expect "$user, challenged" 200 "$(status --anyauth --user "$user:$password" "$base/")"
done
python3 - "$base" "$password" <<'PYTHON' || fail 'Python does not get in'
import sys, urllib.error, urllib.request

base, password = sys.argv[1:]
for given, expected in [(password, 200), ("wrong", 401)]:
    # The handler sends a password once it is asked for that realm.
    manager = urllib.request.HTTPPasswordMgr()
    manager.add_password("staff", base, "bcrypt", given)
    opener = urllib.request.build_opener(urllib.request.HTTPBasicAuthHandler(manager))
    try:
        status = opener.open(base + "/", timeout=20).status
    except urllib.error.HTTPError as error:
        status = error.code
    assert status == expected, (given, status)
PYTHON
expect 'no key' 401 "$(status "$base/keys")"
expect 'the key' 200 "$(status --header "X-Api-Key: $key" "$base/keys")"
expect 'another key' 401 "$(status --header "X-Api-Key: ${key}x" "$base/keys")"

htpasswd -b -B -C 5 "$users" bcrypt 'another one' 2>/dev/null
"$BLITZ" reload --control "$scratch/control.sock" >"$scratch/reload.txt" 2>&1 || fail "$(cat "$scratch/reload.txt")"
expect 'the earlier password' 401 "$(status --user "bcrypt:$password" "$base/")"
expect 'the new password' 200 "$(status --user 'bcrypt:another one' "$base/")"
expect 'the password of another user' 200 "$(status --user "sha512:$password" "$base/")"
echo 'passwords: htpasswd, openssl, curl and Python are fine'
