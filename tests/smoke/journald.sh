#!/usr/bin/env bash
# The access log in systemd's journal: a daemon in a mount namespace of its own has an entry for each request, and clients
# forge none.
set -euo pipefail
cd "$(dirname "$0")/../.."
requests=4000

not_tried() {
  echo "journald: not tried, since $1"
  exit
}

if [ -z "${IN_NAMESPACE:-}" ]; then
  rooted=()
  [ "$(id -u)" = 0 ] || rooted=(--user --map-root-user)
  unshare "${rooted[@]}" --mount mount -t tmpfs tmpfs /run 2>/dev/null || not_tried 'nothing may be mounted here'
  exec env IN_NAMESPACE=yes unshare "${rooted[@]}" --mount "$0"
fi
source tests/smoke/lib.sh

# The daemon has its configuration, its sockets and its files in /run.
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/journal /run/systemd/journald.conf.d /run/log/journal
if ! grep -Eq '^[0-9a-f]{32}$' /etc/machine-id 2>/dev/null; then
  [ -e /etc/machine-id ] || not_tried 'there is no /etc/machine-id'
  tr -d - </proc/sys/kernel/random/uuid >"$scratch/machine-id"
  mount --bind "$scratch/machine-id" /etc/machine-id
fi
cat >/run/systemd/journald.conf.d/smoke.conf <<'CONF'
[Journal]
Storage=volatile
RateLimitIntervalSec=0
ReadKMsg=no
Audit=no
ForwardToWall=no
CONF
/lib/systemd/systemd-journald >"$scratch/journald.log" 2>&1 &
journald=$!
started+=("$journald")
for tries in $(seq 100); do
  [ ! -S /run/systemd/journal/socket ] || break
  kill -0 "$journald" 2>/dev/null || not_tried "journald does not run here: $(tail -n 1 "$scratch/journald.log")"
  sleep 0.1
done
[ -S /run/systemd/journal/socket ] || fail 'journald has no socket'

upstream=$(free_port)
start_blitz upstream "$upstream"
port=$(free_port)
cat >"$scratch/blitz.toml" <<CONF
control = { listen = false, socket = false }
listen = ["127.0.0.1:$port"]
log.access = "journal"

[site."*"]
to = "http://127.0.0.1:$upstream"
CONF
start blitz "$port" "$BLITZ" run --config "$scratch/blitz.toml" --cores 2
blitz=${started[-1]}

for protocol in --h1 --no-tls-proto=h2c; do
  h2load --requests=$((requests / 2)) --clients=20 "$protocol" "http://127.0.0.1:$port/hello" >"$scratch/h2load" 2>&1 ||
    fail "h2load: $(cat "$scratch/h2load")"
  grep -q "$((requests / 2)) done" "$scratch/h2load" || fail "h2load: $(cat "$scratch/h2load")"
done
hostile=$(python3 tests/smoke/journald.py send "$port")

# Without --all values of more than 4 KiB are left out.
journal() { journalctl --all --directory=/run/log/journal --no-pager --quiet --output=json --identifier=blitz; }
expected=$((requests + hostile))
for tries in $(seq 100); do
  journal >"$scratch/entries" 2>"$scratch/journalctl.log" || true
  [ "$(wc -l <"$scratch/entries")" -lt "$expected" ] || break
  sleep 0.1
done
python3 tests/smoke/journald.py check "$expected" "$blitz" <"$scratch/entries" || fail 'the entries are wrong'

# A new daemon gets the entries after it.
kill "$journald"
wait "$journald" 2>/dev/null || true
/lib/systemd/systemd-journald >"$scratch/journald.log" 2>&1 &
started+=("$!")
for tries in $(seq 100); do [ ! -S /run/systemd/journal/socket ] || break; sleep 0.1; done
sleep 0.5
curl --silent --show-error --fail --max-time 10 --output "$scratch/response" "http://127.0.0.1:$port/hello?later"
for tries in $(seq 100); do
  journal >"$scratch/entries" 2>"$scratch/journalctl.log" || true
  [ "$(wc -l <"$scratch/entries")" -lt $((expected + 1)) ] || break
  sleep 0.1
done
python3 tests/smoke/journald.py check $((expected + 1)) "$blitz" <"$scratch/entries" ||
  fail 'there is no entry after a restart of journald'
echo "journald: $((expected + 1)) requests, as many entries, none of them forged"
