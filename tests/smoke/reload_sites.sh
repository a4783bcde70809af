#!/usr/bin/env bash
# Reloads of sites, certificates and listeners under load, with both drivers: wrk, h2load over HTTP/2 and quic-go over
# HTTP/3 at full rate, WebSockets, and a slow download over each version. No request fails and no connection is lost, not
# even WebSockets and downloads of a listener that has gone; broken configurations change nothing.
#
# RELOADS, WEBSOCKETS and DOWNLOAD_MIB make it longer. One of ten configurations is broken then, otherwise one of five.
set -euo pipefail
here=tests/smoke
source "$here/lib.sh"
export PYTHONPATH="$tools/http3:$tools/python"
build_go "$here/go_h3" smoke-go-h3
smoke_go_h3=$go_binary
reloads=${RELOADS:-10}
websockets=${WEBSOCKETS:-20}
download_bytes=$((${DOWNLOAD_MIB:-64} << 20))
broken_every=5
[ "$reloads" -lt 100 ] || broken_every=10
# One of so many reloads closes listeners with WebSockets and downloads.
moving_every=4
# Several seconds at the pace of a slow download.
moving_bytes=$((8 << 20))

certs="$scratch/certs"
for name in 0 1; do
  # The same authority each time.
  "$BLITZ" cert --out "$certs" localhost >/dev/null
  mv "$certs/localhost.pem" "$certs/$name.pem"
  mv "$certs/localhost.key" "$certs/$name.key"
done
ca="$certs/ca.pem"

first=$(free_port)
second=$(free_port)
echo=$(free_port)
start_blitz first "$first"
start_blitz second "$second"
start echo "$echo" python3 "$here/websocket.py" serve "$echo"
upstreams=("$first" "$second")

# configure TURN: writes the configuration of a turn. Its upstream, its certificate, a host and two listeners differ from
# those before.
configure() {
  cp "$certs/$(($1 % 2)).key" "$scratch/site.key"
  cp "$certs/$(($1 % 2)).pem" "$scratch/site.pem"
  cat >"$scratch/blitz.toml" <<TOML
listen = ["127.0.0.1:$plain", "127.0.0.1:$moving"]
listen_tls = ["127.0.0.1:$secure", "127.0.0.1:$moving_tls"]
certificates = ["site.pem"]
[site."localhost"]
to = "http://127.0.0.1:${upstreams[$(($1 % 2))]}"
tls = true
"/socket" = "http://127.0.0.1:$echo"
[site."*"]
to = "http://127.0.0.1:${upstreams[$((($1 + 1) % 2))]}"
"/socket" = "http://127.0.0.1:$echo"
"/turn$1" = "http://127.0.0.1:$first"
[site."turn$1.example"]
"/only" = { to = "http://127.0.0.1:$second", path = "/echo{rest}" }
TOML
}

# spoil TURN: breaks the configuration of the last turn, each time in another way.
spoil() {
  case $(($1 / broken_every % 4)) in
    0) echo 'color = "red"' | cat - "$scratch/blitz.toml" >"$scratch/spoiled" ;;
    1) sed 's/"\/socket" = .*/"\/socket" = "ftp:\/\/localhost"/' "$scratch/blitz.toml" >"$scratch/spoiled" ;;
    2) sed 's/site\.pem/nothing.pem/' "$scratch/blitz.toml" >"$scratch/spoiled" ;;
    3) head -c 300 "$scratch/blitz.toml" >"$scratch/spoiled" ;;
  esac
  cp "$scratch/blitz.toml" "$scratch/good"
  mv "$scratch/spoiled" "$scratch/blitz.toml"
}

presented_serial() {
  openssl s_client -connect "127.0.0.1:$secure" -servername localhost </dev/null 2>/dev/null | openssl x509 -noout -serial
}
reload() { "$BLITZ" reload --control "$scratch/control" >"$scratch/outcome" 2>&1; }
# status_of HOST [PORT]: the status of a path that only the host of the turn has.
status_of() {
  curl --silent --max-time 10 --output /dev/null --write-out '%{http_code}' --header "Host: $1" \
    "http://127.0.0.1:${2:-$plain}/only"
}

# background NAME COMMAND...: runs a client, whose output is in NAME.log.
clients=()
background() {
  local name=$1
  shift
  "$@" >"$scratch/$name.log" 2>&1 &
  started+=("$!")
  clients+=("$name:$!")
}

# move_listeners: chooses other ports for the listeners that come and go.
move_listeners() {
  moving=$(free_port)
  moving_tls=$(free_port)
}

# begin_on_moving TURN: starts clients of the listeners that the next reload closes; they end when "$scratch/stop$1" exists.
begin_on_moving() {
  local version
  rm -f "$scratch/stop$1" "$scratch/stop$1"-*
  background "sockets$1" python3 "$here/reload_clients.py" sockets "ws://127.0.0.1:$moving/socket" \
    "wss://localhost:$moving_tls/socket" "$ca" 2 "$scratch/stop$1"
  for version in 1.1 2 3; do
    background "download$1-$version" python3 "$here/reload_clients.py" download \
      "https://localhost:$moving_tls/data?size=$moving_bytes" "$ca" "$version" "$scratch/stop$1"
  done
  expect_begun "$scratch/stop$1"
}

