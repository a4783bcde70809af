#!/usr/bin/env bash
# The access log against h2load's own counts: with logrotate, rsyslog and a full disk.
set -euo pipefail
cd "$(dirname "$0")/../.."
source tests/smoke/lib.sh
requests=5000

upstream=$(free_port)
start_blitz upstream "$upstream"

# logging NAME PORT DESTINATION CONTROL_PORT: a gateway with this access log.
logging() {
  cat >"$scratch/$1.toml" <<CONF
control = { listen = "127.0.0.1:$4", socket = false }
listen = ["127.0.0.1:$2"]
log.access = "$3"

[site."*"]
to = "http://127.0.0.1:$upstream"
"/limited" = { allow = ["192.0.2.0/24"], respond = 204 }
CONF
  start "$1" "$2" "$BLITZ" run --config "$scratch/$1.toml" --cores 2
}

# load PORT PATH: sends requests over HTTP/1.1 and HTTP/2, half each.
load() {
  local protocol
  for protocol in --h1 --no-tls-proto=h2c; do
    h2load --requests=$((requests / 2)) --clients=20 "$protocol" "http://127.0.0.1:$1$2" >"$scratch/h2load" 2>&1 ||
      fail "h2load: $(cat "$scratch/h2load")"
    grep -q "$((requests / 2)) done" "$scratch/h2load" || fail "h2load: $(cat "$scratch/h2load")"
  done
}

# lines EXPECTED FILE...: waits until the files have as many lines, each of them an object.
lines() {
  local expected=$1 tries
  shift
  for tries in $(seq 100); do
    [ "$(cat "$@" 2>/dev/null | wc -l)" -ne "$expected" ] || break
    sleep 0.1
  done
  cat "$@" | python3 -c '
import json, sys
lines = [json.loads(line) for line in sys.stdin]
assert len(lines) == int(sys.argv[1]), f"{len(lines)} lines, not {sys.argv[1]}"
assert all(line["ended"] in ("complete", "rejected") for line in lines)
' "$expected" || fail "the lines of $* are wrong"
}

# logrotate moves the file under load.
port=$(free_port)
mkdir "$scratch/logs"
logging rotated "$port" "$scratch/logs/access.log" "$(free_port)"
pid=${started[-1]}
cat >"$scratch/logrotate.conf" <<CONF
$scratch/logs/access.log {
  rotate 100
  nocompress
  postrotate
    kill -USR1 $pid
  endscript
}
CONF
chmod 644 "$scratch/logrotate.conf"
chmod 755 "$scratch/logs"
(
  while [ ! -e "$scratch/stop" ]; do
    logrotate --force --state "$scratch/logrotate.state" "$scratch/logrotate.conf" || exit
    sleep 0.2
  done
) >"$scratch/logrotate.log" 2>&1 &
rotating=$!
started+=("$rotating")
load "$port" /hello
load "$port" /limited
touch "$scratch/stop"
wait "$rotating" || fail "logrotate failed"
lines $((2 * requests)) "$scratch"/logs/access.log*
[ "$(ls "$scratch/logs" | wc -l)" -ge 3 ] || fail "logrotate has moved no file"
grep -c '"status":403' "$scratch"/logs/access.log* | awk -F: -v expected="$requests" \
  '{ sum += $2 } END { exit sum != expected }' || fail "not all rejected requests have a line"
echo "logrotate: $((2 * requests)) requests, as many lines in $(ls "$scratch/logs" | wc -l) files"

# rsyslog over a unix socket.
port=$(free_port)
cat >"$scratch/rsyslog.conf" <<CONF
module(load="imuxsock" SysSock.Use="off")
input(type="imuxsock" Socket="$scratch/syslog.sock" CreatePath="on" RateLimit.Interval="0" useSpecialParser="off")
template(name="message" type="string" string="%APP-NAME% %msg%\n")
action(type="omfile" file="$scratch/syslog.out" template="message")
CONF
rsyslogd -n -f "$scratch/rsyslog.conf" -i "$scratch/rsyslog.pid" >"$scratch/rsyslogd.log" 2>&1 &
started+=("$!")
for tries in $(seq 100); do [ -S "$scratch/syslog.sock" ] && break || sleep 0.1; done
logging syslog "$port" "syslog:$scratch/syslog.sock" "$(free_port)"
load "$port" /hello
for tries in $(seq 100); do
  [ "$(wc -l <"$scratch/syslog.out" 2>/dev/null || echo 0)" -ne "$requests" ] || break
  sleep 0.1
done
sed -n 's/^blitz *//p' "$scratch/syslog.out" >"$scratch/syslog.lines"
lines "$requests" "$scratch/syslog.lines"
echo "rsyslog: $requests messages"

# A full disk, and one that has room again.
port=$(free_port)
mkdir "$scratch/disk"
mount -t tmpfs -o size=256k tmpfs "$scratch/disk" ||
  { echo 'full disk: not tried, since nothing may be mounted here' && exit; }
trap 'umount --lazy "$scratch/disk"; cleanup' EXIT
control=$(free_port)
logging full "$port" "$scratch/disk/access.log" "$control"
load "$port" /hello
[ "$(df --output=avail "$scratch/disk" | tail -n 1)" -eq 0 ] || fail "the disk is not full"
# A line that the full disk has torn is not counted, and not whole.
written=$(wc -l <"$scratch/disk/access.log")
dropped() {
  curl --silent --show-error --fail --max-time 10 "http://127.0.0.1:$control/metrics" |
    sed -n 's/^blitz_access_log_lines_dropped_total //p'
}
for tries in $(seq 50); do
  sum=$((written + $(dropped)))
  [ "$sum" -lt $((requests - 1)) ] || break
  sleep 0.1
done
[ "$sum" -eq "$requests" ] || [ "$sum" -eq $((requests - 1)) ] ||
  fail "$requests requests, but $written lines were written and $(dropped) dropped"
: >"$scratch/disk/access.log"
sleep 1
curl --silent --show-error --fail --max-time 10 --output "$scratch/response" "http://127.0.0.1:$port/hello?room"
for tries in $(seq 100); do ! grep -q 'room' "$scratch/disk/access.log" || break; sleep 0.1; done
grep -q '"path":"/hello?\*\*\*"' "$scratch/disk/access.log" || fail "nothing is written after the disk has room again"
grep -q 'dropped' "$scratch/full.log" || fail "dropped lines are not told"
echo "full disk: all requests answered, and lines after it"
