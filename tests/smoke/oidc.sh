#!/usr/bin/env bash
# An OpenID provider, oidc-provider: tokens that it has signed pass, also after it has rotated its keys and while it is
# away.
set -euo pipefail
here=tests/smoke
source "$here/lib.sh"
export TOOLS="$tools/oidc"

# key_set FILE NAME...: a set with the private keys of these names, each of which is made once.
key_set() {
  node - "$scratch" "$@" <<'NODE'
const { generateKeyPairSync } = require('node:crypto');
const { existsSync, readFileSync, writeFileSync } = require('node:fs');
const [folder, file, ...names] = process.argv.slice(2);
const keys = names.map((name) => {
  const stored = `${folder}/${name}.key`;
  if (!existsSync(stored)) {
    const jwk = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey.export({ format: 'jwk' });
    writeFileSync(stored, JSON.stringify({ ...jwk, kid: name, alg: 'ES256', use: 'sig' }));
  }
  return JSON.parse(readFileSync(stored, 'utf8'));
});
writeFileSync(file, JSON.stringify({ keys }));
NODE
}

provider=$(free_port)
# start_provider NAME...: starts it with these keys, of which the first signs; stop_provider ends it.
start_provider() {
  key_set "$scratch/keys.json" "$@"
  start "provider-$1" "$provider" node "$here/oidc_provider.mjs" "$provider" "$scratch/keys.json"
}
stop_provider() {
  kill "${started[-1]}"
  wait "${started[-1]}" 2>/dev/null || true
  unset 'started[-1]'
}

token() {
  curl -sf -u app:not%20secret -d grant_type=client_credentials -d scope=read "http://127.0.0.1:$provider/token" |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["access_token"])'
}

# status PORT TOKEN: the status of a request with the token.
status() {
  curl -s -o /dev/null -w '%{http_code}' -H "Authorization: Bearer $2" -H 'Host: a.example' "http://127.0.0.1:$1/"
}

# expect NAME PORT TOKEN STATUS: waits for the status, as keys are fetched beside requests.
expect() {
  local tries last
  for tries in $(seq 300); do
    last=$(status "$2" "$3")
    [ "$last" != "$4" ] || return 0
    sleep 0.1
  done
  fail "$1: $last, and not $4"
}

start_provider one
keys_url=$(curl -sf "http://127.0.0.1:$provider/.well-known/openid-configuration" |
  python3 -c 'import json, sys; print(json.load(sys.stdin)["jwks_uri"])')
port=$(free_port)
cat >"$scratch/blitz.toml" <<TOML
control = false
listen = ["127.0.0.1:$port"]

[site."a.example"]
respond = "200 in"
jwt = { keys_url = "$keys_url", issuer = "http://127.0.0.1:$provider", audience = "api", scopes = "read" }
TOML
export XDG_STATE_HOME="$scratch/state"
start blitz "$port" "$BLITZ" run --config "$scratch/blitz.toml" --cores 1
blitz_at=$((${#started[@]} - 1))
first=$(token)
expect 'a token of the first key' "$port" "$first" 200
[ "$(status "$port" "${first%?????}AAAAA")" = 401 ] || fail 'a forged token passes'

# The second key signs, and tokens of the first are still valid.
kill "${started[0]}"
wait "${started[0]}" 2>/dev/null || true
start_provider two one
second=$(token)
expect 'a token of the second key' "$port" "$second" 200
expect 'a token of the first key after the rotation' "$port" "$first" 200
stop_provider

# The first key is withdrawn: a token of a third one has the keys fetched.
start_provider three two
third=$(token)
expect 'a token of the third key' "$port" "$third" 200
expect 'a token of the withdrawn key' "$port" "$first" 401
expect 'a token of the second key, which is still there' "$port" "$second" 200
stop_provider

# The provider is away: keys in use stay, and a new process has those that were stored.
expect 'a token while the provider is away' "$port" "$third" 200
kill "${started[$blitz_at]}"
wait "${started[$blitz_at]}" 2>/dev/null || true
start blitz-again "$port" "$BLITZ" run --config "$scratch/blitz.toml" --cores 1
expect 'a token after a start while the provider is away' "$port" "$third" 200
expect 'a token of the withdrawn key after a start' "$port" "$first" 401
echo 'tokens of a provider pass over two rotations of its keys, and while it is away'