# expect_begun FILE: waits until the WebSockets and downloads that end with the file have begun.
expect_begun() {
  local name try
  for name in sockets 1.1 2 3; do
    for try in $(seq 300); do
      [ ! -e "$1-$name" ] || continue 2
      sleep 0.1
    done
    fail "$name has not begun after try $try"
  done
}

# expect_closed PORT: the listener refuses connections within a few seconds.
expect_closed() {
  local try code
  for try in $(seq 50); do
    code=0
    curl --silent --max-time 1 --output /dev/null "http://127.0.0.1:$1/" || code=$?
    [ "$code" -ne 7 ] || return 0
    sleep 0.1
  done
  fail "the listener at port $1, which has gone, still accepts after try $try"
}

# begin: starts all clients, which end when "$scratch/stop" exists.
begin() {
  clients=()
  rm -f "$scratch/stop" "$scratch"/stop-*
  repeat h1 wrk --threads 1 --connections 16 --duration 2s "http://127.0.0.1:$plain/hello"
  clients+=("h1:${started[-1]}")
  repeat h2 h2load --duration=2 --clients=4 --max-concurrent-streams=8 --threads=1 "https://localhost:$secure/hello"
  clients+=("h2:${started[-1]}")
  background h3 "$smoke_go_h3" load "https://localhost:$secure/hello" "$ca" "$scratch/stop"
  background sockets python3 "$here/reload_clients.py" sockets "ws://127.0.0.1:$plain/socket" \
    "wss://localhost:$secure/socket" "$ca" $((websockets / 2)) "$scratch/stop"
  local version
  for version in 1.1 2 3; do
    background "download$version" python3 "$here/reload_clients.py" download \
      "https://localhost:$secure/data?size=$download_bytes" "$ca" "$version" "$scratch/stop"
  done
  # Connections and downloads that begin with the first configuration.
  expect_begun "$scratch/stop"
}

# collect CLIENT: waits for a client, which must not have failed.
collect() {
  wait "${1##*:}" || fail "${1%%:*}: $(tail -n 20 "$scratch/${1%%:*}.log")"
}

# reap: collects the clients that have ended. Later a process of the same number would hide their exit codes.
reap() {
  local client process running=()
  for client in "${clients[@]}"; do
    if kill -0 "${client##*:}" 2>/dev/null; then
      running+=("$client")
      continue
    fi
    collect "$client"
    for process in "${!started[@]}"; do
      [ "${started[process]}" != "${client##*:}" ] || unset "started[process]"
    done
  done
  clients=("${running[@]}")
}

# end: lets all clients end, none of which may have failed.
end() {
  local client
  touch "$scratch/stop"
  for client in "${clients[@]}"; do
    collect "$client"
  done
  ! grep --extended-regexp 'Socket errors|Non-2xx' "$scratch/h1.log" || fail 'wrk has lost requests'
  grep --quiet 'requests in' "$scratch/h1.log" || fail 'wrk has no report'
  all_succeeded "$scratch/h2.log" || fail "h2load: $(cat "$scratch/h2.log")"
}

# try IO: the whole check on one driver.
try() {
  local io=$1 turn last=0 server code=0 gone gone_tls
  plain=$(free_port)
  secure=$(free_port)
  move_listeners
  configure 0
  start "reload-$io" "$plain" "$BLITZ" run --control-listen off --config "$scratch/blitz.toml" --control "$scratch/control" --io "$io"
  server=${started[-1]}
  begin
  for turn in $(seq "$reloads"); do
    if [ $((turn % broken_every)) -eq 0 ]; then
      spoil "$turn"
      code=0
      reload || code=$?
      expect "the exit code of a broken configuration: $(cat "$scratch/outcome")" 1 "$code"
      grep --quiet 'the configuration in use stays' "$scratch/outcome" || fail "$(cat "$scratch/outcome")"
      mv "$scratch/good" "$scratch/blitz.toml"
    else
      [ $((turn % moving_every)) -ne 1 ] || begin_on_moving "$turn"
      gone=$moving gone_tls=$moving_tls
      move_listeners
      configure "$turn"
      reload || fail "reload $turn: $(cat "$scratch/outcome")"
      grep --quiet -- "+ turn$turn.example" "$scratch/outcome" || fail "reload $turn: $(cat "$scratch/outcome")"
      for port in "$gone" "$gone_tls"; do
        expect_closed "$port"
      done
      expect "a listener of reload $turn" 200 "$(status_of "turn$turn.example" "$moving")"
      touch "$scratch/stop$turn"
      expect "the host that has gone with reload $turn" 404 "$(status_of "turn$last.example")"
      last=$turn
    fi
    expect "the host of reload $last, after $turn" 200 "$(status_of "turn$last.example")"
    expect "the certificate after reload $turn" \
      "$(openssl x509 -noout -serial -in "$certs/$((last % 2)).pem")" "$(presented_serial)"
    reap
    sleep 0.2
  done
  end
  code=0
  kill "$server"
  wait "$server" || code=$?
  expect "the exit code with $io" 0 "$code"
  echo "reload_sites: $io: $reloads reloads, $(cat "$scratch/sockets.log"), $(cat "$scratch/h3.log")," \
    "$(grep -c '^requests:' "$scratch/h2.log") runs of h2load, $(grep -c 'requests in' "$scratch/h1.log") of wrk"
}

for io in uring epoll; do try "$io"; done
